"""Tuning from Python: runs the program on a dump of the module, and reads its result."""

from __future__ import annotations

import json
import logging
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._printable import printable
from .._program import ProgramError, find_program
from .._scratch import scratch_folder
from .._stages import lowered_for
from ..module import dump_quietly
from .result import AutotuningResult

_LOG = logging.getLogger("autotune_lowered")

# exit codes after which the program prints a complete result: all tuned, some not, ended by Ctrl-C
_WITH_RESULT = (0, 1, 130)
# no label, or none that matches
_NO_LABEL = 3


class TuningError(RuntimeError):
    """The program could not tune: its own message, and its `exit_code` (see the README)."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def tune(
    module: Any,
    *,
    registry: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    timer: str | None = None,
    rounds: int | None = None,
    min_improvement: float | None = None,
    match: str = "exact",
    only: Iterable[str] = (),
    force: bool = False,
    options: Iterable[str] = (),
    progress: bool | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> AutotuningResult:
    """Tune every recorded operation of a lowered module on this machine's device. `autotune_lowered` is an alias.

    ```python
    lowered = jax.jit(step).lower(state, batch)
    with autotune_lowered.tune(lowered, registry="registry/") as result:
        print(result)
        step_with_best_configs(state, batch)
    ```

    Arguments:
        module: A module as for `dump`, or the path of a dumped one; or a function, with its `args` and `kwargs`.
        registry: Folder of recorded invocations (see `recording`).
        cache: Cache folder; by default the usual one. Its entries are not measured again.
        timer: The program's `--timer`. The default is `jax`: the JAX of this Python, in a worker process.
        rounds, min_improvement, match, only, force: The program's options of these names.
        options: Further options of the program, such as `["--plugin", path]`.
        environment: Variables of the program besides those of this process.
        progress: Whether the program's messages are printed on stderr; by default on a terminal and in a notebook.

    The worker is a separate process with its own client. On an accelerator it shares the memory with this process and
    preallocates none, so set `XLA_PYTHON_CLIENT_PREALLOCATE=false` here too, or tune before the first computation.

    Raises `TuningError` if nothing could be tuned, `ProgramError` without the program.
    """
    words, options = [find_program()], list(options)
    with scratch_folder() as folder:
        complaint = None
        if isinstance(module, str | os.PathLike):
            path = pathlib.Path(module)
        else:
            path = folder / "module.txt"
            complaint = dump_quietly(lowered_for(module, args, kwargs or {}) if args or kwargs else module, path)
            if complaint is not None and not any(word.startswith("--compiler-options") for word in options):
                _LOG.warning("the module %s", complaint)
        words += [str(path), "--registry", os.fspath(registry), "--format", "json", "--match", match]
        words += ["--timer", timer if timer is not None else f"jax:{sys.executable}"]
        if cache is not None:
            words += ["--cache", os.fspath(cache)]
        for name, value in (("--rounds", rounds), ("--min-improvement", min_improvement)):
            if value is not None:
                words += [name, str(value)]
        for name in only:
            words += ["--only", name]
        if force:
            words.append("--force")
        try:
            is_shown = _is_watched() if progress is None else progress
            return AutotuningResult(_run([*words, *options], {**os.environ, **(environment or {})}, is_shown))
        except TuningError as error:
            if error.exit_code != _NO_LABEL or not (complaint or "").startswith("has no labels"):
                raise
            # the program names a file that is gone now
            raise TuningError(
                "the module has no label that can be tuned: mark a function with `@autotune_lowered.tunable`; "
                'without labels, `options=["--compiler-options", "safe"]` tunes how the whole module is compiled, and '
                "so does the program with a file of `autotune_lowered.dump`",
                error.exit_code,
            ) from None


autotune_lowered = tune


def _is_watched() -> bool:
    """Whether somebody waits for this process: at a terminal, or in a notebook."""
    return "ipykernel" in sys.modules or sys.stderr.isatty()


def _run(words: list[str], environment: Mapping[str, str], is_shown: bool) -> dict[str, Any]:
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, errors="replace", env=environment)
    except OSError as error:
        raise ProgramError(f"cannot start `{words[0]}`: {error}; set AUTOTUNE_LOWERED_EXE to the program") from None
    assert process.stdout is not None and process.stderr is not None
    said: list[str] = []

    def listen(stream: Any) -> None:
        for line in stream:
            if line.strip():
                said.append(line.strip())
                _LOG.info("%s", line.strip())
                if is_shown:
                    print(printable(line.strip()), file=sys.stderr, flush=True)

    listener = threading.Thread(target=listen, args=(process.stderr,), daemon=True)
    listener.start()
    try:
        output = process.stdout.read()
        code = process.wait()
    except KeyboardInterrupt:
        # the program got the same signal from the terminal: it ends by itself and keeps what was measured
        process.wait()
        raise
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        listener.join(timeout=10)
        process.stdout.close()
        process.stderr.close()
    if code in _WITH_RESULT and output.strip():
        try:
            result: dict[str, Any] = json.loads(output)
            return result
        except ValueError:
            said.append("its result is no JSON: is the program of another version?")
    named = [line for line in said if line.startswith("autotune-lowered: ")]
    reason = (named or said or ["it said nothing"])[-1].removeprefix("autotune-lowered: ")
    raise TuningError(f"autotune-lowered ended with {code}: {reason}", code)
