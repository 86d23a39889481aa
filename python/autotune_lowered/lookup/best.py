"""The best config of a traced call: from the innermost overlay that has one, else from the look-up in force."""

from __future__ import annotations

import json
import logging
import os

from .._vmap import unmapped_key
from . import in_force, trace_key
from .cache import Cache, current_cache
from .device import Device, device
from .entry import Entry
from .in_force import Config

_LOG = logging.getLogger("autotune_lowered")


def best_config(op_id: str, call_key: str) -> Config | None:
    """The config in force for a call, as a copy; `None` if neither an overlay nor the look-up has one."""
    config = in_force.overlaid(op_id, call_key)
    if config is not None:
        return config
    lookup = in_force.lookup()
    if lookup is None:
        return None
    if isinstance(lookup, in_force.Default):
        return _config_of(current_cache().get(device(), op_id, call_key), call_key)
    found = lookup(op_id, call_key)
    return None if found is None else dict(found)


def config_to_trace(op_id: str, call_key: str) -> Config | None:
    """`best_config` for a call that is being traced.

    Raises RuntimeError if JAX would cache the trace under another state than the one in use (see `overlay`).
    """
    trace_key.check(in_force.generation(), op_id)
    return best_config(op_id, call_key)


# the last choice of `use_cache`, with its match mode
_chosen: tuple[Cache, str] | None = None


def entry_in_force(asking: Device, op_id: str, call_key: str) -> Entry | None:
    """The entry in force for a call on a device, measured forward: of an overlay, else of the process's cache."""
    lookup = in_force.lookup()
    if isinstance(lookup, in_force.Default):
        return current_cache().get(asking, op_id, call_key, "forward")
    if lookup is not None and _chosen is not None:
        cache, match = _chosen
        return cache.get(asking, op_id, call_key, "forward", match)
    config = in_force.overlaid(op_id, call_key)
    identity = json.dumps(asking.fingerprint["identity"])
    if config is None:
        return None
    return Entry(op_id, call_key, "forward", "overlay", (), json.dumps(config), None, identity)


def use_cache(cache: Cache | str | os.PathLike[str] | None = None, *, match: str = "exact") -> None:
    """Let this process's tunable functions take their configs from a `Cache`, or from the one at a path.

    Functions jitted before are traced again if the snapshot differs. Without a `cache`, nothing is looked up any more:
    only overlays and defaults apply. `match` says which devices' results may apply to this one.
    """
    global _chosen
    if cache is None:
        in_force.set_lookup(None)
        return
    opened = cache if isinstance(cache, Cache) else Cache.open(cache)
    _chosen = (opened, match)

    def look_up(op_id: str, call_key: str) -> Config | None:
        return _config_of(opened.get(device(), op_id, call_key, match=match), call_key)

    in_force.set_lookup(look_up, version=f"{opened.digest} {match}")


_told: set[tuple[str, str, str]] = set()


def _config_of(entry: Entry | None, call_key: str) -> Config | None:
    """An entry's config; a message reports once if it was measured under other `vmap`s than the call's."""
    if entry is None:
        return None
    for kind, detail in entry.flags:
        if kind == "other-batch" and (entry.op_id, call_key, detail) not in _told:
            _told.add((entry.op_id, call_key, detail))
            # a key without `vmap` may belong to a body that is mapped as a whole, and then the entry may be its own
            level = logging.WARNING if unmapped_key(call_key) != call_key else logging.INFO
            _LOG.log(level, "%s:%s takes the config of another batch: %s", entry.op_id, call_key, detail)
    return entry.config


# before anything that uses configs is traced
trace_key.connect()
