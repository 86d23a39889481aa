"""A call inside `shard_map` that communicates over the mesh's axes. Its programs run on all devices of the mesh.

Each array of the call is recorded with a leading dimension that has a part for each device. The parts differ,
because from equal parts XLA could see that there is nothing to exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .arguments import Unrecordable

Function = Callable[..., Any]


def axes_used(function: Function, specs: Sequence[Any]) -> set[str]:
    """The named axes over which a function of these arrays communicates, in the current trace; none if unknown."""
    import jax

    try:
        effects = jax.make_jaxpr(function)(*specs).effects
    except Exception:  # what cannot be traced is told where it is lowered
        return set()
    return {effect.name for effect in effects if type(effect).__name__ == "NamedAxisEffect"}


def mesh_over(axes: set[str]) -> OnMesh:
    """The mesh with these axes. Raises `Unrecordable` if they do not belong to a `shard_map`."""
    import jax

    find: Callable[[], Any] = getattr(jax.sharding, "get_abstract_mesh", lambda: None)
    mesh = find()
    sizes = {name: mesh.shape[name] for name in getattr(mesh, "manual_axes", ())}
    missing = sorted(axes - sizes.keys())
    if missing:
        raise Unrecordable(
            f"it talks over the axis `{missing[0]}`, which is none of a `shard_map` that this JAX tells of (an axis of a `vmap` that a "
            "`jit` or `scan` hides from it, or a JAX before 0.7): leave the collective outside of the tunable function"
        )
    device = getattr(mesh, "abstract_device", None)
    described = {} if device is None else {"abstract_device": device}
    # newer JAX makes axes explicit by default, and then every array would have to state its sharding
    if (axis_type := getattr(jax.sharding, "AxisType", None)) is not None:
        described["axis_types"] = (axis_type.Auto,) * len(sizes)
    return OnMesh(jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes), **described))


class OnMesh:
    """The manual axes of a `shard_map`, without devices."""

    def __init__(self, mesh: Any) -> None:
        from jax.sharding import NamedSharding, PartitionSpec

        self._mesh = mesh
        self._parts = PartitionSpec(mesh.axis_names)
        self.devices = mesh.size
        """How many devices a program needs."""
        self.sharding = NamedSharding(mesh, self._parts)
        """Where its arrays lie."""

    def spec(self, spec: Any) -> Any:
        """The spec of all devices' parts of an array."""
        import jax

        return jax.ShapeDtypeStruct((self.devices, *spec.shape), spec.dtype)

    def parts(self, value: Any) -> Any:
        """All devices' parts of an array that is equal on each of them."""
        import numpy as np

        return np.broadcast_to(np.asarray(value), (self.devices, *value.shape))

    def wrap(self, function: Function) -> Function:
        """Converts a function of one device's arrays to one of all devices' arrays."""
        import jax

        def one_device(*parts: Any) -> Any:
            return jax.tree_util.tree_map(lambda leaf: leaf[None], function(*(part[0] for part in parts)))

        # the variation over the axes was checked when the user's own `shard_map` was traced
        return jax.shard_map(one_device, mesh=self._mesh, in_specs=self._parts, out_specs=self._parts, check_vma=False)
