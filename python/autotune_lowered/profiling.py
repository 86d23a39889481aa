"""Profile your own loop with JAX's profiler: annotations, one span, or every N steps.

All captures are XSpace files, which `autotune-lowered profile` and xprof read.
"""

import contextlib
import functools
import logging
import os
import re
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from ._jax import jax_for

_LOG = logging.getLogger("autotune_lowered")

P = ParamSpec("P")
R = TypeVar("R")

_RUNS = Path("plugins", "profile")
_CAPTURING = ".capturing-"
_OF_STEPS = re.compile(r"step_\d+-\d+-p\d+")


class annotate(contextlib.ContextDecorator):
    """Name a stretch of code in profiles: `with annotate("load"):`, or `@annotate("loss", layer=3)` on a function.

    The name appears on the host's timeline with `metadata` (numbers and strings) as its arguments. Operations that are
    traced inside carry it too (`jax.named_scope`). Outside a capture it costs almost nothing.
    """

    def __init__(self, name: str, **metadata: Any):
        self.name, self.metadata = name, metadata
        self._open = threading.local()

    def __enter__(self) -> Self:
        jax = _jax()
        with contextlib.ExitStack() as span:
            span.enter_context(jax.profiler.TraceAnnotation(self.name, **self.metadata))
            span.enter_context(jax.named_scope(self.name))
            # one annotation may be open several times: recursion, threads
            self._open.__dict__.setdefault("spans", []).append(span.pop_all())
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.spans.pop().close()


def trace_function(function: Callable[P, R], name: str | None = None, **metadata: Any) -> Callable[P, R]:
    """Return an equivalent function that is named in profiles, by default with its qualified name."""
    span = annotate(name or str(getattr(function, "__qualname__", type(function).__qualname__)), **metadata)

    @functools.wraps(function)
    def traced(*args: P.args, **kwargs: P.kwargs) -> R:
        with span:
            return function(*args, **kwargs)

    return traced


@contextlib.contextmanager
def profile_context(
    logdir: str | os.PathLike[str], *, name: str | None = None, gpu_trace: bool = False, perfetto: bool = False
) -> Iterator[Path]:
    """Capture the block into `logdir`, under `name` if it is given; yield `logdir`.

    Work that was started inside and has not finished at the end is cut off: wait for results (`jax.block_until_ready`).
    `gpu_trace` adds NVTX ranges and the kernels inside CUDA graphs, `perfetto` a `perfetto_trace.json.gz`. Raises
    RuntimeError if a capture is already running, OSError if `logdir` cannot be written.
    """
    folder = Path(logdir)
    folder.mkdir(parents=True, exist_ok=True)
    _start(folder, gpu_trace, perfetto)
    try:
        with annotate(name) if name else contextlib.nullcontext():
            yield folder
    finally:
        _jax().profiler.stop_trace()


