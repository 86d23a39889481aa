"""The key of a call: a description of its arguments, with one spelling for every process, machine and JAX version.

    call_key = first 16 hexadecimal digits of SHA-256 over
               {"arrays":{NAME:SPEC,…},"static":{NAME:VALUE,…}}

as JSON with sorted keys, no blanks and only ASCII. `NAME` is the parameter's, followed by the position in a pytree
(`x`, `x[0]`, `x['a']`); `SPEC` is `f32[2,128]`; `VALUE` comes from `describe`. File names, addresses and JAX's own
spellings have no influence.
"""

import dataclasses
import enum
import functools
import hashlib
import inspect
import json
import math
import os
import sys
import types
from collections.abc import Mapping
from typing import Any

from .._specs import dtype_name, spell


class Undescribable(TypeError):
    """A static argument without a spelling that is the same in every process."""


def call_key(arrays: Mapping[str, Any], static: Mapping[str, Any]) -> str:
    """The key of a call with these arrays (anything with `shape` and `dtype`) and described static arguments."""
    described = {"arrays": {name: spell(array) for name, array in arrays.items()}, "static": dict(static)}
    return hashlib.sha256(canonical(described).encode()).hexdigest()[:16]


def canonical(value: Any) -> str:
    """JSON with sorted keys and no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def is_array(value: Any) -> bool:
    """Whether a leaf is an array, a tracer or a `ShapeDtypeStruct`; NumPy's scalars are not."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type) and not _is_scalar(value)


def describe(value: Any) -> Any:
    """A static value as JSON. Raises `Undescribable` for a value without a stable spelling, such as a plain object.

    Callables are named by module and qualified name; a lambda or a local function also by its code and the values that
    it closes over, so its description may change with the version of Python.
    """
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, enum.Enum)):
        return value
    placed = _describe_placement(value)
    if placed is not None:
        return placed
    for kinds, spelled in _SPELLINGS:
        if isinstance(value, kinds):
            return spelled(value)
    if _is_scalar(value):
        return {"scalar": dtype_name(value.dtype), "value": describe(value.item())}
    dtype = as_dtype(value)
    if dtype is not None:
        return {"dtype": dtype}
    if isinstance(value, type):
        return {"type": qualified_name(value)}
    if dataclasses.is_dataclass(value):
        fields = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"dataclass": qualified_name(type(value)), "fields": fields}
    if callable(value):
        return _describe_callable(value)
    raise Undescribable(f"`{type(value).__qualname__}` has no spelling that is the same in every process")


def _describe_float(value: float) -> Any:
    return value if math.isfinite(value) else {"float": repr(value)}


def _describe_mapping(value: Mapping[Any, Any]) -> Any:
    pairs = [[describe(name), describe(member)] for name, member in value.items()]
    return {"mapping": sorted(pairs, key=lambda pair: canonical(pair[0]))}


def _describe_set(value: Any) -> Any:
    return {"set": sorted((describe(member) for member in value), key=canonical)}


def _describe_placement(value: Any) -> Any | None:
    """A mesh by its axes, without its devices; a partition; a named sharding."""
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    sharding = jax.sharding
    if isinstance(value, (sharding.Mesh, getattr(sharding, "AbstractMesh", sharding.Mesh))):
        return {"mesh": [[name, size] for name, size in value.shape.items()]}
    if isinstance(value, sharding.PartitionSpec):
        return {"partition": [describe(part) for part in value]}
    if isinstance(value, sharding.NamedSharding):
        return {"sharding": [describe(value.mesh), describe(value.spec)]}
    return None


def _describe_partial(value: "functools.partial[Any]") -> Any:
    return {"partial": describe(value.func), "args": describe(value.args), "keywords": describe(value.keywords)}


def _describe_method(value: types.MethodType) -> Any:
    return {"method": value.__func__.__qualname__, "of": describe(value.__self__)}


_SPELLINGS: tuple[tuple[Any, Any], ...] = (
    (enum.Enum, lambda value: {"enum": f"{qualified_name(type(value))}.{value.name}"}),
    (float, _describe_float),
    (complex, lambda value: {"complex": [describe(value.real), describe(value.imag)]}),
    (bytes, lambda value: {"bytes": value.hex()}),
    ((list, tuple), lambda value: [describe(member) for member in value]),
    (Mapping, _describe_mapping),
    ((set, frozenset), _describe_set),
    (functools.partial, _describe_partial),
    (types.MethodType, _describe_method),
)


def _describe_callable(value: Any) -> Any:
    inner = inspect.unwrap(value)
    named = value if hasattr(value, "__qualname__") else inner
    if not hasattr(named, "__qualname__") and not hasattr(named, "__name__"):
        raise Undescribable(f"a callable `{type(value).__qualname__}` has no name; pass a function")
    described: dict[str, Any] = {"callable": qualified_name(named)}
    if "<" in described["callable"] and not isinstance(inner, types.FunctionType):
        raise Undescribable("the code of a callable without a name cannot be read; define it at the top of a module")
    if "<" in described["callable"]:
        described["code"] = hashlib.sha256(canonical(describe_code(inner.__code__)).encode()).hexdigest()
        described["defaults"] = describe([inner.__defaults__, inner.__kwdefaults__])
        described["closure"] = [describe(cell.cell_contents) for cell in inner.__closure__ or ()]
    return described


def describe_code(code: types.CodeType) -> Any:
    """What a code object does, as JSON; the same for every process with the same version of Python."""
    constants = [
        describe_code(value) if isinstance(value, types.CodeType) else repr(_sorted(value)) for value in code.co_consts
    ]
    return [code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars]


def _sorted(value: Any) -> Any:
    """A constant of code in a fixed order: that of sets differs between processes."""
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def qualified_name(value: Any) -> str:
    """The module and the qualified name of a function or class."""
    module = getattr(value, "__module__", None) or ""
    if module == "__main__":
        # the main module gets the name under which others would import it
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else os.path.splitext(os.path.basename(file))[0] if file else module
    return f"{module}.{getattr(value, '__qualname__', None) or value.__name__}"


def _numpy() -> Any:
    # a caller with a numpy value has imported numpy
    return sys.modules.get("numpy")


def _is_scalar(value: Any) -> bool:
    numpy = _numpy()
    return numpy is not None and isinstance(value, numpy.generic)


def as_dtype(value: Any) -> str | None:
    """The name of a dtype or of a scalar type (`np.float32`, `jnp.float32`)."""
    numpy = _numpy()
    if numpy is None:
        return None
    if isinstance(value, numpy.dtype):
        return dtype_name(value)
    if isinstance(value, type) and issubclass(value, numpy.generic):
        return dtype_name(numpy.dtype(value))
    dtype = getattr(value, "dtype", None)
    return dtype_name(dtype) if callable(value) and isinstance(dtype, numpy.dtype) else None
