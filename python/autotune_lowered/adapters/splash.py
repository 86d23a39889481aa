"""Splash attention: a function makes a kernel of a mask, and the kernel is called later, perhaps under `shard_map`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..record.recorder import active
from ..tunables.call_key import Undescribable, describe
from .hook import Hook
from .operation import Operation

SHARDED = "its mask is split over devices (`head_shards` or `q_seq_shards` above 1): such calls are not tuned"

# the kernel that is being called in this thread: its mask is processed already
_CURRENT = threading.local()


@dataclasses.dataclass(frozen=True)
class Made:
    """How a kernel was made."""

    make: Callable[..., Any]
    kind: Any
    """The class of the kernel."""
    mask: Any
    options: Mapping[str, Any]

    def with_blocks(self, block_sizes: Any) -> Any:
        """The kernel with these blocks."""
        kernel = getattr(_CURRENT, "kernel", None)
        if kernel is not None and kernel.kwargs["block_sizes"] == block_sizes:
            return kernel
        return self.make(self.mask, **(dict(self.options) | {"block_sizes": block_sizes}))


def identity_of(made: Made) -> Any:
    """What distinguishes kernels apart from their blocks. Raises `Undescribable` for a mask that is not known here."""
    options = {name: value for name, value in made.options.items() if name != "block_sizes"}
    return {"mask": _mask(made.mask), "options": options}


def _mask(mask: Any) -> Any:
    """A mask by its class and what it was made of; its values, if it is an array."""
    import numpy as np

    if isinstance(mask, np.ndarray):
        return {"shape": list(mask.shape), "sha256": hashlib.sha256(np.packbits(mask != 0).tobytes()).hexdigest()}
    if isinstance(mask, (list, tuple)) and all(hasattr(one, "shape") for one in mask):
        described = [_mask(one) for one in mask]
        # heads mostly have the same one
        return {"all": described[0], "count": len(mask)} if all(one == described[0] for one in described) else described
    if not hasattr(mask, "shape") or not hasattr(type(mask), "__or__") or hasattr(mask, "dtype"):
        raise Undescribable("its mask is no object of `splash_attention_mask`, so nothing identifies it")
    parts = {
        name: _mask(value) if hasattr(value, "shape") or name == "masks" else describe(value)
        for name, value in vars(mask).items()
        # both follow from the others
        if name not in ("q_sequence", "mask_function")
    }
    return {"class": type(mask).__name__, "parts": parts}


def _attend(q: Any, k: Any, v: Any, segment_ids: Any = None, sinks: Any = None, *, made: Made, block_sizes: Any) -> Any:
    kernel = made.with_blocks(block_sizes)
    given = {name: value for name, value in (("segment_ids", segment_ids), ("sinks", sinks)) if value is not None}
    return made.kind.__call__(kernel, q, k, v, **given)


class MakerHook:
    """What stands in place of a function that makes splash kernels: its kernels are tunable."""

    def __init__(self, operation: Operation, original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original, assigned=("__doc__",), updated=())
        self.original = original
        self._hook = Hook(operation, _attend)

    def misfit(self) -> str | None:
        """The argument that the adapter expects, if the function does not have it."""
        return None if "block_sizes" in inspect.signature(self.original).parameters else "block_sizes"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def __call__(self, mask: Any, **options: Any) -> Any:
        kernel = self.original(mask, **options)
        kind: Any = type(kernel)
        return _tunable_class(kind)(kernel, Made(self.original, kind, mask, options), self._hook)


@functools.cache
def _tunable_class(base: Any) -> Any:
    """The class of kernels that are tuned when they are called."""
    import jax

    @jax.tree_util.register_pytree_node_class
    class TunableKernel(base):  # type: ignore[misc]
        def __init__(self, kernel: Any, made: Made, hook: Hook) -> None:
            super().__init__(kernel.fwd_mask_info, kernel.dq_mask_info, kernel.dkv_mask_info, **kernel.kwargs)
            self._made, self._hook = made, hook

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            shards = [self._made.options.get(name, 1) for name in ("head_shards", "q_seq_shards")]
            if max(shards) > 1:
                recorder = active()
                if recorder is not None:
                    recorder.skipped(self._hook.operation.op_id, "", SHARDED)
                return super().__call__(*args, **kwargs)
            with _current(self):
                return self._hook(*args, **kwargs, made=self._made, block_sizes=self.kwargs["block_sizes"])

        def manual_sharding_spec(self, sharding: Any) -> Any:
            return type(self)(super().manual_sharding_spec(sharding), self._made, self._hook)

        def tree_flatten(self) -> Any:
            children, kwargs = super().tree_flatten()
            return children, (kwargs, self._made, self._hook)

        @classmethod
        def tree_unflatten(cls, data: Any, children: Any) -> Any:
            kwargs, made, hook = data
            return cls(base.tree_unflatten(kwargs, children), made, hook)

    TunableKernel.__name__ = TunableKernel.__qualname__ = base.__name__
    return TunableKernel


@contextlib.contextmanager
def _current(kernel: Any) -> Iterator[None]:
    before = getattr(_CURRENT, "kernel", None)
    _CURRENT.kernel = kernel
    try:
        yield
    finally:
        _CURRENT.kernel = before
