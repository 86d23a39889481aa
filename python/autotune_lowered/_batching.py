"""The axes by which `jax.vmap` maps a call: what was mapped, and the mapped program again.

A function under `vmap` is traced with its arguments less the mapped axes, while the program that runs has them all.
Axes of nested `vmap`s are a tuple, the outermost first. A call that is mapped is a variant of the call that its key
names:

    variant key = KEY~SIZES-DIGEST

`SIZES` are the axes' sizes with an `x` between two; `DIGEST` is the first eight hexadecimal digits of the SHA-256 of
the axes, `[{"axes":{NAME:PLACE,…},"size":N},…]`, as JSON with sorted keys and no blanks."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# what fills a last dimension as a whole: mapped along it, it would be filled across the calls
_ROW_FILLS = ("permutation", "sorted-cumulative", "partition")


class UnknownAxes(Exception):
    """A call whose mapped axes this version cannot tell."""


@dataclasses.dataclass(frozen=True)
class Axis:
    """One `vmap` around a call."""

    size: int
    """Calls in it."""
    places: Mapping[str, int]
    """Where an argument has the axis, counted with the axes of the `vmap`s inside and without those outside of it. An
    argument that is not mapped is left out."""
    name: str | None = None
    """`axis_name`, for collectives; no part of what the variant is known by."""

    def to_json(self) -> dict[str, Any]:
        """As a record has it."""
        return {"size": self.size, "axes": dict(self.places)}

    def to_recipe(self) -> dict[str, Any]:
        """As a recipe has it, from which the program is built again."""
        return self.to_json() if self.name is None else self.to_json() | {"name": self.name}


Batch = tuple[Axis, ...]


def from_recipe(axes: Sequence[Mapping[str, Any]]) -> Batch:
    """The axes of a recipe."""
    return tuple(Axis(axis["size"], dict(axis["axes"]), axis.get("name")) for axis in axes)


def variant_key(call_key: str, batch: Batch) -> str:
    """The key of a call under these axes; the call's own where there are none."""
    if not batch:
        return call_key
    # not only ASCII, as other keys are: the program reads and names it too
    axes = json.dumps([axis.to_json() for axis in batch], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(axes.encode()).hexdigest()[:8]
    return f"{call_key}~{'x'.join(str(axis.size) for axis in batch)}-{digest}"


_VARIANT = re.compile(r"~([1-9][0-9]*(?:x[1-9][0-9]*)*)-[0-9a-f]{8}\Z")


def unmapped_key(call_key: str) -> str:
    """The key of the call that a variant is of; any other key as it is."""
    return _VARIANT.sub("", call_key)


def preference(call_key: str) -> tuple[bool, int, str]:
    """Which variant of a call stands for another that is not known, the least first: the unmapped one, then the one of
    the most calls."""
    variant = _VARIANT.search(call_key)
    calls = math.prod(map(int, variant[1].split("x"))) if variant else 1
    return variant is not None, -calls, call_key


def seen(arrays: Mapping[str, Any]) -> Batch:
    """The axes by which a call's arrays are mapped, as far as the arrays themselves show it.

    A `jit`, `scan` or `checkpoint` between the `vmap` and the call hides the axes: see `_batching_later`. Raises
    `UnknownAxes`.
    """
    found: dict[int, tuple[int, int, str | None, dict[str, int]]] = {}
    for name, array in arrays.items():
        for tracer in _layers(array):
            place = tracer.batch_dim
            if place is None:
                continue
            if not isinstance(place, int):
                raise UnknownAxes(f"`{name}` is mapped along a `{type(place).__name__}`")
            depth, identity = _level(tracer._trace)
            size = tracer.val.shape[place]
            found.setdefault(identity, (depth, size, _axis_name(tracer._trace), {}))[3][name] = place
    layers = sorted(found.values(), key=lambda layer: layer[0])
    return tuple(Axis(size, places, axis_name) for _, size, axis_name, places in layers)


def _layers(value: Any) -> Iterator[Any]:
    """The `BatchTracer`s of a value, the innermost `vmap`'s first."""
    import jax

    while isinstance(value, jax.core.Tracer):
        if _is_mapped(value):
            yield value
        value = _inside(value)


def _is_mapped(tracer: Any) -> bool:
    return type(tracer).__name__ == "BatchTracer" and hasattr(tracer, "batch_dim") and hasattr(tracer, "val")


def _inside(tracer: Any) -> Any:
    """The value that a tracer stands for in the transformation around its own; `None` where it hides it."""
    # a derivative's tracer has the same value, and tangents beside it
    return tracer.val if _is_mapped(tracer) else getattr(tracer, "primal", None)


def whole(value: Any) -> Any:
    """The array that a mapped tracer is one call's part of: concrete, or a tracer that hides nothing."""
    import jax

    while isinstance(value, jax.core.Tracer):
        inside = _inside(value)
        if inside is None:
            break
        value = inside
    return value


def whole_arrays(arrays: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
    """The whole arrays of a call, concrete or traced outside of its `vmap`s; none of what its axes do not explain."""
    found = {name: whole(array) for name, array in arrays.items()}
    return {
        name: array
        for name, array in found.items()
        if tuple(array.shape) == whole_spec(name, arrays[name], batch).shape
    }


def whole_values(arrays: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
    """Those of them that are concrete."""
    import jax

    found = whole_arrays(arrays, batch)
    return {name: array for name, array in found.items() if not isinstance(array, jax.core.Tracer)}


def _level(trace: Any) -> tuple[int, int]:
    """How deep a `vmap` stands among the transformations, and what it is known by."""
    if not hasattr(trace, "parent_trace"):  # JAX before 0.4.36
        return trace.main.level, id(trace.main)
    depth, outer = 0, trace
    while (outer := getattr(outer, "parent_trace", None)) is not None:
        depth += 1
    return depth, id(trace.tag)


def _axis_name(trace: Any) -> str | None:
    name = trace.axis_data.name if hasattr(trace, "axis_data") else getattr(trace, "axis_name", None)
    return name if isinstance(name, str) else None


def whole_spec(name: str, spec: Any, batch: Batch) -> Any:
    """The spec of an argument with all its mapped axes."""
    import jax

    shape = list(spec.shape)
    for axis in reversed(batch):
        if name in axis.places:
            shape.insert(axis.places[name], axis.size)
    return jax.ShapeDtypeStruct(tuple(shape), spec.dtype)


def mapped(function: Callable[..., Any], names: Sequence[str], batch: Batch) -> Callable[..., Any]:
    """A function of arrays of these names under the axes: it takes and gives whole arrays."""
    import jax

    for axis in reversed(batch):
        in_axes = tuple(axis.places.get(name) for name in names)
        function = jax.vmap(function, in_axes=in_axes, axis_size=axis.size, **_named(axis))
    return function


def _named(axis: Axis) -> dict[str, str]:
    return {} if axis.name is None else {"axis_name": axis.name}


def rule_of_whole(name: str, rule: dict[str, Any], ndim: int, batch: Batch) -> dict[str, Any] | None:
    """The fill of a mapped argument where `rule` is that of one call's; `None` where it does not carry over."""
    if rule.get("kind") == "file" and any(name in axis.places for axis in batch):
        return None
    if rule.get("kind") not in _ROW_FILLS:
        return rule
    for axis in reversed(batch):
        if name in axis.places:
            if axis.places[name] == ndim:
                return None
            ndim += 1
    return rule
