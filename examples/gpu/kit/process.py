"""Other programs, each run with a limit of time and with its output in files."""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import time

# how long a program that was told to end may take for it
GRACE_S = 5
# a document that is larger is none of ours
MOST_DOCUMENT = 32 << 20
# of Linux's sys/prctl.h
PR_SET_PDEATHSIG = 1
# log lines of XLA and of its libraries, which say nothing about the outcome
LOG_LINE = re.compile(r"^[IWEF]\d{4} |^WARNING: All log messages")


@dataclasses.dataclass
class Done:
    """A program that ended, or was ended."""

    command: list
    code: int
    seconds: float
    timed_out: bool
    stdout: pathlib.Path
    stderr: pathlib.Path

    def document(self):
        """The JSON that it printed. Raises ValueError if there is none."""
        if self.stdout.stat().st_size > MOST_DOCUMENT:
            raise ValueError(f"{self.stdout.name} is larger than {MOST_DOCUMENT >> 20} MB")
        return json.loads(self.stdout.read_text(errors="replace"))

    def said(self):
        """The last line of its stderr that is no log line, or how it ended."""
        lines = [line.strip() for line in tail(self.stderr).splitlines()]
        lines = [line for line in lines if line and not LOG_LINE.match(line)]
        if self.timed_out:
            return f"ended after {self.seconds:.0f} s"
        return f"exit code {self.code}: {lines[-1][:500] if lines else 'nothing was said'}"


def tail(path, most=1 << 16):
    """The end of a text file."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - most))
        return file.read().decode(errors="replace")


def run(command, stem, suffix, limit, environment, folder):
    """Runs a program with its output in files, and ends it and its children after the limit.

    Raises OSError if it cannot be started.
    """
    stdout, stderr = stem.with_suffix(suffix), stem.with_suffix(".err")
    began = time.monotonic()
    with stdout.open("wb") as out, stderr.open("wb") as err:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=folder,
            preexec_fn=in_own_group,
        )
        timed_out = False
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            end(child)
    return Done(command, child.returncode, time.monotonic() - began, timed_out, stdout, stderr)


def in_own_group():
    """Runs in the new process: its children end with it, and it ends with this script, however that is killed."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(child):
    """Ends a program and whatever it left behind in its group."""
    if child.poll() is None:
        to_group(child, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    to_group(child, signal.SIGKILL)
    child.wait()


def to_group(child, number):
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
