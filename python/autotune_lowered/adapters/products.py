"""Grouped matrix products: what megablox and its copies in other projects have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import batches
from .places import Arguments, Config, Parts

TILING = Parts("tiling", ("tm", "tk", "tn"))
TILES = {name: (128, 256, 512) for name in TILING.names}


def gmm_baseline(call: Arguments) -> Config:
    """What a caller's function chooses for the sizes of `gmm`."""
    (m, k), n = call["lhs"].shape, call["rhs"].shape[1 if call["transpose_rhs"] else 2]
    return _tiling(call["tiling"], m, k, n)


def tgmm_baseline(call: Arguments) -> Config:
    """What a caller's function chooses for the sizes of `tgmm`."""
    (k, m), n = call["lhs"].shape, call["rhs"].shape[1]
    return _tiling(call["tiling"], m, k, n)


def _tiling(choose: Any, *sizes: int) -> Config:
    return dict(zip(TILING.names, choose(*sizes), strict=True))


def _sizes(axis: int) -> Callable[..., dict[str, Any]]:
    def sizes(make: Callable[[int, int], Any], call: Arguments) -> dict[str, Any]:
        return {"group_sizes": make(call["lhs"].shape[axis], call["group_sizes"].shape[0])}

    return sizes


# groups of rows; the left operand of `tgmm` is transposed
GROUPS = batches.each(batches.GROUPS, _sizes(0))
GROUPS_OF_COLUMNS = batches.each(batches.GROUPS, _sizes(1))
