"""ejkernel's own stamps are scopes, which HLO cuts at their `@`; here they are not cut, and in the payload, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from ..._label import payload
from ..replaced import Replacement, replaced

# the methods of ejkernel's executor that put a stamp around a call
_HASH, _JSON = "_stamp_hash", "_stamp_json"


def with_payloads() -> Callable[[], None]:
    """Complete ejkernel's stamps, now or once it is imported; returns a function that ends it."""
    return _STAMPS.hold()


def _replacements(module: ModuleType) -> Iterable[Replacement]:
    stamps = vars(module.Executor)
    for name in (_HASH, _JSON):
        if name in stamps:
            yield module.Executor, name, _whole(_scoped if name == _HASH else stamps[name])


_STAMPS = replaced("ejkernel.ops.execution.executor", _replacements)


def _whole(stamp: Callable[..., Any]) -> Callable[..., Any]:
    def stamped(executor: Any, kernel: Any, invocation: Any, function: Any, config: Any) -> Callable[..., Any]:
        import jax

        run = stamp(executor, kernel, invocation, function, config)
        label = _label(executor, kernel, invocation, "@v")

        def labelled(*args: Any, **kwargs: Any) -> Any:
            with payload(label, jax.tree_util.tree_leaves((args, kwargs))):
                return run(*args, **kwargs)

        return labelled

    return stamped


def _scoped(executor: Any, kernel: Any, invocation: Any, function: Any, config: Any) -> Callable[..., Any]:
    """The stamp without its `@`, which a scan reads alike."""
    import jax

    named: Callable[..., Any] = jax.named_call(function, name=_label(executor, kernel, invocation, ".v"))
    return named


def _label(executor: Any, kernel: Any, invocation: Any, separator: str) -> str:
    operation = f"{kernel.op_id}{separator}{getattr(kernel, 'version', '0')}"
    return f"{executor.stamp_prefix}#{operation}:{invocation.make_key(kernel.key_builder)}"
