"""The adapters by name: our own sets, those of other packages, and a user's own."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import threading
from collections.abc import Callable, Iterable, Sequence

from ..libraries.replaced import Held
from .hook import replacement
from .operation import Operation

GROUP = "autotune_lowered_adapters"
# by the module that lists their operations
_OWN = {
    "jax-pallas": ("jax_tpu", "jax_gpu"),
    "tpu-inference": ("tpu_inference",),
    "sglang-jax": ("sglang_jax",),
    "maxtext": ("maxtext",),
}

# one for each function, however many recordings need it
_REPLACEMENTS: dict[str, tuple[Operation, Held]] = {}
_LOCK = threading.Lock()


def operations(name: str) -> list[Operation]:
    """The operations of a set. Raises ValueError for an unknown name, and for a package whose set is none."""
    if name in _OWN:
        modules = [importlib.import_module(f".{module}", __package__) for module in _OWN[name]]
        return [operation for module in modules for operation in module.OPERATIONS]
    offered = {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
    if name not in offered:
        known = ", ".join(sorted({*_OWN, *offered}))
        raise ValueError(f"there are no adapters called `{name}`: name some of {known}")
    found = offered[name].load()
    listed = list(found() if callable(found) else found)
    if not all(isinstance(one, Operation) for one in listed):
        raise ValueError(f"the entry point `{name}` of {GROUP} gives no list of `adapters.operation.Operation`")
    return listed


def named(adapters: Iterable[str | Operation] | str | Operation) -> list[Operation]:
    """The operations of several sets, each once."""
    given: Sequence[str | Operation] = [adapters] if isinstance(adapters, (str, Operation)) else list(adapters)
    found = [operation for one in given for operation in ([one] if isinstance(one, Operation) else operations(one))]
    return list({id(operation): operation for operation in found}.values())


def _held(operation: Operation) -> Callable[[], None]:
    """Replaces the function of an operation; returns what ends it."""
    with _LOCK:
        return _replacement_of(operation).hold()


def _replacement_of(operation: Operation) -> Held:
    known, held = _REPLACEMENTS.get(operation.function, (None, None))
    if held is None or (known is not operation and not held.is_held):
        # another adapter of the same function takes the place of one that nobody holds
        known, held = _REPLACEMENTS[operation.function] = (operation, replacement(operation))
    if known is not operation:
        own = known.op if known is not None else operation.op
        raise ValueError(f"`{operation.function}` is adapted as `{own}` already: end that first")
    return held


def attached(chosen: Sequence[Operation]) -> contextlib.ExitStack:
    """Replaces the functions of operations; closing ends it."""
    with contextlib.ExitStack() as stack:
        for operation in chosen:
            stack.callback(_held(operation))
        return stack.pop_all()
