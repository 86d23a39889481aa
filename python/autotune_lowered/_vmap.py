"""The axes by which `jax.vmap` maps a call, and the key of the resulting variant.

A function under `vmap` is traced with its arguments less the mapped axes, while the program that runs has them all.
Axes of nested `vmap`s are a tuple, the outermost first. A call that is mapped is a variant of the call that its key
names:

    variant key = KEY~SIZES-DIGEST

`SIZES` are the axes' sizes with an `x` between two; `DIGEST` is the first eight hexadecimal digits of the SHA-256 of
the axes, `[{"axes":{NAME:PLACE,…},"size":N},…]`, as JSON with sorted keys and no blanks."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Axis(NamedTuple):
    """One `vmap` around a call."""

    size: int
    """Calls in it."""
    places: Mapping[str, int]
    """The place of the axis in each argument, counted with the axes of inner `vmap`s and without those of outer
    ones. Arguments that are not mapped are left out."""
    name: str | None = None
    """`axis_name`, for collectives; not part of the variant's key."""

    def to_json(self) -> dict[str, Any]:
        """In the form of a record."""
        return {"size": self.size, "axes": dict(self.places)}

    def to_recipe(self) -> dict[str, Any]:
        """In the form of a recipe, from which the program is rebuilt."""
        return self.to_json() if self.name is None else self.to_json() | {"name": self.name}


Batch = tuple[Axis, ...]


def from_recipe(axes: Sequence[Mapping[str, Any]]) -> Batch:
    """The axes of a recipe."""
    return tuple(Axis(axis["size"], dict(axis["axes"]), axis.get("name")) for axis in axes)


def variant_key(call_key: str, batch: Batch) -> str:
    """The key of a call under these axes; the call's own if there are none."""
    if not batch:
        return call_key
    # imported late, because a look-up alone does not need it
    import hashlib

    # may contain non-ASCII characters, unlike other keys, because the program reads and writes it the same way
    axes = json.dumps([axis.to_json() for axis in batch], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(axes.encode()).hexdigest()[:8]
    return f"{call_key}~{'x'.join(str(axis.size) for axis in batch)}-{digest}"


# compiled at first use, because a look-up alone does not need it
_VARIANT = r"~([1-9][0-9]*(?:x[1-9][0-9]*)*)-[0-9a-f]{8}\Z"


def unmapped_key(call_key: str) -> str:
    """The key of the call that a variant is of; any other key as it is."""
    return re.sub(_VARIANT, "", call_key)


def preference(call_key: str) -> tuple[bool, int, str]:
    """The order in which variants of a call replace an unknown one, the preferred one smallest: the unmapped one, then
    the one with the most calls."""
    variant = re.search(_VARIANT, call_key)
    calls = math.prod(map(int, variant[1].split("x"))) if variant else 1
    return variant is not None, -calls, call_key
