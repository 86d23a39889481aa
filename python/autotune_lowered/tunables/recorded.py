"""A tunable function's call in the form for a recorder."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._jax import jax_for
from ..record.arguments import Unrecordable, holds_tracer
from ..record.call import RecordedCall
from ..record.dtypes import data_of, implementation_of, keys_from, spec_of_data
from ..record.fills import KEY_BITS
from ..record.mapped import mapped, whole_spec, whole_values
from ..record.mesh import axes_used, mesh_over
from ..record.recorder import lowering
from .call import TRACED, Call
from .declaration import Declaration


def recorded_call(declaration: Declaration, call: Call, key: str) -> RecordedCall:
    """The call in the form for a recorder, without objects owned by a trace. Raises `Unrecordable`."""
    jax = jax_for("tunable functions need")
    specs = {name: jax.ShapeDtypeStruct(array.shape, array.dtype) for name, array in call.arrays.items()}
    values, fills = whole_values(call.arrays, call.batch), declaration.fills_of(specs)
    # the call holds tracers, so only its static part and the way to insert arrays may outlive it
    fill, holds_arrays = call.fill, call.fill([None] * len(specs)).keys()
    static = {name: value for name, value in call.bound.arguments.items() if name not in holds_arrays}
    if holds_tracer(declaration.function):
        raise Unrecordable(f"`{declaration.function.__name__}` closes over traced values: pass them as arguments")
    for name, value in static.items():
        if holds_tracer(value, in_objects=True):
            raise Unrecordable(TRACED.format(name=name, op=declaration.op))
    function, signature, space = declaration.function, declaration.signature, declaration.space
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
                return function(*bound.args, **(bound.kwargs | space.typed(config)))

        return candidate

    whole = [whole_spec(name, spec, call.batch) for name, spec in recorded.items()]
    axes = axes_used(mapped(build(declaration.default), list(recorded), call.batch), whole)
    return RecordedCall(
        op_id=declaration.op_id,
        call_key=key,
        arrays=recorded,
        static=call.static,
        baseline=dict(declaration.default),
        configs=lambda platform: space.configs(specs),
        build=build,
        fills=fills,
        values=values,
        batch=call.batch,
        mesh=mesh_over(axes) if axes else None,
        tolerance=declaration.tolerance,
        devices=_devices_of(call.bound.arguments.values()),
    )


def _devices_of(arguments: Iterable[Any]) -> int:
    """The number of devices for a program whose arguments include meshes."""
    sharding = jax_for("tunable functions need").sharding
    return max((int(value.size) for value in arguments if isinstance(value, sharding.Mesh)), default=1)
