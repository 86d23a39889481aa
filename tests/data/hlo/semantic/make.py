"""Lowers one function under two file paths, two scopes and two module names, and two functions that differ from it.

Run as `python make.py FOLDER_OF_KERN a` and, with a copy of kern.py elsewhere that begins with other lines, `… b`.
"""

import sys

import jax
import jax.numpy as jnp

folder, prefix = sys.argv[1:]
sys.path.insert(0, folder)
import kern  # noqa: E402

SHAPES = (
    jax.ShapeDtypeStruct((3, 8, 8), jnp.float32),
    jax.ShapeDtypeStruct((8, 8), jnp.float32),
    jax.ShapeDtypeStruct((4,), jnp.int32),
)


def write(name, function):
    jitted = jax.jit(function)
    lowered = jitted.lower(*SHAPES)
    exported = jax.export.export(jitted, platforms=["cpu"])(*SHAPES)
    open(f"{prefix}.{name}.mlirbc", "wb").write(exported.mlir_module_serialized)
    open(f"{prefix}.{name}.mlir", "w").write(lowered.as_text(debug_info=True))
    open(f"{prefix}.{name}.plain.mlir", "w").write(lowered.as_text())
    open(f"{prefix}.{name}.pb", "wb").write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


LABEL = "ejkernel_ops#f@v1:0123456789abcdef"
if prefix == "a":
    write("base", kern.make(LABEL))
    write("k3", kern.make(LABEL, k=3.0))
    write("flip", kern.make(LABEL, flip=True))
else:
    renamed = kern.make("another/longer_scope")
    renamed.__name__ = "renamed"
    write("base", renamed)
