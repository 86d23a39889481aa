"""Pallas kernels of tpu-inference, as of 0.32."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from . import batches, products
from .operation import Operation
from .places import Arguments, Config, Fields, Named, Parts, Several
from .tables import Row, SourceTable

_KERNELS = "tpu_inference.kernels"
_TPU = ("tpu",)
_RPA = f"{_KERNELS}.ragged_paged_attention.v3.kernel"
_FLASH = f"{_KERNELS}.flash_attention.kernel"
_MOE = f"{_KERNELS}.fused_moe.v1.kernel"
_MOE_TABLE = f"{_KERNELS}.fused_moe.v1.tuned_block_sizes"

# by the case that a block is for: decode and mixed batches
_BLOCKS = ("bq", "bkv", "bq_c", "bkv_c")
_CASES = {"d": "DECODE", "m": "MIXED"}


def _named(case: str) -> tuple[str, ...]:
    return tuple(f"{case}_{block}" for block in _BLOCKS)


def _rpa_baseline(call: Arguments) -> Config:
    """For each case the caller's blocks, or those of the project's heuristic."""
    kernel = importlib.import_module(_RPA)
    (tokens, heads, size), kv_heads, cache = call["queries"].shape, call["keys"].shape[1], call["kv_cache"]
    sequences = call["kv_lens"].shape[0]
    found: dict[str, Any] = {}
    for case, name in _CASES.items():
        given = call[f"{case}_block_sizes"]
        if given is None:
            chosen = kernel.get_default_block_sizes(
                call["queries"].dtype,
                cache.dtype,
                heads,
                kv_heads,
                size,
                cache.shape[1],
                tokens,
                sequences,
                call["page_indices"].shape[0] // sequences,
                case=kernel.RpaCase[name],
            )
            given = [chosen[block] for block in ("bq_sz", "bkv_sz", "bq_csz", "bkv_csz")]
        found |= dict(zip(_named(case), given, strict=True))
    return found


def _rpa_refuse(call: Arguments, config: Config) -> str | None:
    """Raises what the project's own check of a call raises."""
    blocks = {f"{case}_block_sizes": tuple(config[name] for name in _named(case)) for case in _CASES}
    arrays = ("queries", "keys", "values", "kv_cache", "kv_lens", "page_indices", "cu_q_lens", "distribution")
    importlib.import_module(_RPA).static_validate_inputs(*(call[name] for name in arrays), **blocks)
    return None


def _rpa_batch(ragged: Callable[..., Any], call: Arguments) -> dict[str, Any]:
    return _batch(ragged, call, call["queries"].shape[0], call["kv_cache"].shape[0], call["kv_cache"].shape[1])


def _mla_batch(ragged: Callable[..., Any], call: Arguments) -> dict[str, Any]:
    pages, rows, packing, *_ = call["cache_kv"].shape
    return _batch(ragged, call, call["q_pe"].shape[0], pages, rows * packing)


def _batch(ragged: Callable[..., Any], call: Arguments, tokens: int, pages: int, size: int) -> dict[str, Any]:
    found: dict[str, Any] = ragged(call["kv_lens"].shape[0], call["page_indices"].shape[0], tokens, pages, size)
    return found


def _flash_baseline(call: Arguments) -> Config:
    """What the project's table says; else its default, with all keys in one block if they fit into VMEM."""
    kernel, (q, k) = importlib.import_module(_FLASH), (call["q"], call["k"])
    (batch, heads, queries, size), keys = q.shape, k.shape[2]
    chosen = kernel.get_tuned_params(kernel.TuningKey(batch, heads, queries, keys, size, q.dtype.name, k.dtype.name))
    if chosen is not None:
        return {name: getattr(chosen, name) for name in _SIZES.names}
    sizes = kernel.BlockSizes.get_default(batch, heads, queries, keys, size)
    found = {name: getattr(sizes, name) for name in _SIZES.names}
    needed = kernel.calculate_vmem_usage_bytes(sizes, q.dtype, k.dtype, size, keys, call["ab"], call["segment_ids"])
    limit = call["vmem_limit_bytes"]
    fits = needed <= 0.9 * (kernel.pltpu.get_tpu_info().vmem_capacity_bytes if limit is None else limit)
    return found | ({"block_k_major": keys, "block_k": keys} if fits else {})


