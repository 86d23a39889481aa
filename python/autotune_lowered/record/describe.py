"""A readable description of a call's arguments: JSON that names what JSON cannot represent."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping
from typing import Any

from .._specs import spec_text

_LONGEST = 200


def describe(value: Any) -> Any:
    """A static argument as JSON: callables by their qualified name, element types by theirs, arrays by their spec."""
    if value is None or isinstance(value, (bool, int, str)):
        return value if not isinstance(value, str) else value[:_LONGEST]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, enum.Enum):
        return describe(value.value) if isinstance(value.value, (bool, int, float, str)) else value.name
    if isinstance(value, functools.partial):
        bound = {"args": describe(value.args), "keywords": describe(value.keywords)}
        return {"partial": describe(value.func)} | {name: held for name, held in bound.items() if held}
    if isinstance(value, type):
        # element types are classes too: `jax.numpy.float32` is one
        return getattr(value, "__name__", str(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        try:
            return spec_text(value)
        except ValueError:
            return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, Mapping):
        return {str(name): describe(held) for name, held in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [describe(held) for held in value]
    if dataclasses.is_dataclass(value):
        return {field.name: describe(getattr(value, field.name, None)) for field in dataclasses.fields(value)}
    if callable(value) and not hasattr(value, "dtype"):
        return qualified_name(value)
    text = str(value)
    # a bare `repr` contains an address, which differs between runs
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text[:_LONGEST]


def qualified_name(function: Any) -> str:
    """`module.outer.<locals>.inner` of a function, of its class for another callable object."""
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', None) or '?'}.{named.__qualname__}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 program`, `2 programs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def one_line(error: BaseException) -> str:
    """An exception's message, in one line of at most 300 characters."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:300]
