"""Makes a Pallas matrix product for a TPU, on any machine: StableHLO, and the same as an HloModuleProto.

    python tests/data/targets/mosaic.py

writes `mosaic_matmul.mlir` and `mosaic_matmul.hlo.pb` beside itself, with JAX 0.10.2 and no TPU. The grid is 4 × 4 × 3.
"""

import os
import pathlib

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

# no folder of the machine that this runs on stands in what is committed
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

HERE = pathlib.Path(__file__).resolve().parent


def kernel(x, y, out):
    @pl.when(pl.program_id(2) == 0)
    def _():
        out[...] = jnp.zeros_like(out)

    out[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)


def matmul(x, y, block_m=128, block_n=256, block_k=128):
    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        grid=(m // block_m, n // block_n, k // block_k),
        in_specs=[
            pl.BlockSpec((block_m, block_k), lambda i, j, step: (i, step)),
            pl.BlockSpec((block_k, block_n), lambda i, j, step: (step, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j, step: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32),
        name="matmul",
    )(x, y)


if __name__ == "__main__":
    x, y = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in [(512, 384), (384, 1024)])
    lowered = jax.jit(matmul).trace(x, y).lower(lowering_platforms=("tpu",))
    (HERE / "mosaic_matmul.mlir").write_text(lowered.as_text())
    (HERE / "mosaic_matmul.hlo.pb").write_bytes(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
