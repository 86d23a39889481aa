"""Calls of Tokamax's operations, captured when each requests its config.

A Tokamax `Op` asks its `BoundArguments` for `default_config` once for each traced call, when the arguments are
abstract, with their `vmap` axes. Before that, Tokamax has chosen the `Op` by the devices of concrete arrays, else
by JAX's default device.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ...record.arguments import is_tracer
from ...record.describe import one_line
from ...record.recorder import active
from ...record.registry import Registry
from ...record.stand_in import answered
from ...record.target import Target
from ..replaced import Replacement, replaced
from .bound import describe_call, label

_LOG = logging.getLogger("autotune_lowered")

# this package's attribute on Tokamax's operations
_CHOSEN_FOR = "_autotune_lowered_chosen_for"


def attached() -> Callable[[], None]:
    """Report Tokamax's calls to the recording in force, now or once it is imported; returns a function that ends it."""
    return _CALLS.hold()


def _replacements(tokamax: ModuleType) -> list[Replacement] | None:
    asked = getattr(getattr(tokamax, "BoundArguments", None), "default_config", None)
    if not isinstance(asked, property) or asked.fget is None:
        _LOG.error("this Tokamax has no `BoundArguments.default_config`: its calls are not recorded; 0.0.12 has it")
        return None
    return [
        (tokamax.BoundArguments, "default_config", property(functools.partial(_on_call, asked.fget))),
        (tokamax.Op, "__call__", _on_op(tokamax.Op.__call__)),
    ]


_CALLS = replaced("tokamax", _replacements)


def _on_op(original: Callable[..., Any]) -> Callable[..., Any]:
    """Marks an operation that was chosen for a target: its rules of differentiation may be traced after the call."""

    @functools.wraps(original)
    def call(op: Any, *args: Any, **kwargs: Any) -> Any:
        target = answered()
        if target is not None and not _lie_on_a_device(args, kwargs):
            op = copy.copy(op)
            object.__setattr__(op, _CHOSEN_FOR, target)
        return original(op, *args, **kwargs)

    return call


def _lie_on_a_device(*arguments: Any) -> bool:
    import jax

    return any(isinstance(leaf, jax.Array) and not is_tracer(leaf) for leaf in jax.tree.leaves(arguments))


def _on_call(original: Callable[[Any], Any], bound: Any) -> Any:
    recorder = active()
    if recorder is not None:
        op_id = f"{type(bound.op).__module__}.{type(bound.op).__qualname__}"
        key = "?"
        try:
            bound = _abstract(bound)
            op_id, key = label(bound)
            if recorder.wants(op_id, key):
                call = describe_call(op_id, key, bound)
                refuse = functools.partial(_refuse, recorder.registry, getattr(bound.op, _CHOSEN_FOR, None))
                recorder.record(dataclasses.replace(call, refuse=refuse))
        except Exception as error:  # the user's program continues, whatever its arguments are
            recorder.skipped(op_id, key, one_line(error))
    return original(bound)


def _refuse(registry: Registry, chosen_for: Target | None, config: Mapping[str, Any], platform: str) -> str | None:
    """Why a call is not for the recorded device: Tokamax chose its operation for another one."""
    absent = registry.absent
    if chosen_for == absent and (absent is not None or registry.is_here(platform)):
        return None
    if absent is None:
        return "Tokamax chose the operation for the device here: record with a `target`"
    return (
        f"Tokamax chose the operation for the device here and not for {absent.name}: trace the call in the thread that "
        "records, its arrays arguments of what is traced"
    )


def _abstract(bound: Any) -> Any:
    """The bound arguments without arrays and tracers.

    Numpy arrays stay, because Tokamax stores in them the representative group sizes that it measures with.
    """
    import jax
    from tokamax import BatchedShapeDtype

    def leaf(value: Any) -> Any:
        is_array = isinstance(value, jax.Array)
        return BatchedShapeDtype(value.shape, value.dtype, vmap_axes=()) if is_array else value

    return bound.replace(arguments=jax.tree.map(leaf, dict(bound.arguments)))
