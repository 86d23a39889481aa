"""Record tunable operations of JAX programs, tune them anywhere, and load the best configs where they run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

# public names, by the module that defines them; resolved at first use, so that importing the package loads no other
_NAMES = {
    "fleet": "fleet",
}

__all__ = ["__version__", *_NAMES]

if TYPE_CHECKING:
    from . import fleet as fleet


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    module = importlib.import_module(f".{_NAMES[name]}", __name__)
    # a module that is public itself stands under its own name
    value = module if name == _NAMES[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
