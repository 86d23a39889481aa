"""Mosaic GPU kernels for an H100, for `make.py`: a matrix product by `wgmma`, and a norm of rows."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import autotune_lowered

# `wgmma` is an instruction of compute capability 9.0
TARGETS = ["h100_sxm"]
SIZE = 1024
MATMULS = [
    {"block_m": m, "block_n": n, "block_k": k, "steps": steps}
    for m, n, k, steps in [
        (64, 64, 64, 2),
        (64, 64, 64, 4),
        (128, 64, 64, 2),
        (64, 128, 64, 3),
        # more shared memory than an H100 has
        (128, 256, 64, 4),
    ]
]


@autotune_lowered.tunable(op="mosaic_matmul", version=1, candidates=MATMULS)
def mosaic_matmul(x, y, *, block_m=64, block_n=64, block_k=64, steps=2):
    bits = 8 * block_k * x.dtype.itemsize
    swizzle = plgpu.find_swizzle(bits)
    tiled = (plgpu.TilingTransform((8, swizzle // x.dtype.itemsize)), plgpu.SwizzleTransform(swizzle))

    def kernel(x_ref, y_ref, o_ref, sums, block):
        row, column = pl.program_id(0), pl.program_id(1)

        def step(_, x_block, y_block):
            plgpu.wgmma(sums, x_block, y_block)
            # the product of the step before is done, and its blocks are free
            plgpu.wgmma_wait(1)

        def spec(shape, place):
            return plgpu.BlockSpec(shape, place, transforms=tiled, delay_release=1)

        plgpu.emit_pipeline(
            step,
            grid=(SIZE // block_k,),
            in_specs=[
                spec((block_m, block_k), lambda index: (row, index)),
                spec((block_k, block_n), lambda index: (index, column)),
            ],
            max_concurrent_steps=steps,
        )(x_ref, y_ref)
        block[...] = sums[...].astype(o_ref.dtype)
        plgpu.commit_smem()
        part = o_ref.at[pl.ds(row * block_m, block_m), pl.ds(column * block_n, block_n)]
        plgpu.copy_smem_to_gmem(block, part)
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct((SIZE, SIZE), x.dtype),
        scratch_types=[plgpu.ACC((block_m, block_n)), plgpu.SMEM((block_m, block_n), x.dtype, transforms=tiled)],
        grid=(SIZE // block_m, SIZE // block_n),
        grid_names=("rows", "columns"),
    )(x, y)


NORMS = [{"rows": rows} for rows in (64, 128)]


@autotune_lowered.tunable(op="mosaic_norm", version=1, candidates=NORMS)
def mosaic_norm(x, *, rows=64):
    """Each row over the root of its mean square."""
    height, width = x.shape

    def kernel(x_ref, o_ref, x_block, o_block, arrived):
        part = pl.ds(pl.program_id(0) * rows, rows)
        plgpu.copy_gmem_to_smem(x_ref.at[part], x_block, arrived)
        plgpu.barrier_wait(arrived)
        values = plgpu.load(x_block, layout=plgpu.Layout.WGMMA, optimized=False).astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.sum(values * values, axis=1) / width + 1e-6)
        o_block[...] = (values * jax.lax.broadcast_in_dim(scale, values.shape, [0])).astype(o_ref.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(o_block, o_ref.at[part])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        kernel,
        out_type=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_types=[plgpu.SMEM((rows, width), x.dtype), plgpu.SMEM((rows, width), x.dtype), plgpu.Barrier()],
        grid=(height // rows,),
        grid_names=("rows",),
    )(x)


SQUARE = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)
# each operation with its configs and the shapes of its arguments
OPERATIONS = [
    (mosaic_matmul, MATMULS, [SQUARE, SQUARE]),
    (mosaic_norm, NORMS, [jax.ShapeDtypeStruct((8 * SIZE, 32), jnp.bfloat16)]),
]
