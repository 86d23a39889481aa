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
from ._batching import Batch, UnknownAxes, mapped, seen, variant_key, whole_arrays, whole_spec, whole_values
from ._call_key import Undescribable, call_key, describe, is_array
from ._search_space import Config, Constraint, SearchSpace

_LOG = logging.getLogger("autotune_lowered")

P = ParamSpec("P")
R = TypeVar("R")
# one that ends like a version would be read as one
_NAME = re.compile(r"(?!.*\.v\d+\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")

_lowering_candidates = threading.local()

_TRACED = "argument `{name}` of `{op}` holds or closes over traced values: pass them as arguments of their own"


@dataclass(frozen=True)
class Call:
    """One call's arguments, told apart into arrays by name and described static values."""

    bound: inspect.BoundArguments
    arrays: dict[str, Any]
    static: dict[str, Any]
    fill: Callable[[Sequence[Any]], dict[str, Any]]
    batch: Batch
    """The `vmap`s around it, as far as its arrays show them."""

    @property
    def key(self) -> str:
        """The call key, 16 hexadecimal digits; under `vmap` with the axes."""
        return variant_key(call_key(self.arrays, self.static), self.batch)


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
        static_key: Mapping[str, Callable[[Any], Any]],
    ):
        if not _NAME.fullmatch(op):
            raise ValueError(f"`{op}` is no name of an operation: letters, digits and `_.-`, no version at its end")
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ValueError(f"the version of `{op}` is {version!r}; give a whole number from 0 on")
        self.function, self.op, self.version = function, op, version
        self.op_id = f"{op}@v{version}"
        self.signature = inspect.signature(function)
        self.static_argnames = frozenset([static_argnames] if isinstance(static_argnames, str) else static_argnames)
        self.static_key = dict(static_key)
        given = (("static_argnames", self.static_argnames), ("static_key", self.static_key), ("fills", fills))
        for option, names in given:
            unknown = {_parameter_of(name) for name in names} - self.signature.parameters.keys()
            if unknown:
                raise TypeError(f"{option}: `{function.__name__}` has no parameter `{min(unknown)}`")
        self.fills = self._checked(fills)
        candidates = [dict(config) for config in candidates]
        self.default = self._default_of([*space, *itertools.chain.from_iterable(candidates)])
        self.space = SearchSpace(op, self.default, space, candidates, constraints)
        self._warned: set[tuple[str, str]] = set()

    def _checked(self, fills: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        from ._fills import wrong_fill

        for name, fill in fills.items():
            wrong = wrong_fill(fill)
            if wrong is not None:
                raise ValueError(f"fills of `{name}` of `{self.op}`: {wrong}")
        return {name: dict(fill) for name, fill in fills.items()}

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
        """The key of a call; arrays may be `jax.ShapeDtypeStruct`. Inside of `vmap` it is that of the mapped
        variant."""
        return self.call(*args, **kwargs).key

    def _split(self, bound: inspect.BoundArguments) -> Call:
        jax = _jax()
        arrays: dict[str, Any] = {}
        static: dict[str, Any] = {}
        flattened: dict[str, tuple[list[Any], list[int], Any]] = {}
        for name, value in bound.arguments.items():
            if name in self.default:
                continue
            if name in self.static_key:
                static[name] = self._describe(name, self._identity(name, value))
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

        return Call(bound, arrays, static, fill, self._batch(arrays))

    def _batch(self, arrays: Mapping[str, Any]) -> Batch:
        try:
            return seen(arrays)
        except (UnknownAxes, AttributeError) as error:  # attributes: of tracers, which are JAX's own affair
            self._warn_once("vmap", f"a call of `{self.op}` under `vmap` counts as unmapped: {error}")
            return ()

    def _describe(self, name: str, value: Any) -> Any:
        from ._arguments import holds_tracer

        try:
            return describe(value)
        except Undescribable as error:
            if holds_tracer(value, in_objects=True):
                raise Undescribable(_TRACED.format(name=name, op=self.op)) from None
            parameter = _parameter_of(name)
            raise Undescribable(
                f"argument `{name}` of `{self.op}`: {error}; say what identifies it, as in "
                f"`static_key={{{parameter!r}: lambda {parameter}: …}}`"
            ) from None
        except RecursionError:
            raise Undescribable(f"argument `{name}` of `{self.op}` holds itself or is nested too deeply") from None

    def _identity(self, name: str, value: Any) -> Any:
        try:
            return self.static_key[name](value)
        except Exception as error:
            raise Undescribable(
                f"`static_key` of argument `{name}` of `{self.op}` raised {type(error).__name__}: {error}"
            ) from None

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
            reason = f"{error}; such calls run with the default and are not tuned"
            recorder = _recorder()
            if recorder is not None:
                recorder.skipped(self.op_id, "", reason)
            else:
                self._warn_once("", reason)
            return self.function(*args, **kwargs)
        key = call.key
        bound.arguments.update(call.fill(list(self._record(call, key).values())))
        # no `@`, at which HLO cuts names
        with _jax().named_scope(f"ejkernel_ops#{self.op}.v{self.version}:{key}"):
            return self.function(*bound.args, **(bound.kwargs | self.config_for(key)))

    def _record(self, call: Call, key: str) -> Mapping[str, Any]:
        """Records a call where something records; gives the arrays that it is to go on with."""
        recorder = _recorder()
        if recorder is None:
            return call.arrays
        if recorder.wants(self.op_id, key):
            self._record_with(recorder, call, key)
        return recorder.listen(self.op_id, key, call.arrays)

    def _record_with(self, recorder: Any, call: Call, key: str) -> None:
        from ._arguments import Unrecordable
        from ._calls import record_call

        try:
            recorded = self._recorded(call, key)
        except Unrecordable as reason:
            recorder.skipped(self.op_id, key, str(reason))
            return
        recorder.watch(self.op_id, key, whole_arrays(call.arrays, call.batch))
        record_call(recorder, recorded)

    def _recorded(self, call: Call, key: str) -> Any:
        """The call without anything that a trace owns. Raises `Unrecordable`."""
        from ._arguments import Unrecordable, holds_tracer
        from ._calls import RecordedCall
        from ._fills import KEY_BITS
        from ._keys import data_of, implementation_of, keys_from, spec_of_data
        from ._meshed import axes_used, mesh_over

        jax = _jax()
        specs = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in call.arrays.items()}
        values, fills = whole_values(call.arrays, call.batch), self._fills(specs)
        # the call itself holds tracers: what outlives it is its static part, and how arrays go in again
        fill, holds_arrays = call.fill, call.fill([None] * len(specs)).keys()
        static = {name: value for name, value in call.bound.arguments.items() if name not in holds_arrays}
        if holds_tracer(self.function):
            raise Unrecordable(f"`{self.function.__name__}` closes over traced values: pass them as arguments")
        for name, value in static.items():
            if holds_tracer(value, in_objects=True):
                raise Unrecordable(_TRACED.format(name=name, op=self.op))
        # random keys are recorded as the integers that they hold
        generators = {name: implementation_of(array) for name, array in call.arrays.items()}
        for name in [name for name, generator in generators.items() if generator is not None]:
            fills.setdefault(name, KEY_BITS)
            if name in values:
                values[name] = data_of(values[name])
        recorded = {name: spec_of_data(spec) for name, spec in specs.items()}

        def build(config: Config) -> Callable[..., Any]:
            def candidate(*arrays: Any) -> Any:
                arrays = tuple(map(keys_from, arrays, generators.values()))
                bound = inspect.BoundArguments(self.signature, OrderedDict(static | fill(arrays)))
                outer = getattr(_lowering_candidates, "now", False)
                _lowering_candidates.now = True
                try:
                    return self.function(*bound.args, **(bound.kwargs | self.space.typed(config)))
                finally:
                    _lowering_candidates.now = outer

            return candidate

        whole = [whole_spec(name, spec, call.batch) for name, spec in recorded.items()]
        axes = axes_used(mapped(build(self.default), list(recorded), call.batch), whole)
        return RecordedCall(
            op_id=self.op_id,
            call_key=key,
            arrays=recorded,
            static=call.static,
            baseline=dict(self.default),
            configs=lambda platform: self.space.configs(specs),
            build=build,
            fills=fills,
            values=values,
            batch=call.batch,
            mesh=mesh_over(axes) if axes else None,
            devices=_devices_of(call.bound.arguments.values()),
        )

    def _fills(self, names: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The fills of arrays by full name; one given for a parameter stands for all arrays in it."""
        fills = {}
        for name in names:
            fill = self.fills.get(name) or self.fills.get(_parameter_of(name))
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
    static_key: Mapping[str, Callable[[Any], Any]] | None = None,
    fills: Mapping[str, Mapping[str, Any]] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function of arrays a tunable operation, `op@vVERSION`.

    The parameters named in `space` (name to values) or in `candidates` (configs as they are) are tuned: they must be
    keyword-only, and their defaults are the baseline. `constraints` are callables of a config, or of a config and the
    arrays by name (anything with `shape` and `dtype`); a config is a candidate where all are true. `fills` says how a
    tuner makes an array's values (`docs/registry.md`), by parameter or by `x[0]`, `x['a']` inside of pytrees.

    Of the other arguments, leaves with a shape and a dtype are arrays of any shape; the rest, and all of
    `static_argnames`, is static and becomes part of the call key. `static_key` gives what identifies a static argument that
    has no spelling of its own, by parameter: `{"self": lambda self: (self.heads, self.causal)}` for a method. Each call is
    stamped with its label. Under `vmap` the function sees shapes without the mapped axis, and the key has the axis beside
    them; under `shard_map` it sees those of one device.

    At trace time the config in force for the call is taken, else the default; a compiled call costs nothing. A function
    that is jitted around this one is traced again when what is in force changes. A caller that gives a tuned parameter
    itself is obeyed, and that call is neither stamped nor recorded.

    Raises TypeError and ValueError for a declaration that cannot be tuned, ImportError at a call without JAX.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        made = Tunable(
            function, op, version, space or {}, candidates, constraints, static_argnames, fills or {}, static_key or {}
        )

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = made.run(*args, **kwargs)
            return result

        run.tunable = made  # type: ignore[attr-defined]
        return run

    return decorate


def _parameter_of(name: str) -> str:
    """The parameter of an array's full name: `x` of `x['a'][0]`."""
    found = re.match(r"\w+", name)
    return found.group() if found else name


def _devices_of(arguments: Iterable[Any]) -> int:
    """How many devices a program is for that is given meshes as arguments."""
    sharding = _jax().sharding
    return max((value.size for value in arguments if isinstance(value, sharding.Mesh)), default=1)


def _recorder() -> Any | None:
    """The recorder that listens to calls, unless they are those of candidates."""
    # not imported: nothing records
    recording = sys.modules.get("autotune_lowered._recording")
    return recording.active() if recording is not None and not getattr(_lowering_candidates, "now", False) else None


def _jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise ImportError("tunable functions need JAX: pip install 'autotune-lowered[jax]'") from error
    return jax
