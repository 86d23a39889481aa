"""The program while it tunes: what it says is passed on, and its result is read."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .._printable import printable
from .._program import ProgramError, find_program
from .result import AutotuningResult

_LOG = logging.getLogger("autotune_lowered")

# exit codes after which the program prints a complete result: all tuned, some not, ended by Ctrl-C
_WITH_RESULT = (0, 1, 130)


class TuningError(RuntimeError):
    """The program could not tune: its own message, and its `exit_code` (see the README)."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


# standard input names candidates before the module, which are compiled meanwhile
AHEAD = "--candidates-ahead"


class Tuning:
    """The program with these arguments. If its module is `-`, it starts its worker while the module is made, and with
    `AHEAD` it compiles what it is told meanwhile.

    A context, at whose end it no longer runs. Raises `ProgramError` if it does not start.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], progress: bool | None):
        words, pipe = [find_program(), *arguments], subprocess.PIPE
        self._is_shown = _is_watched() if progress is None else progress
        self._is_told = AHEAD in words
        self._said: list[str] = []
        try:
            self._process = subprocess.Popen(
                words,
                stdin=pipe if "-" in words else None,
                stdout=pipe,
                stderr=pipe,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, **environment},
            )
        except OSError as error:
            raise ProgramError(f"cannot start `{words[0]}`: {error}; set AUTOTUNE_LOWERED_EXE to the program") from None
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Tuning:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process.poll() is None:
            process.kill()
            process.wait()
        self._listener.join(timeout=10)
        for stream in (process.stdin, process.stdout, process.stderr):
            # what it has not read is lost with it
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()

    def tell(self, candidate: Mapping[str, Any]) -> None:
        """Tell it a candidate that a recording has lowered, in the order of the record."""
        self._write(json.dumps(candidate) + "\n")

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        # if it has ended, it says why
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def result(self, module: str = "") -> AutotuningResult:
        """Wait for the result; before that, hand over a module that is `-`. Raises `TuningError`."""
        process = self._process
        assert process.stdout is not None
        try:
            if process.stdin is not None:
                self._write("\n" + module if self._is_told else module)
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            output = process.stdout.read()
            code = process.wait()
        except KeyboardInterrupt:
            # the program got the same signal from the terminal: it ends by itself and keeps what was measured
            process.wait()
            raise
        self._listener.join(timeout=10)
        if code in _WITH_RESULT and output.strip():
            try:
                return AutotuningResult(json.loads(output))
            except ValueError:
                self._said.append("its result is no JSON: is the program of another version?")
        named = [line for line in self._said if line.startswith("autotune-lowered: ")]
        reason = (named or self._said or ["it said nothing"])[-1].removeprefix("autotune-lowered: ")
        raise TuningError(f"autotune-lowered ended with {code}: {reason}", code)

    def _listen(self) -> None:
        stream: Any = self._process.stderr
        for line in stream:
            if line.strip():
                self._said.append(line.strip())
                _LOG.info("%s", line.strip())
                if self._is_shown:
                    print(printable(line.strip()), file=sys.stderr, flush=True)


def _is_watched() -> bool:
    """Whether somebody waits for this process: at a terminal, or in a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()
