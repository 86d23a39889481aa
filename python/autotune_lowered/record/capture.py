"""Captures the values of arrays in traced programs, by callbacks while they run."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Mapping
from typing import Any

from .call import RecordedCall
from .dtypes import is_key, is_real
from .fills import traced_figures


class Capture:
    """Values by call (operation and call key) and argument: integers and booleans as they are, figures of real
    arrays."""

    def __init__(self, is_asked: bool, max_array_bytes: int) -> None:
        self.is_asked = is_asked
        self._max_array_bytes = max_array_bytes
        # a separate lock, because the holder of the recorder's lock may wait for a program whose callback brings a
        # value
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], dict[str, Any]] = {}
        self._awaited: dict[tuple[str, str], set[str]] = {}

    def watch(self, key: tuple[str, str], arrays: Mapping[str, Any]) -> None:
        """Inserts callbacks into the program that is being traced. Concrete arrays do not need them."""
        import jax

        if not self.is_asked:
            return
        for name, array in arrays.items():
            if isinstance(array, jax.core.Tracer) and array.size > 0 and not is_key(array.dtype):
                with self._lock:
                    self._awaited.setdefault(key, set()).add(name)
                brought = traced_figures(array) if is_real(array.dtype) else array
                jax.debug.callback(functools.partial(self._keep, key, name), brought)

    def _keep(self, key: tuple[str, str], name: str, value: Any) -> None:
        import numpy as np

        with self._lock:
            held = self._held.setdefault(key, {})
            # the first value counts
            if name not in held and getattr(value, "nbytes", 0) <= self._max_array_bytes:
                held[name] = np.array(value)

    def awaited(self, key: tuple[str, str], call: RecordedCall) -> set[str]:
        """The non-concrete arrays of a call, whose values a callback will bring."""
        with self._lock:
            return self._awaited.get(key, set()) - call.values.keys()

    def take(self, key: tuple[str, str]) -> dict[str, Any]:
        """The captured values of a call, once."""
        with self._lock:
            values = self._held.pop(key, {})
            if values and key in self._awaited:
                self._awaited[key] -= values.keys()
        return values

    def wait(self) -> None:
        """Waits for the callbacks of programs that run."""
        if self.is_asked and "jax" in sys.modules:
            sys.modules["jax"].effects_barrier()

    def forget(self) -> None:
        """In a forked child: pending values are the parent's, and a lock that it held is free here."""
        self._lock = threading.Lock()
        self._held.clear()
        self._awaited.clear()
