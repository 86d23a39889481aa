"""ejkernel's config objects as JSON, and back."""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from typing import Any


def config_to_json(config: Any) -> dict[str, Any]:
    """A config as ejkernel's persistent cache spells it.

    Fields without a value stay, as nulls, because for most operations ejkernel reads a config back as a bare
    namespace, which must have them all. Inside `fwd_params` and `bwd_params` they are left out, because ejkernel
    rebuilds these with defaults.
    """
    if dataclasses.is_dataclass(config):
        fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    else:
        fields = dict(config if isinstance(config, Mapping) else vars(config))

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {name: held for name, held in plain(dataclasses.asdict(value)).items() if held is not None}
        if isinstance(value, Mapping):
            return {name: plain(held) for name, held in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(held) for held in value]
        return value.value if isinstance(value, enum.Enum) else value

    return {name: plain(value) for name, value in fields.items()}


def config_from_json(kind: type, config: Mapping[str, Any]) -> Any:
    """The config object of a JSON config; ValueError for a field that the running ejkernel's config lacks."""
    if not dataclasses.is_dataclass(kind):
        return dict(config) if issubclass(kind, Mapping) else types.SimpleNamespace(**config)
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind) if field.init}
    unknown = sorted(set(config) - names)
    if unknown:
        raise ValueError(f"ejkernel's {kind.__name__} has no field `{unknown[0]}`")

    def built(name: str, value: Any) -> Any:
        kinds = [one for one in (hints[name], *typing.get_args(hints[name])) if isinstance(one, type)]
        nested = [one for one in kinds if dataclasses.is_dataclass(one)]
        return config_from_json(nested[0], value) if nested and isinstance(value, Mapping) else value

    return kind(**{name: built(name, value) for name, value in config.items()})
