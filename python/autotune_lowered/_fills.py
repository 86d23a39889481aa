"""How the inputs of a recorded call are made again: recipes for real values, captured bytes for what steers control flow."""

from __future__ import annotations

import json
import math
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
    """Normal values of the same spread. What is not finite (the `-inf` of a mask) is data, and kept."""
    import numpy as np

    if host.size == 0:
        return {"kind": "constant", "value": 0.0}
    flat = host.reshape(-1)
    sample = flat[:: max(1, flat.size // _SAMPLE)]
    sample = sample.astype(np.complex128 if np.iscomplexobj(sample) else np.float64)
    if not np.isfinite(sample).all():
        return captured(host, writer)
    if rule is not None:
        return rule
    # mean zero in the fill: the root mean square is what stands for the size of the values
    scale = math.sqrt(float(np.mean(np.abs(sample) ** 2)))
    if not np.iscomplexobj(sample) and float(sample.min()) == float(sample.max()):
        return {"kind": "constant", "value": float(sample[0])}
    # three digits: the same data gives the same record on machines that sum in another order
    return {"kind": "normal", "scale": float(f"{scale:.3g}")}
