"""How the inputs of a recorded call are made again: recipes for real values, captured bytes for what steers control flow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

# enough of an array to know its spread
_SAMPLE = 1 << 20

UNKNOWN = {"kind": "values-unknown"}
UNDER_JIT = "its values were not known while tracing: call it eagerly once, or record with `capture_values=True`"


def is_real(dtype: Any) -> bool:
    """Whether values of this type are drawn from a distribution; integers and booleans steer what a kernel does."""
    import jax.numpy as jnp

    return bool(jnp.issubdtype(dtype, jnp.inexact))


def is_key(dtype: Any) -> bool:
    """Whether these are JAX's typed random keys, which have no bytes of their own."""
    import jax

    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.extended))


# any bits are a good key: none steers what a kernel does
KEY_BITS = {"kind": "integer-range", "low": 0, "high": (1 << 32) - 1}

_FIELDS = {
    "normal": {"scale"},
    "uniform": {"low", "high"},
    "constant": {"value"},
    "integer-range": {"low", "high"},
    "permutation": set(),
    "sorted-cumulative": {"total"},
    "partition": {"total"},
    "boolean-density": {"density"},
}


def wrong_fill(fill: Any) -> str | None:
    """What is wrong with a fill that a user gives, if anything is."""
    if not isinstance(fill, Mapping) or "kind" not in fill:
        return f"{fill!r} is no fill: give a `kind` and its fields, such as {{'kind': 'normal', 'scale': 1.0}}"
    kind, given = fill["kind"], set(fill) - {"kind"}
    if kind not in _FIELDS:
        return f"there is no kind {kind!r}: take one of {', '.join(_FIELDS)}"
    if given != _FIELDS[kind]:
        wanted = ", ".join(f"`{name}`" for name in sorted(_FIELDS[kind])) or "no field"
        return f"the kind `{kind}` has {wanted}, not {', '.join(f'`{name}`' for name in sorted(given)) or 'none'}"
    for name in given:
        if isinstance(fill[name], bool) or not isinstance(fill[name], (int, float)):
            return f"`{name}` of the kind `{kind}` is {fill[name]!r}, which is no number"
    return None


def host_value(value: Any, max_bytes: int) -> Any | None:
    """A concrete array as numpy's, or `None` for a tracer, and for one that is too large or not all in this process."""
    import jax
    import numpy as np

    if value is None or isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    return None if value.nbytes > max_bytes else np.asarray(value)


def fill_of(spec: Any, value: Any, rule: dict[str, Any] | None, writer: Any, max_bytes: int) -> tuple[dict, str | None]:
    """The `fill` of one argument, and the reason where its values are unknown.

    `value` is the call's own array, if it was concrete; `rule` is what the operation says of its values otherwise.
    """
    host = host_value(value, max_bytes)
    if is_real(spec.dtype):
        return (rule or {"kind": "normal", "scale": 1.0}) if host is None else _spread(host, rule, writer), None
    if host is not None:
        return captured(host, writer), None
    if rule is not None:
        return rule, None
    if value is not None and getattr(value, "nbytes", 0) > max_bytes:
        return UNKNOWN, f"its {value.nbytes} bytes are more than the {max_bytes} that are captured"
    return UNKNOWN, UNDER_JIT


def captured(host: Any, writer: Any) -> dict[str, Any]:
    """The `fill` of an array that is stored as it is: dense, row major, little endian, one byte for a narrow type."""
    import numpy as np

    host = np.ascontiguousarray(host)
    if host.dtype.byteorder == ">":
        host = host.astype(host.dtype.newbyteorder("<"))
    return json.loads(writer.put_array(host.tobytes()))


def _spread(host: Any, rule: dict[str, Any] | None, writer: Any) -> dict[str, Any]:
    """Values of the same size and sign. What is not finite (the `-inf` of a mask) is data, and kept."""
    import numpy as np

    flat = host.reshape(-1)
    sample = flat[:: max(1, flat.size // _SAMPLE)]
    is_complex = np.iscomplexobj(sample)
    sample = sample.astype(np.complex128 if is_complex else np.float64)
    if not np.isfinite(sample).all():
        return captured(host, writer)
    if rule is not None:
        return rule
    if sample.size == 0:
        return {"kind": "normal", "scale": 1.0}
    if sample.size == 1 and not is_complex:
        # a factor or a temperature: its value is part of the work
        return {"kind": "constant", "value": float(sample[0])}
    low, high = (0.0, 0.0) if is_complex else (float(sample.min()), float(sample.max()))
    if low < high and (low >= 0 or high <= 0):
        # probabilities, decays: the other sign can overflow
        return {"kind": "uniform", "low": _rounded(low), "high": _rounded(high)}
    # the mean is zero, so the root mean square stands for the size. Arrays of one value, as of a first trial, are no
    # data to measure with: a device runs faster on zeros, and equal values hide what a wrong kernel mixes up
    scale = math.sqrt(float(np.mean(np.abs(sample) ** 2))) or 1.0
    return {"kind": "normal", "scale": _rounded(scale)}


def _rounded(value: float) -> float:
    """Three digits: the same data gives the same record on machines that sum in another order."""
    return float(f"{value:.3g}")
