"""The cache folder for a fleet's driver: known entries, and sequential commits."""

from __future__ import annotations

import json
import pathlib
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .._program import Done, run
from .._scratch import scratch_folder
from .result import FleetError

# an import syncs each entry to the disk
_LIMIT_S = 120
_CACHE_TROUBLE = 6
_NO_ENTRIES = 3


def identity_text(identity: Mapping[str, Any]) -> str:
    """A device's identity as one text that equals that of the same device only."""
    return json.dumps({"hardware": {}} | dict(identity), sort_keys=True)


class CacheFolder:
    """Entries of a cache folder by device, call and direction. Only the program reads and writes the folder."""

    def __init__(self, path: pathlib.Path):
        """Reads the entries; raises `FleetError` if it is not a cache, or cannot be written to now."""
        self._path = path
        self._entries: dict[tuple[str, str, str, str], dict[str, Any]] = {}
        self._waiting: list[dict[str, Any]] = []
        # the import below makes a folder that is not there yet
        if path.exists():
            self._read()
        # checked before anything is measured; the program rejects an import without entries, but here only access
        # matters
        done = self._import([])
        if done.code not in (0, _NO_ENTRIES):
            raise FleetError(f"the cache `{path}` cannot be written to: {done.fault}")

    def _read(self) -> None:
        with scratch_folder() as folder:
            file = folder / "entries.json"
            done = run(["cache", "export", "--format", "json", str(file), "--cache", str(self._path)], _LIMIT_S)
            if done.code != 0:
                raise FleetError(f"the cache `{self._path}` cannot be read: {done.fault}")
            for entry in json.loads(file.read_text())["entries"]:
                self._entries[_key(entry)] = entry

    def of_call(self, device: str, op_id: str, call_key: str) -> list[dict[str, Any]]:
        """The entries of a call on a device, by its identity's text: one for each direction."""
        ways = ("forward", "forward-vjp")
        return [self._entries[key] for way in ways if (key := (device, op_id, call_key, way)) in self._entries]

    def entry(self, device: str, op_id: str, call_key: str, direction: str) -> dict[str, Any] | None:
        """One entry."""
        return self._entries.get((device, op_id, call_key, direction))

    def commit(self, entries: Sequence[dict[str, Any]]) -> str | None:
        """Commits entries, synced to the disk when it returns; returns a line if there is something to report.

        If another process holds the cache, they wait for the next commit or for `flush`.
        """
        new = [entry for entry in entries if self._entries.get(_key(entry)) != entry]
        if not new and not self._waiting:
            return None
        self._waiting += new
        self._entries.update((_key(entry), entry) for entry in new)
        done = self._import(self._waiting)
        if done.code in (None, _CACHE_TROUBLE):
            reason = done.fault if done.code else f"no end within {_LIMIT_S} s"
            return f"decisions waited for the cache: {reason}"
        if done.code != 0:
            raise FleetError(f"the cache `{self._path}` takes no entries: {done.fault}")
        told = re.search(r"imported (\d+) of (\d+)", done.stdout)
        self._waiting = []
        if told and told[1] != told[2]:
            return (
                f"{int(told[2]) - int(told[1])} of {told[2]} decisions were left out: the cache `{self._path}` holds later ones; "
                "is a node's clock behind?"
            )
        return None

    def _import(self, entries: Sequence[dict[str, Any]]) -> Done:
        with scratch_folder() as folder:
            file = folder / "entries.json"
            file.write_text(json.dumps({"schema": 1, "entries": list(entries)}))
            return run(["cache", "import", "--format", "json", str(file), "--cache", str(self._path)], _LIMIT_S)

    def flush(self, for_s: float) -> None:
        """Commits pending entries; raises `FleetError` if that does not succeed within `for_s` seconds."""
        end = time.monotonic() + for_s
        while self._waiting:
            said = self.commit([])
            if self._waiting and time.monotonic() >= end:
                raise FleetError(f"{len(self._waiting)} decisions are not in the cache `{self._path}`: {said}")
            if self._waiting:
                time.sleep(0.5)


def _key(entry: Mapping[str, Any]) -> tuple[str, str, str, str]:
    direction = entry.get("direction", "forward")
    return identity_text(entry["device"]), entry["op_id"], entry["call_key"], direction
