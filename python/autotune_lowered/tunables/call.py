"""One call of a tunable function: its arguments separated into arrays, static values and tuned parameters."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from .._jax import jax_for
from .._vmap import Batch, variant_key
from ..record.arguments import holds_tracer
from ..record.mapped import UnknownAxes, seen
from .call_key import Undescribable, call_key, describe, is_array
from .declaration import parameter_of

TRACED = "argument `{name}` of `{op}` holds or closes over traced values: pass them as arguments of their own"


@dataclasses.dataclass(frozen=True)
class Call:
    """One call's arguments, separated into arrays by name and described static values."""

    bound: inspect.BoundArguments
    arrays: dict[str, Any]
    static: dict[str, Any]
    fill: Callable[[Sequence[Any]], dict[str, Any]]
    batch: Batch
    """The `vmap`s around it, as far as its arrays show them."""

    @property
    def key(self) -> str:
        """The call key, 16 hexadecimal digits; under `vmap` with the axes."""
        return variant_key(call_key(self.arrays, self.static), self.batch)


class Declared(Protocol):
    """What is to be known of a function to separate its arguments."""

    @property
    def op(self) -> str: ...
    @property
    def tuned(self) -> Collection[str]:
        """The arguments that hold tuned parameters: no part of a call's key."""

    @property
    def static_argnames(self) -> Collection[str]: ...
    @property
    def static_key(self) -> Mapping[str, Callable[[Any], Any]]: ...

    def warn_once(self, about: str, message: str) -> None: ...


def split(declaration: Declared, bound: inspect.BoundArguments) -> Call:
    """The arguments of a call, separated. Raises `Undescribable`, a TypeError, if one has no stable spelling."""
    jax = jax_for("tunable functions need")
    arrays: dict[str, Any] = {}
    static: dict[str, Any] = {}
    flattened: dict[str, tuple[list[Any], list[int], Any]] = {}
    for name, value in bound.arguments.items():
        if name in declaration.tuned:
            continue
        if name in declaration.static_key:
            static[name] = _described(declaration, name, _identity(declaration, name, value))
            continue
        if name in declaration.static_argnames:
            static[name] = _described(declaration, name, value)
            continue
        paths, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda leaf: leaf is None)
        leaves, places = [leaf for _, leaf in paths], []
        for place, (path, leaf) in enumerate(paths):
            full = name + jax.tree_util.keystr(path)
            if is_array(leaf):
                arrays[full] = leaf
                # `fill` outlives a recorded call, and tracers must not
                leaves[place] = None
                places.append(place)
            else:
                static[full] = _described(declaration, full, leaf)
        if places:
            flattened[name] = (leaves, places, structure)

    def fill(values: Sequence[Any]) -> dict[str, Any]:
        rest, filled = iter(values), {}
        for name, (leaves, places, structure) in flattened.items():
            leaves = list(leaves)
            for place in places:
                leaves[place] = next(rest)
            filled[name] = jax.tree_util.tree_unflatten(structure, leaves)
        return filled

    return Call(bound, arrays, static, fill, _batch_of(declaration, arrays))


def _batch_of(declaration: Declared, arrays: Mapping[str, Any]) -> Batch:
    try:
        return seen(arrays)
    except (UnknownAxes, AttributeError) as error:  # attributes: of tracers, which are JAX's own affair
        declaration.warn_once("vmap", f"a call of `{declaration.op}` under `vmap` counts as unmapped: {error}")
        return ()


def _described(declaration: Declared, name: str, value: Any) -> Any:
    try:
        return describe(value)
    except Undescribable as error:
        if holds_tracer(value, in_objects=True):
            raise Undescribable(TRACED.format(name=name, op=declaration.op)) from None
        parameter = parameter_of(name)
        raise Undescribable(
            f"argument `{name}` of `{declaration.op}`: {error}; say what identifies it, as in "
            f"`static_key={{{parameter!r}: lambda {parameter}: …}}`"
        ) from None
    except RecursionError:
        raise Undescribable(f"argument `{name}` of `{declaration.op}` holds itself or is nested too deeply") from None


def _identity(declaration: Declared, name: str, value: Any) -> Any:
    try:
        return declaration.static_key[name](value)
    except Exception as error:
        raise Undescribable(
            f"`static_key` of argument `{name}` of `{declaration.op}` raised {type(error).__name__}: {error}"
        ) from None
