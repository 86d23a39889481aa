"""A recorder: keeps what calls were seen, lowers them when it may, and writes each into the registry once."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ._version import __version__

LOG = logging.getLogger("autotune_lowered")

MAX_ARRAY_BYTES = 64 << 20
MAYBE_MAPPED = "a `vmap` stands around the body that it is in and was not seen to map it: recorded as it was traced"
PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "rocm", "tpu": "tpu"}

_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()
_LOWERING = threading.local()


def is_lowering() -> bool:
    """Whether this thread is lowering candidates: the operations that it calls meanwhile are none of the user's."""
    return getattr(_LOWERING, "depth", 0) > 0


class Recorder:
    """Writes calls into one registry. Any number of recorders, in any number of processes, may write into one folder."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        platforms: Iterable[str] | None,
        directions: tuple[str, ...],
        candidates: Mapping[str, Any],
        capture_values: bool,
        max_array_bytes: int,
    ) -> None:
        if importlib.util.find_spec("jax") is None:
            raise ImportError("recording needs JAX: pip install 'autotune-lowered[jax]'")
        from ._native import RegistryWriter

        # made now: a folder that is of another schema, or cannot be written, is refused before the run and not after it
        self.writer = RegistryWriter(Path(folder).absolute())
        self.directions = directions
        self.candidates = candidates
        self.capture_values = capture_values
        self.max_array_bytes = max_array_bytes
        self._asked = None if platforms is None else tuple(platforms)
        self._lock = threading.RLock()
        self._seen: dict[tuple[str, str], bool] = {}
        self._pending: dict[tuple[str, str], tuple[Any, dict, dict]] = {}
        # a lock of its own: whoever holds the other one may wait for a program whose callback brings a value
        self._capturing = threading.Lock()
        self._captured: dict[tuple[str, str], dict[str, Any]] = {}
        self._awaited: dict[tuple[str, str], set[str]] = {}
        self._reports: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._notes: list[dict[str, Any]] = []
        # calls by which more may come to be known after their trace, and those that were called as they were traced
        self._traced: dict[tuple[str, str], Any] = {}
        self._as_traced: set[tuple[str, str]] = set()
        # those around whose body a `vmap` stands that did not map them yet
        self._maybe_mapped: set[tuple[str, str]] = set()
        _RECORDERS.add(self)
        _follow_forks(self)

    @functools.cached_property
    def platforms(self) -> tuple[str, ...]:
        """What is lowered for, by JAX's names; where none was asked for, the platform that this process runs on."""
        if self._asked is None:
            return (_own_fingerprint()["identity"]["platform"],)
        unknown = [name for name in self._asked if name not in PLATFORMS]
        if unknown:
            raise ValueError(f"no platform `{unknown[0]}`: name some of `{'`, `'.join(sorted(set(PLATFORMS)))}`")
        return tuple(dict.fromkeys(PLATFORMS[name] for name in self._asked))

    def target(self, platform: str) -> dict[str, Any]:
        """The device where it is there, else every device of the platform."""
        return {"device": _own_fingerprint()["identity"]} if self.is_here(platform) else {"platform": platform}

    def is_here(self, platform: str) -> bool:
        """Whether this process runs on the platform."""
        return _own_fingerprint()["identity"]["platform"] == platform

    def wants(self, op_id: str, call_key: str) -> bool:
        """Whether nothing, or not all, is known of a call yet. One look-up for each call but the first."""
        return self._seen.get((op_id, call_key), True)

    def record(self, call: Any) -> None:
        """Record one call, see `record_call`."""
        if self._keep(call) and trace_state_is_clean():
            try:
                self.flush(final=False)
            except OSError as error:
                # it stays pending: the program goes on, and the recording's end tries again and raises
                LOG.error("%s %s is not written yet: %s", call.op_id, call.call_key, error)

    def _keep(self, call: Any) -> bool:
        """Holds a call until it is lowered; `False` where it is known already."""
        from ._fills import is_real

        key = (call.op_id, call.call_key)
        with self._lock:
            if not self._seen.get(key, True):
                return False
            awaited = self._awaited_of(key, call)
            fills, unknown, warnings = self._fills_of(call)
            if key in self._seen and (unknown or awaited):
                return False  # seen before, and nothing more is known now
            self._seen[key] = bool(unknown or awaited)
            self._pending[key] = (_warned(self._with_asked_candidates(call), warnings), fills, unknown)
            # of real arrays, which may be large, how they are filled is all that is to be known
            steering = {name: value for name, value in call.values.items() if not is_real(value.dtype)}
            usual = dict(call.usual) | {name: fills[name] for name in call.values if name not in steering}
            self._traced[key] = dataclasses.replace(call, values=steering, usual=usual)
            return True

    def listen(self, op_id: str, call_key: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays of a recorded call, to be used in their stead: where the body that it stands in is mapped later,
        what runs is recorded as a variant."""
        from . import _batching_later

        key = (op_id, call_key)
        inside = _batching_later.is_inside_mapped_body(arrays)
        with self._lock:
            (self._maybe_mapped if inside else self._as_traced).add(key)
            if key not in self._traced:
                return dict(arrays)
        # JAX keeps traces, and with them what is called here, for longer than a recording
        recorder = weakref.ref(self)

        def tell(now: Any, before: Any, whole: Any) -> None:
            alive = recorder()
            if alive is not None:
                alive._mapped_later(key, inside, now, before, whole)

        return _batching_later.listen(arrays, tell)

    def _mapped_later(
        self, key: tuple[str, str], inside: bool, now: Any, before: Any, whole: Mapping[str, Any]
    ) -> None:
        """A body with a call in it was mapped: `now` and `before` are the axes, those included that the call saw itself,
        `whole` the arrays with those of now."""
        from ._batching import unmapped_key, variant_key
        from ._recording import active

        with self._lock:
            call = self._traced.get(key)
            if call is None or active() is not self or is_lowering():
                return
            own = len(call.batch)
            if len(now) <= own:
                return
            self._maybe_mapped.discard(key)

            def variant(axes: Any) -> tuple[str, Any]:
                batch = (*axes[: len(axes) - own], *call.batch)
                return variant_key(unmapped_key(call.call_key), batch), batch

            # what was mapped does not run by itself
            mapped = (key[0], variant(before)[0]) if len(before) > own else key
            if (mapped != key or inside) and mapped not in self._as_traced and self._pending.pop(mapped, None):
                del self._seen[mapped]
            call_key, batch = variant(now)
            if not self.wants(key[0], call_key):
                return
            # the values are those that an earlier call had
            values = {name: value for name, value in call.values.items() if name not in whole}
            self.watch(key[0], call_key, whole)
            self._keep(dataclasses.replace(call, call_key=call_key, batch=batch, values=values))

    def skipped(self, op_id: str, call_key: str, reason: str) -> None:
        """Note a call that cannot be recorded, once, with the reason."""
        with self._lock:
            if self._seen.get((op_id, call_key), True):
                self._seen[op_id, call_key] = False
                self._notes.append({"op_id": op_id, "call_key": call_key, "not_recorded": reason})
                LOG.warning("%s %s is not recorded: %s", op_id, call_key, reason)

    def watch(self, op_id: str, call_key: str, arrays: Mapping[str, Any]) -> None:
        """With `capture_values`, has the traced program tell what its arrays hold when it runs: the values of integers and
        booleans, size and sign of real ones. Arrays that are concrete need no such thing."""
        import jax

        from ._fills import is_key, is_real, traced_figures

        if not self.capture_values:
            return
        for name, array in arrays.items():
            if isinstance(array, jax.core.Tracer) and array.size > 0 and not is_key(array.dtype):
                with self._capturing:
                    self._awaited.setdefault((op_id, call_key), set()).add(name)
                brought = traced_figures(array) if is_real(array.dtype) else array
                jax.debug.callback(functools.partial(self.capture, op_id, call_key, name), brought)

    def capture(self, op_id: str, call_key: str, name: str, value: Any) -> None:
        """Keep what a callback brought from inside a traced call of an array; the first one counts."""
        import numpy as np

        with self._capturing:
            held = self._captured.setdefault((op_id, call_key), {})
            if name not in held and getattr(value, "nbytes", 0) <= self.max_array_bytes:
                held[name] = np.array(value)

    def _awaited_of(self, key: tuple[str, str], call: Any) -> set[str]:
        """The arrays of a call that are not concrete, and that a callback is going to tell of."""
        with self._capturing:
            return self._awaited.get(key, set()) - call.values.keys()

    def _fills_of(self, call: Any) -> tuple[dict, dict, dict]:
        from ._fills import fill_of

        fills, unknown, warnings = {}, {}, {}
        for name, spec in call.arrays.items():
            value = call.values.get(name)
            if value is not None and call.mesh is not None:
                value = call.mesh.parts(value)
            found = fill_of(spec, value, *_rules_of(call, name), self.writer, self.max_array_bytes)
            fills[name], warnings[name] = found.fill, found.warning
            if found.unknown is not None:
                unknown[name] = found.unknown
        return fills, unknown, warnings

    def _with_asked_candidates(self, call: Any) -> Any:
        asked = self.candidates.get(call.op_id)
        return call if asked is None else dataclasses.replace(call, configs=asked)

    def flush(self, final: bool = True) -> None:
        """Lower and write what is pending. Calls that still wait for captured values are left unless `final`.

        Raises OSError when a record cannot be written; what is not written stays pending.
        """
        failed: OSError | None = None
        with self._lock:
            for key, (call, fills, unknown) in list(self._pending.items()):
                call, awaited = self._take_captured(key, call, fills, unknown)
                if (awaited or unknown and self.capture_values) and not final:
                    self._pending[key] = (call, fills, unknown)
                    continue
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

    def _store(self, call: Any, fills: dict, unknown: dict) -> list[dict[str, Any]]:
        from ._calls import store
        from ._describe import one_line

        _LOWERING.depth = getattr(_LOWERING, "depth", 0) + 1
        try:
            return store(call, fills, unknown, self)
        except OSError:
            raise
        except Exception as error:  # one call that is like no other must not take the rest with it
            reason = one_line(error)
            LOG.warning("%s %s is not recorded: %s", call.op_id, call.call_key, reason)
            return [{"op_id": call.op_id, "call_key": call.call_key, "not_recorded": reason}]
        finally:
            _LOWERING.depth -= 1

    def _take_captured(self, key: tuple[str, str], call: Any, fills: dict, unknown: dict) -> tuple[Any, set[str]]:
        """Puts what callbacks have brought into the fills; gives the call with what is to be known of it, and the arrays that
        are waited for yet."""
        from ._fills import Observed, captured, is_real

        awaited = self._awaited_of(key, call)
        with self._capturing:
            values = self._captured.pop(key, {})
            if values and key in self._awaited:
                self._awaited[key] -= values.keys()
        warnings = {}
        for name, value in values.items():
            spec = call.arrays[name]
            if not is_real(spec.dtype):
                if name in unknown:
                    # of a mesh's devices, the first that told stands for all
                    fills[name] = captured(value if call.mesh is None else call.mesh.parts(value), self.writer)
                    del unknown[name]
            elif name in awaited:
                rule, usual = _rules_of(call, name)
                seen = Observed.of_traced(spec, value)
                fills[name] = rule or seen.fill(usual)
                warnings[name] = seen.warning(is_kept=False)
        return _warned(call, warnings), awaited - values.keys()

    def add(self, invocation: dict[str, Any]) -> str:
        """Write a record whose programs are written already; gives its path."""
        whole = invocation | {
            "recorded_on": _own_fingerprint(),
            "recorded_at": int(os.environ.get("SOURCE_DATE_EPOCH", time.time())),
            "recorder": recorder_name(),
        }
        return str(self.writer.add(json.dumps(whole, allow_nan=False)))

    def report(self) -> list[dict[str, Any]]:
        """What was recorded so far: one entry for each call, direction and platform."""
        with self._lock:
            written = [entry for entries in self._reports.values() for entry in entries]
            waiting = [{"op_id": op_id, "call_key": key, "pending": True} for op_id, key in self._pending]
            return written + self._notes + waiting

    def forget_inherited(self) -> None:
        """In a forked child: what was pending is the parent's to write, and a lock that it held is nobody's here."""
        self._lock = threading.RLock()
        self._capturing = threading.Lock()
        self._pending.clear()
        self._captured.clear()
        self._awaited.clear()
        self._reports.clear()
        self._notes.clear()
        self._traced.clear()
        self._as_traced.clear()
        self._maybe_mapped.clear()

    def finish_quietly(self) -> None:
        """Write what is pending at the end of a process, where nobody is left to catch an error."""
        try:
            self.flush()
        except Exception as error:
            from ._describe import counted

            LOG.error("%s could not be recorded: %s", counted(len(self._pending), "call"), error)


def _rules_of(call: Any, name: str) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The rule of a whole argument, and what is usual for it."""
    from ._batching import rule_of_whole

    ndim = len(call.arrays[name].shape)
    rule, usual = (
        given and rule_of_whole(name, given, ndim, call.batch) for given in (call.fills.get(name), call.usual.get(name))
    )
    return rule, usual


def _warned(call: Any, warnings: Mapping[str, str | None]) -> Any:
    """The call with what its reader should know of its arguments' values, which is logged too."""
    said = [f"`{name}`: {warning}" for name, warning in warnings.items() if warning is not None]
    for warning in said:
        LOG.warning("%s %s: %s", call.op_id, call.call_key, warning)
    return dataclasses.replace(call, notes=(*call.notes, *said))


def trace_state_is_clean() -> bool:
    """Whether this thread traces nothing at the moment.

    JAX has no public function for it. Where the private one is gone, calls are lowered when the recording ends.
    """
    try:
        from jax._src.core import trace_state_clean
    except ImportError:
        return False
    return bool(trace_state_clean())


@functools.cache
def _own_fingerprint() -> dict[str, Any]:
    import jax

    from .worker import fingerprint

    return fingerprint(jax.local_devices()[0])


def recorder_name() -> str:
    """What recorded, with versions: `autotune-lowered 0.1.0, jax 0.10.2, ejkernel 0.0.80.3`."""
    import sys
    from importlib.metadata import PackageNotFoundError, version

    parts = [f"autotune-lowered {__version__}"]
    for package in ("jax", "ejkernel", "tokamax"):
        if package in sys.modules:
            try:
                parts.append(f"{package} {version(package)}")
            except PackageNotFoundError:
                parts.append(package)
    return ", ".join(parts)


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
