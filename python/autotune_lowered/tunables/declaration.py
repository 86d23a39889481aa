"""The declaration of a tunable function: its operation, its parameters, and its possible configs."""

from __future__ import annotations

import inspect
import itertools
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ..record.fills import Fill, wrong_fill
from .search_space import Config, Constraint, SearchSpace

_LOG = logging.getLogger("autotune_lowered")

# a name with a version-like end would be read as one
_NAME = re.compile(r"(?!.*\.v\d+\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class Declaration:
    """A function with its search space."""

    # its candidates are in the order of their author, and a search may begin anywhere
    starts: Sequence[Mapping[str, Any]] = ()
    borders: Sequence[str] = ()

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
        tolerance: float | None = None,
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
            unknown = {parameter_of(name) for name in names} - self.signature.parameters.keys()
            if unknown:
                raise TypeError(f"{option}: `{function.__name__}` has no parameter `{min(unknown)}`")
        if tolerance is not None and not 0 <= tolerance <= 1:
            raise ValueError(f"the tolerance of `{op}` is {tolerance!r}; give a number from 0 to 1, such as 0.02")
        self.tolerance = None if tolerance is None else float(tolerance)
        self.fills = self._checked(fills)
        candidates = [dict(config) for config in candidates]
        self.default = self._default_of([*space, *itertools.chain.from_iterable(candidates)])
        self.space = SearchSpace(op, self.default, space, candidates, constraints)
        self._warned: set[tuple[str, str]] = set()

    def _checked(self, fills: Mapping[str, Mapping[str, Any]]) -> dict[str, Fill]:
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

    def fills_of(self, names: Iterable[str]) -> dict[str, Fill]:
        """The fills of arrays by full name; one given for a parameter applies to all arrays in it."""
        found = {name: self.fills.get(name) or self.fills.get(parameter_of(name)) for name in names}
        return {name: fill for name, fill in found.items() if fill is not None}

    @property
    def tuned(self) -> Collection[str]:
        """The arguments that are tuned."""
        return self.default.keys()

    @property
    def baseline(self) -> Config:
        return self.space.spelled(self.default)

    @property
    def name(self) -> str:
        return self.function.__name__

    def configs_of(self, specs: Mapping[str, Any]) -> Sequence[Config]:
        """The configs to try for these arrays."""
        return self.space.configs(specs)

    def refuse(self, config: Mapping[str, Any], platform: str) -> str | None:
        """Nothing is refused before it is lowered."""
        return None

    def steering(self) -> Mapping[str, Mapping[str, Any]]:
        """The caller says by `fills` what steers."""
        return {}

    def under(self, bound: inspect.BoundArguments, config: Mapping[str, Any]) -> Any:
        """Call the function with a config."""
        return self.function(*bound.args, **(bound.kwargs | self.space.typed(config)))

    def warn_once(self, about: str, message: str) -> None:
        """Log a fault of a call, once."""
        if (about, message) not in self._warned:
            self._warned.add((about, message))
            _LOG.warning("%s", message)


def parameter_of(name: str) -> str:
    """The parameter of an array's full name: `x` of `x['a'][0]`."""
    found = re.match(r"\w+", name)
    return found.group() if found else name
