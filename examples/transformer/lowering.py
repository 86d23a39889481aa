"""Functions lowered to portable programs that do not depend on where they were recorded."""

import hashlib
import re

import jax
import jax.numpy as jnp
from jax import export
from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

# old enough for plugins of early 2025; nothing in the recorded operations needs a newer one
TARGET_VERSION = "1.8.0"


def lower(function, specs, platform):
    """Lowers a function of positional arrays for one platform.

    Returns the portable artifact, the semantic digest (SHA-256 of the StableHLO text without debug information, module
    named `@module`), the targets of its custom calls, and the indices of the arguments that the program takes.
    """
    # keep_unused stays off: an argument that the kernel ignores is not one of the program's
    exported = export.export(jax.jit(function), platforms=[platform])(*specs)
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(exported.mlir_module())
        module.operation.attributes["sym_name"] = ir.StringAttr.get("module")
        passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
        text = module.operation.get_asm(enable_debug_info=False).strip()
        artifact = stablehlo.serialize_portable_artifact(module, TARGET_VERSION)
    calls = sorted(set(re.findall(r'custom_call @"?([\w.$-]+)', text)))
    return artifact, hashlib.sha256(text.encode()).hexdigest(), calls, exported.module_kept_var_idx


def with_vjp(function, specs):
    """Returns the function with its vector-Jacobian product: one cotangent, of the output, comes after the arguments.

    Also returns the cotangent's spec. Integer arguments have no cotangents.
    """
    real = [index for index, spec in enumerate(specs) if jnp.issubdtype(spec.dtype, jnp.inexact)]

    def forward_and_backward(*arguments):
        *arguments, cotangent = arguments

        def of_real(*values):
            filled = list(arguments)
            for index, value in zip(real, values):
                filled[index] = value
            return function(*filled)

        output, pullback = jax.vjp(of_real, *(arguments[index] for index in real))
        return output, pullback(cotangent)

    return forward_and_backward, jax.eval_shape(function, *specs)
