"""Writes programs with indices, and what JAX takes for an index.

`indices_in_loops`, as text with locations and as `HloModuleProto`: rows added at `ids`, slices that a loop takes from `at` on, rows
taken by `tokens`. `embedding.hlo.pb`: rows taken, slices, rows set. `embedding.json`: of each argument of `embedding`, how many of
the numbers from 0 on JAX takes as they are when it runs the program; others are filled, dropped or clamped.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

HERE = pathlib.Path(__file__).parent
# no folder of the machine that this runs on stands in what is committed
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")


def step(table, ids, rows, at, tokens):
    added = table.at[ids].add(rows)

    def counted(i, carried):
        return carried + lax.dynamic_slice(added, (at + i, 0), (8, 64)) + added[tokens[i]]

    def scanned(carried, token):
        return carried + added[token], carried.sum()

    slices = lax.fori_loop(0, 3, counted, jnp.zeros((8, 64)))
    taken, _ = lax.scan(scanned, slices[0], tokens)
    return slices.sum() + taken.sum()


def embedding(table, ids, wide, at, put, kept, count):
    """`ids` out of range give NaN, `wide` is of 16 bits, `at` and `put` are clamped, `kept` out of range is dropped, `count` is none."""
    taken = jnp.take(table, ids, axis=0, mode="fill", fill_value=jnp.nan)
    others = table.at[wide.astype(jnp.int32)].get(mode="fill", fill_value=jnp.nan)
    part = lax.dynamic_slice(table, (at, 0), (8, 4))
    placed = lax.dynamic_update_slice(table, -jnp.ones((3, 4)), (jnp.clip(put, 0, 1000), 0))
    dropped = jax.jit(lambda rows, where: rows.at[where].set(-1, mode="drop"))(table, kept)
    return taken, others, part, placed, dropped, count.astype(jnp.float32)


def write(name, lowered):
    (HERE / f"{name}.hlo.pb").write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def taken_as_they_are():
    """By argument, how many numbers of 0 to 99 JAX takes for what they are, found by running the program with each."""
    rows = np.arange(200, dtype=np.float32).reshape(50, 4)
    run = jax.jit(embedding)

    def outputs(**given):
        usual = {name: np.zeros(2, np.int16 if name == "wide" else np.int32) for name in ["ids", "wide", "kept"]}
        scalars = {name: np.int32(0) for name in ["at", "put", "count"]}
        return [np.asarray(one) for one in run(rows, **{**usual, **scalars, **given})]

    def both(number, dtype=np.int32):
        return np.array([number, number], dtype)

    is_taken = {
        "ids": lambda number: bool(np.isfinite(outputs(ids=both(number))[0]).all()),
        "wide": lambda number: bool(np.isfinite(outputs(wide=both(number, np.int16))[1]).all()),
        "at": lambda number: outputs(at=np.int32(number))[2][0, 0] == 4 * number,
        "put": lambda number: (
            number < 50
            and bool((outputs(put=np.int32(number))[3][number] == -1).all())
            and (number == 0 or bool((outputs(put=np.int32(number))[3][number - 1] != -1).all()))
        ),
        "kept": lambda number: bool((outputs(kept=both(number))[4] == -1).any()),
    }
    counts = {name: sum(bool(one(number)) for number in range(100)) for name, one in is_taken.items()}
    return [None, *[counts[name] for name in ["ids", "wide", "at", "put", "kept"]], None]


shapes = [((1000, 64), "float32"), ((256,), "int32"), ((256, 64), "float32"), ((), "int32"), ((5,), "int32")]
loops = jax.jit(step).lower(*[jax.ShapeDtypeStruct(*one) for one in shapes])
(HERE / "indices_in_loops.mlir").write_text(loops.as_text(debug_info=True))
write("indices_in_loops", loops)
one, two = ((), "int32"), ((2,), "int32")
shapes = [((50, 4), "float32"), two, ((2,), "int16"), one, one, two, one]
write("embedding", jax.jit(embedding).lower(*[jax.ShapeDtypeStruct(*one) for one in shapes]))
(HERE / "embedding.json").write_text(json.dumps({"in_range": taken_as_they_are()}) + "\n")
