"""A result as a table: text for a terminal, HTML for a notebook."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .._printable import aligned, printable

Row = Mapping[str, Any]

# configs of one call that are listed: the fastest
_MOST_CONFIGS = 40
# calls whose configs are listed all; of more, the one to use and how many others there are
_MOST_LISTED = 4
_HEADINGS = ("operation", "direction", "status", "baseline", "best", "speed-up", "interval")
_OF_CONFIGS = ("config", "time", "of the baseline's", "interval", "")
# a plot's width and the height of a row, in pixels
_WIDTH, _HEIGHT = 260, 18


def text_of(operations: Sequence[Row], head: str) -> str:
    """The calls, each with its configs below it."""
    rows = [_HEADINGS, *map(_cells, operations)]
    lines = iter(aligned(rows, right=range(3, 6)))
    found = [printable(head), next(lines)]
    for row, line in zip(operations, lines, strict=True):
        found.append(line)
        found += [f"    {detail}" for detail in _details(row, is_listed=len(operations) <= _MOST_LISTED)]
    return "\n".join(found)


def html_of(operations: Sequence[Row], head: str) -> str:
    """The same as HTML, with each config's interval drawn on one axis. Names are escaped."""
    parts = [f"<p>{_escaped(head)}</p>"]
    for row in operations:
        told = zip(_HEADINGS, _cells(row), strict=True)
        parts.append("<p>" + ", ".join(_escaped(f"{name} {cell}") for name, cell in told if cell != "—") + "</p>")
        parts += [f"<p>{_escaped(detail)}</p>" for detail in _reasons(row)]
        configs = _configs(row)
        if configs:
            parts.append(_table(row, configs))
    return "<div>" + "".join(parts) + "</div>"


def _table(row: Row, configs: Sequence[Row]) -> str:
    ends = [end for one in configs for end in _ends(one)]
    axis = (min([*ends, 1.0]), max([*ends, 1.0]))
    lines = ["<tr>" + "".join(f"<th>{_escaped(name)}</th>" for name in (*_OF_CONFIGS[:4], "", "")) + "</tr>"]
    for one in configs:
        *cells, note = _config_cells(row, one)
        drawn = _interval(one, axis)
        aligned = (f'<td style="text-align:{side}">' for side in ("left", "right", "right", "right"))
        shown = (f"{begin}{_escaped(cell)}</td>" for begin, cell in zip(aligned, cells, strict=True))
        lines.append("<tr>" + "".join(shown) + f"<td>{drawn}</td>")
        lines.append(f"<td>{_escaped(note)}</td></tr>")
    return "<table>" + "".join(lines) + "</table>"


def _interval(one: Row, axis: tuple[float, float]) -> str:
    """A config's ratio with its interval, on a logarithmic axis with a line at the baseline's time."""
    if one.get("ratio") is None:
        return ""
    low, high = (math.log(end) for end in axis)

    def place(ratio: float) -> float:
        return 4 + (_WIDTH - 8) * (math.log(ratio) - low) / ((high - low) or 1.0)

    begin, end = (place(ratio) for ratio in _ends(one))
    middle, at_baseline = _HEIGHT / 2, place(1.0)
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img">'
        f'<line x1="{at_baseline:.1f}" x2="{at_baseline:.1f}" y1="0" y2="{_HEIGHT}" stroke="#999"/>'
        f'<line x1="{begin:.1f}" x2="{end:.1f}" y1="{middle}" y2="{middle}" stroke="#36c" stroke-width="2"/>'
        f'<circle cx="{place(one["ratio"]):.1f}" cy="{middle}" r="3.5" fill="#36c"/></svg>'
    )


def _ends(one: Row) -> list[float]:
    """A config's interval and ratio, as far as they can be drawn."""
    interval = one.get("interval") or {}
    ends = [interval.get("low"), interval.get("high")]
    known = [end for end in ends if isinstance(end, int | float) and 0 < end < math.inf]
    ratio = one.get("ratio")
    return known if len(known) == 2 else [ratio] * 2 if ratio else []


def _cells(row: Row) -> tuple[str, ...]:
    best, speed_up, interval = row.get("best"), row.get("speed_up"), row.get("speed_up_interval")
    return (
        f"{row['op_id']}:{row['call_key']}",
        row["direction"],
        row["status"],
        _time(row["baseline"].get("median_ns")),
        _time(best.get("median_ns") if best else None),
        "—" if speed_up is None else f"{speed_up:.2f}×",
        "—" if interval is None else f"{interval['low']:.2f}–{interval['high']:.2f}",
    )


def _details(row: Row, is_listed: bool) -> Iterator[str]:
    yield from _reasons(row)
    configs = _configs(row)
    if is_listed and configs:
        cells = [_OF_CONFIGS, *(_config_cells(row, one) for one in configs)]
        yield from aligned(cells, right=range(1, 3))
        left = len(row["candidates"]) - len(configs)
        if left:
            yield f"and {left} more"
        return
    tied, rejected = len(row.get("tie_set") or ()), [one for one in row.get("candidates", ()) if one.get("failure")]
    if row.get("best"):
        use = f"use {brief(row['best']['config'])} (baseline {brief(row['baseline']['config'])})"
        yield f"{use}, {tied - 1} as fast" if tied > 1 else use
    if rejected:
        yield f"{len(rejected)} rejected: {_why(rejected[0])}"


def _reasons(row: Row) -> Iterator[str]:
    if not row.get("best") and row.get("reason"):
        yield printable(row["reason"])
    yield from map(printable, row.get("flags", ()))


def _configs(row: Row) -> list[Row]:
    """A call's configs, the fastest first."""
    configs = row.get("candidates", ())
    best = (row.get("best") or {}).get("config")

    def rank(one: Row) -> tuple[bool, bool, float]:
        ratio = one.get("ratio")
        return one["config"] != best, ratio is None, ratio if ratio is not None else 0.0

    return sorted(configs, key=rank)[:_MOST_CONFIGS]


def _config_cells(row: Row, one: Row) -> tuple[str, ...]:
    best, baseline = (row.get("best") or {}).get("config"), row["baseline"]["config"]
    ratio, interval = one.get("ratio"), one.get("interval")
    notes = [
        "best" if one["config"] == best else "as fast" if best is not None and one.get("tied_with_best") else "",
        "baseline" if one["config"] == baseline else "",
        _why(one) if one.get("failure") else "" if ratio is not None else one.get("status", ""),
        one.get("dropped") or "",
    ]
    return (
        brief(one["config"]),
        _time(one.get("median_ns")),
        "—" if ratio is None else f"{ratio:.3f}",
        "—" if not interval else f"{interval['low']:.3f}–{interval['high']:.3f}",
        ", ".join(filter(None, notes)),
    )


def _why(one: Row) -> str:
    failure = one["failure"]
    return printable(f"{failure.get('kind', 'failed')}: {failure.get('message', '')}")[:200]


def brief(config: Mapping[str, Any]) -> str:
    """A config in one line: `block=64, split=true`."""
    if not config:
        return "{}"
    told = (f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in config.items())
    return printable(", ".join(told))


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _time(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "—"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"
