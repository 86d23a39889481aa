"""One call of a tunable operation, as seen by every recorder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._vmap import Batch
from .mapped import mapped, whole_spec
from .mesh import OnMesh
from .parameters import spelled

FORWARD, FORWARD_VJP = "forward", "forward-vjp"
DIRECTIONS = (FORWARD, FORWARD_VJP)

Config = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class RecordedCall:
    """One call of a tunable operation, without objects owned by a trace.

    `baseline` and `configs` may be functions of the platform (`cpu`, `cuda`, …) if the candidates depend on it.
    """

    op_id: str
    """Operation and version: `name@vN`."""
    call_key: str
    """Key of the call's arguments, as in the label; with the axes of `batch`, see `_vmap`."""
    arrays: Mapping[str, Any]
    """The array arguments in the programs' order: a `jax.ShapeDtypeStruct` by name, as the call sees them under
    `vmap`."""
    static: Mapping[str, Any]
    """The other arguments, of any type."""
    baseline: Config | Callable[[str], Config]
    """The config in use without tuning; it competes even if it is not among `configs`."""
    configs: Sequence[Config] | Callable[[str], Sequence[Config]]
    """The configs to try: JSON objects."""
    build: Callable[[Config], Callable[..., Any]]
    """The operation under a config: a function of the arrays, positional, in order."""
    starts: Sequence[Config] = ()
    """Those of the configs that a search tries first, such as rows of the project's own table."""
    borders: Sequence[str] = ()
    """The keys of the calls at both ends of its bucket, which are recorded as well."""
    fills: Mapping[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """How values are generated if the call's own are unknown, by argument: `fill` objects of `docs/registry.md`."""
    usual: Mapping[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    """The distribution of real values if the call's own are unknown or uninformative, by argument: within the
    operation's domain, and stable."""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The call's own arrays by argument, if concrete, and whole under `vmap`. Tracers are ignored and never stored."""
    distribution: str | None = None
    """What those values are called, if the call has other ones."""
    other_values: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """Other integer arrays that the call gets, by the name of their distribution and by argument."""
    refuse: Callable[[Config, str], str | None] | None = None
    """Why a config cannot be lowered in this process for a platform; `None` if it can be tried."""
    recipe: Mapping[str, Any] | None = None
    """JSON by which a worker on the device builds the programs of configs that could not be lowered here. For
    Tokamax, it also names the call in an exported result."""
    notes: tuple[str, ...] = ()
    """A note on this call for the report."""
    batch: Batch = ()
    """The `vmap`s around the call, the outermost first. The result of `build` is mapped by them."""
    mesh: OnMesh | None = None
    """The mesh, if the call communicates over its axes. The mapped result of `build` runs on each device with its
    parts."""
    tolerance: float | None = None
    """The relative tolerance of outputs that replaces those of their types."""
    devices: int = 1
    """The number of devices that the programs may be for, without `mesh`."""

    def whole_specs(self) -> dict[str, Any]:
        """The programs' arguments: the arrays with the axes of `batch` and the parts of `mesh`."""
        specs = {name: whole_spec(name, spec, self.batch) for name, spec in self.arrays.items()}
        return specs if self.mesh is None else {name: self.mesh.spec(spec) for name, spec in specs.items()}

    def program(self, config: Config) -> Callable[..., Any]:
        """The function under a config, of whole arrays."""
        function = mapped(self.build(config), list(self.arrays), self.batch)
        return function if self.mesh is None else self.mesh.wrap(function)

    def baseline_on(self, platform: str) -> Config:
        """The config in use without tuning on a platform."""
        return self.baseline(platform) if callable(self.baseline) else self.baseline

    def configs_on(self, platform: str) -> list[Config]:
        """Every distinct config to try on a platform, the baseline first."""
        configs = self.configs(platform) if callable(self.configs) else self.configs
        return list({spelled(config): config for config in (self.baseline_on(platform), *configs)}.values())
