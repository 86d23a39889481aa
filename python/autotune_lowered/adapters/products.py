"""Grouped matrix products: what megablox and its copies in other projects have in common."""

from __future__ import annotations

import functools
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


def even_groups(call: Arguments, axis: int = 0) -> dict[str, Any]:
    """Groups of equal size of the rows that lie along an axis of the left operand."""
    return {"group_sizes": batches.even_groups(call["lhs"].shape[axis], call["group_sizes"].shape[0])}


# the left operand of `tgmm` is transposed
groups_of_columns = functools.partial(even_groups, axis=1)
