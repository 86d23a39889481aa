"""Writes `indices_in_loops.mlir`, with locations: rows added at `ids`, slices that a loop takes from `at` on, rows taken by `tokens`."""

import pathlib

import jax
import jax.numpy as jnp
from jax import lax


def step(table, ids, rows, at, tokens):
    added = table.at[ids].add(rows)

    def counted(i, carried):
        return carried + lax.dynamic_slice(added, (at + i, 0), (8, 64)) + added[tokens[i]]

    def scanned(carried, token):
        return carried + added[token], carried.sum()

    slices = lax.fori_loop(0, 3, counted, jnp.zeros((8, 64)))
    taken, _ = lax.scan(scanned, slices[0], tokens)
    return slices.sum() + taken.sum()


shapes = [((1000, 64), "float32"), ((256,), "int32"), ((256, 64), "float32"), ((), "int32"), ((5,), "int32")]
lowered = jax.jit(step).lower(*[jax.ShapeDtypeStruct(*one) for one in shapes])
path = pathlib.Path(__file__).with_name("indices_in_loops.mlir")
path.write_text(lowered.as_text(debug_info=True).replace(str(path.parent), "/src"))
