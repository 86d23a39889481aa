"""The results of all steps: what each found, in `accept.json`, and its files, in one archive beside it."""

import json
import os
import pathlib
import re
import stat
import time

from .archive import SAFE, Archive, Full

WORKS, DOES_NOT, NOT_TRIED = "works", "does not", "not tried"
KEPT, SUMMARY = "accept.json", "summary.txt"
# the most of one file, of a log, and of what a step notes beside its files
MOST_FILE = 8 << 20
MOST_DOCUMENT = 32 << 20
MOST_LOG = 512 << 10
MOST_NOTES = 256 << 10
MOST_FIGURE = 2000
# the most of the files of one step, so that no step takes the room of the others
MOST_STEP = 24 << 20
DIGEST = re.compile(r"[0-9a-f]{64}")


def printable(text):
    """Text from elsewhere, made safe for a terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(text))


class Results:
    """A folder of results, which continues what an earlier run left there."""

    def __init__(self, folder, steps):
        self.folder, self.order = pathlib.Path(folder), list(steps)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.document = self._read()
        self.archive = Archive(self.folder, self.document["archive_bytes"])
        self.archive.cut()

    def _read(self):
        kept = self.folder / KEPT
        fresh = {"schema": 1, "archive_bytes": 0, "machine": {}, "steps": {}}
        if not kept.exists():
            return fresh
        try:
            return read(kept, self.order)
        except (OSError, ValueError) as error:
            kept.replace(kept.with_suffix(".damaged"))
            self.damage = f"{kept}: {printable(error)}; it is now `{kept.stem}.damaged`, and every step is tried again"
            return fresh

    damage = None

    @property
    def steps(self):
        """What each step found."""
        return self.document["steps"]

    def is_done(self, name):
        return self.steps.get(name, {}).get("result") in (WORKS, DOES_NOT)

    def restore(self, folder):
        """Unpacks the files of all steps, and returns the names that are there."""
        listed = {name: entry for step in self.steps.values() for name, entry in step["files"].items()}
        return self.archive.extract(listed, folder)

    def keep(self, name, found, folder):
        """Keeps what a step found, and its files. A kill at any moment loses this step at most."""
        files, left_out = files_of(folder)
        try:
            found["files"] = self.archive.add([(f"{name}/{inner}", path) for inner, path in files])
        except Full as error:
            found["files"], left_out = {}, {str(error): sum(path.stat().st_size for _, path in files)}
        if left_out:
            found["left_out"] = left_out
        if len(json.dumps(found["data"], default=str)) > MOST_NOTES:
            found["data"] = {"left out": f"more than {MOST_NOTES} bytes"}
        found["at"] = int(time.time())
        self.steps[name] = found
        self.document["archive_bytes"] = self.archive.length
        self.write()

    def write(self):
        replace(self.folder / KEPT, json.dumps(self.document, indent=1, default=str) + "\n")
        replace(self.folder / SUMMARY, "".join(self.line(name) + "\n" for name in self.order if name in self.steps))

    def line(self, name):
        """What a step found, in one line without control characters."""
        step = self.steps[name]
        simulated = "SIMULATED " if self.document["machine"].get("simulated") else ""
        return f"{step['result']:>9}  {name:<13} {simulated}{printable(step['figure'])}  ({step['seconds']} s)"


def replace(path, text):
    fresh = path.with_name(path.name + ".new")
    # whatever else stands there, such as a link, is not written to
    fresh.unlink(missing_ok=True)
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def files_of(folder):
    """What a step left in its folder, as pairs of a name and a path; and the sizes of what is too large, by name."""
    files, left_out, room = [], {}, MOST_STEP
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        name = str(path.relative_to(folder))
        if path.suffix in (".out", ".err"):
            shorten(path)
        size = path.stat().st_size
        if size == 0:
            continue
        if size > MOST_FILE or size > room or not SAFE.fullmatch(f"step/{name}"):
            left_out[printable(name)] = size
            continue
        room -= size
        files.append((name, path))
    return files, left_out


def shorten(path):
    """Keeps the beginning and the end of a log."""
    size = path.stat().st_size
    if size <= MOST_LOG:
        return
    with path.open("rb") as file:
        head = file.read(MOST_LOG // 2)
        file.seek(size - MOST_LOG // 2)
        rest = file.read()
    path.write_bytes(head + f"\n[{size - len(head) - len(rest)} bytes are left out]\n".encode() + rest)


def read(path, known):
    """A document of results from a file. Raises OSError, or ValueError for a file that is not one.

    A FIFO, or a link to a file without an end, is refused before it is read.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no regular file")
        content = file.read(MOST_DOCUMENT + 1)
    if len(content) > MOST_DOCUMENT:
        raise ValueError(f"it is larger than {MOST_DOCUMENT >> 20} MB")
    try:
        return checked(json.loads(content), known)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def checked(document, known):
    """A document of results as this program writes it. Raises ValueError for any other."""

    def demand(holds, what):
        if not holds:
            raise ValueError(f"no results of this kit: {what}")

    demand(isinstance(document, dict) and document.get("schema") == 1, "its schema is not 1")
    demand(type(document.get("archive_bytes")) is int and document["archive_bytes"] >= 0, "`archive_bytes`")
    demand(isinstance(document.get("machine"), dict), "`machine`")
    steps = document.get("steps")
    demand(isinstance(steps, dict) and all(name in known for name in steps), "`steps`")
    for name, step in steps.items():
        demand(isinstance(step, dict) and step.get("result") in (WORKS, DOES_NOT, NOT_TRIED), f"`{name}`")
        demand(isinstance(step.get("figure"), str) and len(step["figure"]) <= MOST_FIGURE, f"`{name}.figure`")
        demand(isinstance(step.get("seconds"), (int, float)) and isinstance(step.get("data"), dict), f"`{name}`")
        files = step.get("files")
        demand(isinstance(files, dict), f"`{name}.files`")
        for file, entry in files.items():
            holds = file.startswith(f"{name}/") and SAFE.fullmatch(file) and isinstance(entry, dict)
            holds = holds and type(entry.get("bytes")) is int and 0 <= entry["bytes"] <= MOST_FILE
            demand(holds and DIGEST.fullmatch(str(entry.get("sha256"))), f"`{name}.files`")
    return document
