"""Record tunable operations of JAX programs, tune them anywhere, and load the best configs where they run."""

from ._version import __version__

__all__ = ["__version__"]
