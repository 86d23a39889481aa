"""Calls of ejkernel's operations, as its own executor reports them.

With `EJKERNEL_OPS_RECORD=1` the executor hands every call, after `prepare`, to `ejkernel.ops.registry.record_invocation`.
Both are read at each call; a recording sets the one and stands in for the other, and ejkernel's own in-memory registry,
which would keep tracers, stays empty unless the user asked for it.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import threading
import typing
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from ._arguments import Leaf, Unrecordable, fill, holds_leaf, is_tracer, split
from ._batching import Batch, UnknownAxes, seen, variant_key, whole_arrays, whole_values
from ._calls import RecordedCall
from ._describe import one_line
from ._ejkernel_config import config_from_json, config_to_json
from ._ejkernel_values import rules_of, usual_of
from ._exercise import spelled
from ._recipe import NoRecipe, recipe_of_ejkernel
from ._recorder import PLATFORMS, is_lowering

LOG = logging.getLogger("autotune_lowered")

_RECORD, _STAMP = "EJKERNEL_OPS_RECORD", "EJKERNEL_OPS_STAMP"

# how ejkernel's methods name the platforms
_PLATFORMS = {"cpu": "cpu", "cuda": "gpu", "rocm": "gpu", "tpu": "tpu"}

_LOCK = threading.Lock()
_ATTACHED: list[_Attached] = []


def attached(stamp: str | None) -> Callable[[], None]:
    """Report ejkernel's calls to the recording in force, now or once ejkernel is imported; gives what ends it."""
    from ._hooks import after_import

    one = _Attached(stamp)
    cancel = after_import("ejkernel.ops.registry", one.attach)

    def close() -> None:
        cancel()
        one.detach()

    return close


class _Attached:
    """One recording's hold on ejkernel; the first one in replaces its function, the last one out puts it back."""

    _original: Callable[..., None] | None = None
    _environment: dict[str, str | None] = {}

    def __init__(self, stamp: str | None) -> None:
        self._stamp = stamp

    def attach(self, registry: ModuleType) -> None:
        if not hasattr(registry, "record_invocation"):
            LOG.error(
                "this ejkernel has no `ops.registry.record_invocation`: its calls are not recorded; 0.0.80 has it"
            )
            return
        with _LOCK:
            if not _ATTACHED:
                kept = {name: os.environ.get(name) for name in (_RECORD, _STAMP)}
                _Attached._environment = kept
                _Attached._original = registry.record_invocation
                keeps_own = kept[_RECORD] == "1"
                registry.record_invocation = functools.partial(_on_call, _Attached._original if keeps_own else None)
                os.environ[_RECORD] = "1"
                if self._stamp is not None and (kept[_STAMP] or "none").lower() == "none":
                    os.environ[_STAMP] = self._stamp
            _ATTACHED.append(self)

    def detach(self) -> None:
        import sys

        with _LOCK:
            if self not in _ATTACHED:
                return
            _ATTACHED.remove(self)
            if _ATTACHED:
                return
            sys.modules["ejkernel.ops.registry"].record_invocation = _Attached._original  # type: ignore[attr-defined]
            for name, value in _Attached._environment.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def _on_call(own: Callable[..., None] | None, device: str, op_id: str, call_key: str, kernel, args, kwargs) -> None:
    """Stands in for `record_invocation`. Its caller swallows every exception, so nothing may be lost to one here."""
    if own is not None:
        own(device, op_id, call_key, kernel, args, kwargs)
    from ._recording import active

    recorder = active()
    if recorder is None or is_lowering():
        return
    try:
        arrays, batch = _traced_arrays(kernel, args, kwargs)
        # ejkernel's key knows no `vmap`
        own_key, call_key = call_key, variant_key(call_key, batch)
        if recorder.wants(op_id, call_key):
            watch = functools.partial(recorder.watch, op_id, call_key)
            recorder.record(describe_call(op_id, own_key, kernel, args, kwargs, watch, batch))
        # ejkernel goes on with its own arrays: what listens is never used
        recorder.listen(op_id, call_key, arrays)
    except Unrecordable as reason:
        recorder.skipped(op_id, call_key, str(reason))
    except OSError as error:
        LOG.error("%s %s: %s", op_id, call_key, error)
    except Exception as error:
        recorder.skipped(op_id, call_key, one_line(error))


