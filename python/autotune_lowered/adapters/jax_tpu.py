"""Pallas kernels for TPUs that ship with JAX."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from . import batches
from .operation import Operation
from .places import Arguments, Config, Fields, Named, Parts, Several
from .splash import MakerHook, identity_of

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


def _gmm_tiling(call: Arguments) -> Config:
    """What a caller's function chooses for the sizes of a product."""
    (m, k), n = call["lhs"].shape, call["rhs"].shape[1 if call["transpose_rhs"] else 2]
    return _tiling(call["tiling"], m, k, n)


def _tgmm_tiling(call: Arguments) -> Config:
    (k, m), n = call["lhs"].shape, call["rhs"].shape[1]
    return _tiling(call["tiling"], m, k, n)


def _tiling(choose: Any, *sizes: int) -> Config:
    return dict(zip(_TILING.names, choose(*sizes), strict=True))


_TILING = Parts("tiling", ("tm", "tk", "tn"))
_TILES = {name: _BLOCKS for name in _TILING.names}


def _groups(call: Arguments, axis: int) -> dict[str, Any]:
    return {"group_sizes": batches.even_groups(call["lhs"].shape[axis], call["group_sizes"].shape[0])}


def _paged_batch(call: Arguments) -> dict[str, Any]:
    sequences, each = call["page_indices"].shape
    _, total, size, _ = call["k_pages"].shape
    found = batches.pages(sequences * each, total).reshape(sequences, each)
    return {"lengths": batches.lengths(sequences, each * size), "page_indices": found}


def _ragged_batch(call: Arguments) -> dict[str, Any]:
    """Sequences of which half decode; the others have what is left of the tokens."""
    import numpy as np

    (sequences, each), (total, size, *_) = call["page_indices"].shape, call["kv_pages"].shape
    tokens = call["q"].shape[0]
    starts = batches.starts_of_queries(sequences, tokens, decoded=sequences // 2)
    fewest = np.diff(starts)
    return {
        "kv_lens": np.minimum(np.maximum(batches.lengths(sequences, each * size), fewest), each * size).astype(
            np.int32
        ),
        "page_indices": batches.pages(sequences * each, total).reshape(sequences, each),
        "cu_q_lens": starts,
        "num_seqs": np.array([sequences], np.int32),
    }


def _ragged_baseline(call: Arguments) -> Config:
    """What its own table says; the function has these where it is called without block sizes."""
    table = importlib.import_module(f"{_OPS}.ragged_paged_attention.tuned_block_sizes")
    (tokens, heads, size), (_, page, both, _) = call["q"].shape, call["kv_pages"].shape
    chosen = table.get_tuned_block_sizes(
        call["q"].dtype, call["kv_pages"].dtype, heads, both // 2, size, page, tokens, call["page_indices"].shape[1]
    )
    return dict(zip(_RAGGED.names, chosen, strict=True))


_RAGGED = Named(("num_kv_pages_per_block", "num_queries_per_block"))

_SPLASH = Fields(
    "block_sizes",
    (
        "block_q",
        "block_kv",
        "block_kv_compute",
        "block_q_dkv",
        "block_kv_dkv",
        "block_kv_dkv_compute",
        "block_q_dq",
        "block_kv_dq",
    ),
)

OPERATIONS = [
    *(
        Operation(
            op=f"jax.tpu.splash_{heads}",
            function=f"{_OPS}.splash_attention.splash_attention_kernel:make_splash_{heads}{more}",
            place=_SPLASH,
            space={"block_q": _BLOCKS, "block_kv": (256, 512, 1024), "block_kv_compute": (256, 512)},
            static_key={"made": identity_of},
            stand_in=MakerHook,
            platforms=_TPU,
        )
        for heads in ("mha", "mqa")
        for more in ("", "_single_device")
    ),
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
            place=_TILING,
            space=_TILES,
            baseline=_gmm_tiling,
            steering=functools.partial(_groups, axis=0),
            platforms=_TPU,
        )
        for module in ("gmm", "ops")
    ),
    Operation(
        op="jax.tpu.tgmm",
        function=f"{_OPS}.megablox.gmm:tgmm",
        place=_TILING,
        space=_TILES,
        baseline=_tgmm_tiling,
        steering=functools.partial(_groups, axis=1),
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
        steering=_paged_batch,
        platforms=_TPU,
    ),
    Operation(
        op="jax.tpu.ragged_paged_attention",
        function=f"{_OPS}.ragged_paged_attention.kernel:ragged_paged_attention",
        place=_RAGGED,
        space={"num_kv_pages_per_block": (1, 4, 8, 16), "num_queries_per_block": (8, 16, 32, 64)},
        baseline=_ragged_baseline,
        steering=_ragged_batch,
        platforms=_TPU,
    ),
]
