"""Writes step.mlir: one module with kernels of several projects' names, as JAX lowers it for a TPU on any machine.

    python examples/kernels/make.py

The kernels are stand-ins that add one. Only their names, scopes and metadata are as those projects write them.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def add_one(x_ref, out_ref):
    out_ref[...] = x_ref[...] + 1


def kernel(x, name, **metadata):
    """A Pallas kernel of this name, which says this of itself."""
    said = {"xprof_metadata": json.dumps(metadata)} if metadata else None
    return pl.pallas_call(add_one, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), name=name, metadata=said)(x)


def step(x):
    for _ in range(2):
        x = kernel(x, "RPAd-p_64-bq_8_8-bkv_512_256")
    x = kernel(x, "gmm_v2-g_8-m_2048-k_1024-act_None-n_768-tm_512-tk_1024-tn_768")
    with jax.named_scope("quantized_matmul_kernel_128_128_128"):
        x = kernel(x, "matmul_kernel")
    x = kernel(x, "splash_mha_fwd_residuals", block_q=512, block_kv=512, block_kv_compute=256)
    return kernel(x, "somebody_elses")


if __name__ == "__main__":
    lowered = jax.jit(step).trace(jax.ShapeDtypeStruct((8, 128), jnp.float32)).lower(lowering_platforms=("tpu",))
    text = lowered.as_text(debug_info=True)
    here = str(pathlib.Path(__file__).resolve().parents[2]) + "/"
    pathlib.Path(__file__).with_name("step.mlir").write_text(text.replace(here, ""))
