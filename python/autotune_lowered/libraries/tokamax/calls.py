"""Calls of Tokamax's operations, as each asks for its config.

A Tokamax `Op` asks its `BoundArguments` for `default_config` once for each call that is traced; the arguments are abstract
by then, with their `vmap` axes.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ...record.describe import one_line
from ...record.recorder import active
from ..import_hook import after_import
from .bound import describe_call, label

_LOG = logging.getLogger("autotune_lowered")

_LOCK = threading.Lock()
_ATTACHED: list[object] = []
_ORIGINAL: list[property] = []


def attached() -> Callable[[], None]:
    """Report Tokamax's calls to the recording in force, now or once it is imported; gives what ends it."""
    token = object()
    cancel = after_import("tokamax", functools.partial(_attach, token))

    def close() -> None:
        cancel()
        _detach(token)

    return close


def _attach(token: object, tokamax: ModuleType) -> None:
    asked = getattr(getattr(tokamax, "BoundArguments", None), "default_config", None)
    if not isinstance(asked, property) or asked.fget is None:
        _LOG.error("this Tokamax has no `BoundArguments.default_config`: its calls are not recorded; 0.0.12 has it")
        return
    with _LOCK:
        if not _ATTACHED:
            _ORIGINAL.append(asked)
            tokamax.BoundArguments.default_config = property(functools.partial(_on_call, asked.fget))
        _ATTACHED.append(token)


def _detach(token: object) -> None:
    with _LOCK:
        if token not in _ATTACHED:
            return
        _ATTACHED.remove(token)
        if not _ATTACHED:
            sys.modules["tokamax"].BoundArguments.default_config = _ORIGINAL.pop()


def _on_call(original: Callable[[Any], Any], bound: Any) -> Any:
    recorder = active()
    if recorder is not None:
        op_id = f"{type(bound.op).__module__}.{type(bound.op).__qualname__}"
        key = "?"
        try:
            bound = _abstract(bound)
            op_id, key = label(bound)
            if recorder.wants(op_id, key):
                recorder.record(describe_call(op_id, key, bound))
        except Exception as error:  # the user's program goes on, whatever its arguments are
            recorder.skipped(op_id, key, one_line(error))
    return original(bound)


def _abstract(bound: Any) -> Any:
    """The bound arguments without arrays and tracers.

    What is numpy's stays: it is how Tokamax holds representative group sizes, which it measures with.
    """
    import jax
    from tokamax import BatchedShapeDtype

    def leaf(value: Any) -> Any:
        is_array = isinstance(value, jax.Array)
        return BatchedShapeDtype(value.shape, value.dtype, vmap_axes=()) if is_array else value

    return bound.replace(arguments=jax.tree.map(leaf, dict(bound.arguments)))
