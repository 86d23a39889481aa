"""Axes that a call cannot see while it is traced: a `jit`, `scan` or `checkpoint` stands between it and the `vmap`.

Such a body is traced once, unmapped, and mapped as a whole afterwards. During a recording, an identity primitive in
the body is notified of that. It lowers to nothing and is its own derivative, so the program computes the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .._vmap import Axis, Batch

# called with the current axes, the outermost first, with the earlier ones, and with the traced arrays by name, which
# have the current axes
Tell = Callable[[Batch, Batch, Mapping[str, Any]], None]


class _Mark:
    """The primitive's data. JAX keeps it as long as the trace."""

    def __init__(self, names: tuple[str, ...], tell: Tell, batch: Batch) -> None:
        self.names, self.tell, self.batch = names, tell, batch


def listen(arrays: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Calls `tell` when the tracers among the arrays are mapped: at once for axes that the call sees, for others
    when its body is mapped. Returns the arrays to continue with.

    If several are traced, these are the given arrays. The primitive's results depend, to JAX, on all of its
    arguments, so a transposition could take a coefficient for a variable. The results are unused in this case. If a
    derivative of the body is taken inside the `vmap`, JAX therefore drops the primitive, and `tell` is not called."""
    import jax

    names = tuple(name for name, array in arrays.items() if isinstance(array, jax.core.Tracer))
    primitive = _primitive() if names else None
    if primitive is None:
        return dict(arrays)
    replaced = primitive.bind(*(arrays[name] for name in names), mark=_Mark(names, tell, ()))
    return dict(arrays) | (dict(zip(names, replaced, strict=True)) if len(names) == 1 else {})


def is_inside_mapped_body(arrays: Mapping[str, Any]) -> bool:
    """Whether the body that is being traced is inside a `vmap`, whatever that maps."""
    import jax

    for array in arrays.values():
        trace = getattr(array, "_trace", None) if isinstance(array, jax.core.Tracer) else None
        in_body = False
        while trace is not None:
            kind = type(trace).__name__
            if in_body and kind == "BatchTrace":
                return True
            in_body = in_body or kind == "DynamicJaxprTrace"
            trace = getattr(trace, "parent_trace", None)
    return False


@functools.cache
def _primitive() -> Any | None:
    """The primitive; `None` if JAX's `shard_map` would need a rule for it."""
    import jax

    if jax.__version_info__ < (0, 7):
        return None
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive = Primitive("autotune_lowered_listen")
    primitive.multiple_results = True

    def same(*values: Any, mark: _Mark) -> list[Any]:
        return list(values)

    def differentiate(primals: Any, tangents: Any, *, mark: _Mark) -> Any:
        return primitive.bind(*primals, mark=mark), list(tangents)

    def transpose(cotangents: Any, *values: Any, mark: _Mark) -> Any:
        pairs = zip(values, cotangents, strict=True)
        return [cotangent if ad.is_undefined_primal(value) else None for value, cotangent in pairs]

    def map_(values: Any, places: Any, *, mark: _Mark) -> Any:
        at = {name: place for name, place in zip(mark.names, places, strict=True) if isinstance(place, int)}
        if at:
            size = next(value.shape[place] for value, place in zip(values, places, strict=True) if place in at.values())
            axes = (Axis(size, at), *mark.batch)
            mark.tell(axes, mark.batch, dict(zip(mark.names, values, strict=True)))
            mark = _Mark(mark.names, mark.tell, axes)
        return primitive.bind(*values, mark=mark), list(places)

    primitive.def_impl(same)
    primitive.def_abstract_eval(same)
    ad.primitive_jvps[primitive] = differentiate
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = map_
    mlir.register_lowering(primitive, lambda context, *values, mark: list(values))
    return primitive
