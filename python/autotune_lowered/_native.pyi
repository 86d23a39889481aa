"""The native part of the package: labels and the registry's writer. Texts are JSON."""

from pathlib import Path

__version__: str

def scan(module: bytes) -> str:
    """Scan a module's bytes: what `autotune-lowered scan --format json` prints. ValueError where it is no module."""

def digest(bytes: bytes) -> str:
    """SHA-256, as 64 hexadecimal digits."""

class RegistryWriter:
    """Writes recorded invocations into a registry's folder; any number of writers may work on one at once."""

    def __new__(cls, folder: str | Path) -> RegistryWriter:
        """Open a registry, or make one. ValueError for another schema, OSError where it cannot be read or written."""
    @property
    def folder(self) -> Path: ...
    def put_program(
        self, program: bytes, semantic_digest: str | None = None, custom_calls: list[str] | None = None
    ) -> str:
        """Store a program: `{"format", "digest", "semantic_digest", "custom_calls"}`."""
    def put_array(self, array: bytes) -> str:
        """Store the dense little-endian bytes of an array: its `fill`."""
    def add(self, invocation: str) -> Path:
        """Store an invocation (`docs/registry.md`); gives its record. ValueError for one that breaks the format."""
