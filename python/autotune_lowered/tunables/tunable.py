"""`tunable`: makes any kernel an operation that is recorded, tuned and run with its best config."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

from .._label import labelled
from ..lookup.best import config_to_trace
from ..record.recorder import active
from .call import Call, split
from .call_key import Undescribable
from .declaration import Declaration
from .recorded import arrays_after_recording
from .search_space import Config, Constraint

P = ParamSpec("P")
R = TypeVar("R")


class Tunable(Declaration):
    """`function.tunable` of a decorated function: the declaration, and its calls."""

    def call(self, *args: Any, **kwargs: Any) -> Call:
        """The arguments of a call, separated. Raises `Undescribable`, a TypeError, if one has no stable spelling."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return split(self, bound)

    def call_key(self, *args: Any, **kwargs: Any) -> str:
        """The key of a call; arrays may be `jax.ShapeDtypeStruct`. Inside of `vmap` it is that of the mapped
        variant."""
        return self.call(*args, **kwargs).key

    def config_for(self, key: str) -> Config:
        """The config in force for a call key, else the default."""
        found = config_to_trace(self.op_id, key)
        if found is None:
            return dict(self.default)
        found = self.space.typed(found)
        wrong = self.space.misfit(found)
        if wrong is not None:
            self.warn_once(
                key,
                f"the config in force for {self.op_id}:{key} has `{wrong}` = {found[wrong]!r}, which "
                f"`{self.function.__name__}` does not take; the default is used: tune this version again",
            )
            return dict(self.default)
        return self.default | found

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with the config in force, stamped; a caller's own config is used without a stamp."""
        bound = self.signature.bind(*args, **kwargs)
        if not self.default.keys().isdisjoint(bound.arguments):
            return self.function(*args, **kwargs)
        bound.apply_defaults()
        try:
            call = split(self, bound)
        except Undescribable as error:
            reason = f"{error}; such calls run with the default and are not tuned"
            recorder = active()
            if recorder is not None:
                recorder.skipped(self.op_id, "", reason)
            else:
                self.warn_once("", reason)
            return self.function(*args, **kwargs)
        key = call.key
        bound.arguments.update(call.fill(list(arrays_after_recording(self, call, key).values())))
        # no `@`, at which HLO cuts names
        with labelled(f"ejkernel_ops#{self.op}.v{self.version}:{key}", call.arrays.values()):
            return self.function(*bound.args, **(bound.kwargs | self.config_for(key)))


def tunable(
    *misplaced: Any,
    op: str | None = None,
    version: int | None = None,
    space: Mapping[str, Iterable[Any]] | None = None,
    candidates: Iterable[Mapping[str, Any]] = (),
    constraints: Iterable[Constraint] = (),
    static_argnames: Iterable[str] = (),
    static_key: Mapping[str, Callable[[Any], Any]] | None = None,
    fills: Mapping[str, Mapping[str, Any]] | None = None,
    tolerance: float | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function of arrays a tunable operation, `op@vVERSION`.

    The parameters named in `space` (name to values) or in `candidates` (explicit configs) are tuned: they must be
    keyword-only, and their defaults are the baseline. `constraints` are callables of a config, or of a config and the
    arrays by name (anything with `shape` and `dtype`); all must be true for a candidate. `fills` says how a tuner makes
    an array's values (`docs/registry.md`), by parameter or by `x[0]`, `x['a']` inside pytrees. `tolerance` says how
    far a candidate's outputs may be off, relative to the baseline's, where another order of the same sums is no measure
    (`docs/decisions.md`); it is recorded with the calls.

    Of the other arguments, leaves with a shape and a dtype are arrays of any shape. The rest, and all of
    `static_argnames`, are static and become part of the call key. `static_key` identifies, by parameter, a static
    argument without a stable spelling: `{"self": lambda self: (self.heads, self.causal)}` for a method. Each call is
    stamped with its label. Under `vmap` the function sees shapes without the mapped axis, and the key also has the
    axis; under `shard_map` it sees the shapes of one device.

    At trace time the call uses the config in force, else the default; a compiled call costs nothing. A jitted function
    around this one is traced again when the config in force changes. A tuned parameter that the caller passes has
    priority, and that call is neither stamped nor recorded.

    Raises TypeError and ValueError for a declaration that cannot be tuned, ImportError at a call without JAX.
    """

    if misplaced or op is None or version is None:
        raise TypeError(
            'a tunable function needs a name and a version: `@autotune_lowered.tunable(op="my_matmul", version=1, '
            'space={"block": [64, 128]})`'
        )

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        made = Tunable(
            function,
            op,
            version,
            space or {},
            candidates,
            constraints,
            static_argnames,
            fills or {},
            static_key or {},
            tolerance,
        )

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            result: R = made.run(*args, **kwargs)
            return result

        run.tunable = made  # type: ignore[attr-defined]
        return run

    return decorate
