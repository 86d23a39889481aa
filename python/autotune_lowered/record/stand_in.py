"""Answers libraries' queries for JAX's devices with a target while calls are recorded for it.

Tokamax chooses an operation's implementation, and kernels choose their blocks, by the device that JAX reports.
Without this, a recording for another device would contain the choices for the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .target import Target

# code that asks for the device on which its kernels run; other code that asks JAX for devices wants the present ones.
# ejkernel's CUDA kernels are excluded, because for a GPU they build libraries
_KERNELS = (
    "tokamax",
    "ejkernel.kernels._pallas",
    "ejkernel.kernels._registry",
    "jax._src.pallas",
    "jax.experimental.pallas",
    "jax.experimental.mosaic",
    # projects with adapters
    "tpu_inference",
    "sgl_jax",
    "maxtext",
    "MaxText",
)

_LOCK = threading.Lock()
_ORIGINALS: list[tuple[Any, str, Any]] = []
_HOLDS = [0]
_ANSWERS = threading.local()


class _Device:
    """A target as a JAX device, with the attributes that kernels read."""

    id = process_index = 0

    def __init__(self, target: Target) -> None:
        self.target = target.name
        self.platform = target.jax_platform
        if target.device_kind is None:
            return
        self.device_kind = target.device_kind
        if target.platform == "tpu":
            self.num_cores = target.cores
        else:
            self.core_count = target.cores
            self.compute_capability = target.identity["hardware"]["compute_capability"]

    def __getattr__(self, name: str) -> Any:
        known = self.__dict__
        remedy = "" if "device_kind" in known else ": record with a `target`"
        raise AttributeError(f"`{name}` of {known.get('target')}, which is absent, is unknown{remedy}")

    def __repr__(self) -> str:
        return f"<{self.target}, not here>"


_device_of = functools.cache(_Device)


def answered() -> Target | None:
    """The target that answers in this thread; `None` if the host does."""
    stack: list[Target | None] = getattr(_ANSWERS, "stack", [])
    return stack[-1] if stack else None


@contextlib.contextmanager
def answering(target: Target | None) -> Iterator[None]:
    """In this thread, JAX reports `target` to kernels as its device; the host if it is `None`.

    `jax.extend.backend.get_default_device` reports it to every caller. Functions traced inside are traced again
    outside.
    """
    if target == answered():
        yield
        return
    with contextlib.ExitStack() as leave:
        _hold()
        leave.callback(_release)
        stack = _ANSWERS.__dict__.setdefault("stack", [])
        stack.append(target)
        leave.callback(stack.pop)
        leave.enter_context(_traced_apart(target))
        leave.enter_context(_on_abstract_device(target))
        yield


def _hold() -> None:
    """The first one replaces JAX's functions, the last one restores them."""
    import jax
    from jax.extend import backend

    with _LOCK:
        _HOLDS[0] += 1
        if _HOLDS[0] > 1:
            return
        for module, name, answer, is_for_all in (
            (backend, "get_default_device", lambda target: _device_of(target), True),
            (jax, "default_backend", lambda target: target.jax_platform, False),
            (jax, "devices", _devices, False),
            (jax, "local_devices", _local_devices, False),
        ):
            original = getattr(module, name, None)
            if original is not None:  # older JAX has no `get_default_device` there
                _ORIGINALS.append((module, name, original))
                setattr(module, name, _asked(original, answer, is_for_all))


def _release() -> None:
    with _LOCK:
        _HOLDS[0] -= 1
        while _ORIGINALS and not _HOLDS[0]:
            setattr(*_ORIGINALS.pop())


def _asked(original: Callable[..., Any], answer: Callable[..., Any], is_for_all: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        target = answered()
        if target is not None and (is_for_all or _is_kernel(sys._getframe(1).f_globals.get("__name__") or "")):
            found = answer(target, *args, **kwargs)
            if found is not None:
                return found
        return original(*args, **kwargs)

    return ask


def _is_kernel(module: str) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in _KERNELS)


def _devices(target: Target, backend: Any = None) -> list[_Device] | None:
    """`jax.devices`; `None` if another platform's devices are requested, or those of a platform with no known
    device."""
    is_asked = backend is None or target.device_kind is not None and backend in (target.platform, target.jax_platform)
    return [_device_of(target)] if is_asked else None


def _local_devices(target: Target, process_index: Any = None, backend: Any = None, **_: Any) -> list[_Device] | None:
    return _devices(target, backend)


@functools.cache
def _trace_key() -> Any | None:
    import jax

    make = getattr(jax, "make_user_context", None)
    return make(None) if make is not None else None


@contextlib.contextmanager
def _traced_apart(target: Target | None) -> Iterator[None]:
    """Separates the traces for a target from those of the host."""
    key = _trace_key()
    if key is not None:
        with key(target):
            yield
        return
    import jax

    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


def abstract_device(target: Target) -> Any | None:
    """The target as the device of an abstract mesh; `None` if this JAX has no such devices."""
    import jax

    described = getattr(jax.sharding, "AbstractDevice", None)
    if described is None or target.device_kind is None:
        return None
    told = {"device_kind": target.device_kind, "num_cores": target.cores, "platform": target.jax_platform}
    # before JAX 0.10.1 the platform is not one of its fields
    return described(**{field.name: told[field.name] for field in dataclasses.fields(described)})


def _on_abstract_device(target: Target | None) -> contextlib.AbstractContextManager[Any]:
    """Pallas's first query on a TPU: the device of the mesh in force, which may have no axes."""
    import jax

    if not hasattr(jax.sharding, "AbstractDevice"):
        return contextlib.nullcontext()
    mesh = jax.sharding.get_abstract_mesh().update(abstract_device=target and abstract_device(target))
    entered: contextlib.AbstractContextManager[Any] = jax.sharding.use_abstract_mesh(mesh)
    return entered
