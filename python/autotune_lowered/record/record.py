"""A recorded call becomes a registry's records: its candidates lowered, one record for each platform and direction."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._specs import spec_text
from .arguments import LARGEST_CONSTANT
from .call import FORWARD, FORWARD_VJP, Config, RecordedCall
from .describe import counted, describe, one_line
from .dtypes import is_real
from .fills import UNKNOWN, Fill, captured
from .lowering import Lowered, cotangents_of, lower, lower_taking_all, restricted, with_vjp
from .parameters import parameters_of, spelled
from .registry import Registry
from .stand_in import answering

_LOG = logging.getLogger("autotune_lowered")


@dataclasses.dataclass
class _Candidate:
    config: Config
    lowered: Lowered | None = None
    reason: str | None = None


def store(
    call: RecordedCall, fills: Mapping[str, Fill], unknown: Mapping[str, str], registry: Registry
) -> list[dict[str, Any]]:
    """Lower a call's candidates and write its records, one for each platform and direction; return their reports.

    `fills` states for each array how its values are made, `unknown` why they are not known.
    """
    reports = []
    for platform in registry.platforms:
        with answering(registry.device_away(platform)):
            for direction in registry.directions:
                report = _Record(call, platform, direction, fills, unknown, registry).store()
                if report is not None:
                    reports.append(report)
    return reports


def lowering_of(
    call: RecordedCall, platform: str, direction: str, registry: Registry
) -> Callable[[Config], dict[str, Any]]:
    """What lowers candidates of a call one by one, as `store` does on demand. Each becomes a `program`, which is
    stored, or `not_lowered` with the reason."""
    record = _Record(call, platform, direction, {}, {}, registry)
    baseline = call.baseline_on(platform)
    record._take_constants(baseline)
    if direction == FORWARD_VJP:
        record._add_cotangents(baseline)

    def lower_one(config: Config) -> dict[str, Any]:
        stored = record._stored(record._lower(config))
        return {name: value for name, value in stored.items() if name != "config"}

    return lower_one


class _Record:
    """The making of one record."""

    def __init__(
        self,
        call: RecordedCall,
        platform: str,
        direction: str,
        fills: Mapping[str, Fill],
        unknown: Mapping[str, str],
        registry: Registry,
    ) -> None:
        self.call = call
        self.platform = platform
        self.direction = direction
        self.registry = registry
        self.names = list(call.arrays)
        self.specs = list(call.whole_specs().values())
        self.fills = dict(fills)
        self.unknown = dict(unknown)
        on = call.mesh
        self.place = {"devices": call.devices} if on is None else {"sharding": on.sharding, "devices": on.devices}

    def store(self) -> dict[str, Any] | None:
        report: dict[str, Any] = {
            "op_id": self.call.op_id,
            "call_key": self.call.call_key,
            "direction": self.direction,
            "platform": self.platform,
        }
        if self.call.batch:
            report["batch"] = [axis.to_json() for axis in self.call.batch]
        try:
            # both may read the call's static arguments in ways that only the operation knows
            baseline, configs = self.call.baseline_on(self.platform), self.call.configs_on(self.platform)
            self._take_constants(baseline)
            spelled_specs = {name: spec_text(spec) for name, spec in zip(self.names, self.specs, strict=True)}
        except Exception as error:
            return report | self._given_up(f"its candidates cannot be listed: {one_line(error)}")
        if self.direction == FORWARD_VJP:
            try:
                cotangents = self._add_cotangents(baseline)
            except Exception as error:
                return report | self._forward_only(one_line(error))
            if not cotangents:
                return None  # integers only: there is no second direction
            spelled_specs |= cotangents
        candidates = []
        for config in configs:
            candidates.append(self._lower(config) if self._is_now(config, baseline) else self._open(config))
            self._tell(candidates[-1], len(configs))
        refused = self._undifferentiable(candidates, baseline)
        if refused is not None:
            return report | self._forward_only(refused)
        # before the programs get the same arguments, because the probes take only what they need; with one program
        # there is nothing to compare
        parameters = {} if self.registry.on_demand else self._parameters(candidates, baseline)
        kept = self._same_arguments(candidates)
        path = self._write(candidates, baseline, kept, spelled_specs, parameters)
        return report | self._summary(candidates, kept, parameters) | {"record": path}

    def _take_constants(self, baseline: Config) -> None:
        """Makes integers constants of the program if the operation must see their values, as it did in the call."""
        import jax

        mapped_names = {name for axis in self.call.batch for name in axis.places}
        # unconverted, because numpy arrays could become traced on the way
        values = {
            name: value
            for name, value in self.call.values.items()
            # no operation sees the values of a mapped argument
            if not is_real(value.dtype) and value.nbytes <= LARGEST_CONSTANT and name not in mapped_names
        }
        if not values or (self.call.refuse is not None and self.call.refuse(baseline, self.platform) is not None):
            return
        names, build = list(self.call.arrays), self.call.build

        def build_with(config: Config) -> Callable[..., Any]:
            function = build(config)

            def of_the_others(*others: Any) -> Any:
                rest = iter(others)
                return function(*(values[name] if name in values else next(rest) for name in names))

            return of_the_others

        try:
            jax.eval_shape(self.call.program(baseline), *self.specs)
        except Exception:
            arrays = {name: spec for name, spec in self.call.arrays.items() if name not in values}
            static = dict(self.call.static) | values
            call = dataclasses.replace(self.call, arrays=arrays, build=build_with, static=static)
            specs = call.whole_specs()
            try:
                jax.eval_shape(call.program(baseline), *specs.values())
            except Exception:
                return  # the reason is told where it is lowered
            self.call, self.names, self.specs = call, list(specs), list(specs.values())

    def _undifferentiable(self, candidates: list[_Candidate], baseline: Config) -> str | None:
        """Why no program has this direction, if that holds for every config."""
        if self.direction == FORWARD or any(candidate.lowered is not None for candidate in candidates):
            return None
        if self.call.refuse is not None and self.call.refuse(baseline, self.platform) is not None:
            return None  # decided on the device
        import jax

        try:
            jax.eval_shape(self._function(baseline), *self.specs)
        except Exception as error:
            return one_line(error)
        return None

    def _given_up(self, reason: str) -> dict[str, Any]:
        _LOG.warning("%s %s (%s) is not recorded: %s", self.call.op_id, self.call.call_key, self.direction, reason)
        return {"not_recorded": reason}

    def _forward_only(self, reason: str) -> dict[str, Any]:
        reason = f"it cannot be differentiated: {reason}"
        if FORWARD not in self.registry.directions:
            return self._given_up(reason)
        # whatever was lowered with this call differentiates something around it, such as a `custom_vjp`, or nothing
        what = f"{self.call.op_id} {self.call.call_key}"
        _LOG.info("%s: only its forward pass is recorded, which is what a step can run of it: %s", what, reason)
        return {"not_recorded": reason}

    def _add_cotangents(self, baseline: Config) -> dict[str, str]:
        cotangents = cotangents_of(self.call.program(baseline), self.specs)
        names = ["output_cotangent"]
        if len(cotangents) > 1:
            names = [f"output_cotangent_{index}" for index in range(len(cotangents))]
        self.names += names
        self.fills |= {name: {"kind": "normal", "scale": 1.0} for name in names}
        self.specs += cotangents
        return {name: spec_text(spec) for name, spec in zip(names, cotangents, strict=True)}

    def _function(self, config: Config) -> Callable[..., Any]:
        function = self.call.program(config)
        return function if self.direction == FORWARD else with_vjp(function, self.specs[: len(self.call.arrays)])

    def _is_now(self, config: Config, baseline: Config) -> bool:
        return not self.registry.on_demand or spelled(config) == spelled(baseline)

    def _open(self, config: Config) -> _Candidate:
        """A candidate for later, unless it is refused already."""
        return _Candidate(config, reason=self._refused(config))

    def _refused(self, config: Config) -> str | None:
        return self.call.refuse(config, self.platform) if self.call.refuse is not None else None

    def _lower(self, config: Config) -> _Candidate:
        refused = self._refused(config)
        if refused is not None:
            return _Candidate(config, reason=refused)
        # nobody knows yet which arguments the others need
        how = lower_taking_all if self.registry.on_demand else lower
        try:
            lowered = how(self._function(config), self.specs, self.platform, **self.place)
            if lowered.semantic_digest is None:
                digest = self._put(lowered)["semantic_digest"]
                lowered = dataclasses.replace(lowered, semantic_digest=digest)
            return _Candidate(config, lowered=lowered)
        except OSError:
            raise  # a fault of the registry, not of the kernel
        except Exception as error:  # a kernel may raise anything for a config that it does not take
            return _Candidate(config, reason=one_line(error))

    def _tell(self, candidate: _Candidate, of: int) -> None:
        if self.registry.told is not None:
            names = {"op_id": self.call.op_id, "call_key": self.call.call_key, "direction": self.direction}
            self.registry.told(names | {"of": of, "candidate": self._stored(candidate)})

    def _same_arguments(self, candidates: list[_Candidate]) -> tuple[int, ...]:
        """The arguments that the programs take: one list for all, even if some ignore some."""
        programs = [candidate.lowered for candidate in candidates if candidate.lowered is not None]
        if not programs:
            return tuple(range(len(self.specs)))
        kept = tuple(sorted({index for program in programs for index in program.kept}))
        specs = [self.specs[index] for index in kept]
        for candidate in candidates:
            if candidate.lowered is not None and candidate.lowered.kept != kept:
                function = restricted(self._function(candidate.config), self.specs, kept)
                candidate.lowered = lower_taking_all(function, specs, self.platform, **self.place)
        return kept

    def _parameters(self, candidates: list[_Candidate], baseline: Config) -> dict[str, list[str]]:
        def probe(config: Config) -> str | None:
            lowered = self._lower(config).lowered
            return lowered.semantic_digest if lowered is not None else None

        lowered = [(c.config, c.lowered.semantic_digest or "") for c in candidates if c.lowered is not None]
        return parameters_of(lowered, baseline, probe)

    def _write(
        self,
        candidates: list[_Candidate],
        baseline: Config,
        kept: Sequence[int],
        specs: Mapping[str, str],
        parameters: Mapping[str, list[str]],
    ) -> str:
        names = [self.names[index] for index in kept]
        static: dict[str, Any] = {
            name: describe(value) for name, value in self.call.static.items() if value is not None
        }
        if parameters:
            static["parameters"] = parameters
        unknown = {name: reason for name, reason in self.unknown.items() if name in names}
        if unknown:
            static["values_unknown"] = unknown
        if self.call.starts:
            static["starts"] = [dict(config) for config in self.call.starts]
        if self.call.borders:
            static["borders"] = list(self.call.borders)
        if self.registry.on_demand:
            static["lowered"] = "on-demand"
            if self.registry.on_demand > 1:
                static["lowered_by_recording"] = self.registry.on_demand
        if self.call.recipe is not None:
            static["recipe"] = dict(self.call.recipe)
            if self.call.batch:
                static["recipe"]["batch"] = [axis.to_recipe() for axis in self.call.batch]
        invocation: dict[str, Any] = {
            "target": self.registry.target(self.platform),
            "op_id": self.call.op_id,
            "call_key": self.call.call_key,
            "direction": self.direction,
            "arguments": [{"name": name, "spec": specs[name], "fill": self.fills.get(name, UNKNOWN)} for name in names],
            "static_arguments": static,
            "baseline": baseline,
            "candidates": [self._stored(candidate) for candidate in candidates],
        }
        others = self._other_distributions(names)
        if others:
            invocation |= {"distribution": self.call.distribution, "other_distributions": others}
        if self.call.tolerance is not None:
            invocation["tolerance"] = self.call.tolerance
        if self.call.batch:
            invocation["batch"] = [axis.to_json() for axis in self.call.batch]
        return self.registry.add(invocation)

    def _other_distributions(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Other values of the programs' arguments; none if the programs hold some of them as constants."""
        given = {name for arrays in self.call.other_values.values() for name in arrays}
        if not given <= set(self.call.arrays):
            return []
        mesh = self.call.mesh
        fills = {
            one: {
                name: captured(array if mesh is None else mesh.parts(array), self.registry.writer)
                for name, array in arrays.items()
                if name in names
            }
            for one, arrays in self.call.other_values.items()
        }
        return [{"name": one, "fills": found} for one, found in fills.items() if found]

    def _stored(self, candidate: _Candidate) -> dict[str, Any]:
        if candidate.lowered is None and candidate.reason is None:
            return {"config": candidate.config}
        if candidate.lowered is None:
            return {"config": candidate.config, "not_lowered": candidate.reason}
        return {"config": candidate.config, "program": self._put(candidate.lowered)}

    def _put(self, lowered: Lowered) -> dict[str, Any]:
        return self.registry.put_program(lowered.artifact, lowered.semantic_digest, lowered.custom_calls)

    def _summary(
        self, candidates: list[_Candidate], kept: Sequence[int], parameters: Mapping[str, list[str]]
    ) -> dict[str, Any]:
        digests = {c.lowered.semantic_digest or c.lowered.artifact for c in candidates if c.lowered is not None}
        reasons: dict[str, int] = {}
        for candidate in candidates:
            if candidate.lowered is None and candidate.reason is not None:
                reasons[candidate.reason] = reasons.get(candidate.reason, 0) + 1
        names = {self.names[index] for index in kept}
        values_unknown = {name: reason for name, reason in self.unknown.items() if name in names}
        summary = {
            "candidates": len(candidates),
            "programs": len(digests),
            **parameters,
            "not_lowered": reasons,
            "values_unknown": values_unknown,
            "notes": list(self.call.notes),
        }
        what = f"{self.call.op_id} {self.call.call_key} ({self.direction}, {self.platform})"
        _LOG.info("recorded %s: %s, %s", what, counted(len(candidates), "candidate"), counted(len(digests), "program"))
        # a recipe is built on the device, where every config may differ
        is_lost = not digests and (self.call.recipe is None or self.registry.is_here(self.platform))
        if is_lost:
            _LOG.warning("%s: no program is recorded, so it cannot be tuned: %s", what, "; ".join(reasons))
        if parameters.get("unexercised"):
            _LOG.info("%s: no program changes with `%s`", what, "`, `".join(parameters["unexercised"]))
        for reason, count in () if is_lost else reasons.items():
            _LOG.info("%s: not lowered here, %s: %s", what, counted(count, "candidate"), reason)
        for name, reason in values_unknown.items():
            _LOG.warning("%s: `%s`: %s", what, name, reason)
        return summary
