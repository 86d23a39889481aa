"""The result of a tuning run: as a table, as a data frame, and as a context that puts its configs in force."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from ..libraries.ejkernel.overlay import overlay as ejkernel_overlay
from ..lookup.device import Device
from ..lookup.in_force import overlay
from .table import html_of, text_of


class AutotuningResult:
    """The result of a tuning run; inside `with result:` its configs are in force.

    This applies to tunable functions and, if ejkernel is imported, to ejkernel's operations (it also enters their own
    `overlay_cache`). Functions that were jitted outside are traced again. It nests, and applies to the thread that
    enters it; see `overlay` for threads and tasks. Leaving it restores what was in force before.
    """

    def __init__(self, result: Mapping[str, Any]):
        """From the program's JSON (`docs/json.md`)."""
        if result.get("schema") != 1:
            raise ValueError(f"a result of schema {result.get('schema')!r}; this package reads 1: update it")
        self._result = dict(result)
        self._entered = threading.local()

    @classmethod
    def load(cls, path: str) -> AutotuningResult:
        """From a file with the output of `autotune-lowered MODULE --format json`."""
        with open(path, encoding="utf-8") as file:
            return cls(json.load(file))

    @property
    def json(self) -> dict[str, Any]:
        """The program's whole JSON output."""
        return self._result

    @property
    def device(self) -> Device:
        """The device on which it was measured."""
        return Device.from_fingerprint(self._result["device"])

    @property
    def operations(self) -> list[dict[str, Any]]:
        """One row per call: `op_id`, `call_key`, `direction`, `status`, `reason`, `baseline`, `best`, `speed_up`, …."""
        rows: list[dict[str, Any]] = self._result["operations"]
        return rows

    @property
    def interrupted(self) -> bool:
        """Whether the run ended early; what it measured is kept."""
        return bool(self._result["interrupted"])

    @property
    def configs(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The best config by operation and call key. Configs measured with their backward pass take precedence."""
        return {label: row["best"]["config"] for label, row in self.rows.items()}

    @property
    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The rows behind `configs`: those with a best config, by operation and call key."""
        rows = sorted(self.operations, key=lambda row: row["direction"] == "forward-vjp")
        return {(row["op_id"], row["call_key"]): row for row in rows if row.get("best") is not None}

    def __enter__(self) -> AutotuningResult:
        stack = contextlib.ExitStack()
        stack.enter_context(overlay(self.configs))
        try:
            stack.enter_context(ejkernel_overlay(self.configs))
        except BaseException:
            stack.close()
            raise
        self._entered.__dict__.setdefault("stacks", []).append(stack)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stacks = self._entered.__dict__.get("stacks")
        if not stacks:
            raise RuntimeError("this result was entered in another thread, and must be left there")
        stacks.pop().__exit__(kind, error, traceback)

    def __str__(self) -> str:
        return text_of(self.operations, self._head())

    def _repr_html_(self) -> str:
        return html_of(self.operations, self._head())

    def _head(self) -> str:
        device = self._result["device"]["identity"]
        return f"{device['platform']}:{device['device_kind']}, timed by {self._result['timer']}"

    def __repr__(self) -> str:
        decided = sum(row.get("best") is not None for row in self.operations)
        return f"<AutotuningResult: {decided} of {len(self.operations)} operations decided>"

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, one row per call; times in nanoseconds. Raises ImportError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("a frame needs pandas: pip install 'autotune-lowered[pandas]'") from error
        columns = ("op_id", "call_key", "direction", "status", "reason", "speed_up", "rounds_kept", "rounds_measured")
        rows = []
        for row in self.operations:
            best = row.get("best") or {}
            low_high = row.get("speed_up_interval") or {}
            rows.append(
                {name: row.get(name) for name in columns}
                | {"baseline_ns": row["baseline"].get("median_ns"), "best_ns": best.get("median_ns")}
                | {"speed_up_low": low_high.get("low"), "speed_up_high": low_high.get("high")}
                | {"baseline": row["baseline"]["config"], "best": best.get("config")}
            )
        return pandas.DataFrame(rows)
