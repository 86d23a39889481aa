"""JAX's typed random keys as the integers that they hold: only those have bytes, and a spelling in XLA."""

from __future__ import annotations

from typing import Any

from ._fills import is_key


def data_of(keys: Any) -> Any:
    """The integers of concrete keys."""
    import jax

    return jax.random.key_data(keys)


def spec_of_data(spec: Any) -> Any:
    """The spec of the integers of keys; of other arrays their own."""
    import jax

    return jax.eval_shape(jax.random.key_data, spec) if is_key(spec.dtype) else spec


def implementation_of(array: Any) -> Any | None:
    """Of which generator keys are; `None` of other arrays."""
    import jax

    return jax.random.key_impl(array) if is_key(array.dtype) else None


def keys_from(array: Any, implementation: Any | None) -> Any:
    """Keys of a generator from their integers; an array of none as it is."""
    import jax

    return array if implementation is None else jax.random.wrap_key_data(array, impl=implementation)
