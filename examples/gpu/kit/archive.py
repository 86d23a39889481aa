"""One archive in parts, which only ever grows at its end.

Each addition is a gzip member of its own with entries of a tar file and no mark of its end. So a part that was written
never changes, a kill loses at most the addition in progress, and `cat results.tar.gz.* | tar xz` unpacks the whole.
"""

import gzip
import hashlib
import io
import os
import pathlib
import re
import tarfile
import tempfile
import zlib

NAME = "results.tar.gz"
PART_BYTES = 15 << 20
MOST_PARTS = 6
# `step/file`, `step/folder/file`: nothing that leads elsewhere, or that some file system cannot hold
SAFE = re.compile(r"[a-z][a-z0-9_]{0,40}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}){1,2}")
MOST_ENTRIES = 2000
# of all that is unpacked, including results that were replaced later
MOST_UNPACKED = 512 << 20


class Full(Exception):
    """The archive has no room for an addition."""


class Archive:
    """The parts in a folder, of which the first `length` bytes count."""

    def __init__(self, folder, length):
        self.folder = pathlib.Path(folder)
        for path in self.folder.glob(f"{NAME}.*"):
            if path.is_symlink() or not path.is_file():
                raise ValueError(f"{path} is no regular file: move it away")
        self.length = min(length, sum(path.stat().st_size for path in self.parts()))

    def parts(self):
        paths = (self.folder / f"{NAME}.{number}" for number in range(MOST_PARTS))
        return [path for path in paths if path.is_file()]

    def cut(self):
        """Removes what a killed run had not finished, so that more can be added."""
        for number, path in enumerate(self.parts()):
            kept = min(max(0, self.length - number * PART_BYTES), PART_BYTES)
            if kept == 0:
                path.unlink()
            elif path.stat().st_size != kept:
                os.truncate(path, kept)

    def add(self, files):
        """Appends files, given as pairs of a name and a path, and returns `bytes` and `sha256` of each by name.

        Raises Full, having changed nothing, if they take too much room.
        """
        known = {}
        with tempfile.TemporaryFile() as member:
            with gzip.GzipFile(fileobj=member, mode="wb", mtime=0) as packed:
                # never closed, because that would write the mark of the end
                tar = tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT)
                for name, path in files:
                    content = path.read_bytes()
                    entry = tarfile.TarInfo(name)
                    entry.size, entry.mode = len(content), 0o644
                    tar.addfile(entry, io.BytesIO(content))
                    known[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            if self.length + member.tell() > MOST_PARTS * PART_BYTES:
                raise Full(f"the results take more than {MOST_PARTS * PART_BYTES >> 20} MB")
            member.seek(0)
            self._append(member)
        return known

    def _append(self, member):
        while True:
            number, used = divmod(self.length, PART_BYTES)
            block = member.read(min(1 << 20, PART_BYTES - used))
            if not block:
                return
            with (self.folder / f"{NAME}.{number}").open("ab") as part:
                part.write(block)
                part.flush()
                os.fsync(part.fileno())
            self.length += len(block)

    def extract(self, listed, folder):
        """Unpacks the files that are listed with their `bytes` and `sha256`, and returns the names of those it found.

        The archive's own names, kinds and sizes are not believed. A file that does not fit its listing is left out.
        """
        wanted = {name: entry for name, entry in listed.items() if SAFE.fullmatch(name)}
        found = set()
        with io.BufferedReader(Joined(self.parts(), self.length)) as joined:
            plain = io.BufferedReader(Bounded(gzip.GzipFile(fileobj=joined), MOST_UNPACKED))
            for count, (name, content) in enumerate(entries(plain, wanted)):
                if count >= MOST_ENTRIES:
                    break
                entry = wanted[name]
                if len(content) == entry["bytes"] and hashlib.sha256(content).hexdigest() == entry["sha256"]:
                    path = folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                    found.add(name)
        return found


def entries(file, wanted):
    """The regular files of an archive that are wanted, each with its content. What is damaged ends them."""
    try:
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for entry in tar:
                if entry.name in wanted and entry.isreg() and entry.size == wanted[entry.name]["bytes"]:
                    yield entry.name, tar.extractfile(entry).read()
    except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error):
        return


class Joined(io.RawIOBase):
    """Files as one, up to a length."""

    def __init__(self, paths, length):
        super().__init__()
        self._paths, self._left, self._file = list(paths), length, None

    def readable(self):
        return True

    def readinto(self, buffer):
        while self._left:
            if self._file is None:
                if not self._paths:
                    return 0
                self._file = self._paths.pop(0).open("rb")
            block = self._file.read(min(len(buffer), self._left))
            if block:
                buffer[: len(block)] = block
                self._left -= len(block)
                return len(block)
            self._file.close()
            self._file = None
        return 0


class Bounded(io.RawIOBase):
    """A stream that fails after so many bytes: a small file may hold gigabytes of zeros."""

    def __init__(self, stream, most):
        super().__init__()
        self._stream, self._left = stream, most

    def readable(self):
        return True

    def readinto(self, buffer):
        block = self._stream.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise OSError("it holds more than it lists")
        buffer[: len(block)] = block
        return len(block)
