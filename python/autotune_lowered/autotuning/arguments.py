"""The arguments of a call, separated into what is an array of the program and what is a part of its code."""

from __future__ import annotations

import enum
import inspect
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from .._jax import jax_for
from .._specs import struct
from ..tunables.call_key import is_array

# a Python number in one of these is an array, as `jax.jit` has it; in a user's own class it may be a setting
_CONTAINERS = (dict, list, tuple)


class Arguments(NamedTuple):
    """The arguments of one call."""

    arrays: list[Any]
    donated: list[Any]
    identity: Hashable
    """Equal for calls of one program: the structure, the arrays' shapes and types, and all other values."""
    rebuild: Callable[[Sequence[Any], Sequence[Any]], inspect.BoundArguments]
    """The call with other arrays, and donated ones, in their places."""

    def without_values(self) -> Arguments:
        """The same with shapes and types in the place of arrays."""
        arrays, donated = ([struct(array.shape, array) for array in arrays] for arrays in (self.arrays, self.donated))
        return self._replace(arrays=arrays, donated=donated)

    @property
    def is_traced(self) -> bool:
        """Whether an array is one of a program that is being traced."""
        tracer = jax_for("autotune needs").core.Tracer
        return any(isinstance(array, tracer) for array in (*self.arrays, *self.donated))


def arguments_of(bound: inspect.BoundArguments, static: Collection[str], donated: Collection[str]) -> Arguments:
    """Separates the arguments of a call, of which the `static` ones hold no array. Raises TypeError for a value that
    cannot be told from another one."""
    tree = jax_for("autotune needs").tree_util
    own: dict[bool, list[Any]] = {False: [], True: []}
    identity: list[Hashable] = []
    parts: dict[str, tuple[list[Any], list[int], Any]] = {}
    for name, value in bound.arguments.items():
        if name in static:
            # 1, 1.0 and True are equal
            identity.append((name, type(value), _hashable(name, value)))
            continue
        leaves, structure = tree.tree_flatten(value)
        places = [place for place, leaf in enumerate(leaves) if is_array(leaf) or _is_number(leaf)]
        if any(not is_array(leaves[place]) for place in places) and not _is_plain(value):
            places = [place for place in places if is_array(leaves[place])]
        arrays = [_as_array(leaves[place]) for place in places]
        own[name in donated] += arrays
        for place in places:
            # a program that outlives the call must not hold its arrays
            leaves[place] = None
        specs = [(array.shape, array.dtype, getattr(array, "weak_type", False)) for array in arrays]
        identity.append((name, structure, tuple(specs), tuple(places), _hashable(name, leaves)))
        parts[name] = (leaves, places, structure)
    rest = {name: value for name, value in bound.arguments.items() if name not in parts}
    signature = bound.signature

    def rebuild(arrays: Sequence[Any], donated_arrays: Sequence[Any]) -> inspect.BoundArguments:
        left = {False: iter(arrays), True: iter(donated_arrays)}
        filled: dict[str, Any] = {}
        for name, (leaves, places, structure) in parts.items():
            whole = list(leaves)
            for place in places:
                whole[place] = next(left[name in donated])
            filled[name] = tree.tree_unflatten(structure, whole)
        return bound_to(signature, rest | filled)

    return Arguments(own[False], own[True], tuple(identity), rebuild)


def bound_to(signature: inspect.Signature, values: Mapping[str, Any]) -> inspect.BoundArguments:
    """Arguments by name, in the signature's order."""
    return inspect.BoundArguments(
        signature, OrderedDict((name, values[name]) for name in signature.parameters if name in values)
    )


def _hashable(name: str, value: Any) -> Hashable:
    if isinstance(value, list):
        value = tuple(value)
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(f"argument `{name}` holds no array and cannot be hashed: {error}") from None
    found: Hashable = value
    return found


def _is_number(leaf: Any) -> bool:
    return (isinstance(leaf, bool | int | float | complex) and not isinstance(leaf, enum.Enum)) or (
        # a scalar of numpy
        hasattr(leaf, "dtype") and hasattr(leaf, "item") and not isinstance(leaf, type)
    )


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, or holds its leaves in Python's own containers."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if isinstance(value, _CONTAINERS) else _is_number(value) or is_array(value)


def _as_array(leaf: Any) -> Any:
    if is_array(leaf):
        return leaf
    # of a Python number, its type is as weak as in `jax.jit`
    return jax_for("autotune needs").numpy.asarray(leaf)
