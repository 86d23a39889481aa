"""Which parameters of a configuration a set of programs exercises.

A parameter is *exercised* where two programs differ by it alone, *unexercised* where it varies and never changes the
program, *not varied* where all candidates give it one value, and *unknown* where that cannot be told.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# programs lowered beyond the candidates' own, to tell apart parameters that only ever vary together
_MOST_PROBES = 8

Config = Mapping[str, Any]


def parameters_of(
    lowered: Sequence[tuple[Config, str]], baseline: Config, probe: Callable[[Config], str | None]
) -> dict[str, list[str]]:
    """Sort the parameters into `exercised`, `unexercised`, `not_varied` and `unknown`, by their points (`fwd_params.q`).

    `lowered` holds configs with the digests of their programs. `probe` gives the digest of a config that is none of
    them, or `None` where it cannot be lowered; it is asked only for what the candidates leave open.
    """
    flat = [(flatten(config), digest) for config, digest in lowered]
    found: dict[str, list[str]] = {"exercised": [], "unexercised": [], "not_varied": [], "unknown": []}
    digests = {spelled(config): digest for config, digest in flat}
    probes = [_MOST_PROBES]

    def digest_of(config: Config) -> str | None:
        key = spelled(flatten(config))
        if key not in digests and probes[0] > 0:
            probes[0] -= 1
            digests[key] = probe(config) or ""
        return digests.get(key) or None

    for name in sorted({name for config, _ in flat for name in config}):
        found[_place(name, flat, baseline, digest_of)].append(name)
    return found


def _place(
    name: str, flat: Sequence[tuple[dict[str, Any], str]], baseline: Config, digest_of: Callable[[Config], str | None]
) -> str:
    values = {json.dumps(config[name], sort_keys=True) for config, _ in flat if name in config}
    if len(values) + any(name not in config for config, _ in flat) < 2:
        return "not_varied"
    # configs that agree in all but this parameter
    groups: dict[str, list[str]] = {}
    for config, digest in flat:
        rest = {other: value for other, value in config.items() if other != name}
        groups.setdefault(spelled(rest), []).append(digest)
    if any(len(set(group)) > 1 for group in groups.values()):
        return "exercised"
    if all(len(group) > 1 for group in groups.values()):
        return "unexercised"
    own = digest_of(baseline)
    here = flatten(baseline).get(name)
    others = [json.loads(value) for value in sorted(values) if json.loads(value) != here]
    probed = [digest_of(replaced(baseline, name, value)) for value in others[:2]]
    if own is None or not probed or None in probed:
        return "unknown"
    return "exercised" if any(digest != own for digest in probed) else "unexercised"


def flatten(config: Config, prefix: str = "") -> dict[str, Any]:
    """The parameters of a config by their points: `{"a": {"b": 1}}` to `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def replaced(config: Config, point: str, value: Any) -> dict[str, Any]:
    """The config with another value at one point."""
    changed = copy.deepcopy(dict(config))
    *parents, last = point.split(".")
    place = changed
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    return changed


def spelled(config: Config) -> str:
    """One spelling for equal configs."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))