class StepProfiler:
    """Captures a loop every N steps, for some milliseconds, and keeps the newest captures.

        with StepProfiler("profiles", every_n_steps=100) as profiler:
            for batch in batches:
                profiler.step()
                state = train_step(state, batch)

    A capture begins at step `every_n_steps` and its multiples and ends `duration_ms` later. Its own thread writes it
    while the loop continues; a step that would begin one while another runs is skipped. Each capture is in
    `logdir/plugins/profile/step_STEP-TIME-pPROCESS/`. The `max_count` newest of this process index are kept; other
    folders are not touched. While a capture runs, each step is marked in it.

    No failure of the profiler reaches the loop: the first of each kind is logged, and the next capture is tried as usual.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        every_n_steps: int = 100,
        duration_ms: float = 3000,
        max_count: int = 5,
        *,
        gpu_trace: bool = False,
    ):
        for name, value in (("every_n_steps", every_n_steps), ("duration_ms", duration_ms), ("max_count", max_count)):
            if value <= 0:
                raise ValueError(f"{name} is {value}; give a positive number")
        self.logdir = Path(logdir)
        self.every_n_steps, self.duration_ms, self.max_count = every_n_steps, duration_ms, max_count
        self.gpu_trace = gpu_trace
        self._count = 0
        self._capture: _Capture | None = None
        self._mark: Any = None
        self._failures: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def step(self, step: int | None = None) -> None:
        """Mark the beginning of a step; call it once per step, from one thread. `step` defaults to the count."""
        self._count = self._count + 1 if step is None else step
        self._guarded("mark a step", self._end_mark)
        if self._capture is not None and self._capture.done.is_set():
            self._capture = None
        if self._capture is None and self._count > 0 and self._count % self.every_n_steps == 0:
            self._guarded("start a capture", self._begin)
        if self._capture is not None:
            self._guarded("mark a step", self._begin_mark)

    def close(self) -> None:
        """End a running capture, and wait until it is written."""
        self._guarded("mark a step", self._end_mark)
        capture, self._capture = self._capture, None
        if capture is not None:
            self._guarded("end a capture", capture.finish)

    def _begin(self) -> None:
        self.logdir.mkdir(parents=True, exist_ok=True)
        self._capture = _Capture(self)

    def _begin_mark(self) -> None:
        mark = _jax().profiler.StepTraceAnnotation("step", step_num=self._count)
        mark.__enter__()
        self._mark = mark

    def _end_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    def _guarded(self, what: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # the training step is worth more than its profile
            kind = f"{what} {type(error).__name__}"
            if kind not in self._failures:
                self._failures.add(kind)
                _LOG.warning("cannot %s: %s; the loop goes on, later failures like it are not logged", what, error)

    def _start_timer(self, milliseconds: float, work: Callable[[], None]) -> threading.Timer:
        timer = threading.Timer(milliseconds / 1000, work)
        timer.daemon = True
        timer.name = "autotune-lowered-profiler"
        timer.start()
        return timer


class _Capture:
    """One capture of a `StepProfiler`: runs until `finish`, which the timer or the loop's end calls."""

    def __init__(self, profiler: StepProfiler):
        self.profiler = profiler
        self.run = f"step_{profiler._count:08d}-{time.time_ns()}"
        # JAX names folders by the second: captured separately and then moved, so that two cannot collide and a reader
        # never sees a partial one
        self.folder = Path(tempfile.mkdtemp(prefix=_CAPTURING, dir=profiler.logdir))
        self.done = threading.Event()
        self._lock = threading.Lock()
        # a short timer may expire before this is created: `finish` waits for the lock
        with self._lock, contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            _start(self.folder, profiler.gpu_trace, perfetto=False)
            undo.callback(_jax().profiler.stop_trace)
            self.process = f"-p{jax_for('profiling needs').process_index()}"
            self.timer = profiler._start_timer(profiler.duration_ms, self._time_is_up)
            undo.pop_all()

    def _time_is_up(self) -> None:
        self.profiler._guarded("end a capture", self.finish)

    def finish(self) -> None:
        """Stop, write, move into place, and remove captures beyond the count. The second caller waits for the first."""
        with self._lock:
            if self.done.is_set():
                return
            try:
                self.timer.cancel()
                _jax().profiler.stop_trace()
                runs = self.profiler.logdir / _RUNS
                runs.mkdir(parents=True, exist_ok=True)
                (captured,) = (self.folder / _RUNS).iterdir()
                captured.rename(runs / (self.run + self.process))
                _keep_newest(runs, self.process, self.profiler.max_count)
            finally:
                self.done.set()
                shutil.rmtree(self.folder, ignore_errors=True)


def _keep_newest(runs: Path, process: str, count: int) -> None:
    ours = [run for run in runs.iterdir() if _OF_STEPS.fullmatch(run.name) and run.name.endswith(process)]
    ours.sort(key=lambda run: int(run.name.split("-")[1]))
    for run in ours[:-count]:
        shutil.rmtree(run, ignore_errors=True)


class LatestProfile(NamedTuple):
    """The newest capture of a log folder."""

    files: list[Path]
    """Its XSpace files, one per host, sorted."""
    command: str
    """The command to view them: xprof on the log folder (`pip install xprof`)."""


def open_latest(logdir: str | os.PathLike[str]) -> LatestProfile:
    """The newest capture in `logdir` or below: its XSpace files and the command to view them.

    Nothing is started. The program reads single files too: `autotune-lowered profile timings FILE`. Raises
    FileNotFoundError if there is none.
    """
    runs: dict[Path, list[Path]] = {}
    for file in Path(logdir).rglob("*.xplane.pb"):
        if not any(part.startswith(_CAPTURING) for part in file.parts):
            runs.setdefault(file.parent, []).append(file)
    if not runs:
        raise FileNotFoundError(f"no *.xplane.pb in `{logdir}` or below: capture one with `profile_context`")
    newest = max(runs, key=lambda run: (max(file.stat().st_mtime_ns for file in runs[run]), run))
    root = newest.parents[2] if newest.parent.parts[-2:] == _RUNS.parts else newest
    return LatestProfile(sorted(runs[newest]), f"xprof --logdir {shlex.quote(str(root))}")


def _start(folder: Path, gpu_trace: bool, perfetto: bool) -> None:
    profiler = _jax().profiler
    options: dict[str, Any] = {"create_perfetto_trace": perfetto}
    if gpu_trace:
        if hasattr(profiler, "ProfileOptions"):
            options["profiler_options"] = detailed = profiler.ProfileOptions()
            detailed.advanced_configuration = {
                "gpu_enable_nvtx_tracking": True,
                "gpu_enable_cupti_activity_graph_trace": True,
            }
        else:
            _say_once("this JAX has no jax.profiler.ProfileOptions: the capture has no more of the GPU than usual")
    profiler.start_trace(str(folder), **options)


@functools.cache
def _say_once(message: str) -> None:
    _LOG.warning("%s", message)


def _jax() -> Any:
    return jax_for("profiling needs")
