"""The roles of JAX's element types in a record: values to draw, integers that control a kernel, typed random keys.

Typed random keys have no bytes and no spelling in XLA, so the integers in them are recorded."""

from __future__ import annotations

from typing import Any


def is_real(dtype: Any) -> bool:
    """Whether values of this type are drawn from a distribution; integers and booleans control what a kernel does."""
    import jax.numpy as jnp

    return bool(jnp.issubdtype(dtype, jnp.inexact))


def is_key(dtype: Any) -> bool:
    """Whether these are JAX's typed random keys."""
    import jax

    return bool(jax.numpy.issubdtype(dtype, jax.dtypes.extended))


def data_of(keys: Any) -> Any:
    """The integers of concrete keys."""
    import jax

    return jax.random.key_data(keys)


def spec_of_data(spec: Any) -> Any:
    """The spec of the integers of keys; of other arrays their own."""
    import jax

    return jax.eval_shape(jax.random.key_data, spec) if is_key(spec.dtype) else spec


def implementation_of(array: Any) -> Any | None:
    """The generator of keys; `None` for other arrays."""
    import jax

    return jax.random.key_impl(array) if is_key(array.dtype) else None


def keys_from(array: Any, implementation: Any | None) -> Any:
    """Keys of a generator from their integers; an array of none as it is."""
    import jax

    return array if implementation is None else jax.random.wrap_key_data(array, impl=implementation)
