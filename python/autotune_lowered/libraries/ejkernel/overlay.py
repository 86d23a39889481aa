"""ejkernel's own overlay of configs, filled with those of a result."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from ... import _vmap
from .config import config_from_json


@contextlib.contextmanager
def overlay(configs: Mapping[tuple[str, str], dict[str, Any]]) -> Iterator[None]:
    """ejkernel's own overlay, if ejkernel is imported and has one of these operations."""
    if "ejkernel" not in sys.modules:
        yield
        return
    import jax
    from ejkernel.ops import overlay_cache
    from ejkernel.ops.utils.fingerprint import device_fingerprint

    kinds = _config_classes()
    # ejkernel's keys lack the `vmap`: the preferred variant of a call comes last
    preferred = sorted(configs.items(), key=lambda item: _vmap.preference(item[0][1]), reverse=True)
    mapping = {
        (device_fingerprint(), op_id, _vmap.unmapped_key(key)): config_from_json(kinds[op_id], config)
        for (op_id, key), config in preferred
        if op_id in kinds
    }
    if not mapping:
        yield
        return
    # the package's own overlay has keyed this thread's traces by these configs; older JAX has no such keys, and
    # functions traced outside would silently continue to run
    clears = not hasattr(jax, "make_user_context")
    if clears:
        jax.clear_caches()
    try:
        with overlay_cache(mapping):
            yield
    finally:
        if clears:
            jax.clear_caches()


def _config_classes() -> dict[str, type]:
    """The config class of each operation of ejkernel that is loaded, by `op@vN`."""
    from ejkernel.ops import Kernel

    found: dict[str, type] = {}
    kinds = list(Kernel.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds.extend(kind.__subclasses__())
        for base in getattr(kind, "__orig_bases__", ()):
            config = next(iter(typing.get_args(base)), None)
            if not isinstance(config, type) or not dataclasses.is_dataclass(config):
                continue
            try:
                operation = kind()
            except TypeError:
                # needs arguments, so it is not an operation called by name
                continue
            found[f"{operation.op_id}@v{operation.version}"] = config
    return found
