"""The configs in force: a thread's or task's overlays (`contextvars`), and below them the process's look-up.

`generation()` identifies the whole state: equal states have equal numbers, so that JAX reuses a state's traces when the
state returns.
"""

from __future__ import annotations

import contextlib
import contextvars
import enum
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from .. import _vmap
from . import trace_key

Config = dict[str, Any]
Lookup = Callable[[str, str], Config | None]


class Default(enum.Enum):
    """The initial look-up of a process."""

    CACHE = enum.auto()
    """The default cache, opened at the first query."""


class _State(NamedTuple):
    overlays: tuple[Mapping[tuple[str, str], Config], ...]
    """Innermost first."""
    lookup: Lookup | Default | None
    generation: int


_base_changes = 0
_base_lock = threading.Lock()
_current: contextvars.ContextVar[_State | None] = contextvars.ContextVar("autotune_lowered_in_force", default=None)


def _state() -> _State:
    return _current.get() or _base


def overlaid(op_id: str, call_key: str) -> Config | None:
    """The config in this thread's overlays for a call; `None` if none has one.

    An overlay's config for the call under its own `vmap`s has priority, then the unmapped one, then that of the `vmap`
    with the most calls."""
    state = _current.get()
    if state is None:
        return None
    for configs in state.overlays:
        config = configs.get((op_id, call_key)) or _of_other_batch(configs, op_id, call_key)
        if config is not None:
            return dict(config)
    return None


def _of_other_batch(configs: Mapping[tuple[str, str], Config], op_id: str, call_key: str) -> Config | None:
    own = _vmap.unmapped_key(call_key)
    keys = [key for op, key in configs if op == op_id and _vmap.unmapped_key(key) == own]
    return configs[op_id, min(keys, key=_vmap.preference)] if keys else None


def lookup() -> Lookup | Default | None:
    """The look-up below all overlays."""
    return _state().lookup


def generation() -> int:
    """A number that identifies the state in force here; it changes with the state, and 0 means that nothing is in
    force."""
    return _state().generation


def set_lookup(lookup: Lookup | None, *, version: str | None = None) -> None:
    """Put a look-up below all overlays, for the whole process; `None` removes it.

    Functions jitted before are traced again at their next call. `version` identifies the look-up's data (a snapshot's
    digest): the same version means the same answers, so nothing is traced again when it returns. Without it, every call
    of this function counts as a change. Open overlays keep the look-up that they began with.
    """
    global _base, _base_changes
    with _base_lock:
        _base_changes += 1
        named = f"version {version}" if version is not None else f"change {_base_changes}"
        generation = 0 if lookup is None else _number("lookup", named)
        _base = _State((), lookup, generation)
        trace_key.set_process(generation)


@contextlib.contextmanager
def overlay(configs: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[None]:
    """Put configs, by `(op_id, call_key)`, in force above the present ones, for this thread or task.

    Functions jitted outside are traced again inside, and use their old trace afterwards. Enter it in the thread that
    calls them. JAX separates its trace caches by thread and not by task: in a coroutine, do not `await` inside it. If
    the event loop ran meanwhile, leaving it raises RuntimeError.
    """
    outer = _state()
    own, text = _own(configs)
    state = _State((own, *outer.overlays), outer.lookup, _number("overlay", str(outer.generation), text))
    with _entered(state):
        yield


@contextlib.contextmanager
def only_in_force(configs: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[None]:
    """Like `overlay`, with nothing below: neither open overlays nor the look-up apply inside."""
    own, text = _own(configs)
    with _entered(_State((own,), None, _number("only", text))):
        yield


def _own(configs: Mapping[tuple[str, str], Mapping[str, Any]]) -> tuple[dict[tuple[str, str], Config], str]:
    """A copy of configs, and a text that identifies them. Raises TypeError for a key that is no pair of names."""
    for label in configs:
        if not (isinstance(label, tuple) and len(label) == 2 and all(isinstance(part, str) for part in label)):
            raise TypeError(
                f"{label!r} names no call: give `(op_id, call_key)`, such as ('matmul@v1', '0123456789abcdef')"
            )
    own = {label: dict(config) for label, config in configs.items()}
    return own, json.dumps(sorted((*label, config) for label, config in own.items()), sort_keys=True, default=repr)


@contextlib.contextmanager
def _entered(state: _State) -> Iterator[None]:
    with trace_key.entered(state.generation):
        token = _current.set(state)
        try:
            yield
        finally:
            _current.reset(token)


def _number(*parts: str) -> int:
    """63 bits of a digest over parts, each after its length. Not 0, which means nothing, and not 1, the first
    state."""
    # imported late, because a look-up alone does not need it
    import hashlib

    digest = hashlib.sha256()
    for part in parts:
        content = part.encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return max(int.from_bytes(digest.digest()[:8], "little") >> 1, 2)


# the initial state of a process
_base = _State((), Default.CACHE, generation=1)
trace_key.begin_with(_base.generation)
