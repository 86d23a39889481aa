"""Tune a module on every device of a Ray cluster: one worker per device, results in one cache. Needs `ray`."""

from .result import FleetError as FleetError
from .result import FleetOperation as FleetOperation
from .result import FleetResult as FleetResult
from .run import tune as tune

__all__ = ["FleetError", "FleetOperation", "FleetResult", "tune"]
