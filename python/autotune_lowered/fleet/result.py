"""The result of a fleet's run."""

from __future__ import annotations

import dataclasses
from typing import Any

_DECIDED = ("tuned", "baseline-kept", "cached")


class FleetError(RuntimeError):
    """A fleet that cannot work: what is missing, and what to do next.

    `result` has the decisions made before the failure, if any.
    """

    result: FleetResult | None = None


@dataclasses.dataclass(frozen=True)
class FleetOperation:
    """The result of one operation on one kind of device."""

    op_id: str
    """Operation, `name@vN`."""
    call_key: str
    """Key of the call's arguments."""
    direction: str
    """`forward` or `forward-vjp`."""
    device: str
    """The kind of device, and its hardware part."""
    status: str
    """`tuned`, `baseline-kept`, `cached`, `values-unknown`, `not-believed`, `undecided` or `failed`."""
    best: dict[str, Any] | None
    """The config to use; None if nothing was decided."""
    best_ns: float | None
    """Its median time, nanoseconds."""
    speed_up: float | None
    """The baseline's time over the best's."""
    node: str | None
    """The node that decided it; None if none did."""
    attempts: int
    """How often it was leased to a worker."""
    reason: str
    """One line; for a failure, the reasons of all attempts."""

    @property
    def is_decided(self) -> bool:
        """Whether the best config is known."""
        return self.status in _DECIDED


@dataclasses.dataclass(frozen=True)
class FleetResult:
    """The result of a run; prints as a table."""

    operations: list[FleetOperation]
    """One for each operation and kind of device, in the module's order."""
    entries: list[dict[str, Any]]
    """The best configs with their provenance, as `cache export --format json` writes them."""
    missed: list[dict[str, Any]]
    """Labels that matched no recorded invocation, as in the main job's JSON, with the `device`."""
    notes: list[str]
    """Notes: nodes refused or lost, leases that ended late; one line each."""

    @property
    def is_complete(self) -> bool:
        """Whether anything is decided, no label was missed and no operation is undecided."""
        return bool(self.operations) and not self.missed and all(one.is_decided for one in self.operations)

    def __str__(self) -> str:
        several = len({operation.device for operation in self.operations}) > 1
        head = ["operation", *(["device"] if several else []), "best", "speed-up", "node", "attempts", "status"]
        lines = [head]
        for one in self.operations:
            name = f"{one.op_id}:{one.call_key}" + (" (with vjp)" if one.direction == "forward-vjp" else "")
            best = "—" if one.best_ns is None else f"{one.best_ns / 1e6:.3g} ms"
            speed_up = "—" if one.speed_up is None else f"{one.speed_up:.2f}×"
            device = [one.device] if several else []
            lines.append(
                [name, *device, best, speed_up, one.node or "—", str(one.attempts), one.status.replace("-", " ")]
            )
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        rows = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        table = [rows[0]]
        for row, one in zip(rows[1:], self.operations, strict=True):
            table.append(row)
            if not one.is_decided:
                table.append(f"    {one.reason}")
        return "\n".join(table)
