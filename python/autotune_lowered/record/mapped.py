"""Calls under `jax.vmap`: the axes that their tracers show, their whole arrays, and the mapped program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._specs import struct
from .._vmap import Axis, Batch

# fills that act on the whole last dimension: mapped along it, they would extend across the calls
_ROW_FILLS = ("permutation", "sorted-cumulative", "partition")


class UnknownAxes(Exception):
    """A call whose mapped axes cannot be determined."""


def seen(arrays: Mapping[str, Any]) -> Batch:
    """The axes by which a call's arrays are mapped, as far as the arrays themselves show it.

    A `jit`, `scan` or `checkpoint` between the `vmap` and the call hides the axes: see `mapped_later`. Raises
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
    """A tracer's value in the enclosing transformation; `None` if it is hidden."""
    # a derivative's tracer has the same value, with tangents beside it
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
    """The whole arrays of a call, concrete or traced outside its `vmap`s; without those that its axes do not explain."""
    found = {name: whole(array) for name, array in arrays.items()}
    return {
        name: array
        for name, array in found.items()
        if tuple(array.shape) == whole_spec(name, arrays[name], batch).shape
    }


def whole_values(arrays: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
    """Those of the whole arrays that are concrete."""
    import jax

    found = whole_arrays(arrays, batch)
    without = (jax.core.Tracer, jax.ShapeDtypeStruct)
    return {name: array for name, array in found.items() if not isinstance(array, without)}


def _level(trace: Any) -> tuple[int, int]:
    """The depth of a `vmap` among the transformations, and its identity."""
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
    shape = list(spec.shape)
    for axis in reversed(batch):
        if name in axis.places:
            shape.insert(axis.places[name], axis.size)
    return struct(shape, spec)


def mapped(function: Callable[..., Any], names: Sequence[str], batch: Batch) -> Callable[..., Any]:
    """A function of whole arrays with these names, under the axes."""
    import jax

    for axis in reversed(batch):
        in_axes = tuple(axis.places.get(name) for name in names)
        named: dict[str, Any] = {} if axis.name is None else {"axis_name": axis.name}
        function = jax.vmap(function, in_axes=in_axes, axis_size=axis.size, **named)
    return function


def rule_of_whole(name: str, rule: dict[str, Any], ndim: int, batch: Batch) -> dict[str, Any] | None:
    """The fill of a mapped argument, if `rule` is that of one call's part; `None` if it cannot be extended."""
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
