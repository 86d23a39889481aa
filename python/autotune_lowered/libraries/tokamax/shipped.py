"""The rows that Tokamax ships for its operations, as configs that are worth trying first."""

from __future__ import annotations

import collections
import functools
import importlib.resources
from collections.abc import Mapping
from typing import Any

# Tokamax's folder of rows, by kind of device
_FOLDER = "data/autotuning"
_MOST = 4


def configs(bound: Any) -> list[Any]:
    """The fastest configs of this very call on any kind of device; else those that most calls of the operation have."""
    try:
        return _configs(bound)
    except Exception:  # the rows and their reader are another project's
        return []


def _configs(bound: Any) -> list[Any]:
    key, own, counted = bound.autotuning_cache_key, [], collections.Counter[Any]()
    for kind in _kinds():
        rows: Mapping[Any, Any] = bound.op.get_autotuning_cache(kind)
        own += [] if key not in rows else _fastest(rows[key])
        counted.update(config for row in rows.values() for config in _fastest(row))
    common = [config for config, _ in counted.most_common(_MOST)]
    return list(dict.fromkeys(own or common))[:_MOST]


def _fastest(row: Any) -> list[Any]:
    try:
        return [row.fastest_config]
    except ValueError:  # nothing was measured for it
        return []


@functools.cache
def _kinds() -> tuple[str, ...]:
    folder = importlib.resources.files("tokamax").joinpath(_FOLDER)
    return tuple(sorted(one.name for one in folder.iterdir() if one.is_dir()))
