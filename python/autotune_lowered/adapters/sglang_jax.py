"""Pallas kernels of sglang-jax: of 0.0.2, the release that the package index has, and of its sources of August 2026."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from . import batches, products
from .operation import Operation
from .places import Arguments, Config, Fields, Named
from .tables import Row, SourceTable

_LAYERS = "sgl_jax.srt.layers"
_KERNELS = "sgl_jax.srt.kernels"
# where ragged paged attention and its table are: in 0.0.2, and later
_ATTENTION = f"{_LAYERS}.attention.flash_attn_kernel"
_LATER = f"{_KERNELS}.ragged_paged_attention"
_MOE = f"{_KERNELS}.fused_moe.v1"
# later versions only
_GMM = f"{_KERNELS}.gmm.megablox_gmm_kernel"
_QUANTIZED = f"{_KERNELS}.quantized_matmul.quantized_matmul_kernels"
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


def _rpa_table(members: Mapping[str, Any], call: Arguments) -> tuple[Any, ...]:
    return tuple(members["get_tuned_block_sizes"](*_rpa_question(call)))


def _rpa_key(package: str, call: Arguments, config: Config) -> tuple[Any, ...]:
    """The device and the rest of the key of the project's row for a call."""
    module = importlib.import_module(f"{package}.tuned_block_sizes")
    q_type, kv_type, heads, kv_heads, size, page_size, tokens, each = _rpa_question(call)
    pages, queries = (config[name] for name in _RPA.names)
    if pages > each or queries > tokens:
        raise ValueError(f"the project's look-up takes at most {each} pages and {tokens} queries for such a call")
    return tuple(module.get_simplified_key(page_size, q_type, kv_type, heads, kv_heads, size, tokens))


def _rpa_row(call: Arguments, config: Config, device: Mapping[str, Any]) -> Row:
    """The row for the look-up of 0.0.2, which asks for its device's name twice."""
    key = _rpa_key(_ATTENTION, call, config)
    return (key[0], *key), tuple(config[name] for name in _RPA.names)


def _later_rpa_row(call: Arguments, config: Config, device: Mapping[str, Any]) -> Row:
    return _rpa_key(_LATER, call, config), tuple(config[name] for name in _RPA.names)


