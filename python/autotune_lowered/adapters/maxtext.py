"""Pallas kernels of MaxText, as of 0.2.5. Its copy of Tokamax's splash attention declares its own search space."""

from __future__ import annotations

from typing import Any

from . import products
from .operation import Operation
from .places import Arguments, Config, Parts
from .splash_blocks import splash_operations

_KERNELS = "maxtext.kernels"
_TPU = ("tpu",)

# of the forward product, and of the two that its derivative takes
_ALL_TILES = tuple(f"{which}_{tile}" for which in ("fwd", "dlhs", "drhs") for tile in ("tm", "tk", "tn"))


def _splash_keys(call: Arguments, config: Config) -> dict[str, Any]:
    return {f"sa_{name}": value for name, value in config.items() if value is not None}


OPERATIONS = [
    *splash_operations("maxtext", f"{_KERNELS}.attention.splash_attention_kernel", _splash_keys),
    Operation(
        op="maxtext.gmm",
        function=f"{_KERNELS}.megablox.ops:gmm",
        place=Parts("tiling", _ALL_TILES),
        space={f"fwd_{tile}": sizes for tile, sizes in products.TILES.items()},
        steering=products.GROUPS,
        platforms=_TPU,
    ),
    products.gmm_v2(
        "maxtext.gmm_v2",
        f"{_KERNELS}.megablox.pallas_mosaic_tpu_v2_gmm_kernel",
        ("lhs", "rhs", "rhs_scale", "rhs_bias", "partial_sum", "group_sizes"),
        ("fuse_act", "lhs_scale"),
    ),
    Operation(
        op="maxtext.gmm_kernel",
        function=f"{_KERNELS}.megablox.backend:gmm",
        place=products.TILING,
        space=products.TILES,
        baseline=products.gmm_baseline,
        steering=products.GROUPS,
        platforms=_TPU,
    ),
    Operation(
        op="maxtext.tgmm_kernel",
        function=f"{_KERNELS}.megablox.backend:tgmm",
        place=products.TILING,
        space=products.TILES,
        baseline=products.tgmm_baseline,
        steering=products.GROUPS_OF_COLUMNS,
        platforms=_TPU,
    ),
]
