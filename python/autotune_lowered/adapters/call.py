"""One call of an adapted function, in the form for a recorder."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..record.describe import one_line
from ..record.fills import Fill
from ..tunables.declaration import parameter_of
from .operation import Operation
from .places import Config

_LOG = logging.getLogger("autotune_lowered")


class Adapted:
    """A function with its adapter, as far as it is the same for each of its calls."""

    tolerance = None
    static_argnames: frozenset[str] = frozenset()

    def __init__(self, operation: Operation, function: Callable[..., Any]) -> None:
        self.operation, self.function = operation, function
        self.op, self.op_id = operation.op, operation.op_id
        self.name = operation.name
        self.signature = inspect.signature(function)
        self.static_key = operation.static_key
        # the arguments that hold tuned parameters are no part of a call's key
        self.tuned = frozenset(operation.place.arguments)
        self._warned: set[tuple[str, str]] = set()

    def misfit(self) -> str | None:
        """The first argument that the adapter expects and the function does not have."""
        missing = sorted((self.tuned | self.static_key.keys()) - self.signature.parameters.keys())
        return missing[0] if missing else None

    def warn_once(self, about: str, message: str) -> None:
        """Log a fault of a call, once."""
        if (about, message) not in self._warned:
            self._warned.add((about, message))
            _LOG.warning("%s", message)


@dataclasses.dataclass(frozen=True)
class AdaptedCall:
    """What a recorder asks of one call."""

    adapted: Adapted
    arguments: Mapping[str, Any]
    """With specs for arrays."""
    baseline: dict[str, Any]
    borders: Sequence[str] = ()
    """The keys of the calls at both ends of its bucket."""

    @property
    def function(self) -> Callable[..., Any]:
        return self.adapted.function

    @property
    def signature(self) -> inspect.Signature:
        return self.adapted.signature

    @property
    def op(self) -> str:
        return self.adapted.op

    @property
    def op_id(self) -> str:
        return self.adapted.op_id

    @property
    def name(self) -> str:
        return self.adapted.name

    tolerance = None

    def configs_of(self, specs: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
        return self.adapted.operation.configs(self.baseline)

    @property
    def starts(self) -> Sequence[Config]:
        """Configs that are worth trying first."""
        return self.adapted.operation.starts()

    def knows(self, name: str, value: Any) -> bool:
        """Whether a parameter has values of this type: a cache may hold anything."""
        values = (self.baseline[name], *self.adapted.operation.space.get(name, ()))
        return any(type(value) is type(known) for known in values)

    def refuse(self, config: Config, platform: str) -> str | None:
        """Why a config cannot be lowered for a platform."""
        operation = self.adapted.operation
        if operation.platforms and platform not in operation.platforms:
            return f"its kernel is for {' and '.join(operation.platforms)}: record with a `target`"
        # the caller's own config is what runs, whatever a rule says
        if config == self.baseline:
            return None
        try:
            operation.place.write(self.arguments, config)
            return None if operation.refuse is None else operation.refuse(self.arguments, config)
        except Exception as error:  # what the project raises for a config is its refusal
            return one_line(error)

    def fills_of(self, specs: Mapping[str, Any]) -> dict[str, Fill]:
        given = self.adapted.operation.fills
        found = {name: given.get(name) or given.get(parameter_of(name)) for name in specs}
        return {name: dict(fill) for name, fill in found.items() if fill is not None}

    def steering(self) -> Mapping[str, Mapping[str, Any]]:
        """Values of arrays that steer the kernel, by distribution."""
        found = {}
        for name, values in self.adapted.operation.steering.items():
            try:
                found[name] = dict(values(self.arguments))
            except Exception as error:  # the caller's program goes on
                self.adapted.warn_once(name, f"{self.op}: there are no values of `{name}`: {one_line(error)}")
        return found

    def under(self, bound: inspect.BoundArguments, config: Config) -> Any:
        """Call the function with a config."""
        bound.arguments.update(self.adapted.operation.place.write(bound.arguments, config))
        return self.function(*bound.args, **bound.kwargs)
