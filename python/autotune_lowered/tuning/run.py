"""Tuning from Python: runs the program on a dump of the module, and reads its result."""

from __future__ import annotations

import logging
import os
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._scratch import scratch_folder
from .._stages import lowered_for
from ..module import dump_quietly
from .process import Tuning, TuningError
from .result import AutotuningResult

_LOG = logging.getLogger("autotune_lowered")

# no label, or none that matches
_NO_LABEL = 3


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
    options = list(options)
    with scratch_folder() as folder:
        complaint = None
        if isinstance(module, str | os.PathLike):
            path = pathlib.Path(module)
        else:
            path = folder / "module.txt"
            complaint = dump_quietly(lowered_for(module, args, kwargs or {}) if args or kwargs else module, path)
            if complaint is not None and not any(word.startswith("--compiler-options") for word in options):
                _LOG.warning("the module %s", complaint)
        words = arguments(str(path), registry, cache, timer, rounds, min_improvement, match, only, force)
        try:
            with Tuning([*words, *options], environment or {}, progress) as tuning:
                return tuning.result()
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


def arguments(
    module: str,
    registry: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None,
    timer: str | None,
    rounds: int | None,
    min_improvement: float | None,
    match: str = "exact",
    only: Iterable[str] = (),
    force: bool = False,
) -> list[str]:
    """The program's arguments for `tune`'s."""
    words = [module, "--registry", os.fspath(registry), "--format", "json", "--match", match]
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
    return words
