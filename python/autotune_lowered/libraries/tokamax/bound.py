"""Tokamax's `BoundArguments`, an operation with the abstract arguments of a call, as a recorded call.

Tokamax's own stamp, `tokamax:{…}`, gives the label, read by the scanner that reads it in modules.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..._native import scan
from ...record.call import RecordedCall
from . import shipped

# packages that a stamp's types and functions may come from
_PACKAGES = ("tokamax", "jax")


def label(bound: Any) -> tuple[str, str]:
    """Operation and call key, as the scanner reads them from the stamp of this call."""
    return _scanned(_stamp(bound))


def _stamp(bound: Any) -> str:
    import pydantic

    plain = bound.replace(op=bound.op.replace(config=None, vjp=None))
    return str(pydantic.TypeAdapter(type(bound)).dump_json(plain).decode())


def from_stamp(stamp: str) -> RecordedCall:
    """The call of a stamp (`{"op": …, "arguments": …}`); only operations of Tokamax are accepted."""
    import pydantic
    import tokamax

    parsed = json.loads(stamp)
    if parsed["op"]["__type"].split(".")[0] != "tokamax":
        raise ValueError(f"a recipe must not import `{parsed['op']['__type']}`")
    _check_imports(parsed)
    return describe_call(*_scanned(stamp), pydantic.TypeAdapter(tokamax.BoundArguments).validate_json(stamp))


def _check_imports(value: Any, is_type: bool = False) -> None:
    """Tokamax imports the types and functions that a stamp names, so only those of Tokamax and JAX are allowed."""
    if isinstance(value, dict):
        for name, held in value.items():
            _check_imports(held, name == "__type")
    elif isinstance(value, list):
        for held in value:
            _check_imports(held)
    elif isinstance(value, str):
        head = re.split(r"[.:]", value)[0]
        if (is_type or re.fullmatch(r"[^\W\d]\w*([.:][^\W\d]\w*)+", value)) and head not in _PACKAGES:
            raise ValueError(f"a recipe must not import `{value}`")


@functools.lru_cache(maxsize=4096)
def _scanned(stamp: str) -> tuple[str, str]:
    # MLIR's spelling of a string
    name = f"tokamax:{stamp}/call".replace("\\", "\\\\").replace('"', "\\22")
    module = f'module @stamp {{\n  func.func public @main() {{\n    return loc("{name}")\n  }}\n}}\n'
    labels = json.loads(scan(module.encode()))["labels"]
    if len(labels) != 1 or not labels[0].get("call_key"):
        raise ValueError("the scanner cannot read this Tokamax's stamp")
    return labels[0]["op_id"], labels[0]["call_key"]


def describe_call(op_id: str, call_key: str, bound: Any) -> RecordedCall:
    """The neutral description of a Tokamax call with abstract arguments; `vmap` axes become axes of the arrays."""
    import jax
    import pydantic

    _, inputs = _standardized(bound, bound.op)
    names = _names(bound, len(inputs))
    adapter = pydantic.TypeAdapter(bound.op.config_cls, config=_config_of(bound.op.config_cls))

    def plain(config: Any) -> dict[str, Any]:
        spelled: dict[str, Any] = adapter.dump_python(config, mode="json")
        return spelled

    def build(config: Mapping[str, Any]) -> Callable[..., Any]:
        function, _ = _standardized(bound, bound.op.replace(config=adapter.validate_python(dict(config))))
        return lambda *arrays: function(list(arrays))

    starts = list(map(plain, shipped.configs(bound)))

    def configs(_: str) -> list[dict[str, Any]]:
        own = sorted(map(plain, bound.autotuning_configs), key=lambda config: json.dumps(config, sort_keys=True))
        return [*starts, *own]

    return RecordedCall(
        op_id=op_id,
        call_key=call_key,
        arrays={name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in zip(names, inputs, strict=True)},
        static={name: value for name, value in bound.arguments.items() if not _holds_arrays(value)},
        baseline=lambda _: plain(bound.heuristics_config),
        configs=configs,
        starts=starts,
        build=build,
        recipe={"kind": "tokamax", "bound": json.loads(_stamp(bound))},
        values={name: _representative(x) for name, x in zip(names, inputs, strict=True) if callable(x)},
    )


def _standardized(bound: Any, op: Any) -> tuple[Callable[[list[Any]], Any], list[Any]]:
    """Tokamax's own conversion of a call to a function of arrays alone, with their specs.

    Numpy arrays, such as the group sizes that Tokamax measures with, are constants. Since 0.0.17 Tokamax takes them for
    arguments, and mixes them with no specs that could be mapped.
    """
    import jax
    import numpy as np
    from tokamax import BatchedShapeDtype, standardize_function

    args, kwargs = bound.args, bound.kwargs
    if not any(getattr(leaf, "vmap_axes", ()) for leaf in jax.tree.leaves((args, kwargs))):

        def unmapped(leaf: Any) -> Any:
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if isinstance(leaf, BatchedShapeDtype) else leaf

        args, kwargs = jax.tree.map(unmapped, (args, dict(kwargs)))
    function, specs = standardize_function(op, *args, kwargs=kwargs, seed=None)
    constants = [isinstance(spec, np.ndarray) for spec in specs]

    def of_the_others(arrays: list[Any]) -> Any:
        others = iter(arrays)
        return function(
            [spec if is_constant else next(others) for spec, is_constant in zip(specs, constants, strict=True)]
        )

    return of_the_others, [spec for spec, is_constant in zip(specs, constants, strict=True) if not is_constant]


def _names(bound: Any, count: int) -> list[str]:
    import jax

    def is_leaf(value: Any) -> bool:
        return callable(value) and hasattr(value, "shape")

    positional = list(bound.signature.parameters)
    found = []
    for path, leaf in jax.tree_util.tree_flatten_with_path((bound.args, bound.kwargs), is_leaf=is_leaf)[0]:
        if isinstance(leaf, jax.ShapeDtypeStruct):
            argument = positional[path[1].idx] if path[0].idx == 0 else str(path[1].key)
            found.append(argument + jax.tree_util.keystr(path[2:]))
    return found if len(found) == count == len(set(found)) else [f"array_{index}" for index in range(count)]


def _representative(initializer: Any) -> Any:
    """The values that Tokamax itself measures with, if the call's own values control the operation, as group sizes
    do."""
    import jax
    import numpy as np

    with jax.ensure_compile_time_eval():
        return np.asarray(initializer(np.random.default_rng(0)))


def _holds_arrays(value: Any) -> bool:
    import jax

    return any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree_util.tree_leaves(value))


def _config_of(kind: type) -> Any:
    import pydantic

    # a dataclass has its own configuration, and pydantic refuses another
    return None if dataclasses.is_dataclass(kind) else pydantic.ConfigDict(arbitrary_types_allowed=True)
