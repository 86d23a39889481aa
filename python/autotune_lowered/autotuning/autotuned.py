"""`autotune`: a function that is tuned when it is first called, and runs with its best config from then on."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import os
import pathlib
import stat
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from .._jax import jax_for
from .._program import ProgramError
from .._stages import stablehlo_text
from ..lookup.cache import Cache, default_folder
from ..lookup.device import device
from ..lookup.entry import Entry
from ..lookup.in_force import overlaid
from ..module import write_whole
from ..record.recorder import active
from ..tunables.call import Call
from ..tunables.recorded import arrays_after_recording
from ..tunables.search_space import Config, Constraint
from ..tunables.tunable import Tunable
from ..tuning.process import AHEAD, Tuning, TuningError
from ..tuning.result import AutotuningResult
from ..tuning.run import arguments as program_arguments
from ..worker import why_too_old
from .arguments import Arguments, arguments_of
from .code import code_digest
from .in_process import measuring_here
from .kernel import kernel_of, operation_of
from .process import outside_of_traces, why_held
from .warm import warm_variables

_LOG = logging.getLogger("autotune_lowered")

# of a SHA-256
_DIGITS = 64

# one tuning of this process at a time: two would disturb each other, and a cache is open once
_MEASURING = threading.Lock()

# below a cache folder: what its functions were tuned from
_FOLDER = "autotuned-v1"


class Autotuned:
    """A function that is tuned when it is first called with arguments of new shapes or types. `autotune` makes one."""

    def __init__(
        self,
        tunable: _Decided,
        donated: frozenset[str],
        directions: Sequence[str],
        cache: str | os.PathLike[str] | None,
        in_process: bool,
        how: Mapping[str, Any],
    ):
        self._in_process = in_process
        self._tunable, self._donated, self._directions, self._how = tunable, donated, tuple(directions), dict(how)
        self._cache = cache
        self._static = tunable.static_argnames | tunable.static_key.keys()
        self._programs: dict[Hashable, Any] = {}
        self._lock = threading.RLock()
        self._result: AutotuningResult | None = None
        self.__name__, self.__doc__ = tunable.function.__name__, tunable.function.__doc__
        self.__wrapped__ = tunable.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with the config that is the best for these arguments; the first call of its kind finds it.

        It may be a part of a jitted program. Under `vmap`, nothing is tuned: the best config that is known is used.
        """
        bound = self._bound(args, kwargs)
        found = arguments_of(bound, self._static, self._donated)
        is_open = self._tunable.default.keys().isdisjoint(bound.arguments)
        if active() is not None:
            # what records also decides what is tuned
            return self._run(found, found.arrays, found.donated)
        if found.is_traced:
            if is_open and not (call := self._call(found)).batch:
                outside_of_traces(lambda: self._decide(call.key, found.without_values()))
            return self._run(found, found.arrays, found.donated)
        program = self._programs.get(found.identity)
        if program is None:
            is_final = not is_open or self._decide(self._call(found).key, found)
            program = self._program(found)
            if is_final:
                self._programs[found.identity] = program
        return program(found.arrays, found.donated)

    def tune(self, *args: Any, **kwargs: Any) -> AutotuningResult:
        """Find the best config for arguments of these shapes and types, without calling the function. Arrays may be
        `jax.ShapeDtypeStruct`. What is known already is not measured again.

        Raises `TuningError` if nothing could be tuned, `ProgramError` without the program.
        """
        with self._lock:
            return self._tune(self._arguments(args, kwargs))

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """A `jax.stages.Lowered` with the best config that is known; nothing is tuned."""
        found = self._arguments(args, kwargs)
        return self._program(found).lower(found.arrays, found.donated)

    @property
    def result(self) -> AutotuningResult | None:
        """What was measured last, as a table if it is printed; `None` if this process measured nothing yet."""
        return self._result

    @property
    def configs(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The configs in use so far, by operation and call key."""
        return {(self._tunable.op_id, key): dict(config) for key, config in self._tunable.decided.items()}

    @property
    def tunable(self) -> Tunable:
        """The declaration, as that of a function under `tunable`."""
        return self._tunable

    def __repr__(self) -> str:
        return f"<autotuned {self._tunable.op_id}: {len(self._tunable.decided)} calls decided>"

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        bound = self._tunable.signature.bind(*args, **kwargs)
        given = self._tunable.default.keys() & bound.arguments.keys()
        bound.apply_defaults()
        for name in self._tunable.default.keys() - given:
            del bound.arguments[name]
        return bound

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        return arguments_of(self._bound(args, kwargs), self._static | self._tunable.default.keys(), self._donated)

    def _call(self, arguments: Arguments) -> Call:
        """The call as its label and its record name it."""
        bound = arguments.rebuild(arguments.arrays, arguments.donated)
        return self._tunable.call(*bound.args, **bound.kwargs)

    def _run(self, arguments: Arguments, arrays: Sequence[Any], donated: Sequence[Any]) -> Any:
        bound = arguments.rebuild(arrays, donated)
        return self._tunable.run(*bound.args, **bound.kwargs)

    def _program(self, arguments: Arguments) -> Any:
        # it is kept, and must not hold the arrays of its first call
        of_any = arguments._replace(arrays=[], donated=[])

        def run(arrays: Sequence[Any], donated: Sequence[Any]) -> Any:
            return self._run(of_any, arrays, donated)

        run.__name__ = self.__name__
        return jax_for("autotune needs").jit(run, donate_argnums=1)

    def _decide(self, key: str, arguments: Arguments) -> bool:
        """Finds the config of a call; an overlay's is not for good, and then the answer is `False`. If it cannot be
        found, the default is used, and a warning says why."""
        with self._lock:
            if key in self._tunable.decided:
                return True
            if overlaid(self._tunable.op_id, key) is not None:
                return False
            folder = self._folder()
            entry = self._cached(key)
            if entry is not None and self._is_current(entry, folder):
                self._tunable.decided[key] = entry.config
                return True
            try:
                self._tune(arguments)
            except (TuningError, ProgramError) as error:
                self._tunable.decided.setdefault(key, dict(self._tunable.baseline))
                _LOG.warning("`%s` runs with its default: %s", self.__name__, error)
            return True

    def _tune(self, arguments: Arguments) -> AutotuningResult:
        call, folder = self._call(arguments), self._folder()
        key = call.key
        if folder is None:
            raise TuningError("the cache is only read: name a folder that can be written", 6)
        if jax_for("autotune needs").process_count() > 1:
            raise TuningError(
                "this program has several processes, which would choose apart from each other: tune in one process "
                "alone, and give all of them its cache",
                2,
            )
        unfit = why_too_old() if self._in_process else why_held()
        if unfit is not None:
            raise TuningError(unfit, 5)
        try:
            self._code_file(folder, key).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _cannot_write(error) from error
        result = self._measured(call, arguments, folder)
        self._result = result
        # what was compiled before may have another config
        self._programs.clear()
        own = result.configs.get((self._tunable.op_id, key))
        self._tunable.decided[key] = dict(self._tunable.baseline) if own is None else own
        if own is None:
            reasons = (row["reason"] for row in result.operations if row["call_key"] == key)
            _LOG.warning("`%s` runs with its default: %s", self.__name__, next(reasons, "nothing was measured"))
        else:
            write_whole(self._code_file(folder, key), code_digest(self._tunable.function).encode())
        return result

    def _measured(self, call: Call, arguments: Arguments, folder: pathlib.Path) -> AutotuningResult:
        warms = not self._in_process and self._how["timer"] is None
        if warms:
            # it imports JAX while this process lowers
            with _MEASURING:
                warm_variables()
        # a function within may be tuned meanwhile, in the same cache
        module = stablehlo_text(self._program(arguments).lower(arguments.arrays, arguments.donated))
        registry = folder / _FOLDER / "registry"
        with _MEASURING, contextlib.ExitStack() as stack:
            how = dict(self._how)
            environment: Mapping[str, str] = {}
            options = [*how.pop("options"), "--only", self._tunable.op_id]
            if self._in_process:
                how["timer"], environment = stack.enter_context(measuring_here())
                options += ["--processes", "0"]
            elif warms:
                environment = warm_variables()
            # of several directions, this is not the order in which they are measured
            tells = warms and len(self._directions) == 1
            options += [AHEAD] * tells
            progress = how.pop("progress")
            # it starts its worker, and compiles, while this process records
            words = program_arguments("-", registry, folder, **how)
            tuning = stack.enter_context(Tuning([*words, *options], environment, progress))
            self._record(registry, call, tuning.tell if tells else None)
            return tuning.result(module)

    def _record(self, registry: pathlib.Path, call: Call, told: Callable[[dict[str, Any]], None] | None) -> None:
        # only where something is tuned, and while a worker imports JAX
        from .._recording import recording

        try:
            with recording(registry, directions=self._directions) as recorded:
                if (recorder := active()) is not None:
                    recorder.registry.told = told
                arrays_after_recording(self._tunable, call, call.key)
            for row in recorded.report():
                if "not_recorded" in row:
                    reason = f"{self._tunable.op_id}:{call.key} cannot be tuned: {row['not_recorded']}"
                    raise TuningError(reason, 1)
                supersede(registry / row["record"])
        except OSError as error:
            raise _cannot_write(error) from error

    def _folder(self) -> pathlib.Path | None:
        """The cache's folder; `None` if the cache is a file, a URL, or a folder that can only be read."""
        named = pathlib.Path(self._cache) if self._cache is not None else default_folder()
        is_other = named.is_file() or ":/" in str(named) or (named.suffix and not named.is_dir())
        is_fixed = named.is_dir() and not os.access(named, os.W_OK)
        return None if is_other or is_fixed else named

    def _cached(self, key: str) -> Entry | None:
        return Cache.open(self._cache).get(device(), self._tunable.op_id, key)

    def _is_current(self, entry: Entry, folder: pathlib.Path | None) -> bool:
        """Whether an entry was decided for this code, in this environment. Of what is only read, that is not known."""
        if folder is None or entry.tier == "shipped":
            return True
        measured_in = (entry.provenance or {}).get("environment")
        if measured_in != device().fingerprint["environment"]:
            return False
        return read_digest(self._code_file(folder, entry.call_key)) == code_digest(self._tunable.function)

    def _code_file(self, folder: pathlib.Path, key: str) -> pathlib.Path:
        return folder / _FOLDER / "code" / f"{self._tunable.op_id}-{key}"


def _cannot_write(error: OSError) -> TuningError:
    return TuningError(f"the cache folder cannot be written: {error}; name another one", 6)


def read_digest(path: pathlib.Path) -> str | None:
    """What a file of a digest holds; `None` if it is no file of that length."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size != _DIGITS:
            return None
        return os.read(descriptor, _DIGITS).decode("ascii", "replace")
    finally:
        os.close(descriptor)


def supersede(record: pathlib.Path) -> None:
    """Removes the earlier records of a call for the same device: the time of a record has whole seconds."""
    key, _, _ = record.name.partition("-")
    for other in record.parent.glob(f"{key}-*.json"):
        if other.name != record.name:
            other.unlink(missing_ok=True)


class _Decided(Tunable):
    """A tunable function with decisions of its own process."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.decided: dict[str, Config] = {}

    def config_for(self, key: str) -> Config:
        own = self.decided.get(key)
        if own is None or overlaid(self.op_id, key) is not None:
            return super().config_for(key)
        return self.default | self.space.typed(own)


def autotune(
    function: Callable[..., Any],
    space: Mapping[str, Iterable[Any]] | None = None,
    *,
    op: str | None = None,
    version: int = 1,
    candidates: Iterable[Mapping[str, Any]] = (),
    constraints: Iterable[Constraint] = (),
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
    donate_argnums: int | Iterable[int] = (),
    donate_argnames: str | Iterable[str] = (),
    static_key: Mapping[str, Callable[[Any], Any]] | None = None,
    fills: Mapping[str, Mapping[str, Any]] | None = None,
    tolerance: float | None = None,
    directions: Sequence[str] = ("forward",),
    cache: str | os.PathLike[str] | None = None,
    timer: str | None = None,
    rounds: int | None = None,
    min_improvement: float | None = None,
    options: Iterable[str] = (),
    progress: bool | None = None,
    in_process: bool = False,
) -> Autotuned:
    """A function of arrays that is tuned when it is first called, and then runs, jitted, with its best config.

    ```python
    fast = autotune_lowered.autotune(matmul, {"block_m": [32, 128], "block_n": [64, 256]})
    y = fast(x, w)          # measures every config for these shapes, once
    print(fast.result)      # the table
    ```

    Each call with arrays of other shapes or types is tuned by itself. The decision goes to the cache, where later
    processes and `autotune-lowered` find it: in them, the first call only looks it up. If the function's code has
    changed since, its programs are compared with those that were measured, and measured again if they differ.

    Arguments:
        function: A function that `jax.jit` takes: its arguments are pytrees of arrays, modules of Equinox and Flax
            among them. A number is an array too. Values of other types are a part of the program, which is tuned for
            each of them.
        space: The values to try, by parameter. A parameter's default, or else its first value, is the baseline.
        op, version: The operation's name and version, by which its configs are found again. The default is the
            function's name with its module.
        static_argnums, static_argnames, donate_argnums, donate_argnames: As for `jax.jit`.
        candidates, constraints, static_key, fills, tolerance: As for `tunable`.
        directions: `forward`, or `forward-vjp` to measure the function together with its gradient, or both.
        cache: Cache folder; by default the usual one.
        timer, rounds, min_improvement, options, progress: As for `tune`.

        in_process: Measure in this process, where its device can have no other one, as a TPU. A candidate that crashes
            ends the process, one that hangs hangs its device, and no fresh process confirms the winner.

    Raises TypeError and ValueError for a declaration that cannot be tuned. A call whose tuning fails runs with the
    default, and a warning says why.
    """
    tried: dict[str, list[Any]] = {name: list(values) for name, values in (space or {}).items()}
    listed = [dict(config) for config in candidates]
    for name, value in itertools.chain.from_iterable(config.items() for config in listed):
        tried.setdefault(name, []).append(value)
    kernel = kernel_of(function, tried)
    names = list(inspect.signature(kernel).parameters)
    made = _Decided(
        kernel,
        op if op is not None else operation_of(function),
        version,
        {name: tried[name] for name in space or {}},
        listed,
        constraints,
        [*_named(static_argnames), *_by_place(names, static_argnums)],
        fills or {},
        static_key or {},
        tolerance,
    )
    donated = frozenset([*_named(donate_argnames), *_by_place(names, donate_argnums)])
    unknown = donated - set(names)
    if unknown:
        raise TypeError(f"donate_argnames: `{made.name}` has no parameter `{min(unknown)}`")
    how = {"timer": timer, "rounds": rounds, "min_improvement": min_improvement, "options": list(options)}
    how["progress"] = progress
    if in_process and timer is not None:
        raise TypeError("`timer` does not go with `in_process`")
    return Autotuned(made, donated, directions, cache, in_process, how)


def _named(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _by_place(names: Sequence[str], places: int | Iterable[int]) -> list[str]:
    chosen = [places] if isinstance(places, int) else list(places)
    for place in chosen:
        if not -len(names) <= place < len(names):
            raise ValueError(f"there is no argument {place}: {len(names)} are known")
    return [names[place] for place in chosen]
