"""What is replaced in a library while someone needs it, and put back after the last of them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .import_hook import after_import

# a class, the name of an attribute, and what replaces it
Replacement = tuple[type, str, Any]


class Held:
    """A change of a module, made for the first who needs it and undone after the last."""

    def __init__(self, module: str, change: Callable[[ModuleType], Callable[[], None] | None]) -> None:
        """`change` makes it and returns what undoes it; `None` if the module is not as expected."""
        self._module = module
        self._change = change
        self._lock = threading.Lock()
        self._holders: list[object] = []
        self._undo: Callable[[], None] | None = None

    @property
    def is_held(self) -> bool:
        return bool(self._holders)

    def hold(self) -> Callable[[], None]:
        """Make the change, now or once the module is imported; returns a function that ends it."""
        holder = object()
        cancel = after_import(self._module, functools.partial(self._attach, holder))

        def close() -> None:
            cancel()
            self._detach(holder)

        return close

    def _attach(self, holder: object, module: ModuleType) -> None:
        with self._lock:
            if not self._holders:
                self._undo = self._change(module)
                if self._undo is None:
                    return
            self._holders.append(holder)

    def _detach(self, holder: object) -> None:
        with self._lock:
            if holder not in self._holders:
                return
            self._holders.remove(holder)
            if not self._holders and self._undo is not None:
                self._undo()


def replaced(module: str, replacements: Callable[[ModuleType], Iterable[Replacement] | None]) -> Held:
    """Attributes of a module's classes; none if `replacements` finds the module not as expected."""

    def change(module: ModuleType) -> Callable[[], None] | None:
        wanted = replacements(module)
        if wanted is None:
            return None
        originals = []
        for owner, name, value in wanted:
            originals.append((owner, name, vars(owner)[name]))
            setattr(owner, name, value)

        def undo() -> None:
            for owner, name, value in reversed(originals):
                setattr(owner, name, value)

        return undo

    return Held(module, change)
