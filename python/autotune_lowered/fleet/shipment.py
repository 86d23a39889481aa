"""A module and a registry as one block of bytes with its digest, and back as files."""

from __future__ import annotations

import hashlib
import io
import os
import pathlib
import tarfile


class ShipmentError(RuntimeError):
    """Something cannot be packed, or arrived damaged."""


def pack(parts: dict[str, pathlib.Path], max_bytes: int) -> bytes:
    """Files and folders under the given names as an archive; equal contents give equal bytes.

    Raises `ShipmentError` if something is missing or the total exceeds `max_bytes`.
    """
    out, size = io.BytesIO(), 0
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, root in parts.items():
            for path in _files(root):
                try:
                    content = path.read_bytes()
                except OSError as error:
                    raise ShipmentError(f"cannot read `{path}`: {error.strerror}") from None
                size += len(content)
                if size > max_bytes:
                    raise ShipmentError(
                        f"`{root}` is more than the {max_bytes} bytes that are shipped: put it on a file system that every node "
                        "has and say `shared=True`, or raise `max_ship_bytes`"
                    )
                # owner and time are left out, because they are not content
                info = tarfile.TarInfo(name if path == root else f"{name}/{path.relative_to(root)}")
                info.size = len(content)
                # a registry may hold values of a user's run
                info.mode = 0o600
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _files(root: pathlib.Path) -> list[pathlib.Path]:
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise ShipmentError(f"`{root}` is not there")
    found = [pathlib.Path(folder, name) for folder, _, names in os.walk(root) for name in names]
    # a recorder's unfinished files are not part of a registry yet
    return sorted(path for path in found if path.is_file() and not path.name.startswith(".tmp-"))


def digest(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def unpack(content: bytes, expected: str, folder: pathlib.Path) -> None:
    """Writes the output of `pack` under a folder, after comparing its digest."""
    if digest(content) != expected:
        raise ShipmentError(f"{len(content)} bytes arrived that are not those sent: their SHA-256 is not {expected}")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            # Python before 3.11.4; the digest says that these are the bytes that were packed
            archive.extractall(folder)
