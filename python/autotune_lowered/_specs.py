"""Element types and shapes of arrays in XLA's spelling: `f32[2,128]`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

# numpy's names of element types to XLA's
_XLA_NAMES = {
    "bool": "pred", "int2": "s2", "int4": "s4", "int8": "s8", "int16": "s16", "int32": "s32", "int64": "s64",
    "uint2": "u2", "uint4": "u4", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128",
    "float8_e5m2": "f8e5m2", "float8_e4m3": "f8e4m3", "float8_e4m3fn": "f8e4m3fn", "float8_e3m4": "f8e3m4",
    "float8_e4m3b11fnuz": "f8e4m3b11fnuz", "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e8m0fnu": "f8e8m0fnu", "float4_e2m1fn": "f4e2m1fn",
}  # fmt: skip
_NUMPY_NAMES = {xla: numpy for numpy, xla in _XLA_NAMES.items()}


def dtype_name(dtype: Any) -> str:
    """XLA's name of an element type; for an unknown one, its own name with the prefix of XLA's."""
    name = getattr(dtype, "name", None) or str(dtype)
    return _XLA_NAMES.get(name) or name.replace("float8_", "f8").replace("float4_", "f4").replace("float6_", "f6")


def spell(array: Any) -> str:
    """Element type and shape of anything with `shape` and `dtype`."""
    return f"{dtype_name(array.dtype)}[{','.join(str(size) for size in array.shape)}]"


def spec_text(array: Any) -> str:
    """As `spell`, of sizes that are known. Raises ValueError for an element type that XLA does not name."""
    name = dtype_name(array.dtype)
    if name not in _NUMPY_NAMES:
        raise ValueError(f"an array of `{array.dtype}` cannot be recorded: pass its data as plain integers")
    return f"{name}[{','.join(str(int(size)) for size in array.shape)}]"


def struct(shape: Sequence[int], like: Any) -> Any:
    """A `jax.ShapeDtypeStruct` of an array's type, which is weak where the array's is."""
    import jax

    if getattr(like, "weak_type", False):
        with contextlib.suppress(TypeError):  # JAX has it since 0.4.31
            return jax.ShapeDtypeStruct(tuple(shape), like.dtype, weak_type=True)
    return jax.ShapeDtypeStruct(tuple(shape), like.dtype)


def spec_from_text(text: str) -> Any:
    """`f32[2,128]` as a `jax.ShapeDtypeStruct`."""
    import jax

    name, _, sizes = text.rstrip("]").partition("[")
    shape = tuple(int(size) for size in sizes.split(",") if size)
    return jax.ShapeDtypeStruct(shape, jax.numpy.dtype(_NUMPY_NAMES[name]))
