"""A Pallas-Triton matrix product, for `make.py`."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

import autotune_lowered

TARGETS = ["a100_sxm_80", "h100_sxm"]
SIZE = 1024
CONFIGS = [
    {"block_m": m, "block_n": n, "block_k": k, "num_warps": warps, "num_stages": stages}
    for m, n, k, warps, stages in [
        (64, 64, 32, 4, 3),
        (64, 64, 64, 4, 2),
        (64, 128, 32, 4, 4),
        (128, 64, 64, 4, 3),
        (128, 128, 32, 4, 2),
        (128, 128, 64, 4, 3),
        (128, 128, 128, 4, 4),
        (128, 256, 64, 8, 3),
        (256, 128, 128, 8, 3),
        (256, 256, 64, 8, 4),
    ]
]


def kernel(x_ref, y_ref, o_ref, *, block_k):
    block_m, block_n = o_ref.shape

    def step(index, sums):
        part = pl.ds(index * block_k, block_k)
        return sums + jnp.dot(x_ref[:, part], y_ref[part, :], preferred_element_type=jnp.float32)

    zeros = jnp.zeros((block_m, block_n), jnp.float32)
    o_ref[...] = jax.lax.fori_loop(0, SIZE // block_k, step, zeros).astype(o_ref.dtype)


@autotune_lowered.tunable(op="triton_matmul", version=1, candidates=CONFIGS)
def triton_matmul(x, y, *, block_m=64, block_n=64, block_k=32, num_warps=4, num_stages=3):
    return pl.pallas_call(
        lambda *refs: kernel(*refs, block_k=block_k),
        out_shape=jax.ShapeDtypeStruct((SIZE, SIZE), x.dtype),
        grid=(SIZE // block_m, SIZE // block_n),
        in_specs=[
            pl.BlockSpec((block_m, SIZE), lambda i, j: (i, 0)),
            pl.BlockSpec((SIZE, block_n), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        compiler_params=plgpu.CompilerParams(num_warps=num_warps, num_stages=num_stages),
    )(x, y)


SQUARE = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)
# each operation with its configs and the shapes of its arguments
OPERATIONS = [(triton_matmul, CONFIGS, [SQUARE, SQUARE])]
