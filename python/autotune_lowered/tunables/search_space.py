"""The configs of a tunable function: the listed ones and those of its space, if the constraints are true."""

import enum
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .call_key import as_dtype, canonical

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
        # values that JSON does not have, by their spelling in it
        self._objects: dict[str, dict[str, Any]] = {}
        for name in default:
            for value in self._declared(name):
                told = _spelled(value)
                _check_value(op, told)
                if told is not value and not isinstance(value, (list, tuple)):
                    self._objects.setdefault(name, {}).setdefault(told, value)

    def configs(self, arrays: Mapping[str, Any]) -> list[Config]:
        """All configs for arrays of these shapes; the default is first, even if a constraint forbids it.

        Raises ValueError for more than 4096 configs, and for a constraint that fails.
        """
        default = self.spelled(self.default)
        found = {canonical(default): default}
        combinations = itertools.product(*self.space.values()) if self.space else ()
        spelled = (dict(zip(self.space, values, strict=True)) for values in combinations)
        for config in itertools.chain(self.candidates, spelled):
            whole = self.default | config
            if not self._allows(whole, arrays):
                continue
            whole = self.spelled(whole)
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
                told = canonical(self.spelled(config))
                raise ValueError(f"a constraint of `{self.op}` failed on {told}: {error}") from error
        return True

    def spelled(self, config: Mapping[str, Any]) -> Config:
        """A config as JSON has it: a dtype by its name, an enum by its member's."""
        return {name: _spelled(value) for name, value in config.items()}

    def typed(self, config: Mapping[str, Any]) -> Config:
        """A config in the function's own types, because JSON has no tuples, dtypes and enums."""
        return {name: self._typed(name, value) for name, value in config.items()}

    def _typed(self, name: str, value: Any) -> Any:
        if isinstance(value, str):
            return self._objects.get(name, {}).get(value, value)
        return tuple(value) if isinstance(self.default.get(name), tuple) and isinstance(value, list) else value

    def misfit(self, config: Mapping[str, Any]) -> str | None:
        """The first parameter that is not tuned here, or whose value has a wrong type."""
        for name, value in config.items():
            if name not in self.default:
                return name
            known = (self._typed(name, declared) for declared in self._declared(name))
            if not any(type(value) is type(one) for one in known):
                return name
        return None

    def _declared(self, name: str) -> list[Any]:
        listed = (config[name] for config in self.candidates if name in config)
        return [self.default[name], *self.space.get(name, ()), *listed]


def _takes_arrays(constraint: Constraint) -> bool:
    parameters = inspect.signature(constraint).parameters.values()
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty for p in parameters) > 1


def _spelled(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.name
    name = as_dtype(value)
    return value if name is None else name


def _check_value(op: str, value: Any) -> None:
    members = value if isinstance(value, (list, tuple)) else [value]
    for member in members:
        if member is not None and not isinstance(member, (bool, int, float, str)):
            raise TypeError(
                f"a config of `{op}` holds {member!r}: give numbers, strings, booleans, dtypes, enums and lists of numbers"
            )
        if isinstance(member, float) and not math.isfinite(member):
            raise ValueError(f"a config of `{op}` holds {member!r}, which JSON cannot hold")
