"""JAX, imported on first use, or what to install."""

from __future__ import annotations

from typing import Any


def jax_for(what: str) -> Any:
    """The `jax` module. `what` begins the message of the ImportError if JAX is missing: `dump needs`."""
    try:
        import jax
    except ImportError as error:
        raise ImportError(f"{what} JAX: pip install 'autotune-lowered[jax]'") from error
    return jax
