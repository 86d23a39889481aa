"""Pallas kernels for GPUs that ship with JAX: Triton's and Mosaic's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import batches, products
from .operation import Operation
from .places import Arguments, Fields, Named, Several

_OPS = "jax.experimental.pallas.ops.gpu"
_GPU = ("cuda", "rocm")
_CUDA = ("cuda",)

_LAUNCH = Named(("num_warps", "num_stages"))
_MHA_BLOCKS = ("block_q", "block_k", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
_DECODE = Named(("block_h", "block_k", "k_splits", "num_warps", "num_stages"))
_PAGED = Named(("block_h", "pages_per_compute_block", "k_splits", "num_warps", "num_stages"))
_RAGGED = Named(("block_m", "block_n", "block_k", "max_concurrent_steps", "grid_block_n"))
_TILES = Fields("config", ("tile_m", "tile_n", "tile_k", "max_concurrent_steps"))
_TILED = {"tile_m": (64, 128), "tile_n": (64, 128, 256), "tile_k": (64, 128), "max_concurrent_steps": (2, 4)}


def _paged_batch(lengths: Callable[..., Any], call: Arguments) -> dict[str, Any]:
    sequences, each = call["block_tables"].shape
    _, total, size, _ = call["k_pages"].shape
    found = batches.pages(sequences * each, total).reshape(sequences, each)
    return {"lengths": lengths(sequences, each * size), "block_tables": found}


OPERATIONS = [
    Operation(
        op="jax.gpu.mha",
        function=f"{_OPS}.attention:mha",
        place=Several((Fields("block_sizes", _MHA_BLOCKS), _LAUNCH)),
        space={"block_q": (64, 128), "block_k": (64, 128), "num_warps": (4, 8), "num_stages": (2, 3)},
        platforms=_GPU,
    ),
    *(
        Operation(
            op=f"jax.gpu.decode_{name}",
            function=f"{_OPS}.decode_attention:{name}",
            place=_DECODE,
            space={"block_k": (64, 128, 256), "k_splits": (8, 16, 32), "num_warps": (4, 8)},
            platforms=_GPU,
        )
        for name in ("mqa", "gqa")
    ),
    Operation(
        op="jax.gpu.paged_attention",
        function=f"{_OPS}.paged_attention:paged_attention",
        place=_PAGED,
        space={"pages_per_compute_block": (4, 8, 16), "k_splits": (8, 16, 32), "num_warps": (4, 8)},
        steering=batches.each(batches.LENGTHS, _paged_batch),
        platforms=_GPU,
    ),
    *(
        Operation(
            op=f"jax.gpu.{name}",
            function=f"{_OPS}.{name}:{name}",
            place=_LAUNCH,
            space={"num_warps": (1, 2, 4, 8), "num_stages": (1, 2, 3)},
            platforms=_GPU,
        )
        for name in ("layer_norm", "rms_norm")
    ),
    Operation(
        op="jax.gpu.softmax",
        function=f"{_OPS}.softmax:softmax",
        place=Named(("num_warps",)),
        space={"num_warps": (1, 2, 4, 8)},
        platforms=_GPU,
    ),
    Operation(
        op="jax.gpu.attention_mgpu",
        function=f"{_OPS}.attention_mgpu:attention",
        place=Fields("config", ("block_q", "block_kv", "max_concurrent_steps")),
        space={"block_q": (64, 128), "block_kv": (64, 128, 256), "max_concurrent_steps": (2, 3, 4)},
        platforms=_CUDA,
    ),
    Operation(
        op="jax.gpu.hopper_matmul",
        function=f"{_OPS}.hopper_matmul_mgpu:matmul",
        place=_TILES,
        space=_TILED,
        platforms=_CUDA,
    ),
    Operation(
        op="jax.gpu.hopper_mixed_type_matmul",
        function=f"{_OPS}.hopper_mixed_type_matmul_mgpu:mixed_matmul_kernel",
        place=_TILES,
        space=_TILED,
        fills={"a": {"kind": "integer-range", "low": -127, "high": 127}},
        platforms=_CUDA,
    ),
    Operation(
        op="jax.gpu.blackwell_matmul",
        function=f"{_OPS}.blackwell_matmul_mgpu:matmul_kernel",
        place=_TILES,
        space=_TILED,
        platforms=_CUDA,
    ),
    *(
        Operation(
            op=f"jax.gpu.{name}",
            function=f"{_OPS}.{name}_mgpu:{name}",
            place=_RAGGED,
            space={
                "block_m": (64, 128),
                "block_n": (64, 128),
                "block_k": (64, 128),
                "max_concurrent_steps": (2, 4),
                "grid_block_n": (1, 4),
            },
            steering=products.GROUPS,
            platforms=_CUDA,
        )
        for name in ("ragged_dot", "transposed_ragged_dot")
    ),
]
