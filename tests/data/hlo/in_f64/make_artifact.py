"""Writes `narrow.mlirbc`, a portable artifact with a matrix product in bf16, constants, softmax in f32 and a loop, and
`wide.mlirbc`: its text with every float type replaced, read and written by MLIR. `narrow_sum.mlirbc` sums 512 terms in
bf16. JAX 0.10.2.

python make_artifact.py
"""

import re

import jax
import jax.numpy as jnp
from jax import export, lax
from jax._src.interpreters import mlir
from jaxlib import _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo


def function(x, w):
    y = jnp.tanh(x @ w) + jnp.array([0.125, 0.25, -3.0, 96.0], jnp.bfloat16)
    weights = jax.nn.softmax(y.astype(jnp.float32), -1)

    def step(carry, value):
        return carry * jnp.float32(0.875) + value, carry

    # one type of zeros, because MLIR makes one constant of equal ones in `f64`
    _, states = lax.scan(step, jnp.zeros((4,), jnp.float32), weights)
    return states.astype(jnp.bfloat16), weights, jnp.argmax(weights, -1)


def narrow_sum(x):
    return lax.reduce(x, jnp.bfloat16(0), lax.add, (1,))


arguments = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in [(4, 8), (8, 4)]]
exported = export.export(jax.jit(function))(*arguments).mlir_module_serialized
summed = export.export(jax.jit(narrow_sum))(jax.ShapeDtypeStruct((4, 512), jnp.bfloat16)).mlir_module_serialized
with open("narrow_sum.mlirbc", "wb") as file:
    file.write(summed)
with mlir.make_ir_context() as context:
    narrow = str(stablehlo.deserialize_portable_artifact(context, exported))
    # minus infinity is the only number that the text writes in bits
    wide = narrow.replace("0xFF800000", "0xFFF0000000000000")
    wide = re.sub(r"(?<![a-z0-9])((?:\d+x)*)(?:bf16|f32)\b", r"\1f64", wide)
    for name, text in [("narrow", narrow), ("wide", wide)]:
        bytecode = mlir.module_to_bytecode(ir.Module.parse(text))
        with open(name + ".mlirbc", "wb") as file:
            file.write(_jax.mlir.serialize_portable_artifact(bytecode, "1.15.0", True))
