"""Look up best configs: overlay, then memory, then the published snapshot, then the shipped configs."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

from .. import _native
from .._printable import printable
from . import ranks
from .device import Device
from .entry import Entry
from .in_force import overlaid


class CacheError(RuntimeError):
    """A cache that cannot be used: what, where, and what to do next."""

    def __init__(self, message: str):
        super().__init__(printable(message))


class RefusedEntry(CacheError):
    """An entry sets a compiler option that no entry may set, because it may come from anyone."""


class SnapshotMismatch(CacheError):
    """The snapshot is not the pinned one, or not that of the other processes."""


def _of_environment() -> str | None:
    """The value of `AUTOTUNE_LOWERED_CACHE`; an empty variable counts as unset."""
    return os.environ.get("AUTOTUNE_LOWERED_CACHE") or None


def default_folder() -> pathlib.Path:
    """The cache named by `AUTOTUNE_LOWERED_CACHE`, else `autotune-lowered` in the platform's cache folder."""
    if named := _of_environment():
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    # the specification says to ignore relative paths
    root = pathlib.Path(base) if base and os.path.isabs(base) else pathlib.Path.home() / ".cache"
    return root / "autotune-lowered"


class Cache:
    """An open cache. It has the entries published when it was opened; `refreshed` returns the current ones.

    Any number of processes may open one at once, even while a tuner writes to its folder. The processes of one JAX
    program (`jax.distributed`) compare their digests before the first look-up; each must open its caches in the same
    order.
    """

    __slots__ = ("_answers", "_opened_with", "_path", "_ranks_agree", "_store")

    def __init__(self, store: _native.Store, path: pathlib.Path, opened_with: dict[str, Any]):
        """Private: see `open`."""
        self._store = store
        self._path = path
        self._opened_with = opened_with
        self._answers: dict[tuple[str, str, str | None, str, Device], Entry | None] = {}
        self._ranks_agree = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        pin: str | None = None,
        shipped: str | os.PathLike[str] | None = None,
        mapped: bool = True,
        cache_state: str = "warm",
        replayed: bool = False,
    ) -> Cache:
        """Open a cache folder, or a snapshot file.

        The default `path` is the one in `AUTOTUNE_LOWERED_CACHE`, else the tuner's default folder. A path that does not
        exist is that of a snapshot if its name has an ending, as `best.snapshot` has, and else that of a folder. A
        folder without a snapshot, or that does not exist, has only the shipped configs. `pin` is the digest that the
        snapshot must have (default `AUTOTUNE_LOWERED_PIN`). `shipped` names a folder of configs that override the
        shipped ones (`AUTOTUNE_LOWERED_SHIPPED`). `mapped=False` reads the file instead of mapping it, as always on
        network file systems. `cache_state`, `warm` or `cold`, is the state of the hardware's caches in the runs that
        will use the configs: an entry measured in the other state is flagged `stale-environment`.
        `replayed=True` also finds what replayed samples decided (`--timer replay:`), which this device may never have run.

        Replace a mapped file only by a rename, as the tuner, `cache snapshot` and `cache pull` do. A copy over it (`cp`,
        `rsync --inplace`) truncates the file under its readers, and the system kills them with SIGBUS. If others may
        do so, open it with `mapped=False`.

        Raises `CacheError` for a snapshot that does not exist, is damaged or of a later version, `SnapshotMismatch` if
        the digest differs.
        """
        named = path if path is not None else _of_environment()
        chosen = pathlib.Path(named) if named is not None else default_folder()
        shipped = shipped if shipped is not None else os.environ.get("AUTOTUNE_LOWERED_SHIPPED")
        try:
            # as it was written: a path would swallow a slash of a URL
            snapshot = _native.snapshot_of(chosen if named is None else named)
            published = snapshot if os.path.exists(snapshot) else None
            store = _native.Store(published, shipped, mapped, cache_state, replayed)
        except (OSError, RuntimeError) as error:
            raise CacheError(str(error)) from None
        pin = pin if pin is not None else os.environ.get("AUTOTUNE_LOWERED_PIN")
        if pin and pin != store.digest:
            found = store.digest or "there is none"
            raise SnapshotMismatch(f"the snapshot of `{chosen}` is not the pinned one: {found}, {pin} is pinned")
        opened_with = {"path": chosen if path is not None else None, "pin": pin, "shipped": shipped, "mapped": mapped}
        return cls(store, chosen, opened_with | {"cache_state": cache_state, "replayed": replayed})

    def refreshed(self) -> Cache:
        """The same cache as published now; this one does not change.

        `use_cache(cache.refreshed())` lets tunable functions use the new entries. Functions jitted before are traced
        again only if the snapshot differs. The processes of one JAX program must each call it at the same point. Raises
        the errors of `open`.
        """
        return type(self).open(**self._opened_with)

    @property
    def path(self) -> pathlib.Path:
        """The path that was opened."""
        return self._path

    @property
    def digest(self) -> str | None:
        """SHA-256 of the snapshot's content, for pinning; None if there is no snapshot."""
        return self._store.digest

    @property
    def mapped(self) -> bool:
        """Whether the snapshot is mapped instead of read into memory."""
        return self._store.mapped

    @property
    def problems(self) -> list[str]:
        """Files of shipped configs that were skipped, each with the reason."""
        return self._store.problems

    def __len__(self) -> int:
        """Number of entries in the snapshot."""
        return len(self._store)

    def __repr__(self) -> str:
        return f"<Cache {str(self._path)!r}: {len(self)} entries, {(self.digest or 'nothing published')[:16]}>"

    def get(
        self, device: Device, op_id: str, call_key: str, direction: str | None = None, match: str = "exact"
    ) -> Entry | None:
        """The best config of a call on a device, or None; `explain` says why. This thread's overlays have priority.

        Without a `direction`, an entry tuned with its vector-Jacobian product is preferred to one tuned forward only.
        `match` says which devices' results may apply: `exact`, `kind` (same kind, other hardware part) or `any`.
        """
        if (config := overlaid(op_id, call_key)) is not None:
            identity = json.dumps(device.fingerprint["identity"])
            return Entry(op_id, call_key, direction or "forward", "overlay", (), json.dumps(config), None, identity)
        question = (op_id, call_key, direction, match, device)
        try:
            return self._answers[question]
        except KeyError:
            return self._ask(question)

    def _ask(self, question: tuple[str, str, str | None, str, Device]) -> Entry | None:
        op_id, call_key, direction, match, device = question
        if not self._ranks_agree:
            difference = ranks.first_difference(self.digest)
            if difference is not None:
                raise SnapshotMismatch(
                    f"{difference}: programs that differ hang; publish one snapshot to all and pin it"
                )
            self._ranks_agree = True
        try:
            found = self._store.find(device._fingerprint, op_id, call_key, direction, match)
        except PermissionError as error:
            raise RefusedEntry(str(error)) from None
        except (OSError, RuntimeError) as error:
            raise CacheError(str(error)) from None
        entry = None if found is None else Entry.of(op_id, call_key, found)
        # an answer never changes, because the file is immutable and a new one gets another Cache
        self._answers[question] = entry
        return entry

    def explain(
        self,
        device: Device,
        op_id: str,
        call_key: str,
        direction: str | None = None,
        match: str = "exact",
        registry: str | os.PathLike[str] | None = None,
    ) -> str:
        """One line that says where the config of a call comes from, or why there is none.

        `registry` is the folder with the recorded call (default `AUTOTUNE_LOWERED_REGISTRY`): it has the reasons why
        the recorder could not lower the call. Raises `CacheError` if it cannot be read.
        """
        entry = self.get(device, op_id, call_key, direction, match)
        if entry is not None:
            flags = "".join(f"; {kind}: {detail}" for kind, detail in entry.flags)
            return printable(
                f"`{op_id}:{call_key}` has {entry._config} ({entry.direction}) from the {entry.tier} tier{flags}"
            )
        registry = registry or os.environ.get("AUTOTUNE_LOWERED_REGISTRY")
        if registry is not None:
            try:
                unrecorded = _native.not_runnable(registry, device._fingerprint, op_id, call_key, match)
            except (OSError, ValueError) as error:
                raise CacheError(str(error)) from None
            if unrecorded is not None:
                return printable(f"`{op_id}:{call_key}` is not tuned: {unrecorded}")
        reason = self._store.explain_miss(device._fingerprint, op_id, call_key, direction, match)
        if self.digest is None:
            reason += (
                f"; nothing was published in `{self._path}` yet: run `autotune-lowered MODULE --cache {self._path}`"
            )
        return printable(reason)

    def __iter__(self) -> Iterator[Entry]:
        """Every entry, including the shipped ones."""
        for op_id, call_key, found in self._store.entries():
            yield Entry.of(op_id, call_key, found)


@functools.cache
def _shared(path: str | None) -> Cache:
    cache = Cache.open(path)
    # a mistyped folder would pass for one in which nothing was published yet
    if path is not None and not os.path.exists(path):
        text = f"AUTOTUNE_LOWERED_CACHE names `{path}`, which does not exist: tunable functions keep their defaults"
        warnings.warn(printable(text), stacklevel=3)
    return cache


def current_cache() -> Cache:
    """The cache that this process's tunable functions query: the default folder's, opened once."""
    return _shared(_of_environment())