def _traced_arrays(kernel: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], Batch]:
    """The arrays of a call of which some are traced, else none, and the `vmap`s around it."""
    import jax

    if not any(map(is_tracer, jax.tree_util.tree_leaves((tuple(args), dict(kwargs))))):
        return {}, ()
    arrays, _ = split(_named(kernel, args, kwargs))
    try:
        return arrays, seen(arrays)
    except (UnknownAxes, AttributeError) as error:  # attributes: of tracers, which are JAX's own affair
        LOG.warning("a call of `%s` under `vmap` counts as unmapped: %s", kernel.op_id, error)
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

    `call_key` is ejkernel's, `batch` the `vmap`s around the call. `watch` is given the whole arrays and tracers by name.
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
        recipe = recipe_of_ejkernel(kernel, list(named)[: len(args)], template, specs, Leaf)
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


class Operation:
    """An ejkernel kernel with the static part of one call."""

    def __init__(self, kernel: Any, restore: Callable, specs: Mapping[str, Any], asked_platform: Any) -> None:
        # `prepare` has run; the executor would run it again
        self._kernel = copy.copy(kernel)
        self._kernel.prepare = lambda *args, **kwargs: (args, kwargs)
        self._restore = restore
        self._specs = dict(specs)
        self._asked = getattr(asked_platform, "value", asked_platform)
        self._objects: dict[str, Any] = {}
        self._template: Any = None

    def _invocation(self) -> Any:
        from ejkernel.ops import Invocation

        args, kwargs = self._restore(self._specs)
        return Invocation(op_id=self._kernel.op_id, args=args, kwargs=kwargs, stamp=False)

    def _spelled(self, config: Any) -> dict[str, Any]:
        plain = config_to_json(config)
        self._objects.setdefault(spelled(plain), config)
        return plain

    def baseline(self, platform: str) -> dict[str, Any]:
        """What ejkernel's heuristics say, which is what it uses untuned."""
        heuristic = _most_specific(self._kernel, "heuristic_cfg", platform)(self._invocation())
        self._template = heuristic
        return self._spelled(heuristic)

    def configs(self, platform: str) -> list[dict[str, Any]]:
        """The candidates that ejkernel's own tuner would try, and on a CPU those that it has for XLA besides."""
        methods = [_most_specific(self._kernel, "candidate_cfgs", platform)]
        if platform == "cpu" and hasattr(self._kernel, "candidate_cfgs_xla"):
            methods.append(self._kernel.candidate_cfgs_xla)
        invocation = self._invocation()
        return [self._spelled(config) for method in methods for config in method(invocation)]

    def refuse(self, config: Mapping[str, Any], platform: str) -> str | None:
        """ejkernel picks the implementation of `auto` by the device that is there: another one's cannot be foretold."""
        if _PLATFORMS[_own_platform()] == _PLATFORMS[platform]:
            return None
        chosen = self._asked if self._asked not in (None, "auto") else config.get("platform")
        if chosen in (None, "auto"):
            return f"which implementation ejkernel takes for it is decided on the {platform} device"
        return None

    def build(self, config: Mapping[str, Any]) -> Callable[..., Any]:
        """The operation under a config, as ejkernel's executor runs it, with its own derivative rule."""
        from ejkernel.ops import Executor

        chosen = self._objects.get(spelled(config))
        if chosen is None:
            if self._template is None:
                # in a worker, which has the config alone: the heuristics say of which class it is
                self._template = _most_specific(self._kernel, "heuristic_cfg", _own_platform())(self._invocation())
            chosen = config_from_json(type(self._template), config)
        # some executors rewrite the platform in place
        executor, names = Executor(_Fixed(copy.deepcopy(chosen))), tuple(self._specs)

        def run(*arrays: Any) -> Any:
            args, kwargs = self._restore(dict(zip(names, arrays, strict=True)))
            return executor(self._kernel, *args, stamp=False, **kwargs)

        return run


def _own_platform() -> str:
    import jax

    return PLATFORMS.get(jax.default_backend(), "cpu")


class _Fixed:
    """ejkernel's `ConfigChooser` that has one answer, and no cache to write it to."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def choose(self, invocation: Any, kernel: Any) -> Any:
        return self._config


def _most_specific(kernel: Any, method: str, platform: str) -> Callable:
    return getattr(kernel, f"{method}_{_PLATFORMS[platform]}", None) or getattr(kernel, method)


def _positional_names(kernel: Any, count: int) -> list[str]:
    parameters = [
        parameter.name
        for parameter in inspect.signature(kernel.run).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return [parameters[index] if index < len(parameters) else f"argument_{index}" for index in range(count)]


def _spec(name: str, value: Any) -> Any:
    import jax

    from ._fills import is_key

    if is_key(value.dtype):
        raise Unrecordable(f"`{name}` is a typed random key, which has no bytes of its own: pass `jax.random.key_data`")
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def _notes(values: typing.Iterable[Any], batch: Batch) -> tuple[str, ...]:
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


def _devices(value: Any) -> typing.Collection[Any]:
    return () if is_tracer(value) else getattr(getattr(value, "sharding", None), "device_set", ())
