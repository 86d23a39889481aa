"""Pallas kernels for TPUs that ship with JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from . import batches, products
from .operation import Operation
from .places import Arguments, Config, Fields, Named, Parts, Several
from .splash_blocks import splash_operations

_OPS = "jax.experimental.pallas.ops.tpu"
_TPU = ("tpu",)
_BLOCKS = (128, 256, 512)


def _flash_baseline(call: Arguments) -> Config:
    (batch, heads, queries, size), keys = call["q"].shape, call["k"].shape[2]
    sizes = importlib.import_module(f"{_OPS}.flash_attention").BlockSizes.get_default(batch, heads, queries, keys, size)
    return {name: getattr(sizes, name) for name in _FLASH.names}


_FLASH = Fields(
    "block_sizes",
    (
        "block_q",
        "block_k_major",
        "block_k",
        "block_b",
        "block_q_major_dkv",
        "block_k_major_dkv",
        "block_k_dkv",
        "block_q_dkv",
        "block_k_major_dq",
        "block_k_dq",
        "block_q_dq",
    ),
    default=lambda: importlib.import_module(f"{_OPS}.flash_attention").BlockSizes.get_default(1, 1, 128, 128, 128),
)


def _paged_batch(lengths: Callable[..., Any], call: Arguments) -> dict[str, Any]:
    sequences, each = call["page_indices"].shape
    _, total, size, _ = call["k_pages"].shape
    found = batches.pages(sequences * each, total).reshape(sequences, each)
    return {"lengths": lengths(sequences, each * size), "page_indices": found}


def _ragged_batch(ragged: Callable[..., Any], call: Arguments) -> dict[str, Any]:
    import numpy as np

    (sequences, each), (total, size, *_) = call["page_indices"].shape, call["kv_pages"].shape
    found: dict[str, Any] = ragged(sequences, sequences * each, call["q"].shape[0], total, size)
    del found["distribution"]
    tables = found["page_indices"].reshape(sequences, each)
    return found | {"page_indices": tables, "num_seqs": np.array([sequences], np.int32)}


def _ragged_baseline(call: Arguments) -> Config:
    """What its own table says; the function has these where it is called without block sizes."""
    table = importlib.import_module(f"{_OPS}.ragged_paged_attention.tuned_block_sizes")
    (tokens, heads, size), (_, page, both, _) = call["q"].shape, call["kv_pages"].shape
    chosen = table.get_tuned_block_sizes(
        call["q"].dtype, call["kv_pages"].dtype, heads, both // 2, size, page, tokens, call["page_indices"].shape[1]
    )
    return dict(zip(_RAGGED.names, chosen, strict=True))


_RAGGED = Named(("num_kv_pages_per_block", "num_queries_per_block"))

OPERATIONS = [
    *splash_operations("jax.tpu", f"{_OPS}.splash_attention.splash_attention_kernel"),
    Operation(
        op="jax.tpu.flash_attention",
        function=f"{_OPS}.flash_attention:flash_attention",
        place=_FLASH,
        space={"block_q": _BLOCKS, "block_k_major": _BLOCKS, "block_k": _BLOCKS},
        baseline=_flash_baseline,
        platforms=_TPU,
    ),
    *(
        # the second has a rule of differentiation, which calls the first and `tgmm`
        Operation(
            op="jax.tpu.gmm",
            function=f"{_OPS}.megablox.{module}:gmm",
            place=products.TILING,
            space=products.TILES,
            baseline=products.gmm_baseline,
            steering=products.GROUPS,
            platforms=_TPU,
        )
        for module in ("gmm", "ops")
    ),
    Operation(
        op="jax.tpu.tgmm",
        function=f"{_OPS}.megablox.gmm:tgmm",
        place=products.TILING,
        space=products.TILES,
        baseline=products.tgmm_baseline,
        steering=products.GROUPS_OF_COLUMNS,
        platforms=_TPU,
    ),
    Operation(
        op="jax.tpu.matmul",
        function=f"{_OPS}.matmul:matmul",
        place=Several((Parts("block_shape", ("block_m", "block_n")), Named(("block_k",)))),
        space={"block_m": (256, 512, 1024), "block_n": (256, 512, 1024), "block_k": (256, 512, 1024)},
        platforms=_TPU,
    ),
    Operation(
        op="jax.tpu.paged_attention",
        function=f"{_OPS}.paged_attention.paged_attention_kernel:paged_attention",
        place=Named(("pages_per_compute_block",)),
        space={"pages_per_compute_block": (1, 2, 4, 8, 16, 32)},
        steering=batches.each(batches.LENGTHS, _paged_batch),
        platforms=_TPU,
    ),
    Operation(
        op="jax.tpu.ragged_paged_attention",
        function=f"{_OPS}.ragged_paged_attention.kernel:ragged_paged_attention",
        place=_RAGGED,
        space={"num_kv_pages_per_block": (1, 4, 8, 16), "num_queries_per_block": (8, 16, 32, 64)},
        baseline=_ragged_baseline,
        steering=batches.each(batches.RAGGED, _ragged_batch),
        platforms=_TPU,
    ),
]
