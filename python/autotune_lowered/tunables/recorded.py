"""A tunable function's call in the form for a recorder."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from .._jax import jax_for
from ..record.arguments import Unrecordable, holds_tracer
from ..record.call import RecordedCall
from ..record.dtypes import data_of, implementation_of, keys_from, spec_of_data
from ..record.fills import KEY_BITS, Fill
from ..record.mapped import mapped, whole_arrays, whole_spec, whole_values
from ..record.mesh import axes_used, mesh_over
from ..record.recorder import active, lowering
from .call import TRACED, Call

Config = Mapping[str, Any]


class Recordable(Protocol):
    """What a recorder asks of a function that is tuned."""

    @property
    def op(self) -> str: ...
    @property
    def op_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def signature(self) -> inspect.Signature: ...
    @property
    def tolerance(self) -> float | None: ...
    @property
    def baseline(self) -> Config:
        """The config without tuning."""

    @property
    def starts(self) -> Sequence[Config]:
        """Those of the configs that are worth trying first."""

    @property
    def borders(self) -> Sequence[str]:
        """The keys of the calls at both ends of its bucket, if its project's table has one row for several calls."""

    def configs_of(self, specs: Mapping[str, Any]) -> Sequence[Config]:
        """The configs to try for these arrays."""

    def refuse(self, config: Config, platform: str) -> str | None:
        """Why a config cannot be lowered for a platform; `None` if it can be tried."""

    def fills_of(self, specs: Mapping[str, Any]) -> dict[str, Fill]:
        """How values are made, by array."""

    def steering(self) -> Mapping[str, Mapping[str, Any]]:
        """Values of arrays that steer the kernel, by distribution and by array. The first distribution stands for the
        call's own if they are not known."""

    def under(self, bound: inspect.BoundArguments, config: Config) -> Any:
        """Call the function with a config."""


def arrays_after_recording(declaration: Recordable, call: Call, key: str) -> dict[str, Any]:
    """Records a call if a recorder is in force; returns the arrays to continue with."""
    recorder = active()
    if recorder is None:
        return dict(call.arrays)
    if recorder.wants(declaration.op_id, key):
        try:
            recorded = recorded_call(declaration, call, key)
        except Unrecordable as reason:
            recorder.skipped(declaration.op_id, key, str(reason))
        else:
            recorder.watch(declaration.op_id, key, whole_arrays(call.arrays, call.batch))
            recorder.record(recorded)
    return dict(recorder.listen(declaration.op_id, key, call.arrays))


def recorded_call(declaration: Recordable, call: Call, key: str) -> RecordedCall:
    """The call in the form for a recorder, without objects owned by a trace. Raises `Unrecordable`."""
    specs = {name: whole_spec(name, array, ()) for name, array in call.arrays.items()}
    values, fills = whole_values(call.arrays, call.batch), declaration.fills_of(specs)
    distribution, other_values = _steer(values, {} if call.batch else declaration.steering(), specs)
    # the call holds tracers, so only its static part and the way to insert arrays may outlive it
    fill, holds_arrays = call.fill, call.fill([None] * len(specs)).keys()
    static = {name: value for name, value in call.bound.arguments.items() if name not in holds_arrays}
    if holds_tracer(declaration.function):
        raise Unrecordable(f"`{declaration.name}` closes over traced values: pass them as arguments")
    for name, value in static.items():
        if holds_tracer(value, in_objects=True):
            raise Unrecordable(TRACED.format(name=name, op=declaration.op))
    signature = declaration.signature
    # random keys are recorded as the integers that they contain
    generators = {name: implementation_of(array) for name, array in call.arrays.items()}
    for name in [name for name, generator in generators.items() if generator is not None]:
        fills.setdefault(name, KEY_BITS)
        if name in values:
            values[name] = data_of(values[name])
    recorded = {name: spec_of_data(spec) for name, spec in specs.items()}

    def build(config: Mapping[str, Any]) -> Callable[..., Any]:
        def candidate(*arrays: Any) -> Any:
            arrays = tuple(map(keys_from, arrays, generators.values()))
            bound = inspect.BoundArguments(signature, OrderedDict(static | fill(arrays)))
            with lowering():
                return declaration.under(bound, config)

        return candidate

    whole = [whole_spec(name, spec, call.batch) for name, spec in recorded.items()]
    axes = axes_used(mapped(build(declaration.baseline), list(recorded), call.batch), whole)
    return RecordedCall(
        op_id=declaration.op_id,
        call_key=key,
        arrays=recorded,
        static=call.static,
        baseline=dict(declaration.baseline),
        configs=lambda platform: declaration.configs_of(specs),
        starts=declaration.starts,
        borders=declaration.borders,
        build=build,
        fills=fills,
        values=values,
        distribution=distribution,
        other_values=other_values,
        batch=call.batch,
        mesh=mesh_over(axes) if axes else None,
        refuse=declaration.refuse,
        tolerance=declaration.tolerance,
        devices=_devices_of(call.bound.arguments.values()),
    )


def _steer(
    values: dict[str, Any], distributions: Mapping[str, Mapping[str, Any]], specs: Mapping[str, Any]
) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """Adds values of the first distribution for the arrays that have none. Returns what the values are called, and the
    other distributions. Raises `Unrecordable` for an array of another shape than the call's."""
    import numpy as np

    def array_of(distribution: str, name: str, value: Any) -> Any:
        array = np.asarray(value, specs[name].dtype)
        if array.shape != specs[name].shape:
            of_call = f"the call has {specs[name].shape}"
            raise Unrecordable(
                f"the values of `{distribution}` for `{name}` have the shape {array.shape}, and {of_call}"
            )
        return array

    others = {
        one: {name: array_of(one, name, array) for name, array in arrays.items() if name in specs}
        for one, arrays in distributions.items()
    }
    first = next(iter(others), None)
    if first is None:
        return None, {}
    unknown = {name: array for name, array in others[first].items() if name not in values}
    if not unknown and others[first]:
        return "as called", others
    values.update(unknown)
    del others[first]
    return (first, others) if others else (None, {})


def _devices_of(arguments: Iterable[Any]) -> int:
    """The number of devices for a program whose arguments include meshes."""
    sharding = jax_for("tunable functions need").sharding
    return max((int(value.size) for value in arguments if isinstance(value, sharding.Mesh)), default=1)
