"""Pallas kernels of sglang-jax, as of 0.0.2, the release that the package index has."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from . import batches, products
from .operation import Operation
from .places import Arguments, Config, Named
from .tables import Row, SourceTable

_LAYERS = "sgl_jax.srt.layers"
_ATTENTION = f"{_LAYERS}.attention.flash_attn_kernel"
_TPU = ("tpu",)

_RPA = Named(("num_kv_pages_per_block", "num_queries_per_block"))


def _rpa_question(call: Arguments) -> tuple[Any, ...]:
    """What the project's look-up is asked for a call."""
    (tokens, heads, size), kv_heads = call["queries"].shape, call["keys"].shape[1]
    cache, sequences = call["kv_cache_fused"], call["kv_lens"].shape[0]
    # padded as the kernel pads it
    padded = -(-size // 128) * 128
    each = call["page_indices"].shape[0] // sequences
    return (call["queries"].dtype, cache.dtype, heads, kv_heads, padded, cache.shape[1], tokens, each)


def _rpa_baseline(call: Arguments) -> Config:
    chosen = _table(importlib.import_module(f"{_ATTENTION}.tuned_block_sizes").__dict__, call)
    return dict(zip(_RPA.names, chosen, strict=True))


def _table(members: Mapping[str, Any], call: Arguments) -> tuple[Any, ...]:
    return tuple(members["get_tuned_block_sizes"](*_rpa_question(call)))


def _rpa_row(call: Arguments, config: Config, device: Mapping[str, Any]) -> Row:
    """The row for the project's look-up, which asks for its device's name twice."""
    module = importlib.import_module(f"{_ATTENTION}.tuned_block_sizes")
    q_type, kv_type, heads, kv_heads, size, page_size, tokens, each = _rpa_question(call)
    key = module.get_simplified_key(page_size, q_type, kv_type, heads, kv_heads, size, tokens)
    value = tuple(config[name] for name in _RPA.names)
    if value[0] > each or value[1] > tokens:
        raise ValueError(f"the project's look-up takes at most {each} pages and {tokens} queries for such a call")
    return (key[0], *key), value


def _rpa_batch(ragged: Callable[..., Any], call: Arguments) -> dict[str, Any]:
    """A batch in which every sequence begins at a page of its own."""
    import numpy as np

    pages, size = call["kv_cache_fused"].shape[:2]
    found: dict[str, Any] = ragged(
        call["kv_lens"].shape[0], call["page_indices"].shape[0], call["queries"].shape[0], pages, size
    )
    whole = -(-found["kv_lens"] // size) * size
    return found | {"cu_kv_lens": np.concatenate([[0], np.cumsum(whole)]).astype(np.int32)}


OPERATIONS = [
    Operation(
        op="sglang_jax.rpa",
        function=f"{_ATTENTION}.flash_attention:ragged_paged_attention",
        place=_RPA,
        space={"num_kv_pages_per_block": (1, 4, 8, 16), "num_queries_per_block": (8, 16, 32, 64)},
        baseline=_rpa_baseline,
        steering=batches.each(batches.RAGGED, _rpa_batch),
        table=SourceTable(f"{_ATTENTION}.tuned_block_sizes", "TUNED_BLOCK_SIZES", _rpa_row, _table, outer=1),
        platforms=_TPU,
    ),
    Operation(
        op="sglang_jax.gmm",
        function=f"{_LAYERS}.gmm.megablox_gmm_kernel.gmm:gmm",
        place=products.TILING,
        space=products.TILES,
        baseline=products.gmm_baseline,
        steering=products.GROUPS,
        platforms=_TPU,
    ),
]
