"""`recording`: every call of a tunable operation inside it is written to a registry, with all candidates lowered."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType, TracebackType
from typing import Any

from ._printable import aligned
from .adapters.operation import Operation
from .adapters.sets import attached, named
from .libraries.ejkernel import calls as ejkernel
from .libraries.import_hook import after_import
from .libraries.tokamax import calls as tokamax
from .record.call import DIRECTIONS
from .record.on_demand import Answering, answers
from .record.recorder import Recorder, active
from .record.registry import Registry
from .record.stand_in import answering
from .record.target import Target

_LOG = logging.getLogger("autotune_lowered")

MAX_ARRAY_BYTES = 64 << 20

# never an `id`, which may be reused: traces of one recording must not be taken for those of the next
_NUMBERS = itertools.count(1)
# the place of a recording on demand among those of the program, by which the tuner asks for it
_ON_DEMAND = itertools.count(1)


class recording:
    """Record every call of an ejkernel or Tokamax operation, or of a `tunable` function, into a registry.

    ```python
    with autotune_lowered.recording("registry/", platforms=("cpu", "cuda")) as recorded:
        train_step(state, batch)
    print(recorded)
    ```

    The recording covers all threads of the process. If two are nested, the inner one records. A function that was
    jitted and called before is traced again inside, in this thread (JAX before 0.7.2: all its caches are cleared).
    Each call is recorded forward and, if it can be differentiated, forward with its vector-Jacobian product, because
    a traced call does not always show whether it will be differentiated. Under `vmap` the mapped program is recorded.

    Arguments:
        folder: The registry, created if there is none.
        platforms: Platforms to lower for: `cpu`, `cuda`, `rocm`, `tpu`; their devices may be absent. The default is the
            platform of this process.
        target: One device to record for instead of platforms, by its name for `autotune-lowered compile --target`
            (`cuda:h100_sxm`, `tpu:v5e`). It may be absent. In the recording thread, libraries that ask JAX for the
            device get the target, so lower what is traced inside for it (`lowering_platforms`) and do not run it.
        candidates: By operation (`flash_attention@v2`), the configs to try instead of the operation's own.
        directions: `forward`, `forward-vjp` or both.
        capture_values: Also fetch the values of integer and boolean arguments of traced calls, and size and sign of
            real ones, by a callback inside the program. It changes the program that runs, and calls count only once
            they have run.
        stamp: How ejkernel labels its operations meanwhile (`hash`, `json`), so that a module lowered inside carries
            labels; `None` leaves `EJKERNEL_OPS_STAMP` alone. The user's own setting wins.
        max_array_bytes: The largest array whose values are captured.
        adapters: Kernels of other projects to record, too, by the names of sets (`jax-pallas`) or as operations of your
            own (`docs/adapters.md`). Their functions are replaced inside, in all threads, and put back at the end.
        on_demand: Lower the baselines alone, and each other candidate when the tuner needs it: `autotune-lowered tune
            --recorder COMMAND`, with the command that runs this program (`docs/recording.md`). A program that has
            several of these makes them in the same order each time.

    Raises ImportError without JAX, ValueError for a registry of another schema and for unknown platforms, targets and adapters,
    OSError if the folder or, at the end, a record cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        platforms: Iterable[str] | None = None,
        target: str | None = None,
        candidates: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
        directions: Sequence[str] = DIRECTIONS,
        capture_values: bool = False,
        stamp: str | None = "hash",
        max_array_bytes: int = MAX_ARRAY_BYTES,
        adapters: Iterable[str | Operation] | str | Operation = (),
        on_demand: bool = False,
    ) -> None:
        wrong = [name for name in directions if name not in DIRECTIONS]
        if wrong or not directions:
            raise ValueError(f"no direction `{wrong[0] if wrong else ''}`: name `forward`, `forward-vjp` or both")
        chosen = dict(candidates or {})
        if platforms is not None and target is not None:
            raise ValueError("a recording is for `platforms` or for a `target`: name one of them")
        asked = [platforms] if isinstance(platforms, str) else platforms
        absent = None if target is None else Target.named(target)
        registry = Registry(
            folder, asked, tuple(directions), _fingerprint, absent, next(_ON_DEMAND) if on_demand else 0
        )
        if asked is not None:
            _ = registry.platforms  # a wrong name is an error here, not at the first call
        asks = answers() if on_demand else None
        settings = (registry, chosen, capture_values, max_array_bytes)
        self._recorder = Recorder(*settings) if asks is None else Answering(asks, *settings)
        self._absent = absent
        self._stamp = stamp
        self._adapted = named(adapters)
        self._entered: contextlib.ExitStack | None = None

    def __enter__(self) -> recording:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # a program may end itself when it has done everything
        is_done = isinstance(error, SystemExit) and error.code in (None, 0)
        self.stop(raising=kind is None or (is_done and isinstance(self._recorder, Answering)))

    def start(self) -> None:
        """Start without a `with` block; `stop` ends it."""
        if self._entered is not None:
            raise RuntimeError("this recording has already started: make another one")
        self._entered = contextlib.ExitStack()
        # also for `None`: a recording inside one for a target is for the host again
        self._entered.enter_context(answering(self._absent))
        self._recorder.begin()
        self._entered.callback(self._recorder.end)
        self._entered.callback(ejkernel.attached(self._stamp))
        self._entered.callback(tokamax.attached())
        self._entered.enter_context(attached(self._adapted))
        if "jax" in sys.modules:
            self._entered.enter_context(_retracing(next(_NUMBERS)))

    def stop(self, raising: bool = True) -> None:
        """End the recording: lower and write what is pending. Write errors are logged unless `raising`."""
        entered, self._entered = self._entered, None
        if entered is None:
            return
        entered.close()
        if raising:
            self._recorder.flush()
        else:
            # our error must not hide the block's own
            self._recorder.finish_quietly()
        if isinstance(self._recorder, Answering):
            self._recorder.serve(now=raising)

    def report(self) -> list[dict[str, Any]]:
        """The recorded calls: one entry for each call, direction and platform.

        `candidates` and `programs` count configs and distinct programs. `exercised`, `unexercised`, `not_varied` and
        `unknown` list parameters by their effect on the program in this direction; this record can tune only
        `exercised` ones. `not_lowered` counts candidates by reason, `values_unknown` names arguments with the reason,
        and `record` is the file. A call that could not be recorded has `not_recorded` with the reason instead; a call
        that waits for its trace to end has `pending`.
        """
        return self._recorder.report()

    def __str__(self) -> str:
        rows: list[Sequence[str]] = [("operation", "direction", "platform", "candidates", "programs", "")]
        for row in self.report():
            told = (row.get(name, "") for name in ("direction", "platform", "candidates", "programs"))
            rows.append((f"{row['op_id']}:{row['call_key']}".rstrip(":"), *map(str, told), _remark(row)))
        return "\n".join(aligned(rows, right=range(3, 5)))

    @staticmethod
    def active() -> Recorder | None:
        """The recorder in force, if any."""
        return active()


