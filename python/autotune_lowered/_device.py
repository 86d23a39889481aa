"""The device that this process computes on, as the tuner's workers name it."""

from __future__ import annotations

import functools
from typing import Any

from .cache import Device


def device(jax_device: Any = None) -> Device:
    """The fingerprint of a JAX device; without one, of the device that JAX uses by default.

    Raises ImportError without JAX.
    """
    try:
        import jax
    except ImportError as error:
        raise ImportError(
            "the device of this process is known to JAX alone: pip install 'autotune-lowered[jax]', or name a Device"
        ) from error
    if jax_device is None:
        jax_device = jax.config.jax_default_device or jax.devices()[0]
    if isinstance(jax_device, str):
        jax_device = jax.devices(jax_device)[0]
    return _fingerprint(jax_device)


@functools.cache
def _fingerprint(jax_device: Any) -> Device:
    from .worker import fingerprint

    return Device.from_fingerprint(fingerprint(jax_device))


def best_of_default_cache(op_id: str, call_key: str) -> dict[str, Any] | None:
    """What tunable functions ask below all overlays, unless `use_cache` says otherwise."""
    from .cache import current_cache

    entry = current_cache().get(device(), op_id, call_key)
    return None if entry is None else entry.config


def use_cache(cache: Any = None, *, match: str = "exact") -> None:
    """Let this process's tunable functions take their configs from a `Cache`, or from the one at a path.

    Functions that were jitted before are traced again where the snapshot is another. Without a `cache` nothing is looked
    up any more: only overlays and defaults count. `match` says whose results may stand for this device's.
    """
    from . import _in_force
    from .cache import Cache

    if cache is None:
        _in_force.set_lookup(None)
        return
    opened = cache if isinstance(cache, Cache) else Cache.open(cache)

    def look_up(op_id: str, call_key: str) -> dict[str, Any] | None:
        entry = opened.get(device(), op_id, call_key, match=match)
        return None if entry is None else entry.config

    _in_force.set_lookup(look_up, version=f"{opened.digest} {match}")
