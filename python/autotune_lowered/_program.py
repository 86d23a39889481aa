"""Where the `autotune-lowered` program is, and how it is run: with a time limit, cleaning up after it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

# maximum size of an output: a result of thousands of operations is a few MB
MAX_OUTPUT_BYTES = 256 << 20
# from the time limit to the end of the last process: the supervisor kills at once and looks for escaped ones
_GRACE_S = 10
_LOGGED = ("ERROR ", "WARN ", "INFO ", "DEBUG ", "TRACE ")


class ProgramError(RuntimeError):
    """The program is missing, or cannot be run."""


def find_program() -> str:
    """The program: `AUTOTUNE_LOWERED_EXE`, else the one beside this Python, else the one in PATH."""
    beside = pathlib.Path(sys.executable).parent / "autotune-lowered"
    found = os.environ.get("AUTOTUNE_LOWERED_EXE") or (
        str(beside) if beside.exists() else shutil.which("autotune-lowered")
    )
    if found is None:
        raise ProgramError("no `autotune-lowered` program: pip install autotune-lowered, or set AUTOTUNE_LOWERED_EXE")
    return found


@dataclasses.dataclass(frozen=True)
class Done:
    """A run of the program; `code` is None if it was ended at its limit."""

    code: int | None
    stdout: str
    stderr: str

    @property
    def fault(self) -> str:
        """The line of stderr that states what is wrong, else the last one that is not a log line."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        named = [line for line in lines if line.startswith("autotune-lowered: ")]
        other = [line for line in lines if not line.startswith(_LOGGED)]
        return (named or other or ["it said nothing"])[-1].removeprefix("autotune-lowered: ")[:500]


def run(words: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None) -> Done:
    """Runs the program with these arguments for at most `limit_s` seconds.

    It runs under its own supervisor (`worker exec`), which ends it with all its descendants when the limit is reached and
    also when this process dies, however it dies: a device is not left busy.
    """
    program = find_program()
    argv = [program, "worker", "exec", "--grace-ms", "0", "--", program, *words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=None if environment is None else {**os.environ, **environment},
            )
        except OSError as error:
            raise ProgramError(f"cannot start `{program}`: {error}") from None
        code: int | None = None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # never written to: closing it makes the supervisor end the program
            if process.stdin is not None:
                process.stdin.close()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                # its descendants have parent-death signals of their own
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(_GRACE_S)
        return Done(code, _read(out), _read(err))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT_BYTES).decode(errors="replace")
