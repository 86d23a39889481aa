"""The native part of the package: labels, the registry's writer, look-ups. Strings hold JSON."""

from os import PathLike
from pathlib import Path
from typing import final

__all__ = [
    "Fingerprint",
    "RegistryWriter",
    "Store",
    "__version__",
    "argument_paths",
    "digest",
    "not_runnable",
    "scan",
    "semantic_digest",
    "snapshot_of",
]

__version__: str

def scan(module: bytes) -> str:
    """Scan a module's bytes; return the JSON of `autotune-lowered scan --format json`. ValueError if it is no
    module."""

def digest(bytes: bytes) -> str:
    """SHA-256, as 64 hexadecimal digits."""

def semantic_digest(program: bytes) -> str:
    """Digest of what a program computes, without locations and the module's name, as 64 hexadecimal digits. ValueError
    for HLO text, which has none, and for bytes that are no module."""

def argument_paths(program: bytes) -> list[str] | None:
    """Names of a program's arguments, in order: `params/w`, empty if one is not stated; None if no names are stated.
    ValueError if it is no program."""

@final
class RegistryWriter:
    """Writes recorded invocations into a registry's folder; any number of writers may use it at once."""

    def __new__(cls, folder: str | Path) -> RegistryWriter:
        """Open a registry, or create it. ValueError for another schema, OSError if it cannot be read or written."""
    @property
    def folder(self) -> Path: ...
    def put_program(
        self, program: bytes, semantic_digest: str | None = None, custom_calls: list[str] | None = None
    ) -> str:
        """Store a program; return `{"format", "digest", "semantic_digest", "custom_calls"}`."""
    def put_array(self, array: bytes) -> str:
        """Store the dense little-endian bytes of an array; return its `fill`."""
    def add(self, invocation: str) -> Path:
        """Store an invocation (`docs/registry.md`); return its record. ValueError if it breaks the format."""

def not_runnable(folder: str | PathLike[str], device: Fingerprint, op_id: str, call_key: str, mode: str) -> str | None:
    """Why a call recorded for a device cannot be tuned from its record alone; None if it can, or was not recorded.
    ValueError if the folder is no registry, OSError if it cannot be read."""

@final
class Fingerprint:
    """A device with its software. Both count for equality and hash."""

    def __new__(cls, json: str) -> Fingerprint:
        """From `{"identity": {"platform", "device_kind", "hardware"}, "environment": {...}}`; ValueError for other
        text."""
    def to_json(self) -> str: ...
    def to_portable(self) -> str:
        """ejkernel's spelling, `device_kind|platform_version`."""
    def __hash__(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...

def snapshot_of(name: str | PathLike[str]) -> Path:
    """The snapshot that the name of a cache means: the one published in a folder, which need not exist, or a file.
    FileNotFoundError for a URL, and for a file that does not exist."""

# config, provenance, tier, direction, device, flags
_Found = tuple[str, str | None, str, str, str, list[tuple[str, str]]]

@final
class Store:
    """One snapshot, or none, with the shipped configs below it. It never changes after opening."""

    def __new__(
        cls,
        snapshot: str | PathLike[str] | None = None,
        shipped: str | PathLike[str] | None = None,
        mapped: bool = True,
        cache_state: str = "warm",
        replayed: bool = False,
    ) -> Store:
        """RuntimeError for a damaged snapshot or one of a later version, OSError if it cannot be read, ValueError for a
        `cache_state` other than `warm` and `cold`."""
    @property
    def digest(self) -> str | None: ...
    @property
    def mapped(self) -> bool: ...
    @property
    def problems(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def find(
        self, device: Fingerprint, op_id: str, call_key: str, direction: str | None = None, mode: str = "exact"
    ) -> _Found | None:
        """The entry for a call. ValueError for an unknown direction or mode, RuntimeError if the file is damaged."""
    def explain_miss(
        self, device: Fingerprint, op_id: str, call_key: str, direction: str | None = None, mode: str = "exact"
    ) -> str: ...
    def entries(self) -> list[tuple[str, str, _Found]]: ...
