"""Compiler options that were tuned for a whole program, looked up by the digest of what it computes."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any

from .. import _native
from .._stages import devices_of, stage_of, text_to_hash
from . import best
from .cache import RefusedEntry
from .compiler import why_another
from .device import Device, device
from .entry import Entry

_LOG = logging.getLogger("autotune_lowered")

OP_ID = "compiler_options@v1"
"""The operation of such entries; their call key is the semantic digest of the StableHLO text."""

Options = dict[str, str | int | float | bool]

# printing and hashing a program is the cost of a look-up
_digests: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
_told: set[str] = set()


def compiler_options(lowered: Any) -> Options:
    """The best options for a `jax.stages.Lowered`, for `lowered.compile(compiler_options=…)`, or `{}`.

    They are looked up by the program's digest, in the cache in force (`use_cache`) and for the device that it was
    lowered for. Options measured with another compiler do not count, because their effect may have changed
    (`why_another`), nor does an entry with an option that no entry may set, such as `xla_dump_to`, because it may come from
    anyone. The digest is kept as long as `lowered` is. Raises `CacheError` if the cache cannot be read.
    """
    lowered = stage_of(lowered)
    digest = program_digest(lowered)
    devices = devices_of(lowered)
    own = device(devices[0]) if devices else device()
    try:
        entry = best.entry_in_force(own, OP_ID, digest)
    except RefusedEntry as error:
        void: str | None = str(error)
    else:
        if entry is None:
            return {}
        void = _void(entry, own)
        if void is None:
            return entry.config
    with _lock:
        is_new = digest not in _told
        _told.add(digest)
    if is_new:
        _LOG.warning("the compiler options of %s… are not used: %s", digest[:16], void)
    return {}


def program_digest(lowered: Any) -> str:
    """The semantic digest of a lowered program, as `dump` writes it: `stablehlo_digest`."""
    if not hasattr(lowered, "compiler_ir") and not hasattr(lowered, "as_text"):
        raise TypeError(
            f"compiler options are those of a jax.stages.Lowered, not of a {type(lowered).__qualname__}: give "
            "jax.jit(f).lower(…)"
        )
    with _lock:
        known = _digests.get(lowered)
    if known is not None:
        return known
    # locations are not hashed, and printing them takes as long again
    digest = _native.semantic_digest(text_to_hash(lowered).encode())
    with _lock:
        _digests[lowered] = digest
    return digest


def _void(entry: Entry, own: Device) -> str | None:
    """Why an entry does not apply. An overlay's entry always applies, because the user chose it."""
    if any(not isinstance(value, (str, int, float)) for value in entry.config.values()):
        return "an option's value is neither a string nor a number"
    if entry.tier == "overlay":
        return None
    there = (entry.provenance or {}).get("environment") or {}
    return why_another(there, own.fingerprint["environment"])
