"""A matrix product in blocks, at three sizes with 32 configs each. The best is the whole matrix or close to it."""

import itertools

import jax
import jax.numpy as jnp
from jax import lax

OP = "blocked_matmul"
# rows and columns of both factors
CASES = {"matmul-64": 64, "matmul-256": 256, "matmul-512": 512}


def configs(size):
    """Blocks of rows and columns from an eighth of the matrix to all of it; the contracted dimension whole or in four."""
    blocks = [size // 8, size // 4, size // 2, size]
    space = itertools.product(blocks, blocks, [size // 4, size])
    return [{"block_m": m, "block_n": n, "block_k": k} for m, n, k in space]


def baseline(size):
    """The choice of a heuristic without measurements: square blocks of a quarter, all three alike."""
    return {"block_m": size // 4, "block_n": size // 4, "block_k": size // 4}


def function(config):
    """`x @ w`: a loop over blocks of the result, and inside it a loop over the contracted dimension."""
    m, n, k = config["block_m"], config["block_n"], config["block_k"]

    def product(x, w):
        (rows, depth), columns = x.shape, w.shape[1]

        def block(index):
            row, column = index // (columns // n) * m, index % (columns // n) * n
            part = lambda i: lax.dynamic_slice(x, (row, i * k), (m, k)) @ lax.dynamic_slice(w, (i * k, column), (k, n))
            return lax.fori_loop(0, depth // k, lambda i, total: total + part(i), jnp.zeros((m, n), x.dtype))

        blocks = lax.map(block, jnp.arange(rows // m * (columns // n)))
        return blocks.reshape(rows // m, columns // n, m, n).swapaxes(1, 2).reshape(rows, columns)

    return product


def specs(size):
    """The arguments by name."""
    return {name: jax.ShapeDtypeStruct((size, size), jnp.float32) for name in ("x", "w")}


def scales(size):
    """The arguments' standard deviations, so that elements of the product stay near one."""
    return {"x": 1.0, "w": size**-0.5}
