"""Attributes of a library that are replaced while someone needs it, and put back after the last of them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .import_hook import after_import

# a class, the name of an attribute, and what replaces it
Replacement = tuple[type, str, Any]


class Replaced:
    """The replacements in one module of a library; none if the library is not as expected."""

    def __init__(self, module: str, replacements: Callable[[ModuleType], Iterable[Replacement] | None]) -> None:
        self._module = module
        self._replacements = replacements
        self._lock = threading.Lock()
        self._holders: list[object] = []
        self._originals: list[Replacement] = []

    def hold(self) -> Callable[[], None]:
        """Replace the attributes, now or once the module is imported; returns a function that ends it."""
        holder = object()
        cancel = after_import(self._module, functools.partial(self._attach, holder))

        def close() -> None:
            cancel()
            self._detach(holder)

        return close

    def _attach(self, holder: object, module: ModuleType) -> None:
        with self._lock:
            if not self._holders:
                replacements = self._replacements(module)
                if replacements is None:
                    return
                for owner, name, value in replacements:
                    self._originals.append((owner, name, vars(owner)[name]))
                    setattr(owner, name, value)
            self._holders.append(holder)

    def _detach(self, holder: object) -> None:
        with self._lock:
            if holder not in self._holders:
                return
            self._holders.remove(holder)
            while self._originals and not self._holders:
                setattr(*self._originals.pop())
