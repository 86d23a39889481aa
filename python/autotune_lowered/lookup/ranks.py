"""Checks that the processes of one program have the same snapshot, because ranks that trace different programs hang."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

_COUNTER = itertools.count()


def _client() -> tuple[Any, int] | None:
    """JAX's key-value store between processes and this one's rank; None for a program of one process.

    The store has no public name. If a later JAX moves it, nothing can be compared, and a warning reports that.
    """
    # a program that does not use JAX has no ranks here
    if "jax" not in sys.modules:
        return None
    try:
        from jax._src.distributed import global_state
    except ImportError:
        import logging

        logging.getLogger("autotune_lowered").warning(
            "this JAX shows no store between its processes: pin the snapshot's digest with AUTOTUNE_LOWERED_PIN instead"
        )
        return None
    if global_state.client is None or (global_state.num_processes or 1) < 2:
        return None
    return global_state.client, global_state.process_id


def first_difference(digest: str | None) -> str | None:
    """Compares this process's digest with that of process 0, in the order in which caches were first queried.

    Returns what differs, in words, or None. Waits for process 0 `AUTOTUNE_LOWERED_RANK_TIMEOUT` seconds (60).
    """
    found = _client()
    if found is None:
        return None
    client, rank = found
    key = f"autotune_lowered/snapshot/{next(_COUNTER)}"
    ours = digest or "none"
    if rank == 0:
        client.key_value_set(key, ours)
        return None
    seconds = float(os.environ.get("AUTOTUNE_LOWERED_RANK_TIMEOUT", "60"))
    try:
        theirs = client.blocking_key_value_get(key, int(seconds * 1000))
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        return f"process 0 did not look a config up within {seconds:g} s, process {rank} did ({reason})"
    return None if theirs == ours else f"process {rank} has the snapshot {ours}, process 0 has {theirs}"
