"""Temporary folders of this process; the next process removes those of killed ones.

The program makes and removes the same folders (`crates/lookup/src/scratch.rs`): `autotune-lowered-run-…`, of mode 0700, locked by their
owner and marked once they are. A marked folder that nobody has locked belongs to a process that was killed. A
process identifier cannot replace the lock, because containers share folders but not identifiers.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import stat
import tempfile
from collections.abc import Iterator

_PREFIX = "autotune-lowered-run-"
_MARK = ".autotune-lowered-scratch"


class Scratch:
    """A private folder of this process, until `remove` or the process's end."""

    def __init__(self) -> None:
        """Creates it, after removing those of killed processes."""
        base = tempfile.gettempdir()
        sweep(base)
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        # a file system without such locks: unmarked, so no process removes it
        with contextlib.suppress(OSError):
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            (self.path / _MARK).touch(mode=0o600, exist_ok=False)

    def remove(self) -> None:
        """Removes it with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


@contextlib.contextmanager
def scratch_folder() -> Iterator[pathlib.Path]:
    """A folder that is removed at the end of the block."""
    scratch = Scratch()
    try:
        yield scratch.path
    finally:
        scratch.remove()


def sweep(base: str | os.PathLike[str]) -> None:
    """Removes the folders of killed processes; one that cannot be removed is left for the next time."""
    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_orphan(os.path.join(base, name))


def _remove_orphan(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(folder)
        # an unmarked folder is being created, or is not ours
        marked = stat.S_ISREG(os.stat(_MARK, dir_fd=folder, follow_symlinks=False).st_mode)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077 or not marked:
            return
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in os.listdir(folder):
            # the mark is removed last, so that the next process continues a killed sweep
            if name != _MARK:
                _remove(folder, name)
        os.unlink(_MARK, dir_fd=folder)
        os.rmdir(path)
    finally:
        os.close(folder)


def _remove(folder: int, name: str) -> None:
    """Removes an entry of an open folder; no link is followed."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        for entry in os.listdir(inner):
            _remove(inner, entry)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)
