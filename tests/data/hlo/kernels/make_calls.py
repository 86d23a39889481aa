"""Writes calls.*: one module in five forms, with a call of a Triton kernel by each of jaxlib's custom calls, and one of
two kernels that are chosen from as they run. jaxlib's own code for GPUs, which needs none, makes their messages:

    python tests/data/hlo/kernels/make_calls.py    # with JAX 0.10.2 and jax-cuda13-plugin
"""

import json
import pathlib
import zlib

from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import gpu_triton, xla_client
from jaxlib.mlir import ir
from make import write

PARAMETERS = [gpu_triton.create_array_parameter(0, 16)] * 2


def kernel_call(name, warps, grid):
    kernel = gpu_triton.TritonKernel(name, warps, 1, 1024, "// code\n" * 200, "", 90)
    return gpu_triton.TritonKernelCall(kernel, *grid, PARAMETERS)


def message(call, name, metadata=None):
    compressed = zlib.compress(call.to_proto(name, json.dumps(metadata or {}).encode()))
    return "".join(f"\\{byte:02X}" for byte in compressed)


def module_text():
    add = message(kernel_call("add_rows", 8, (300, 2, 1)), "add", {"block": 64})
    old = message(kernel_call("scale_rows", 2, (70, 1, 1)), "scale")
    several = [(kernel_call("tune_rows", warps, (9, 1, 1)), f"BLOCK: {warps}") for warps in (2, 4)]
    chosen = message(gpu_triton.TritonAutotunedKernelCall("tune_rows", several, []), "tune")
    return f"""
module @calls {{
  func.func public @main(%arg0: tensor<64x32xf32>) -> tensor<64x32xf32> {{
    %0 = stablehlo.custom_call @triton_kernel_call_ffi(%arg0) {{api_version = 4 : i32, backend_config = {{name = "add_rows", opaque = "{add}"}}}} : (tensor<64x32xf32>) -> tensor<64x32xf32> loc("jit(step)/add")
    %1 = stablehlo.custom_call @triton_kernel_call(%0) {{api_version = 2 : i32, backend_config = "{old}"}} : (tensor<64x32xf32>) -> tensor<64x32xf32> loc("jit(step)/scale")
    %2 = stablehlo.custom_call @triton_kernel_call(%1) {{api_version = 2 : i32, backend_config = "{chosen}"}} : (tensor<64x32xf32>) -> tensor<64x32xf32> loc("jit(step)/tune")
    return %2 : tensor<64x32xf32>
  }}
}}
"""


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(module_text())
        bytecode = write(module, "calls")
        computation = xla_client._xla.mlir.mlir_module_to_xla_computation(bytecode)
    (here / "calls.hlo.pb").write_bytes(computation.as_serialized_hlo_module_proto())
    (here / "calls.hlo.txt").write_text(computation.as_hlo_text())
