"""A plain blocked function: recorded, tuned, and run with its best config.

pip install '.[jax]'
python examples/tunable/blocked_matmul.py
"""

import tempfile

import jax
import jax.numpy as jnp
import tuning
from jax import lax

import autotune_lowered


@autotune_lowered.tunable(
    op="rows_matmul",
    version=1,
    space={"block_m": [8, 32, 128, 512], "block_n": [64, 256]},
    constraints=[
        lambda config, arrays: arrays["x"].shape[0] % config["block_m"] == 0,
        lambda config, arrays: arrays["w"].shape[1] % config["block_n"] == 0,
    ],
    fills={"w": {"kind": "normal", "scale": 0.0625}},
)
def matmul(x, w, *, block_m=8, block_n=64):
    """`x @ w` in blocks of the result; `x` is `[rows, depth]`, `w` is `[depth, columns]`."""
    rows, columns = x.shape[0] // block_m, w.shape[1] // block_n

    def tile(index):
        left = lax.dynamic_slice_in_dim(x, index // columns * block_m, block_m, 0)
        return left @ lax.dynamic_slice_in_dim(w, index % columns * block_n, block_n, 1)

    tiles = lax.map(tile, jnp.arange(rows * columns)).reshape(rows, columns, block_m, block_n)
    return tiles.swapaxes(1, 2).reshape(x.shape[0], w.shape[1])


def step(x, w):
    return jax.nn.relu(matmul(x, w))


def main():
    x = jax.random.normal(jax.random.key(0), (512, 256))
    w = jax.random.normal(jax.random.key(1), (256, 512)) / 16
    jitted = jax.jit(step)
    before = jitted(x, w)
    with tempfile.TemporaryDirectory() as folder:
        best = tuning.best_configs(step, (x, w), folder)
    with autotune_lowered.overlay(best):
        # traced again, although it was already jitted and called
        after = jitted(x, w)
    print("largest difference:", float(jnp.abs(after - before).max()))


if __name__ == "__main__":
    main()
