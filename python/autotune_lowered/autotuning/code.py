"""The code of a function, so that a decision on older code is not taken for one on this."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from ..tunables.call_key import Undescribable, canonical, describe, describe_code

# more functions than a kernel calls; the digest of a larger program covers a part of it
_MOST = 2000


def code_digest(function: Callable[..., Any]) -> str:
    """A digest of a function's code, with that of the functions of its own project which it names, and of the plain
    values that all of these name or close over.

    It changes with the version of Python, and code that a function finds in another way is not in it. So another digest
    means that the programs have to be compared, and nothing else.
    """
    digest = hashlib.sha256(sys.version.encode())
    found, seen = [_plain(function)], set[int]()
    while found and len(seen) < _MOST:
        one = found.pop()
        if not isinstance(one, types.FunctionType) or id(one.__code__) in seen:
            continue
        seen.add(id(one.__code__))
        digest.update(canonical(describe_code(one.__code__)).encode())
        for name, value in _named_by(one):
            inner = _plain(value)
            if isinstance(inner, types.FunctionType) and _is_of_project(inner, function):
                found.append(inner)
            digest.update(canonical([name, _spelled(value)]).encode())
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """The function behind decorators, partial applications and methods."""
    while True:
        inner = inspect.unwrap(value) if callable(value) else value
        if isinstance(inner, functools.partial):
            inner = inner.func
        inner = getattr(inner, "__func__", inner)
        if inner is value:
            return value
        value = inner


def _named_by(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function names: globals, what these hold by names of its own, cells and defaults."""
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    for name in sorted(names):
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            held = ((other, vars(value).get(other)) for other in sorted(names))
            yield from ((f"{name}.{other}", one) for other, one in held if one is not None)
        elif value is not None:
            yield name, value
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        # a cell may still be empty
        yield from [(name, cell.cell_contents)] if cell != types.CellType() else []
    yield from _defaults(function)


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """A function's defaults, by their places and names."""
    yield from ((str(place), value) for place, value in enumerate(function.__defaults__ or ()))
    yield from (function.__kwdefaults__ or {}).items()


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_of_project(function: types.FunctionType, root: Callable[..., Any]) -> bool:
    """Whether a function is of the same project as the one that is tuned, and not of a library under it."""

    def project(value: Any) -> str:
        return (getattr(value, "__module__", None) or "").partition(".")[0]

    installed = "-packages" in function.__code__.co_filename
    return project(function) == project(_plain(root)) or not (installed or project(function) in sys.stdlib_module_names)


def _spelled(value: Any) -> Any:
    """A plain value; of others their type alone."""
    try:
        return describe(value)
    except (Undescribable, RecursionError, ValueError):
        return type(value).__qualname__
