"""A masked softmax and a matrix product by blocks: 36 configs.

The best config has middle blocks: small blocks are many, and large ones compute masked elements.
"""

import itertools

import jax
import jax.numpy as jnp
from jax import lax

OP = "softmax_matmul"
# rows, as many as elements in the contracted dimension, and columns
CASES = {"softmax-matmul": (2048, 64)}


def configs(shape):
    """Blocks of rows and of the contracted dimension from 32 to all of them."""
    rows, _ = shape
    blocks = [32, 64, 128, 256, 512, rows]
    return [{"block_m": m, "block_k": k} for m, k in itertools.product(blocks, blocks)]


def baseline(shape):
    """The choice of a heuristic without measurements: few rows at a time, so that they stay in the cache."""
    return {"block_m": 32, "block_k": 128}


def function(config):
    """`softmax(x) @ w` of the lower triangle of `x`: a loop over blocks of rows, and in it two loops up to the
    diagonal."""
    m, k = config["block_m"], config["block_k"]

    def softmax_product(x, w):
        rows, columns = x.shape[0], w.shape[1]

        def of_rows(row):
            def scores(block):
                is_above = block * k + jnp.arange(k) > row + jnp.arange(m)[:, None]
                return jnp.where(is_above, -jnp.inf, lax.dynamic_slice(x, (row, block * k), (m, k)))

            blocks = (row + m - 1) // k + 1
            most = lax.fori_loop(
                0, blocks, lambda block, most: jnp.maximum(most, scores(block).max(-1)), jnp.full(m, -jnp.inf)
            )

            def add(block, state):
                total, product = state
                weights = jnp.exp(scores(block) - most[:, None])
                return total + weights.sum(-1), product + weights @ lax.dynamic_slice(w, (block * k, 0), (k, columns))

            total, product = lax.fori_loop(0, blocks, add, (jnp.zeros(m), jnp.zeros((m, columns))))
            return product / total[:, None]

        return lax.map(of_rows, jnp.arange(0, rows, m)).reshape(rows, columns)

    return softmax_product


def specs(shape):
    """The arguments by name."""
    rows, columns = shape
    shapes = {"x": (rows, rows), "w": (rows, columns)}
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}


def scales(shape):
    """The arguments' standard deviations: the softmax selects few elements, so that their mean stays near one."""
    return {"x": 3.0, "w": 1.0}
