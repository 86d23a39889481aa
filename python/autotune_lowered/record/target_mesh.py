"""Meshes of absent devices, to lower sharded programs with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from .._jax import jax_for
from .stand_in import abstract_device
from .target import Target, axes_of


def target_mesh(
    name: str,
    axis_shapes: Sequence[int] | None = None,
    axis_names: Sequence[str] | None = None,
    axis_types: Sequence[Any] | None = None,
) -> Any:
    """The `jax.sharding.AbstractMesh` of a target's devices, which may be absent.

    `tpu:v6e:2x2` has the axes `x` and `y` of the topology; a three-dimensional one also has `z`, and `core` if each
    chip is two devices. `cuda:h100_sxm:8` has the axis `x` of eight devices, and `cuda:h100_sxm:2x4` has two.
    `axis_shapes` and `axis_names` give the same devices other axes, as in `jax.make_mesh`. `axis_types` are one
    `jax.sharding.AxisType` for each axis; without them JAX decides, and from 0.12 it takes `Explicit`. Programs over
    the mesh are traced, and lowered with `lowering_platforms=`; nothing runs.

    Raises ValueError for an unknown target and for axes that do not hold its devices, ImportError without JAX or with
    one that has no abstract devices.
    """
    target = _sized(name)
    jax = jax_for("a target's mesh needs")
    device = abstract_device(target)
    if device is None:
        raise ImportError(
            f"JAX {jax.__version__} has no `jax.sharding.AbstractDevice`: a target's mesh needs a newer one"
        )
    if (axis_shapes is None) != (axis_names is None):
        raise ValueError("a mesh has both `axis_shapes` and `axis_names`, or the target's own: name both")
    if axis_shapes is None or axis_names is None:
        axis_shapes, axis_names = tuple(target.axes.values()), tuple(target.axes)
    if math.prod(axis_shapes) != target.devices:
        raise ValueError(
            f"`axis_shapes` {tuple(axis_shapes)} holds {math.prod(axis_shapes)} devices, and `{name}` has {target.devices}"
        )
    types = {} if axis_types is None else {"axis_types": tuple(axis_types)}
    return jax.sharding.AbstractMesh(tuple(axis_shapes), tuple(axis_names), abstract_device=device, **types)


def _sized(name: str) -> Target:
    """A target, and of a GPU as many as the name says: `cuda:h100_sxm:8`."""
    one, _, shape = name.rpartition(":")
    axes = axes_of(shape) if one.startswith("cuda:") else None
    return Target.named(name) if axes is None else dataclasses.replace(Target.named(one), axes=axes)
