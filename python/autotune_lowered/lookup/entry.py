"""Entries of caches: a best config and its provenance."""

from __future__ import annotations

import json
from typing import Any

from .._printable import printable

# the native store's result: config, provenance, tier, direction, device, flags
Found = tuple[str, str | None, str, str, str, list[tuple[str, str]]]


class Entry:
    """A best config and its provenance. Equal if config, direction and provenance are equal."""

    __slots__ = ("_config", "_device", "_provenance", "call_key", "direction", "flags", "op_id", "tier")

    def __init__(
        self,
        op_id: str,
        call_key: str,
        direction: str,
        tier: str,
        flags: tuple[tuple[str, str], ...],
        config: str,
        provenance: str | None,
        device: str,
    ):
        self.op_id = op_id
        """Operation, `name@vN`."""
        self.call_key = call_key
        """Key of the call's arguments."""
        self.direction = direction
        """`forward` or `forward-vjp`."""
        self.tier = tier
        """Where it was found: `overlay`, `memory`, `snapshot` or `shipped`."""
        self.flags = flags
        """Caveats before using it: kind (`stale-environment`, `other-device`, `other-batch`) and detail."""
        self._config = config
        self._provenance = provenance
        self._device = device

    @classmethod
    def of(cls, op_id: str, call_key: str, found: Found) -> Entry:
        """From the native store's result for a call."""
        config, provenance, tier, direction, device, flags = found
        return cls(op_id, call_key, direction, tier, tuple(flags), config, provenance, device)

    def _parts(self) -> tuple[str | None, ...]:
        return (self.op_id, self.call_key, self.direction, self._config, self._provenance, self._device)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        return printable(
            f"<Entry {self.op_id}:{self.call_key} {self.direction}: {self._config} from the {self.tier} tier>"
        )

    @property
    def config(self) -> dict[str, Any]:
        """The config; each call gives a new dictionary."""
        config: dict[str, Any] = json.loads(self._config)
        return config

    @property
    def provenance(self) -> dict[str, Any] | None:
        """How it was found (timer, baseline, medians in nanoseconds, interval, ties, environment); None if unknown."""
        provenance: dict[str, Any] | None = None if self._provenance is None else json.loads(self._provenance)
        return provenance

    @property
    def device(self) -> dict[str, Any]:
        """The device that it was tuned on."""
        device: dict[str, Any] = json.loads(self._device)
        return device
