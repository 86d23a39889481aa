"""Calls of ejkernel's operations, as its own executor reports them.

With `EJKERNEL_OPS_RECORD=1` the executor hands every call, after `prepare`, to `ejkernel.ops.registry.record_invocation`.
It reads both at each call. A recording sets the variable and replaces the function. ejkernel's own in-memory
registry would keep tracers, so it stays empty unless the user requested it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ..._vmap import Batch, variant_key
from ...record.arguments import Unrecordable, fill, holds_leaf, is_tracer, split
from ...record.call import RecordedCall
from ...record.describe import one_line
from ...record.dtypes import is_key
from ...record.mapped import UnknownAxes, seen, whole_arrays, whole_values
from ...record.recorder import active
from ..import_hook import after_import
from .operation import Operation
from .recipe import NoRecipe, recipe_of
from .stamps import with_payloads
from .values import rules_of, usual_of

_LOG = logging.getLogger("autotune_lowered")

_RECORD, _STAMP = "EJKERNEL_OPS_RECORD", "EJKERNEL_OPS_STAMP"

_LOCK = threading.Lock()
_ATTACHED: list[_Attached] = []


def attached(stamp: str | None) -> Callable[[], None]:
    """Report ejkernel's calls to the recording in force, now or once ejkernel is imported; returns a function that ends
    it."""
    one = _Attached(stamp)
    cancel = after_import("ejkernel.ops.registry", one.attach)
    close_stamps = with_payloads()

    def close() -> None:
        cancel()
        one.detach()
        close_stamps()

    return close


class _Attached:
    """One recording's hook into ejkernel; the first one replaces its function, the last one restores it."""

    _original: Callable[..., None] | None = None
    _environment: dict[str, str | None] = {}

    def __init__(self, stamp: str | None) -> None:
        self._stamp = stamp

    def attach(self, registry: ModuleType) -> None:
        if not hasattr(registry, "record_invocation"):
            _LOG.error(
                "this ejkernel has no `ops.registry.record_invocation`: its calls are not recorded; 0.0.80 has it"
            )
            return
        with _LOCK:
            if not _ATTACHED:
                kept = {name: os.environ.get(name) for name in (_RECORD, _STAMP)}
                _Attached._environment = kept
                _Attached._original = registry.record_invocation
                keeps_own = kept[_RECORD] == "1"
                stand_in = functools.partial(_on_call, _Attached._original if keeps_own else None)
                registry.__dict__["record_invocation"] = stand_in
                os.environ[_RECORD] = "1"
                if self._stamp is not None and (kept[_STAMP] or "none").lower() == "none":
                    os.environ[_STAMP] = self._stamp
            _ATTACHED.append(self)

    def detach(self) -> None:
        with _LOCK:
            if self not in _ATTACHED:
                return
            _ATTACHED.remove(self)
            if _ATTACHED:
                return
            sys.modules["ejkernel.ops.registry"].__dict__["record_invocation"] = _Attached._original
            for name, value in _Attached._environment.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _on_call(
    own: Callable[..., None] | None, device: str, op_id: str, call_key: str, kernel: Any, args: Any, kwargs: Any
) -> None:
    """Replaces `record_invocation`. Its caller swallows every exception, so this logs or handles each one."""
    if own is not None:
        own(device, op_id, call_key, kernel, args, kwargs)
    recorder = active()
    if recorder is None:
        return
    try:
        arrays, batch = _traced_arrays(kernel, args, kwargs)
        # ejkernel's key lacks the `vmap`
        own_key, call_key = call_key, variant_key(call_key, batch)
        if recorder.wants(op_id, call_key):
            watch = functools.partial(recorder.watch, op_id, call_key)
            recorder.record(describe_call(op_id, own_key, kernel, args, kwargs, watch, batch))
        # ejkernel continues with its own arrays and never uses the tapped ones
        recorder.listen(op_id, call_key, arrays)
    except Unrecordable as reason:
        recorder.skipped(op_id, call_key, str(reason))
    except OSError as error:
        _LOG.error("%s %s: %s", op_id, call_key, error)
    except Exception as error:
        recorder.skipped(op_id, call_key, one_line(error))


