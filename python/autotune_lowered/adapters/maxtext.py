"""Pallas kernels of MaxText, as of 0.2.5. Its copy of Tokamax's splash attention declares its own search space."""

from __future__ import annotations

import importlib
from typing import Any

from . import products
from .operation import Operation
from .places import Arguments, Config, Fields, Parts
from .splash_blocks import splash_operations

_KERNELS = "maxtext.kernels"
_TPU = ("tpu",)

# of the forward product, and of the two that its derivative takes
_ALL_TILES = tuple(f"{which}_{tile}" for which in ("fwd", "dlhs", "drhs") for tile in ("tm", "tk", "tn"))

_V2 = f"{_KERNELS}.megablox.pallas_mosaic_tpu_v2_gmm_kernel"
_V2_TILES = Fields(
    "tile_info",
    ("tile_m", "tile_k", "tile_n"),
    default=lambda: importlib.import_module(_V2).TileSizes(128, 128, 128),
)


def _v2_baseline(call: Arguments) -> Config:
    """What the caller's function, or the project's own, chooses for a call."""
    kernel = importlib.import_module(_V2)
    arrays = [call[name] for name in ("lhs", "rhs", "rhs_scale", "rhs_bias", "partial_sum", "group_sizes")]
    options = ("tile_info", "acc_dtype", "maybe_quantize_lhs", "zero_initialize", "fuse_act", "lhs_scale")
    limit = call["vmem_limit_bytes"]
    chosen = kernel.make_gmm_configs(
        *arrays,
        kernel.jax.ShapeDtypeStruct((1,), "int32"),
        **{name: call[name] for name in options},
        vmem_limit_bytes=int(kernel.pltpu.get_tpu_info().vmem_capacity_bytes * 0.9) if limit is None else limit,
        out_dtype=call["preferred_element_type"],
    )
    return {name: getattr(chosen.tiles, name) for name in _V2_TILES.names}


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
    Operation(
        op="maxtext.gmm_v2",
        function=f"{_V2}:gmm_v2",
        place=_V2_TILES,
        space={"tile_m": (128, 256, 512), "tile_k": (256, 512), "tile_n": (256, 512)},
        baseline=_v2_baseline,
        steering=products.GROUPS,
        platforms=_TPU,
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
