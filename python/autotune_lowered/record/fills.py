"""How the inputs of a recorded call are reproduced: recipes for real values, captured bytes for values that determine
control flow."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from .._native import RegistryWriter
from .dtypes import is_real

# elements that are enough to estimate an array's spread
_SAMPLE = 1 << 20

Fill = dict[str, Any]

UNKNOWN = {"kind": "values-unknown"}
NORMAL = {"kind": "normal", "scale": 1.0}
# of a program that should have reported them
NOT_RUN = "its values were not known while tracing, and its program did not run while it was recorded: run it inside"
UNDER_JIT = "its values were not known while tracing: call it eagerly once, or record with `capture_values=True`"


# any bits are a valid key, and none affects the work of a kernel
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
    """A concrete array as numpy's; `None` for a tracer, and for an array that is too large or not all in this
    process."""
    import jax
    import numpy as np

    if value is None or isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    return None if value.nbytes > max_bytes else np.asarray(value)


class Found(NamedTuple):
    """How one argument is filled."""

    fill: Fill
    unknown: str | None = None
    """Why its values are not known."""
    warning: str | None = None
    """Notes on them for the record's reader."""


def fill_of(
    spec: Any, value: Any, rule: Fill | None, usual: Fill | None, writer: RegistryWriter, max_bytes: int
) -> Found:
    """The `fill` of one argument.

    `value` is the call's own array, if it was concrete. `rule` is the distribution of real values in any case, and
    of integers and booleans if the call's own are unknown. `usual` is the distribution of real values unless more
    is known.
    """
    host = host_value(value, max_bytes)
    if is_real(spec.dtype):
        if host is None:
            return Found(rule or usual or NORMAL)
        seen = Observed.of(spec, host)
        # non-finite values (the `-inf` of a mask) are data, so they are stored
        fill = (rule or seen.fill(usual)) if seen.is_finite else captured(host, writer)
        return Found(fill, warning=seen.warning(is_kept=True))
    if host is not None:
        return Found(captured(host, writer))
    if rule is not None:
        return Found(rule)
    if value is not None and getattr(value, "nbytes", 0) > max_bytes:
        return Found(UNKNOWN, f"its {value.nbytes} bytes are more than the {max_bytes} that are captured")
    return Found(UNKNOWN, UNDER_JIT)


def captured(host: Any, writer: RegistryWriter) -> Fill:
    """The `fill` of an array that is stored as it is: dense, row major, little endian, one byte for a narrow type."""
    import numpy as np

    host = np.ascontiguousarray(host)
    if host.dtype.byteorder == ">":
        host = host.astype(host.dtype.newbyteorder("<"))
    fill: Fill = json.loads(writer.put_array(host.tobytes()))
    return fill


@dataclasses.dataclass(frozen=True)
class Observed:
    """Figures of the real or complex values that a call saw, from which similar values are drawn."""

    size: int
    """How many values one call takes: under `vmap` fewer than were seen."""
    is_complex: bool
    low: float
    """The smallest finite value; zero for complex values and if there is none."""
    high: float
    """The largest one."""
    rms: float
    """Root mean square of the finite values."""
    infinite: float
    """Part of the values that is infinite."""
    not_numbers: float
    """Part of the values that is NaN."""

    @property
    def is_finite(self) -> bool:
        return self.infinite == 0 and self.not_numbers == 0

    @classmethod
    def of(cls, spec: Any, host: Any) -> Observed:
        """The figures of a concrete array; `spec` is that of one call's part. A large array is sampled."""
        import numpy as np

        flat = host.reshape(-1)
        sample = flat[:: max(1, flat.size // _SAMPLE)]
        sample = sample.astype(np.complex128 if np.iscomplexobj(sample) else np.float64)
        figures = _figures(np, sample) if sample.size else [0.0] * 5
        return cls(math.prod(spec.shape), np.iscomplexobj(sample), *map(float, figures))

    @classmethod
    def of_traced(cls, spec: Any, figures: Any) -> Observed:
        """The figures that `traced_figures` returned for an array; `spec` is that of one call's part."""
        return cls(math.prod(spec.shape), spec.dtype.kind == "c", *map(float, figures))

    def fill(self, usual: Fill | None) -> Fill:
        """Values of the same size and sign. `usual` is used if the observed values are uninformative: those of a first
        trial are often all the same."""
        if self.size == 0 or (self.rms == 0 and not self.is_complex):
            # zeros are unsuitable for measuring, because a device runs faster on them
            return {"kind": "constant", "value": 0.0} if self.size == 1 else usual or NORMAL
        if self.is_complex:
            return {"kind": "normal", "scale": _rounded(self.rms) or 1.0}
        low, high = self.low, self.high
        if self.size == 1 and low == high:
            # a factor or a temperature: its value is part of the work
            return {"kind": "constant", "value": low}
        if low == high:
            # equal values would hide elements that a wrong kernel mixes up, and the powers of a decay above one overflow
            return usual or _uniform(*sorted((0.5 * low, low)))
        if low >= 0 or high <= 0:
            # probabilities, decays: the other sign can overflow
            return _uniform(low, high)
        # both signs, so the root mean square gives the magnitude
        return {"kind": "normal", "scale": _rounded(self.rms)}

    def warning(self, is_kept: bool) -> str | None:
        """Notes on these values for the record's reader."""
        if self.not_numbers > 0:
            return f"{self.not_numbers:.1%} of its values are NaN: outputs that follow from them prove nothing"
        if self.infinite > 0 and not is_kept:
            return (
                f"{self.infinite:.1%} of its values are infinite, and a trace keeps none of them: call it eagerly once"
            )
        return None


def traced_figures(array: Any) -> Any:
    """The figures of `Observed` for an array inside a traced program, as one small array."""
    import jax.numpy as jnp

    # narrow types can hold neither the sum nor the number of their values
    wide = array.reshape(-1).astype(array.dtype if array.dtype.itemsize >= 4 else jnp.float32)
    return jnp.stack(_figures(jnp, wide))


def _figures(xp: Any, flat: Any) -> list[Any]:
    """Smallest, largest and root mean square of the finite values, and the fractions that are infinite and NaN."""
    finite, nan = xp.isfinite(flat), xp.isnan(flat)
    sizes = xp.where(finite, xp.abs(flat), 0)
    some = finite.any()
    if xp.iscomplexobj(flat):
        low = high = xp.zeros_like(sizes[0])
    else:
        low, high = (
            xp.where(some, pick(xp.where(finite, flat, other)), 0)
            for pick, other in ((xp.min, xp.inf), (xp.max, -xp.inf))
        )
    # divided by the largest one first, because squares may overflow
    largest = sizes.max()
    squares = xp.sum((sizes / xp.where(largest > 0, largest, 1)) ** 2)
    rms = largest * xp.sqrt(squares / xp.maximum(finite.sum(), 1))
    return [xp.asarray(one, sizes.dtype) for one in (low, high, rms, xp.mean(~finite & ~nan), xp.mean(nan))]


def _uniform(low: float, high: float) -> Fill:
    ends = _rounded(low), _rounded(high)
    # equal to three digits, so there is no range
    low, high = ends if ends[0] < ends[1] else (low, high)
    return {"kind": "uniform", "low": low, "high": high}


def _rounded(value: float) -> float:
    """Three digits: the same data gives the same record on machines that sum in another order."""
    return float(f"{value:.3g}")