def _traced_arrays(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Batch]:
    """The arrays of a call if some are traced, and the `vmap`s around it."""
    import jax

    if not any(map(is_tracer, jax.tree_util.tree_leaves((tuple(args), dict(kwargs))))):
        return {}, ()
    arrays, _ = split(_named(kernel, args, kwargs))
    try:
        return arrays, seen(arrays)
    except (UnknownAxes, AttributeError) as error:  # attributes: of tracers, which are JAX's own affair
        _LOG.warning("a call of `%s` under `vmap` counts as unmapped: %s", kernel.op_id, error)
        return arrays, ()


def _named(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(_positional_names(kernel, len(args)), args, strict=True)) | dict(kwargs)


def describe_call(
    op_id: str,
    call_key: str,
    kernel: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    watch: Callable[[Mapping[str, Any]], None] | None = None,
    batch: Batch = (),
) -> RecordedCall:
    """The neutral description of a call of an ejkernel `Kernel` with prepared arguments; keeps no tracer.

    `call_key` is ejkernel's, `batch` the `vmap`s around the call. `watch` receives the whole arrays and tracers by
    name.
    Raises `Unrecordable` with the reason.
    """
    from ejkernel.ops import Invocation

    if Invocation(op_id=kernel.op_id, args=tuple(args), kwargs=dict(kwargs)).make_key(kernel.key_builder) != call_key:
        raise Unrecordable(
            'ejkernel stamps no label on a call with `method="shard_map"`, so nothing could be matched to it'
        )
    named = _named(kernel, args, kwargs)
    arrays, template = split(named)
    specs = {name: _spec(name, value) for name, value in arrays.items()}
    if watch is not None:
        watch(whole_arrays(arrays, batch))

    def restore(values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        whole = {name: fill(held, values) for name, held in template.items()}
        positional = list(whole)[: len(args)]
        return tuple(whole.pop(name) for name in positional), whole

    operation = Operation(kernel, restore, specs, template.get("platform"))
    recipe, notes = None, _notes(arrays.values(), batch)
    try:
        recipe = recipe_of(kernel, list(named)[: len(args)], template, specs)
    except NoRecipe as reason:
        notes += (f"what is not lowered here has no recipe: {reason}",)
    static = {name: held for name, held in template.items() if not holds_leaf(held)}
    return RecordedCall(
        op_id=op_id,
        call_key=variant_key(call_key, batch),
        arrays=specs,
        static=static,
        baseline=operation.baseline,
        configs=operation.configs,
        build=operation.build,
        fills=rules_of(kernel.op_id, specs),
        usual=usual_of(kernel.op_id, specs, static),
        values=whole_values(arrays, batch),
        refuse=operation.refuse,
        recipe=recipe,
        notes=notes,
        batch=batch,
    )


def _positional_names(kernel: Any, count: int) -> list[str]:
    parameters = [
        parameter.name
        for parameter in inspect.signature(kernel.run).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return [parameters[index] if index < len(parameters) else f"argument_{index}" for index in range(count)]


def _spec(name: str, value: Any) -> Any:
    import jax

    if is_key(value.dtype):
        raise Unrecordable(f"`{name}` is a typed random key, which has no bytes of its own: pass `jax.random.key_data`")
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _notes(values: Iterable[Any], batch: Batch) -> tuple[str, ...]:
    values = list(values)
    notes = []
    if batch:
        sizes = " in ".join(str(axis.size) for axis in reversed(batch))
        notes.append(
            f"called under `vmap` of {sizes}: recorded as a variant of the call that ejkernel's key stands for"
        )
    devices = max((len(_devices(value)) for value in values), default=1)
    if devices > 1:
        notes.append(f"its arrays lie on {devices} devices: recorded for one, with the global shapes")
    return tuple(notes)


def _devices(value: Any) -> Collection[Any]:
    return () if is_tracer(value) else getattr(getattr(value, "sharding", None), "device_set", ())
