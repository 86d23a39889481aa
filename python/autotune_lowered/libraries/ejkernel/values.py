"""Values for the array arguments of ejkernel's operations, if a call's own values are unknown.

Standard normal values are outside the domain of many arguments: with a positive `decay` the state grows with every
token, and programs cannot be compared if all outputs overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Fill = dict[str, Any]


def _uniform(low: float, high: float) -> Fill:
    return {"kind": "uniform", "low": low, "high": high}


def _short_vectors(spec: Any) -> Fill:
    """Vectors along the last axis that are about half as long as one: a correction by their outer product only shrinks."""
    return {"kind": "normal", "scale": float(f"{0.5 * max(spec.shape[-1:], default=1) ** -0.5:.3g}")}


def _probabilities(spec: Any) -> Fill:
    """Rows that sum to about one."""
    return _uniform(0.0, 2.0 / max(spec.shape[-1:], default=1))


# the logarithm of the part of a state that each token keeps
_LOG_DECAY = _uniform(-1.0, 0.0)
# gates after their sigmoid, weights and ALiBi's slopes
_PART = _uniform(0.0, 1.0)
# norms, and scales of quantized arrays
_SCALE = _uniform(0.5, 1.5)

_DELTA_RULE = {"beta": _PART, "decay": _LOG_DECAY}
_STATE_SPACE = {"A": _uniform(-1.0, 0.0), "dt": _uniform(0.001, 0.1)}
_TURBOQUANT = {"key_norms_pages": _SCALE, "value_norms_pages": _SCALE}

_USUAL: dict[str, Mapping[str, Fill | Callable[[Any], Fill]]] = {
    "chunked_prefill_paged_decode": {"alibi_slopes": _PART},
    "fused_cross_entropy": {"weights": _PART, "soft_targets": _probabilities},
    "fused_kl_divergence": {"weights": _PART},
    "gated_delta_rule": _DELTA_RULE,
    "gla": {"g": _LOG_DECAY, "g_gamma": _LOG_DECAY},
    "grouped_matmul": {"rhs_scale": _SCALE},
    "kernel_delta_attention": _DELTA_RULE,
    "native_sparse_attention": {"g_cmp": _PART, "g_slc": _PART},
    "quantized_matmul": {"scales": _SCALE},
    "ragged_gated_delta_rule": _DELTA_RULE,
    "ragged_page_attention_v2_turboquant": _TURBOQUANT,
    "ragged_page_attention_v3_turboquant": _TURBOQUANT,
    "recurrent": {"g": _LOG_DECAY, "g_gamma": _LOG_DECAY, "gk": _LOG_DECAY, "gv": _LOG_DECAY},
    # its state consists of numerator, denominator and the exponent of both
    "rwkv4": {"state": _PART},
    "rwkv6": {"w": _LOG_DECAY},
    "rwkv7": {"w": _LOG_DECAY, "a": _short_vectors, "b": _short_vectors},
    "rwkv7_mul": {"w": _LOG_DECAY, "kk": _short_vectors, "a": _PART},
    "state_space_v1": _STATE_SPACE,
    "state_space_v2": _STATE_SPACE,
    "unified_attention": {"alibi_slopes": _PART},
}


def usual_of(op_id: str, specs: Mapping[str, Any], static: Mapping[str, Any]) -> dict[str, Fill]:
    """The default distribution of real arguments."""
    usual = dict(_USUAL.get(_family(op_id, _USUAL), {}))
    if static.get("use_qk_l2norm") is False:
        # keys that are not normalized here were normalized before
        usual |= {"query": _short_vectors, "key": _short_vectors}
    return {name: fill(specs[name]) if callable(fill) else fill for name, fill in usual.items() if name in specs}


def rules_of(op_id: str, specs: Mapping[str, Any]) -> dict[str, Fill]:
    """The distribution of integers that control the operation, if their meaning is known."""
    rules: dict[str, Fill] = {}
    if op_id.startswith("grouped_matmul") and "lhs" in specs:
        rules["group_sizes"] = {"kind": "partition", "total": int(specs["lhs"].shape[0])}
    if op_id == "fused_cross_entropy" and "logits" in specs:
        rules["targets"] = {"kind": "integer-range", "low": 0, "high": int(specs["logits"].shape[-1]) - 1}
    return {name: rule for name, rule in rules.items() if name in specs}


def _family(op_id: str, names: Mapping[str, Any]) -> str:
    """The operation without its version: `grouped_matmulv3` is `grouped_matmul`."""
    head = op_id.split("@")[0]
    return head if head in names else head.rstrip("0123456789").removesuffix("v")