def _remark(row: Mapping[str, Any]) -> str:
    """What else a row of the report says, in short."""
    if "not_recorded" in row:
        return f"not recorded: {row['not_recorded']}"
    if row.get("pending"):
        return "waits for its trace to end"
    left = sum(row["not_lowered"].values())
    remarks = [f"{left} not lowered: {next(iter(row['not_lowered']))}"] if left else []
    remarks += [f"`{name}`: {reason}" for name, reason in row["values_unknown"].items()]
    return "; ".join(remarks)


def _fingerprint() -> dict[str, Any]:
    import jax

    from .worker import fingerprint

    found: dict[str, Any] = fingerprint(jax.local_devices()[0])
    return found


@functools.cache
def _trace_key() -> Any | None:
    import jax

    make = getattr(jax, "make_user_context", None)
    return make(None) if make is not None else None


def _retracing(value: int) -> contextlib.AbstractContextManager[Any]:
    """Makes this thread trace its functions again, because a traced function does not call its operations a second
    time."""
    key = _trace_key()
    if key is not None:
        context: contextlib.AbstractContextManager[Any] = key(value)
        return context
    import jax

    _LOG.info("this JAX cannot key its traces: its caches are cleared, so that what was traced before is traced again")
    jax.clear_caches()
    return contextlib.nullcontext()


def record_whole_process(folder: str) -> None:
    """The recording requested by `AUTOTUNE_LOWERED_RECORD`, until the process ends. It does not import JAX."""
    if active() is not None:
        return
    whole = recording(folder)
    whole.start()

    # JAX drops its clients at exit, but lowering needs them; the last to register runs first
    def at_exit(_: ModuleType) -> None:
        atexit.register(whole.stop, raising=False)

    after_import("jax", at_exit)
