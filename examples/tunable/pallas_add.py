"""A Pallas kernel in interpret mode, so that it runs on any machine: recorded, tuned, and run with its best config.

pip install '.[jax]'
python examples/tunable/pallas_add.py
"""

import tempfile

import jax
import jax.numpy as jnp
import tuning
from jax.experimental import pallas as pl

import autotune_lowered


@autotune_lowered.tunable(
    op="pallas_add",
    version=1,
    space={"block": [256, 1024, 4096, 16384]},
    constraints=[lambda config, arrays: arrays["x"].shape[0] % config["block"] == 0],
)
def add(x, y, *, block=256):
    """`x + y` of vectors, one block per grid step."""

    def kernel(x_block, y_block, out_block):
        out_block[...] = x_block[...] + y_block[...]

    blocks = pl.BlockSpec((block,), lambda index: (index,))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (x.shape[0] // block,)
    call = pl.pallas_call(kernel, shape, grid=grid, in_specs=[blocks, blocks], out_specs=blocks, interpret=True)
    return call(x, y)


def main():
    x, y = jnp.arange(16384.0), jnp.ones(16384)
    jitted = jax.jit(add)
    before = jitted(x, y)
    with tempfile.TemporaryDirectory() as folder:
        best = tuning.best_configs(add, (x, y), folder)
    with autotune_lowered.overlay(best):
        # traced again, although it was already jitted and called
        after = jitted(x, y)
    print("equal:", bool((after == before).all()))


if __name__ == "__main__":
    main()
