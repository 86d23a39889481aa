"""Record tunable operations of JAX programs, tune them anywhere, and load the best configs where they run."""

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import profiling as profiling
    from .module import dump as dump
    from ._tunable import tunable as tunable

# public name to the module that has it; a module's own name stands for the module
_PUBLIC = {
    "dump": "module",
    "profiling": "profiling",
    "tunable": "_tunable",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_PUBLIC[name]}", __name__)
    value = module if name == _PUBLIC[name] and not hasattr(module, name) else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