def _rpa_borders(call: Arguments) -> list[dict[str, Any]]:
    """The fewest and the most tokens with the row of a call, whose key has the next power of two."""
    import jax

    tokens = call["queries"].shape[0]
    most = 1 << (tokens - 1).bit_length()
    arrays = {name: call[name] for name in ("queries", "keys", "values")}
    return [
        {name: jax.ShapeDtypeStruct((count, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
        for count in sorted({most // 2 + 1, most} - {tokens})
    ]


def _rpa(op: str, package: str, module: str, row: Callable[..., Row]) -> Operation:
    table = f"{package}.tuned_block_sizes"
    return Operation(
        op=op,
        function=f"{package}.{module}:ragged_paged_attention",
        place=_RPA,
        space={"num_kv_pages_per_block": (1, 4, 8, 16), "num_queries_per_block": (8, 16, 32, 64)},
        baseline=lambda call: dict(
            zip(_RPA.names, _rpa_table(vars(importlib.import_module(table)), call), strict=True)
        ),
        steering=batches.each(batches.RAGGED, _rpa_batch),
        borders=_rpa_borders,
        table=SourceTable(table, "TUNED_BLOCK_SIZES", row, _rpa_table, outer=1),
        platforms=_TPU,
    )


def _rpa_batch(ragged: Callable[..., Any], call: Arguments) -> dict[str, Any]:
    """A batch in which every sequence begins at a page of its own."""
    import numpy as np

    pages, size = call["kv_cache_fused"].shape[:2]
    found: dict[str, Any] = ragged(
        call["kv_lens"].shape[0], call["page_indices"].shape[0], call["queries"].shape[0], pages, size
    )
    whole = -(-found["kv_lens"] // size) * size
    return found | {"cu_kv_lens": np.concatenate([[0], np.cumsum(whole)]).astype(np.int32)}


_MOE_BLOCKS = Fields(
    "block_config",
    # as its table has them
    ("bt", "bf", "bd1", "bd2", "bts", "btc", "bfc", "bd1c", "bd2c", "bse"),
    default=lambda: _moe_tables().DEFAULT_FUSED_MOE_BLOCK_CONFIG,
)


def _moe_tables() -> Any:
    return importlib.import_module(f"{_MOE}.tuned_block_configs")


def _moe_call(call: Arguments) -> dict[str, Any]:
    """What the project's check and its look-up have in common for a call."""
    (tokens, hidden), (experts, inner, _) = call["tokens"].shape, call["w2"].shape
    # a record describes the mesh
    mesh = call["mesh"]
    sizes = dict(mesh["mesh"]) if isinstance(mesh, dict) else mesh.shape
    axes = (call["dp_axis_name"] or "data", call["tp_axis_name"] or "tensor")
    return {
        "num_tokens": tokens,
        "num_experts": experts,
        "top_k": call["top_k"],
        "hidden_size": hidden,
        "intermediate_size": inner,
        "dtype": call["tokens"].dtype,
        "ep_size": math.prod(sizes[axis] for axis in axes),
    }


def _moe_question(call: Arguments) -> dict[str, Any]:
    return _moe_call(call) | {
        "weight_dtype": call["w1"].dtype,
        "use_shared_expert": call["w1_shared"] is not None,
        "use_grouped_topk": bool(call["use_grouped_topk"]),
    }


def _moe_table(members: Mapping[str, Any], call: Arguments) -> tuple[Any, ...]:
    chosen = members["get_tuned_fused_moe_block_config"](**_moe_question(call))
    return tuple(getattr(chosen, name) for name in _MOE_BLOCKS.names)


def _moe_refuse(call: Arguments, config: Config) -> str | None:
    """Raises what the project's own check of a call raises."""
    kernel, question = importlib.import_module(f"{_MOE}.kernel"), _moe_call(call)
    names = ("num_tokens", "ep_size", "dtype", "intermediate_size")
    quantized = {"quant_block_k": call["quant_block_k"]}
    blocks = kernel.FusedMoEBlockConfig(**config).effective_for(**{name: question[name] for name in names}, **quantized)
    kernel.validate_fused_moe_block_config(**question, **quantized, block_config=blocks)
    return None


def _moe_batch(make: Callable[[int, int], Any], call: Arguments) -> dict[str, Any]:
    (tokens, each), experts = call["topk_ids"].shape, call["w2"].shape[0]
    return {"topk_ids": batches.experts(make, tokens, each, experts)}


OPERATIONS = [
    _rpa("sglang_jax.rpa", _ATTENTION, "flash_attention", _rpa_row),
    _rpa("sglang_jax.ragged_paged_attention", _LATER, "ragged_paged_attention", _later_rpa_row),
    Operation(
        op="sglang_jax.fused_moe",
        function=f"{_MOE}.kernel:fused_ep_moe",
        place=_MOE_BLOCKS,
        space={"bt": (16, 32, 64), "bf": (256, 512, 1024), "bd1": (1024, 2048), "bd2": (1024, 2048)},
        baseline=lambda call: dict(zip(_MOE_BLOCKS.names, _moe_table(vars(_moe_tables()), call), strict=True)),
        refuse=_moe_refuse,
        steering=batches.each(batches.GROUPS, _moe_batch),
        fills={"topk_weights": {"kind": "uniform", "low": 0.0, "high": 1.0}},
        table=SourceTable(
            f"{_MOE}.tuned_block_configs",
            "TUNED_BLOCK_CONFIGS",
            lambda call, config, device: (
                tuple(_moe_tables().get_simplified_key(**_moe_question(call))),
                tuple(config[name] for name in _MOE_BLOCKS.names),
            ),
            _moe_table,
            outer=1,
        ),
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
    products.tuned_gmm("sglang_jax.gmm_v1", f"{_GMM}.gmm:gmm", f"{_GMM}.tuned_block_sizes"),
    products.gmm_v2("sglang_jax.gmm_v2", f"{_GMM}.gmm_v2", ("lhs", "rhs", "rhs_scale", "rhs_bias", "group_sizes"), ()),
    products.quantized_matmul(
        "sglang_jax.quantized_matmul",
        f"{_QUANTIZED}.kernel:quantized_matmul_kernel",
        f"{_QUANTIZED}.tuned_block_sizes",
    ),
]
