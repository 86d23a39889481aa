"""Writes launch.mlir, and the same module as bytecode and as a portable artifact: one Triton kernel as JAX lowers it for
a GPU on any machine.

    python tests/data/hlo/kernels/make.py
"""

import io
import pathlib

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxlib.mlir.dialects import stablehlo


def add_one(x_ref, out_ref):
    out_ref[...] = x_ref[...] + 1


def step(x):
    return pl.pallas_call(
        add_one,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(300, 2),
        in_specs=[pl.BlockSpec((16, 16), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((16, 16), lambda i, j: (i, j)),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=3),
        name="mha_forward",
    )(x)


def write(module, name):
    """Writes a module as text, as bytecode and as a portable artifact; gives the bytecode."""
    here = pathlib.Path(__file__).resolve().parent
    (here / f"{name}.mlir").write_text(module.operation.get_asm(enable_debug_info=True))
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    (here / f"{name}.mlirbc").write_bytes(bytecode.getvalue())
    portable = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    (here / f"{name}.portable.mlirbc").write_bytes(portable)
    return bytecode.getvalue()


if __name__ == "__main__":
    lowered = jax.jit(step).trace(jax.ShapeDtypeStruct((4800, 32), jnp.float32)).lower(lowering_platforms=("cuda",))
    module = lowered.compiler_ir()
    text = module.operation.get_asm(enable_debug_info=True)
    # the path of this checkout
    root = str(pathlib.Path(__file__).resolve().parents[4]) + "/"
    with module.context:
        write(type(module).parse(text.replace(root, "")), "launch")
