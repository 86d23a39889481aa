"""`tunable`: anyone's kernel becomes an operation that is recorded, tuned and run with its best config."""

import functools
import inspect
import itertools
import logging
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from . import _in_force
from ._call_key import Undescribable, call_key, describe, is_array
from ._search_space import Config, Constraint, SearchSpace

_LOG = logging.getLogger("autotune_lowered")

P = ParamSpec("P")
R = TypeVar("R")
# one that ends like a version would be read as one
_NAME = re.compile(r"(?!.*\.v\d+\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

_lowering_candidates = threading.local()


@dataclass(frozen=True)
class Call:
    """One call's arguments, told apart into arrays by name and described static values."""

    bound: inspect.BoundArguments
    arrays: dict[str, Any]
    static: dict[str, Any]
    fill: Callable[[Sequence[Any]], dict[str, Any]]

    @property
    def key(self) -> str:
        """The call key, 16 hexadecimal digits."""
        return call_key(self.arrays, self.static)


class Tunable:
    """A function with its search space; `function.tunable` of what the decorator gives."""

    def __init__(
        self,
        function: Callable[..., Any],
        op: str,
        version: int,
        space: Mapping[str, Iterable[Any]],
        candidates: Iterable[Mapping[str, Any]],
        constraints: Iterable[Constraint],
        static_argnames: Iterable[str],
        fills: Mapping[str, Mapping[str, Any]],
    ):
        if not _NAME.fullmatch(op):
            raise ValueError(f"`{op}` is no name of an operation: letters, digits and `_.-`, no version at its end")
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ValueError(f"the version of `{op}` is {version!r}; give a whole number from 0 on")
        self.function, self.op, self.version = function, op, version
        self.op_id = f"{op}@v{version}"
        self.signature = inspect.signature(function)
        self.static_argnames = frozenset([static_argnames] if isinstance(static_argnames, str) else static_argnames)
        unknown = self.static_argnames - self.signature.parameters.keys()
        if unknown:
            raise TypeError(f"static_argnames: `{function.__name__}` has no parameter `{min(unknown)}`")
        self.fills = {name: dict(fill) for name, fill in fills.items()}
        candidates = [dict(config) for config in candidates]
        self.default = self._default_of([*space, *itertools.chain.from_iterable(candidates)])
        self.space = SearchSpace(op, self.default, space, candidates, constraints)
        self._warned: set[tuple[str, str]] = set()

    def _default_of(self, names: Iterable[str]) -> Config:
        default = {}
        for name in names:
            parameter = self.signature.parameters.get(name)
            if (
                parameter is None
                or parameter.kind is not parameter.KEYWORD_ONLY
                or parameter.default is parameter.empty
            ):
                raise TypeError(
                    f"`{name}` is tuned, so `{self.function.__name__}` must have it after `*` with a default"
                )
            default[name] = parameter.default
        if not default:
            raise ValueError(f"`{self.op}` has nothing to tune: give `space` or `candidates`")
        return default

    def call(self, *args: Any, **kwargs: Any) -> Call:
        """The arguments of a call, told apart. Raises `Undescribable`, a TypeError, where one has no spelling."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self._split(bound)

    def call_key(self, *args: Any, **kwargs: Any) -> str:
        """The key of a call; arrays may be `jax.ShapeDtypeStruct`."""
        return self.call(*args, **kwargs).key

    def _split(self, bound: inspect.BoundArguments) -> Call:
        jax = _jax()
        arrays: dict[str, Any] = {}
        static: dict[str, Any] = {}
        flattened: dict[str, tuple[list[Any], list[int], Any]] = {}
        for name, value in bound.arguments.items():
            if name in self.default:
                continue
            if name in self.static_argnames:
                static[name] = self._describe(name, value)
                continue
            paths, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda leaf: leaf is None)
            leaves, places = [leaf for _, leaf in paths], []
            for place, (path, leaf) in enumerate(paths):
                full = name + jax.tree_util.keystr(path)
                if is_array(leaf):
                    arrays[full] = leaf
                    # `fill` outlives the call where it is recorded, and tracers must not
                    leaves[place] = None
                    places.append(place)
                else:
                    static[full] = self._describe(full, leaf)
            if places:
                flattened[name] = (leaves, places, structure)

        def fill(values: Sequence[Any]) -> dict[str, Any]:
            rest, filled = iter(values), {}
            for name, (leaves, places, structure) in flattened.items():
                leaves = list(leaves)
                for place in places:
                    leaves[place] = next(rest)
                filled[name] = jax.tree_util.tree_unflatten(structure, leaves)
            return filled

        return Call(bound, arrays, static, fill)

    def _describe(self, name: str, value: Any) -> Any:
        try:
            return describe(value)
        except Undescribable as error:
            raise Undescribable(f"argument `{name}` of `{self.op}`: {error}") from None
        except RecursionError:
            raise Undescribable(f"argument `{name}` of `{self.op}` holds itself or is nested too deeply") from None

    def config_for(self, key: str) -> Config:
        """The config in force for a call key, else the default."""
        found = _in_force.config_to_trace(self.op_id, key)
        if found is None:
            return dict(self.default)
        found = self.space.typed(found)
        wrong = self.space.misfit(found)
        if wrong is not None:
            self._warn_once(
                key,
                f"the config in force for {self.op_id}:{key} has `{wrong}` = {found[wrong]!r}, which "
                f"`{self.function.__name__}` does not take; the default is used: tune this version again",
            )
            return dict(self.default)
        return self.default | found

    def _warn_once(self, about: str, message: str) -> None:
        if (about, message) not in self._warned:
            self._warned.add((about, message))
            _LOG.warning("%s", message)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with the config in force, stamped; a caller's own config is obeyed, without a stamp."""
        bound = self.signature.bind(*args, **kwargs)
        if not self.default.keys().isdisjoint(bound.arguments):
            return self.function(*args, **kwargs)
        bound.apply_defaults()
        try:
            call = self._split(bound)
        except Undescribable as error:
            self._warn_once("", f"{error}; such calls run with the default and are not tuned")
            return self.function(*args, **kwargs)
        key = call.key
        self._record(call, key)
        # no `@`, at which HLO cuts names
        with _jax().named_scope(f"ejkernel_ops#{self.op}.v{self.version}:{key}"):
            return self.function(*bound.args, **(bound.kwargs | self.config_for(key)))

    def _record(self, call: Call, key: str) -> None:
        # not imported: nothing records
        recording = sys.modules.get("autotune_lowered._recording")
        recorder = recording.active() if recording is not None else None
        if recorder is None or getattr(_lowering_candidates, "now", False) or not recorder.wants(self.op_id, key):
            return
        from ._calls import RecordedCall, record_call

        jax = _jax()
        specs = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in call.arrays.items()}
        values = {name: array for name, array in call.arrays.items() if not isinstance(array, jax.core.Tracer)}
        # the call itself holds tracers: what outlives it is its static part, and how arrays go in again
        fill, holds_arrays = call.fill, call.fill([None] * len(specs)).keys()
        static = {name: value for name, value in call.bound.arguments.items() if name not in holds_arrays}

        def build(config: Config) -> Callable[..., Any]:
            def candidate(*arrays: Any) -> Any:
                bound = inspect.BoundArguments(self.signature, OrderedDict(static | fill(arrays)))
                outer = getattr(_lowering_candidates, "now", False)
                _lowering_candidates.now = True
                try:
                    return self.function(*bound.args, **(bound.kwargs | self.space.typed(config)))
                finally:
                    _lowering_candidates.now = outer

            return candidate

        record_call(
            recorder,
            RecordedCall(
                op_id=self.op_id,
                call_key=key,
                arrays=specs,
                static=call.static,
                baseline=dict(self.default),
                configs=lambda platform: self.space.configs(specs),
                build=build,
                fills=self._fills(specs),
                values=values,
            ),
        )

    def _fills(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The fills of arrays by full name; one given for a parameter stands for all arrays in it."""
        fills = {}
        for name in names:
            parameter = re.match(r"\w+", name)
            fill = self.fills.get(name) or self.fills.get(parameter.group() if parameter else name)
            if fill is not None:
                fills[name] = fill
        return fills


def tunable(
    *,
    op: str,
    version: int,
    space: Mapping[str, Iterable[Any]] | None = None,
    candidates: Iterable[Mapping[str, Any]] = (),
    constraints: Iterable[Constraint] = (),
    static_argnames: Iterable[str] = (),
    fills: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function of arrays a tunable operation, `op@vVERSION`.

    The parameters named in `space` (name to values) or in `candidates` (configs as they are) are tuned: they must be
    keyword-only, and their defaults are the baseline. `constraints` are callables of a config, or of a config and the
    arrays by name (anything with `shape` and `dtype`); a config is a candidate where all are true. `fills` says how a
    tuner makes an array's values (`docs/registry.md`), by parameter or by `x[0]`, `x['a']` inside of pytrees.

    Of the other arguments, leaves with a shape and a dtype are arrays of any shape; the rest, and all of
    `static_argnames`, is static and becomes part of the call key. Each call is stamped with its label. Under `vmap` the
    function sees shapes without the mapped axis, under `shard_map` those of one device, and so does the key.

    At trace time the config in force for the call is taken, else the default; a compiled call costs nothing. A function
    that is jitted around this one is traced again when what is in force changes. A caller that gives a tuned parameter
    itself is obeyed, and that call is neither stamped nor recorded.

    Raises TypeError and ValueError for a declaration that cannot be tuned, ImportError at a call without JAX.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        made = Tunable(function, op, version, space or {}, candidates, constraints, static_argnames, fills or {})

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = made.run(*args, **kwargs)
            return result

        run.tunable = made  # type: ignore[attr-defined]
        return run

    return decorate


def _jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise ImportError("tunable functions need JAX: pip install 'autotune-lowered[jax]'") from error
    return jax
