"""Splits a call's arguments into arrays by name and a template of the rest, and joins them again."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

# small integer arrays of numpy are constants of the program, as when the library itself traces the call
LARGEST_CONSTANT = 1 << 20


class Unrecordable(Exception):
    """A call that cannot be reproduced from what may be stored of it."""


class Leaf:
    """A placeholder for an array among the arguments."""

    def __init__(self, name: str) -> None:
        self.name = name


def is_tracer(value: Any) -> bool:
    import jax

    return isinstance(value, jax.core.Tracer)


def _is_array(value: Any) -> bool:
    import jax
    import numpy as np

    if isinstance(value, np.ndarray):
        constant = not np.issubdtype(value.dtype, np.inexact) and value.dtype.kind in "biu"
        return not (constant and value.nbytes <= LARGEST_CONSTANT) and value.dtype != object
    return isinstance(value, jax.Array)


def split(named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays by name (`x`, `x[0]`), and the arguments with a place where each array was."""
    import jax

    arrays: dict[str, Any] = {}

    def place(name: str, path: Any, leaf: Any) -> Any:
        if not _is_array(leaf):
            _refuse_tracers(name, leaf)
            return leaf
        full = name + jax.tree_util.keystr(path)
        arrays[full] = leaf
        return Leaf(full)

    template = {
        name: jax.tree_util.tree_map_with_path(functools.partial(place, name), value, is_leaf=lambda leaf: leaf is None)
        for name, value in named.items()
    }
    return arrays, template


def fill(held: Any, values: Mapping[str, Any]) -> Any:
    import jax

    def leaf(one: Any) -> Any:
        return values[one.name] if isinstance(one, Leaf) else one

    return jax.tree_util.tree_map(leaf, held, is_leaf=lambda one: one is None)


def holds_leaf(held: Any) -> bool:
    import jax

    return any(isinstance(leaf, Leaf) for leaf in jax.tree_util.tree_leaves(held))


def _refuse_tracers(name: str, value: Any) -> None:
    """A callable that closes over traced values is meaningless after their trace has ended."""
    if holds_tracer(value):
        raise Unrecordable(f"`{name}` closes over traced values: pass them as arguments of the operation")


def holds_tracer(value: Any, in_objects: bool = False) -> bool:
    """Whether a value is traced, closes over or contains traced values; for plain objects only on request."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if id(one) in seen or len(seen) > 10_000:
            continue
        seen.add(id(one))
        if is_tracer(one):
            return True
        if isinstance(one, functools.partial):
            todo += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, types.MethodType):
            todo += [one.__self__, one.__func__]
        elif isinstance(one, types.FunctionType):
            for cell in one.__closure__ or ():
                try:
                    todo.append(cell.cell_contents)
                except ValueError:  # not filled yet
                    pass
            todo += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
        elif isinstance(one, (list, tuple)):
            todo += one
        elif isinstance(one, dict):
            todo += one.values()
        elif isinstance(one, (type, types.ModuleType)) or not hasattr(one, "__dict__"):
            continue
        elif callable(one) or (in_objects and not type(one).__module__.startswith(("jax.", "jaxlib.", "numpy."))):
            todo += list(vars(one).values())
    return False
