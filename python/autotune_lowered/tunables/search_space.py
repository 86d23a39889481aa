"""The configs of a tunable function: the listed ones and those of its space, if the constraints are true."""

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .call_key import canonical

Config = dict[str, Any]
Constraint = Callable[..., bool]

# the same bounds as those of the program's own search spaces
MAX_CONFIGS = 4096
MAX_COMBINATIONS = 262_144


class SearchSpace:
    """The configs to try for one operation. `default` has a value for each tuned parameter."""

    def __init__(
        self,
        op: str,
        default: Config,
        space: Mapping[str, Iterable[Any]],
        candidates: Iterable[Mapping[str, Any]],
        constraints: Iterable[Constraint],
    ):
        self.op, self.default = op, default
        self.space = {name: list(values) for name, values in space.items()}
        self.candidates = [dict(config) for config in candidates]
        self.constraints = list(constraints)
        if not all(callable(constraint) for constraint in self.constraints):
            raise TypeError(f"a constraint of `{op}` is not callable; write `lambda config: …`")
        if any(not values for values in self.space.values()):
            raise ValueError(f"a parameter of `{op}` has no values in `space`")
        if math.prod(len(values) for values in self.space.values()) > MAX_COMBINATIONS:
            raise ValueError(f"the space of `{op}` has more than {MAX_COMBINATIONS} configs; narrow it")
        for name in default:
            for value in self._known(name):
                _check_value(op, value)

    def configs(self, arrays: Mapping[str, Any]) -> list[Config]:
        """All configs for arrays of these shapes; the default is first, even if a constraint forbids it.

        Raises ValueError for more than 4096 configs, and for a constraint that fails.
        """
        found = {canonical(self.default): dict(self.default)}
        combinations = itertools.product(*self.space.values()) if self.space else ()
        spelled = (dict(zip(self.space, values, strict=True)) for values in combinations)
        for config in itertools.chain(self.candidates, spelled):
            whole = self.default | config
            if not self._allows(whole, arrays):
                continue
            found.setdefault(canonical(whole), whole)
            if len(found) > MAX_CONFIGS:
                raise ValueError(f"`{self.op}` has more than {MAX_CONFIGS} configs; add constraints")
        return list(found.values())

    def _allows(self, config: Config, arrays: Mapping[str, Any]) -> bool:
        for constraint in self.constraints:
            try:
                arguments = (config, arrays) if _takes_arrays(constraint) else (config,)
                if not constraint(*arguments):
                    return False
            except Exception as error:
                raise ValueError(f"a constraint of `{self.op}` failed on {canonical(config)}: {error}") from error
        return True

    def typed(self, config: Mapping[str, Any]) -> Config:
        """A config in the function's own types, because JSON has no tuples."""
        return {
            name: tuple(value) if isinstance(self.default.get(name), tuple) and isinstance(value, list) else value
            for name, value in config.items()
        }

    def misfit(self, config: Mapping[str, Any]) -> str | None:
        """The first parameter that is not tuned here, or whose value has a wrong type."""
        for name, value in config.items():
            if name not in self.default:
                return name
            if not any(type(value) is type(known) for known in self._known(name)):
                return name
        return None

    def _known(self, name: str) -> list[Any]:
        listed = (config[name] for config in self.candidates if name in config)
        values = [self.default[name], *self.space.get(name, ()), *listed]
        return [self.typed({name: value})[name] for value in values]


def _takes_arrays(constraint: Constraint) -> bool:
    parameters = inspect.signature(constraint).parameters.values()
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters) > 1


def _check_value(op: str, value: Any) -> None:
    members = value if isinstance(value, (list, tuple)) else [value]
    for member in members:
        if member is not None and not isinstance(member, (bool, int, float, str)):
            raise TypeError(f"a config of `{op}` holds {member!r}: give numbers, strings, booleans and lists of them")
        if isinstance(member, float) and not math.isfinite(member):
            raise ValueError(f"a config of `{op}` holds {member!r}, which JSON cannot hold")
