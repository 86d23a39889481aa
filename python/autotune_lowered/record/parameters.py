"""Which parameters of a configuration a set of programs exercises.

A parameter is *exercised* if two programs differ only by it, *unexercised* if it varies and never changes the
program, *not varied* if all candidates give it one value, and *unknown* otherwise.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# maximum number of additional programs, lowered to distinguish parameters that only vary together
_MOST_PROBES = 8

Config = Mapping[str, Any]


def parameters_of(
    lowered: Sequence[tuple[Config, str]], baseline: Config, probe: Callable[[Config], str | None]
) -> dict[str, list[str]]:
    """Sort the parameters into `exercised`, `unexercised`, `not_varied` and `unknown`, by their points (`fwd_params.q`).

    `lowered` holds configs with the digests of their programs. `probe` returns the digest of another config's
    program, or `None` if it cannot be lowered. It is called only for what the candidates leave open.
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

    open_ones: list[tuple[str, list[Any]]] = []
    for name in sorted({name for config, _ in flat for name in config}):
        place = _told_by_candidates(name, flat)
        if place is not None:
            found[place].append(name)
        else:
            open_ones.append((name, _others(name, flat, baseline, digests)))
    _probe(open_ones, baseline, digest_of, found)
    return {place: sorted(names) for place, names in found.items()}


def _told_by_candidates(name: str, flat: Sequence[tuple[dict[str, Any], str]]) -> str | None:
    # an absent parameter equals a null one
    if len({json.dumps(config.get(name), sort_keys=True) for config, _ in flat}) < 2:
        return "not_varied"
    # configs that differ only in this parameter
    groups: dict[str, list[str]] = {}
    for config, digest in flat:
        rest = {other: value for other, value in config.items() if other != name}
        groups.setdefault(spelled(rest), []).append(digest)
    if any(len(set(group)) > 1 for group in groups.values()):
        return "exercised"
    return "unexercised" if all(len(group) > 1 for group in groups.values()) else None


def _others(name: str, flat: Sequence[tuple[dict[str, Any], str]], baseline: Config, digests: Config) -> list[Any]:
    """The parameter's other values than the baseline's; first those that came with another program."""
    own, here = digests.get(spelled(flatten(baseline))), flatten(baseline).get(name)
    by_interest = sorted(flat, key=lambda one: one[1] == own)
    values = {json.dumps(config.get(name), sort_keys=True): None for config, _ in by_interest}
    return [value for value in map(json.loads, values) if value != here]


def _probe(
    open_ones: list[tuple[str, list[Any]]],
    baseline: Config,
    digest_of: Callable[[Config], str | None],
    found: dict[str, list[str]],
) -> None:
    """Change all open ones at once: usually nothing changes, so one program settles all. Otherwise halve the set."""
    changes = {name: values[0] for name, values in open_ones if values}
    found["unknown"] += [name for name, values in open_ones if not values]
    own = digest_of(baseline)
    todo = [list(changes)] if changes else []
    while todo:
        names = todo.pop()
        changed: Config = baseline
        for name in names:
            changed = replaced(changed, name, changes[name])
        digest = digest_of(changed) if own is not None else None
        if digest is not None and digest == own:
            found["unexercised"] += names
        elif len(names) > 1:
            todo += [names[: len(names) // 2], names[len(names) // 2 :]]
        else:
            found["unknown" if digest is None else "exercised"] += names


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
    """The config with another value at one point; `None` leaves it out."""
    changed = copy.deepcopy(dict(config))
    *parents, last = point.split(".")
    place = changed
    for parent in parents:
        place = place.setdefault(parent, {})
    place[last] = value
    if value is None:
        del place[last]
    return changed


def spelled(config: Config) -> str:
    """One spelling for equal configs."""
    return json.dumps(config, sort_keys=True, separators=(",", ":"))
