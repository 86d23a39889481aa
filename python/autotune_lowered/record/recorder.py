"""The recorders in force: each collects the reported calls and records each once.

While a thread traces, calls are kept; they are lowered and written when it traces nothing, at the latest at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from .._vmap import Batch, unmapped_key, variant_key
from . import mapped_later
from .call import RecordedCall
from .capture import Capture
from .describe import counted, one_line
from .dtypes import is_real
from .fills import NOT_RUN, UNDER_JIT, Fill, Observed, captured, fill_of
from .mapped import rule_of_whole
from .record import store
from .registry import Registry

_LOG = logging.getLogger("autotune_lowered")

MAYBE_MAPPED = "a `vmap` stands around the body that it is in and was not seen to map it: recorded as it was traced"

Key = tuple[str, str]
"""Operation and call key."""

# the active ones, the innermost last
_STACK: list[Recorder] = []
_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()
_LOWERING = threading.local()


def active() -> Recorder | None:
    """The recorder of this thread's calls; None while it lowers candidates, whose calls are not the user's."""
    return _STACK[-1] if _STACK and getattr(_LOWERING, "depth", 0) == 0 else None


@contextlib.contextmanager
def lowering() -> Iterator[None]:
    """Calls of this thread inside are not recorded."""
    _LOWERING.depth = getattr(_LOWERING, "depth", 0) + 1
    try:
        yield
    finally:
        _LOWERING.depth -= 1


class Recorder:
    """Records calls into one registry."""

    def __init__(
        self, registry: Registry, candidates: Mapping[str, Any], capture_values: bool, max_array_bytes: int
    ) -> None:
        """`candidates` are the configs to try instead of an operation's own. With `capture_values`, traced programs
        report the values of their arrays; arrays above `max_array_bytes` are not stored."""
        self.registry = registry
        self.candidates = candidates
        self.max_array_bytes = max_array_bytes
        self._capture = Capture(capture_values, max_array_bytes)
        self._lock = threading.RLock()
        self._seen: dict[Key, bool] = {}
        self._pending: dict[Key, tuple[RecordedCall, dict[str, Fill], dict[str, str]]] = {}
        self._reports: dict[Key, list[dict[str, Any]]] = {}
        self._notes: list[dict[str, Any]] = []
        # calls about which more may become known after their trace, and the calls as they were traced
        self._traced: dict[Key, RecordedCall] = {}
        self._as_traced: set[Key] = set()
        # calls whose body is inside a `vmap` that has not mapped them yet
        self._maybe_mapped: set[Key] = set()
        _RECORDERS.add(self)
        _follow_forks(self)

    def begin(self) -> None:
        """Receive calls from now on, before the recorders already in force."""
        _STACK.append(self)

    def end(self) -> None:
        """Receive no more calls; wait for pending callbacks."""
        if self in _STACK:
            _STACK.remove(self)
        self._capture.wait()

    def wants(self, op_id: str, call_key: str) -> bool:
        """Whether nothing, or not everything, is known about a call yet. Costs one look-up for each call but the
        first."""
        return self._seen.get((op_id, call_key), True)

    def record(self, call: RecordedCall) -> None:
        """Record one call: immediately outside a trace, else when the trace has ended. Never raises because of the
        call's content."""
        if self._keep(call) and trace_state_is_clean():
            try:
                self.flush(final=False)
            except OSError as error:
                # it stays pending: the program continues, and the end of the recording tries again and raises
                _LOG.error("%s %s is not written yet: %s", call.op_id, call.call_key, error)

    def _keep(self, call: RecordedCall) -> bool:
        """Keeps a call until it is lowered; `False` if it is already known."""
        key = (call.op_id, call.call_key)
        with self._lock:
            if not self._seen.get(key, True):
                return False
            awaited = self._capture.awaited(key, call)
            fills, unknown, warnings = self._fills_of(call)
            if key in self._seen and (unknown or awaited):
                return False  # seen before, and nothing more is known now
            self._seen[key] = bool(unknown or awaited)
            self._pending[key] = (_warned(self._with_asked_candidates(call), warnings), fills, unknown)
            # real arrays may be large, and only their fill matters
            steering = {name: value for name, value in call.values.items() if not is_real(value.dtype)}
            usual = dict(call.usual) | {name: fills[name] for name in call.values if name not in steering}
            self._traced[key] = dataclasses.replace(call, values=steering, usual=usual)
            return True

    def listen(self, op_id: str, call_key: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays of a recorded call, to be used in its place. If the body around the call is mapped later, the
        mapped program is recorded as a variant."""
        key = (op_id, call_key)
        inside = mapped_later.is_inside_mapped_body(arrays)
        with self._lock:
            (self._maybe_mapped if inside else self._as_traced).add(key)
            if key not in self._traced:
                return dict(arrays)
        # JAX keeps traces, and with them this callback, longer than a recording
        recorder = weakref.ref(self)

        def tell(now: Batch, before: Batch, whole: Mapping[str, Any]) -> None:
            alive = recorder()
            if alive is not None:
                alive._mapped_later(key, inside, now, before, whole)

        return mapped_later.listen(arrays, tell)

    def _mapped_later(self, key: Key, inside: bool, now: Batch, before: Batch, whole: Mapping[str, Any]) -> None:
        """A body with a call in it was mapped. `now` and `before` are the axes, including those that the call saw
        itself; `whole` are the arrays with the axes of `now`."""
        with self._lock:
            call = self._traced.get(key)
            if call is None or active() is not self:
                return
            own = len(call.batch)
            if len(now) <= own:
                return
            self._maybe_mapped.discard(key)

            def variant(axes: Batch) -> tuple[str, Batch]:
                batch = (*axes[: len(axes) - own], *call.batch)
                return variant_key(unmapped_key(call.call_key), batch), batch

            # a mapped call does not run by itself
            body = (key[0], variant(before)[0]) if len(before) > own else key
            if (body != key or inside) and body not in self._as_traced and body in self._pending:
                del self._pending[body], self._seen[body]
            call_key, batch = variant(now)
            if not self.wants(key[0], call_key):
                return
            # the values are those of an earlier call
            values = {name: value for name, value in call.values.items() if name not in whole}
            self.watch(key[0], call_key, whole)
            # under `vmap` there is one batch for all
            alone = dataclasses.replace(call, distribution=None, other_values={})
            self._keep(dataclasses.replace(alone, call_key=call_key, batch=batch, values=values))

    def skipped(self, op_id: str, call_key: str, reason: str) -> None:
        """Note once a call that cannot be recorded, with the reason."""
        with self._lock:
            if self._seen.get((op_id, call_key), True):
                self._seen[op_id, call_key] = False
                self._notes.append({"op_id": op_id, "call_key": call_key, "not_recorded": reason})
                _LOG.warning("%s %s is not recorded: %s", op_id, call_key, reason)

    def watch(self, op_id: str, call_key: str, arrays: Mapping[str, Any]) -> None:
        """With `capture_values`, makes the traced program report the values of its arrays when it runs."""
        self._capture.watch((op_id, call_key), arrays)

    def _fills_of(self, call: RecordedCall) -> tuple[dict[str, Fill], dict[str, str], dict[str, str | None]]:
        fills: dict[str, Fill] = {}
        unknown: dict[str, str] = {}
        warnings: dict[str, str | None] = {}
        for name, spec in call.arrays.items():
            value = call.values.get(name)
            if value is not None and call.mesh is not None:
                value = call.mesh.parts(value)
            found = fill_of(spec, value, *_rules_of(call, name), self.registry.writer, self.max_array_bytes)
            fills[name], warnings[name] = found.fill, found.warning
            if found.unknown is not None:
                unknown[name] = found.unknown
        return fills, unknown, warnings

    def _with_asked_candidates(self, call: RecordedCall) -> RecordedCall:
        asked = self.candidates.get(call.op_id)
        return call if asked is None else dataclasses.replace(call, configs=asked, starts=())

    def flush(self, final: bool = True) -> None:
        """Lower and write what is pending. Calls that still wait for captured values are left unless `final`.

        Raises OSError when a record cannot be written; what is not written stays pending.
        """
        failed: OSError | None = None
        with self._lock:
            for key, (call, fills, unknown) in list(self._pending.items()):
                call, awaited = self._take_captured(key, call, fills, unknown)
                if (awaited or unknown and self._capture.is_asked) and not final:
                    self._pending[key] = (call, fills, unknown)
                    continue
                if self._capture.is_asked:
                    unknown = {name: NOT_RUN if why == UNDER_JIT else why for name, why in unknown.items()}
                if key in self._maybe_mapped - self._as_traced:
                    call = dataclasses.replace(call, notes=(*call.notes, MAYBE_MAPPED))
                try:
                    self._reports[key] = self._store(call, fills, unknown)
                except OSError as error:
                    failed = failed or error
                    continue
                del self._pending[key]
                self._seen[key] = bool(unknown)
        if failed is not None:
            raise failed

    def _store(self, call: RecordedCall, fills: dict[str, Fill], unknown: dict[str, str]) -> list[dict[str, Any]]:
        try:
            with lowering():
                return store(call, fills, unknown, self.registry)
        except OSError:
            raise
        except Exception as error:  # one odd call must not affect the others
            reason = one_line(error)
            _LOG.warning("%s %s is not recorded: %s", call.op_id, call.call_key, reason)
            return [{"op_id": call.op_id, "call_key": call.call_key, "not_recorded": reason}]

    def _take_captured(
        self, key: Key, call: RecordedCall, fills: dict[str, Fill], unknown: dict[str, str]
    ) -> tuple[RecordedCall, set[str]]:
        """Puts the values from callbacks into the fills. Returns the call with what is known about it, and the
        arrays that are still awaited."""
        awaited = self._capture.awaited(key, call)
        values = self._capture.take(key)
        warnings: dict[str, str | None] = {}
        for name, value in values.items():
            spec = call.arrays[name]
            if not is_real(spec.dtype):
                if name in unknown:
                    # the first report of a mesh's devices counts for all
                    fills[name] = captured(value if call.mesh is None else call.mesh.parts(value), self.registry.writer)
                    del unknown[name]
            elif name in awaited:
                rule, usual = _rules_of(call, name)
                seen = Observed.of_traced(spec, value)
                fills[name] = rule or seen.fill(usual)
                warnings[name] = seen.warning(is_kept=False)
        return _warned(call, warnings), awaited - values.keys()

    def report(self) -> list[dict[str, Any]]:
        """What was recorded so far: one entry for each call, direction and platform."""
        with self._lock:
            written = [entry for entries in self._reports.values() for entry in entries]
            waiting = [{"op_id": op_id, "call_key": key, "pending": True} for op_id, key in self._pending]
            return written + self._notes + waiting

    def forget_inherited(self) -> None:
        """In a forked child: the parent writes the pending calls, and a lock that it held is free here."""
        self._lock = threading.RLock()
        self._capture.forget()
        self._pending.clear()
        self._reports.clear()
        self._notes.clear()
        self._traced.clear()
        self._as_traced.clear()
        self._maybe_mapped.clear()

    def finish_quietly(self) -> None:
        """Write what is pending at the end of a process, where an error can no longer be caught."""
        try:
            self.flush()
        except Exception as error:
            _LOG.error("%s could not be recorded: %s", counted(len(self._pending), "call"), error)


def _rules_of(call: RecordedCall, name: str) -> tuple[Fill | None, Fill | None]:
    """The fill rule of a whole argument, and its usual distribution."""
    ndim = len(call.arrays[name].shape)
    rule, usual = (
        given and rule_of_whole(name, given, ndim, call.batch) for given in (call.fills.get(name), call.usual.get(name))
    )
    return rule, usual


def _warned(call: RecordedCall, warnings: Mapping[str, str | None]) -> RecordedCall:
    """The call with warnings on its arguments' values, which are also logged."""
    said = [f"`{name}`: {warning}" for name, warning in warnings.items() if warning is not None]
    for warning in said:
        _LOG.warning("%s %s: %s", call.op_id, call.call_key, warning)
    return dataclasses.replace(call, notes=(*call.notes, *said))


def trace_state_is_clean() -> bool:
    """Whether this thread traces nothing at the moment.

    JAX has no public function for it. If the private one is missing, calls are lowered when the recording ends.
    """
    try:
        from jax._src.core import trace_state_clean
    except ImportError:
        return False
    return bool(trace_state_clean())


def _follow_forks(recorder: Recorder) -> None:
    # a child of multiprocessing ends without `atexit` and without leaving the `with` block
    from multiprocessing import util

    def in_child(recorder: Recorder) -> None:
        util.Finalize(recorder, recorder.finish_quietly, exitpriority=10)

    util.register_after_fork(recorder, in_child)


def _after_fork() -> None:
    _LOWERING.depth = 0
    for recorder in list(_RECORDERS):
        recorder.forget_inherited()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
