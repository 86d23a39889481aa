"""An adapter: what is to be known of a function that is not ours to make its calls tunable."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..record.fills import wrong_fill
from ..tunables.search_space import MAX_CONFIGS
from .places import Arguments, Config, Place
from .tables import SourceTable

Steering = Callable[[Arguments], Mapping[str, Any]]
"""Makes valid values of the arrays that steer a kernel, by argument, for a call."""

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_MOST_STARTS = 4
_NAME = re.compile(r"(?!.*\.v\d+\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


@dataclasses.dataclass(frozen=True)
class Operation:
    """One function of another project, and how its calls are tuned."""

    op: str
    """Its name in labels and registries."""
    function: str
    """`package.module:function`."""
    place: Place
    """Where its parameters stand."""
    space: Mapping[str, Sequence[Any]]
    """The values to try, by parameter; a parameter without values keeps the baseline's."""
    version: int = 1
    """Of this adapter: another one makes other keys or configs."""
    platforms: Sequence[str] = ()
    """The platforms that its kernel is for; any if empty."""
    baseline: Callable[[Arguments], Config] | None = None
    """What the project would choose for a call that names no config."""
    refuse: Callable[[Arguments, Config], str | None] | None = None
    """Why the project does not take a config for a call, by its own rules. What else it refuses shows when it is
    lowered."""
    steering: Mapping[str, Steering] = dataclasses.field(default_factory=dict)
    """Distributions of the arrays that steer the kernel. The first one is for calls whose own values are not known, and
    with each of the others the call is measured as well."""
    borders: Callable[[Arguments], Sequence[Mapping[str, Any]]] | None = None
    """If the project's table has one row for several shapes, the calls at both ends of that bucket: for each the arrays
    of other shapes, as specs. They are recorded and measured as well."""
    fills: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """How values of other arrays are made, by argument: integers that are data, and no steering."""
    table: SourceTable | None = None
    """The project's own table, for `export_rows`."""
    settings: Callable[[Arguments, Config], dict[str, str]] | None = None
    """The project's variables of the environment for a config."""
    yml: Callable[[Arguments, Config], dict[str, Any]] | None = None
    """The project's keys of its configuration file for a config."""
    stand_in: Callable[[Operation, Callable[..., Any]], Any] | None = None
    """Makes what stands in place of the function, if it is not the kernel itself but makes it."""
    static_key: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)
    """What identifies a static argument without a stable spelling."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.op):
            raise ValueError(
                f"`{self.op}` is no name of an operation: letters, digits and `_.-`, no version at its end"
            )
        if not _FUNCTION.fullmatch(self.function):
            raise ValueError(f"`{self.function}` names no function: write `package.module:function`")
        for name, fill in self.fills.items():
            wrong = wrong_fill(fill)
            if wrong is not None:
                raise ValueError(f"fills of `{name}` of `{self.op}`: {wrong}")
        unknown = self.space.keys() - set(self.place.names)
        if unknown:
            raise ValueError(f"`{self.op}` has no parameter `{min(unknown)}`")
        if math.prod(max(1, len(values)) for values in self.space.values()) > MAX_CONFIGS:
            raise ValueError(f"the space of `{self.op}` has more than {MAX_CONFIGS} configs; narrow it")

    @property
    def op_id(self) -> str:
        return f"{self.op}@v{self.version}"

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    @property
    def name(self) -> str:
        return self.function.partition(":")[2]

    def baseline_of(self, arguments: Arguments) -> dict[str, Any]:
        """The config of a call without tuning: the caller's, or what the project would choose."""
        given = self.place.read(arguments)
        if given is None and self.baseline is not None:
            given = dict(self.baseline(arguments))
        if given is None:
            raise ValueError("the call names no config, and what the project would choose is not known")
        return given

    def starts(self) -> list[dict[str, Any]]:
        """The configs that the project's table has most often, for whatever call: worth trying first."""
        try:
            values = [] if self.table is None else self.table.shipped()
        except Exception:  # the module is another project's
            return []
        names = self.place.names
        known = [dict(zip(names, value, strict=True)) for value in values if len(value) == len(names)]
        return [one for one in known if all(type(value) is int for value in one.values())][:_MOST_STARTS]

    def configs(self, baseline: Config) -> list[dict[str, Any]]:
        """The baseline, the project's own rows, and every config of the space."""
        values = [self.space.get(name) or [baseline[name]] for name in baseline]
        return [
            dict(baseline),
            *self.starts(),
            *(dict(zip(baseline, chosen, strict=True)) for chosen in itertools.product(*values)),
        ]