_SIZES = Fields(
    "block_sizes",
    ("block_q", "block_k_major", "block_k", "block_b"),
    default=lambda: importlib.import_module(_FLASH).BlockSizes.get_default(1, 1, 128, 128, 128),
)


def _rpa_settings(call: Arguments, config: Config) -> dict[str, str]:
    if not all(type(value) is int for value in config.values()):
        raise ValueError("a block size is no whole number")
    return {
        f"RPA_V3_{name}_BLOCK_SIZES": ",".join(str(config[block]) for block in _named(case))
        for case, name in _CASES.items()
    }


_MOE_BLOCKS = Named(("bt", "bf", "bd1", "bd2", "btc", "bfc", "bd1c", "bd2c"))


def _moe_key(call: Arguments) -> tuple[Any, ...]:
    """What the project's look-up is asked for a call."""
    packing = importlib.import_module(_MOE).get_dtype_packing
    (tokens, hidden), (experts, inner, _), mesh = call["tokens"].shape, call["w2"].shape, call["mesh"]
    # a record describes the mesh
    sizes = dict(mesh["mesh"]) if isinstance(mesh, dict) else mesh.shape
    packed = (packing(call["tokens"].dtype), packing(call["w1"].dtype))
    axis = call["ep_axis_name"] or "model"
    return (hidden, inner, experts, call["top_k"], *packed, tokens, sizes[axis])


def _moe_table(members: Mapping[str, Any], call: Arguments) -> tuple[Any, ...]:
    return tuple(members["get_tuned_block_sizes"](*_moe_key(call)))


def _moe_row(call: Arguments, config: Config, device: Mapping[str, Any]) -> Row:
    key = _moe_key(call)
    align = importlib.import_module(_MOE_TABLE).align_to
    # its look-up rounds both sizes
    return (align(key[0], 256), align(key[1], 256), *key[2:]), tuple(config[name] for name in _MOE_BLOCKS.names)


OPERATIONS = [
    Operation(
        op="tpu_inference.rpa_v3",
        function=f"{_RPA}:ragged_paged_attention",
        place=Several([Parts(f"{case}_block_sizes", _named(case)) for case in _CASES]),
        space={"d_bkv": (512, 1024, 2048), "d_bkv_c": (256, 512), "m_bkv": (512, 1024)},
        settings=_rpa_settings,
        baseline=_rpa_baseline,
        refuse=_rpa_refuse,
        steering=batches.each(batches.RAGGED, _rpa_batch),
        platforms=_TPU,
    ),
    Operation(
        op="tpu_inference.mla_v2",
        function=f"{_KERNELS}.mla.v2.kernel:mla_ragged_paged_attention",
        place=Named(("num_kv_pages_per_block", "num_queries_per_block")),
        space={"num_kv_pages_per_block": (1, 2, 4, 8), "num_queries_per_block": (1, 4, 8)},
        steering=batches.each(batches.RAGGED, _mla_batch),
        platforms=_TPU,
    ),
    products.quantized_matmul(
        "tpu_inference.quantized_matmul",
        f"{_KERNELS}.quantized_matmul.kernel:quantized_matmul_kernel",
        f"{_KERNELS}.quantized_matmul.tuned_block_sizes",
    ),
    products.tuned_gmm("tpu_inference.gmm", f"{_KERNELS}.megablox.gmm:gmm", f"{_KERNELS}.megablox.tuned_block_sizes"),
    Operation(
        op="tpu_inference.fused_moe",
        function=f"{_MOE}:fused_ep_moe",
        place=_MOE_BLOCKS,
        # the kernel wants multiples of the compute sizes, and refuses the others
        space={"bt": (16, 32, 64), "bf": (512, 1024), "bd1": (1024, 2048), "bd2": (1024, 2048)},
        baseline=lambda call: dict(
            zip(_MOE_BLOCKS.names, _moe_table(vars(importlib.import_module(_MOE_TABLE)), call), strict=True)
        ),
        table=SourceTable(_MOE_TABLE, "TUNED_BLOCK_SIZES", _moe_row, _moe_table),
        platforms=_TPU,
    ),
    Operation(
        op="tpu_inference.flash_attention",
        function=f"{_FLASH}:flash_attention",
        place=_SIZES,
        space={"block_q": (128, 256, 512), "block_k_major": (128, 256, 512), "block_k": (128, 256, 512)},
        baseline=_flash_baseline,
        platforms=_TPU,
    ),
]
