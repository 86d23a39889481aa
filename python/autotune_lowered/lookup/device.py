"""Devices for look-ups, and this process's own device, named as the tuner's workers name it."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from .. import _native
from .._jax import jax_for


class Device:
    """A device with its software, for which configs are looked up.

    Two are equal if hardware and software are. Only the hardware decides whether an entry applies; other software gives
    a flag.
    """

    __slots__ = ("_fingerprint", "_hash")

    def __init__(
        self,
        platform: str,
        device_kind: str,
        hardware: Mapping[str, str] | None = None,
        environment: Mapping[str, Any] | None = None,
    ):
        """`platform` is PJRT's name in lower case (`cpu`, `cuda`), `device_kind` is PJRT's (`NVIDIA H200`), and
        `hardware` is the hardware part that `autotune-lowered device` prints."""
        identity = {"platform": platform, "device_kind": device_kind, "hardware": dict(hardware or {})}
        self._set(_native.Fingerprint(json.dumps({"identity": identity, "environment": dict(environment or {})})))

    def _set(self, fingerprint: _native.Fingerprint) -> None:
        self._fingerprint = fingerprint
        self._hash = hash(fingerprint)

    @classmethod
    def from_fingerprint(cls, fingerprint: Mapping[str, Any] | str) -> Device:
        """From a fingerprint in the output of `autotune-lowered device --format json`, as a mapping or text."""
        text = fingerprint if isinstance(fingerprint, str) else json.dumps(fingerprint)
        device = cls.__new__(cls)
        device._set(_native.Fingerprint(text))
        return device

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Identity and environment, as a dictionary."""
        fingerprint: dict[str, Any] = json.loads(self._fingerprint.to_json())
        return fingerprint

    @property
    def portable(self) -> str:
        """ejkernel's spelling, `device_kind|platform_version`: for exchange only."""
        return self._fingerprint.to_portable()

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Device) and self._fingerprint == other._fingerprint)

    def __repr__(self) -> str:
        return f"<Device {self._fingerprint}>"


def device(jax_device: Any = None) -> Device:
    """The fingerprint of a JAX device; without one, of the device that JAX uses by default.

    Raises ImportError without JAX.
    """
    jax = jax_for("to tell the device of this process (or name a `Device`) needs")
    if jax_device is None:
        jax_device = jax.config.jax_default_device or jax.devices()[0]
    if isinstance(jax_device, str):
        jax_device = jax.devices(jax_device)[0]
    return _of_jax(jax_device)


@functools.cache
def _of_jax(jax_device: Any) -> Device:
    from ..worker import fingerprint

    return Device.from_fingerprint(fingerprint(jax_device))
