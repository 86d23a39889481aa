"""The registry's folder that a recording writes into, and the devices that its records are for."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .._native import RegistryWriter
from .._version import __version__
from .target import Target

# platforms as JAX and its users name them, to the names of lowering
LOWERING_PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "rocm", "tpu": "tpu"}


class Registry:
    """A registry's writer. Any number of them, in any number of processes, may write into one folder."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        platforms: Iterable[str] | None,
        directions: tuple[str, ...],
        fingerprint: Callable[[], dict[str, Any]],
        absent: Target | None = None,
        on_demand: int = 0,
    ) -> None:
        """`platforms` are the users' names, or `absent` is the device to record for instead; `fingerprint` returns that
        of the device here, and is called once. On demand, only baselines are lowered; the number says which of the
        program's recordings on demand it is."""
        if importlib.util.find_spec("jax") is None:
            raise ImportError("recording needs JAX: pip install 'autotune-lowered[jax]'")
        # created now, so that a folder with another schema, or one that cannot be written, is refused before the run
        # and not after it
        self.writer = RegistryWriter(Path(folder).absolute())
        self.directions = directions
        self.absent = absent
        self.on_demand = on_demand
        # is told each candidate of a record as soon as it is lowered, if anybody is
        self.told: Callable[[dict[str, Any]], None] | None = None
        self._fingerprint = functools.cache(fingerprint)
        self._asked = None if platforms is None else tuple(platforms)

    @functools.cached_property
    def platforms(self) -> tuple[str, ...]:
        """The platforms to lower for, by JAX's names; by default the one that this process runs on."""
        if self.absent is not None:
            return (self.absent.platform,)
        if self._asked is None:
            return (self._own_platform(),)
        unknown = [name for name in self._asked if name not in LOWERING_PLATFORMS]
        if unknown:
            raise ValueError(
                f"no platform `{unknown[0]}`: name some of `{'`, `'.join(sorted(set(LOWERING_PLATFORMS)))}`"
            )
        return tuple(dict.fromkeys(LOWERING_PLATFORMS[name] for name in self._asked))

    def target(self, platform: str) -> dict[str, Any]:
        """The device if it is present or was named, else every device of the platform."""
        if self.absent is not None:
            return {"device": self.absent.identity}
        return {"device": self._fingerprint()["identity"]} if self.is_here(platform) else {"platform": platform}

    def device_away(self, platform: str) -> Target | None:
        """A note on the device that is lowered for; `None` if it is this process's device."""
        if self.is_here(platform):
            return None
        return self.absent or Target.of_platform(platform)

    def is_here(self, platform: str) -> bool:
        """Whether this process runs on the device that is recorded for."""
        return self.absent is None and self._own_platform() == platform

    def _own_platform(self) -> str:
        return str(self._fingerprint()["identity"]["platform"])

    def put_program(self, artifact: bytes, semantic_digest: str | None, custom_calls: list[str]) -> dict[str, Any]:
        """Store a program; return its entry in a record."""
        entry: dict[str, Any] = json.loads(self.writer.put_program(artifact, semantic_digest, custom_calls))
        return entry

    def add(self, invocation: dict[str, Any]) -> str:
        """Write a record whose programs are already written; return its path."""
        whole = invocation | {
            "recorded_on": self._fingerprint(),
            "recorded_at": int(os.environ.get("SOURCE_DATE_EPOCH", time.time())),
            "recorder": recorder_name(),
        }
        return str(self.writer.add(json.dumps(whole, allow_nan=False)))


def recorder_name() -> str:
    """The recorder, with versions: `autotune-lowered 0.1.0, jax 0.10.2, ejkernel 0.0.80.3`."""
    parts = [f"autotune-lowered {__version__}"]
    for package in ("jax", "ejkernel", "tokamax"):
        if package in sys.modules:
            try:
                parts.append(f"{package} {version(package)}")
            except PackageNotFoundError:
                parts.append(package)
    return ", ".join(parts)
