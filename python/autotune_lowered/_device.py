"""The device that this process computes on, as the tuner's workers name it."""

from __future__ import annotations

import functools
import logging
from typing import Any

from ._batching import unmapped_key
from .cache import Device

_LOG = logging.getLogger("autotune_lowered")


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

    return _config_of(current_cache().get(device(), op_id, call_key), call_key)


_told: set[tuple[str, str, str]] = set()


def _config_of(entry: Any, call_key: str) -> dict[str, Any] | None:
    """An entry's config; that it was measured under other `vmap`s than the call's is said once."""
    if entry is None:
        return None
    for kind, detail in entry.flags:
        if kind == "other-batch" and (entry.op_id, call_key, detail) not in _told:
            _told.add((entry.op_id, call_key, detail))
            # a key without `vmap` may stand in a body that is mapped as a whole, and then the entry may be its own
            level = logging.WARNING if unmapped_key(call_key) != call_key else logging.INFO
            _LOG.log(level, "%s:%s takes the config of another batch: %s", entry.op_id, call_key, detail)
    return entry.config


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
        return _config_of(opened.get(device(), op_id, call_key, match=match), call_key)

    _in_force.set_lookup(look_up, version=f"{opened.digest} {match}")
