"""Writes `interfaces.json.zst`: programs as in `forms.json.zst`, each with its interface as its own source shows it.

An entry also has: the arguments, each with its path, whether it is donated, and how many values it has as an index; the names of the
results.
"""

import json
import pathlib
import subprocess
import sys

from make_forms import SCOPE, forms, shown

import jax
import jax.numpy as jnp
from jax import lax

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "interfaces.json.zst")


def indexed(table, ids, at, cell):
    """Rows by ids, slices of 8 rows and of 3 columns, a cell, and rows in a loop, which are found through a jitted function."""
    rows = jax.jit(lambda where: table[where])(ids["rows"])
    part = lax.dynamic_slice(table, (at, 0), (8, 16)) + lax.dynamic_slice(table, (0, cell[1]), (8, 3)).sum()
    last = lax.fori_loop(0, 3, lambda i, where: (table[where].sum() > 0).astype(jnp.int32) + where, ids["first"])
    with jax.named_scope(SCOPE):
        return {"rows": jnp.sin(rows), "part": part, "cell": table[cell[0], 2], "last": last}


def in_batches(tables, ids, rows):
    """The batches of a gather and of a scatter are those of the tables."""
    with jax.named_scope(SCOPE):
        taken = jax.vmap(lambda table, ids: table[ids])(tables, ids)
    return taken, jax.vmap(lambda table, ids, rows: table.at[ids].add(rows))(tables, ids, rows)


def stepped(state, ids, batch):
    """Donated arguments, a row that is set, a slice that is written, and names beyond ASCII."""
    table = state["table"].at[ids].set(batch["Größe"])
    with jax.named_scope(SCOPE):
        table = jnp.sin(lax.dynamic_update_slice(table, batch["Größe"], (state["at"], 0)))
    return {"table": table, "at": state["at"] + 1}, {'the "loss"': table.sum()}


def interfaces():
    """Programs with their arguments, which of these are donated, their results' names, and how many values each argument has as an index."""
    table, row = jnp.ones((50, 16)), jnp.int32(0)
    ids = {"first": row, "rows": jnp.zeros(4, jnp.int32)}
    state, batch = {"table": table, "at": row}, {"Größe": jnp.ones((4, 16))}
    tables, many, rows = jnp.ones((2, 50, 16)), jnp.zeros((2, 4), jnp.int32), jnp.ones((2, 4, 16))
    return [
        (
            ("indexed", indexed, (table, ids, row, (row, row))),
            [["table", False, None], ["ids/first", False, 50], ["ids/rows", False, 50], ["at", False, 43]]
            + [["cell/0", False, 50], ["cell/1", False, 14]],
            ["cell", "last", "part", "rows"],
        ),
        (
            ("in_batches", in_batches, (tables, many, rows)),
            [["tables", False, None], ["ids", False, 50], ["rows", False, None]],
            ["0", "1"],
        ),
        (
            ("stepped", jax.jit(stepped, donate_argnums=0), (state, jnp.zeros(4, jnp.int32), batch)),
            [["state/at", True, 47], ["state/table", True, None], ["ids", False, 50], ["batch/Größe", False, None]],
            ["0/at", "0/table", '1/the "loss"'],
        ),
    ]


def main():
    lines = []
    for (name, function, values), arguments, results in interfaces():
        lowered = (function if hasattr(function, "lower") else jax.jit(function)).lower(*values)
        written = {form: shown(bytes) for form, bytes in forms(lowered).items()}
        interface = {"arguments": arguments, "results": results}
        lines.append(json.dumps({"name": name, "jax": jax.__version__, "interface": interface, "forms": written}))
    text = ("[" + ",\n".join(lines) + "]\n").encode()
    OUT.write_bytes(subprocess.run(["zstd", "-19", "-q", "-c"], input=text, stdout=subprocess.PIPE, check=True).stdout)
    print(len(lines), "programs", len(text), "bytes", OUT.stat().st_size, "packed")


if __name__ == "__main__":
    main()
