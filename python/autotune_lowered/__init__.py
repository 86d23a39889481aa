"""Record tunable operations of JAX programs, tune them anywhere, and load the best configs where they run.

The names below and the modules `cache`, `fleet`, `module`, `profiling`, `ejkernel_fields`, `tokamax_operations` and
`worker` are public; all others may change with any version.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# its filter applies from the first log message on
from . import _printable as _printable
from ._version import __version__

# public names, by the module that defines them; resolved at first use, so that importing the package loads no other
_NAMES = {
    "AutotuningResult": "tuning.result",
    "Cache": "cache",
    "CacheError": "cache",
    "Device": "cache",
    "Entry": "cache",
    "SnapshotMismatch": "cache",
    "TuningError": "tuning.process",
    "adapt": "adapters.adapt",
    "autotune": "autotuning.autotuned",
    "autotune_lowered": "tuning.run",
    "capture": "inputs",
    "compiler_options": "lookup.compiler_options",
    "device": "lookup.device",
    "dump": "variants",
    "export_rows": "adapters.export",
    "fleet": "fleet",
    "jit": "lookup.jit",
    "overlay": "lookup.in_force",
    "profiling": "profiling",
    "recording": "_recording",
    "target_mesh": "record.target_mesh",
    "tunable": "tunables.tunable",
    "tune": "tuning.run",
    "use_cache": "lookup.best",
}

__all__ = ["__version__", *_NAMES]

if TYPE_CHECKING:
    from . import fleet as fleet
    from . import profiling as profiling
    from ._recording import recording as recording
    from .adapters.adapt import adapt as adapt
    from .adapters.export import export_rows as export_rows
    from .autotuning.autotuned import autotune as autotune
    from .cache import Cache as Cache
    from .cache import CacheError as CacheError
    from .cache import Device as Device
    from .cache import Entry as Entry
    from .cache import SnapshotMismatch as SnapshotMismatch
    from .inputs import capture as capture
    from .lookup.best import use_cache as use_cache
    from .lookup.compiler_options import compiler_options as compiler_options
    from .lookup.device import device as device
    from .lookup.in_force import overlay as overlay
    from .lookup.jit import jit as jit
    from .record.target_mesh import target_mesh as target_mesh
    from .tunables.tunable import tunable as tunable
    from .tuning.process import TuningError as TuningError
    from .tuning.result import AutotuningResult as AutotuningResult
    from .tuning.run import autotune_lowered as autotune_lowered
    from .tuning.run import tune as tune
    from .variants import dump as dump


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    module = importlib.import_module(f".{_NAMES[name]}", __name__)
    # a public module is available under its own name
    value = module if name == _NAMES[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if os.environ.get("AUTOTUNE_LOWERED_RECORD"):
    from ._recording import record_whole_process

    record_whole_process(os.environ["AUTOTUNE_LOWERED_RECORD"])
