"""Functions of other projects, replaced by what makes their calls tunable while someone needs it."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Protocol

from .._label import labelled
from ..libraries.import_hook import after_import
from ..lookup.best import config_to_trace
from ..record.arguments import Unrecordable
from ..record.describe import one_line
from ..record.mapped import whole_arrays
from ..record.recorder import active
from ..tunables.call import Call, split
from ..tunables.call_key import Undescribable
from ..tunables.recorded import recorded_call
from .call import Adapted, AdaptedCall
from .operation import Operation

_LOG = logging.getLogger("autotune_lowered")


# whether this thread is inside of a call of an adapted function: what that calls is part of it
_INSIDE = threading.local()


class Hook:
    """What stands in place of a function. It behaves like the function otherwise."""

    def __init__(self, operation: Operation, original: Callable[..., Any]) -> None:
        functools.update_wrapper(self, original, updated=())
        self._adapted = Adapted(operation, original)
        self.operation, self.original = operation, original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)

    def misfit(self) -> str | None:
        """The first argument that the adapter expects and the function does not have."""
        return self._adapted.misfit()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # a rule of differentiation may call the function by its name again, long after the call
        caller = sys._getframe(1).f_globals.get("__name__")
        if caller == self.operation.module or getattr(_INSIDE, "is_set", False):
            return self.original(*args, **kwargs)
        _INSIDE.is_set = True
        try:
            return self._tuned(args, kwargs)
        finally:
            _INSIDE.is_set = False

    def _tuned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        adapted = self._adapted
        try:
            bound = adapted.signature.bind(*args, **kwargs)
        except TypeError:
            # its own error is the one to read
            return self.original(*args, **kwargs)
        given = dict(bound.arguments)
        bound.apply_defaults()
        try:
            call = split(adapted, bound)
            adapted_call = self._call_of(bound)
        except (Undescribable, ValueError) as error:
            return self._untuned(f"{error}; such calls run as they are and are not tuned", args, kwargs)
        key = call.key
        arrays = self._record(adapted_call, call, key)
        config = self._config_for(adapted_call, key)
        # the function chooses by itself what nobody chose for it
        bound.arguments = given | call.fill(list(arrays.values())) if config is None else bound.arguments
        # no `@`, at which HLO cuts names
        with labelled(f"ejkernel_ops#{adapted.op}.v{adapted.operation.version}:{key}", call.arrays.values()):
            if config is None:
                return self.original(*bound.args, **bound.kwargs)
            bound.arguments.update(call.fill(list(arrays.values())))
            return adapted_call.under(bound, config)

    def _call_of(self, bound: inspect.BoundArguments) -> AdaptedCall:
        import jax

        def spec(leaf: Any) -> Any:
            is_array = isinstance(leaf, (jax.Array, jax.core.Tracer))
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_array else leaf

        tuned = {name: value for name, value in bound.arguments.items() if name in self._adapted.tuned}
        rest = {name: value for name, value in bound.arguments.items() if name not in tuned}
        arguments = {name: jax.tree_util.tree_map(spec, value) for name, value in rest.items()} | tuned
        try:
            baseline = self.operation.baseline_of(arguments)
        except Exception as error:  # what the project raises for such a call is its own affair
            raise ValueError(one_line(error)) from None
        return AdaptedCall(self._adapted, arguments, baseline)

    def _untuned(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        recorder = active()
        if recorder is not None:
            recorder.skipped(self._adapted.op_id, "", reason)
        else:
            self._adapted.warn_once("", f"{self._adapted.op}: {reason}")
        return self.original(*args, **kwargs)

    def _config_for(self, call: AdaptedCall, key: str) -> dict[str, Any] | None:
        """The config in force for a call; `None` if there is none, or if it is for another version of the function."""
        found = config_to_trace(call.op_id, key)
        if found is None:
            return None
        odd = set(found) ^ set(call.baseline) or {name for name in found if not call.knows(name, found[name])}
        if odd:
            names = ", ".join(sorted(odd))
            message = f"the config in force for {call.op_id}:{key} differs in {names} from what `{call.name}` takes; "
            self._adapted.warn_once(key, message + "its own choice is used: tune this version again")
            return None
        return dict(found)

    def _record(self, adapted: AdaptedCall, call: Call, key: str) -> dict[str, Any]:
        """Records a call if a recorder is in force; returns the arrays to continue with."""
        recorder = active()
        if recorder is None:
            return dict(call.arrays)
        if recorder.wants(adapted.op_id, key):
            try:
                recorded = recorded_call(adapted, call, key)
            except Unrecordable as reason:
                recorder.skipped(adapted.op_id, key, str(reason))
            else:
                recorder.watch(adapted.op_id, key, whole_arrays(call.arrays, call.batch))
                recorder.record(recorded)
        return dict(recorder.listen(adapted.op_id, key, call.arrays))


class Stand(Protocol):
    """What stands in place of a function."""

    original: Callable[..., Any]

    def misfit(self) -> str | None:
        """The first argument that the adapter expects and the function does not have."""


class Replacement:
    """One function's replacement, shared by all who need it."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._lock = threading.Lock()
        self._holders: list[object] = []
        self._hook: Stand | None = None

    @property
    def is_held(self) -> bool:
        return bool(self._holders)

    def hold(self) -> Callable[[], None]:
        """Replace the function, now or once its module is imported; returns a function that ends it."""
        holder = object()
        cancel = after_import(self.operation.module, functools.partial(self._attach, holder))

        def close() -> None:
            cancel()
            self._detach(holder)

        return close

    def _attach(self, holder: object, module: ModuleType) -> None:
        with self._lock:
            if not self._holders:
                hook = self._made(module)
                if hook is None:
                    return
                self._hook = hook
                _swap(hook.original, hook)
            self._holders.append(holder)

    def _made(self, module: ModuleType) -> Stand | None:
        operation = self.operation
        original = getattr(module, operation.name, None)
        if callable(original):
            hook: Stand = (operation.stand_in or Hook)(operation, original)
            wanted = hook.misfit()
            what = f"has no argument `{wanted}`"
        else:
            wanted, what = operation.name, "is not there"
        if wanted is None:
            return hook
        message = (
            f"{_version_of(module)}: `{operation.function}` {what}, so its calls are not recorded: the adapter of "
        )
        message += f"`{operation.op}` is for another version"
        recorder = active()
        if recorder is not None:
            recorder.skipped(operation.op_id, "", message)
        else:
            _LOG.warning("%s", message)
        return None

    def _detach(self, holder: object) -> None:
        with self._lock:
            if holder not in self._holders:
                return
            self._holders.remove(holder)
            if not self._holders and self._hook is not None:
                _swap(self._hook, self._hook.original)
                self._hook = None


def _swap(old: Any, new: Any) -> None:
    """Replaces an object in every module that holds it: others imported it by name."""
    for module, name in list(_holding(old)):
        setattr(module, name, new)


def _holding(value: Any) -> Iterator[tuple[ModuleType, str]]:
    for module in list(sys.modules.values()):
        # a module may be any object
        names = list(vars(module).items()) if isinstance(module, ModuleType) else []
        yield from ((module, name) for name, held in names if held is value)


def _version_of(module: ModuleType) -> str:
    """The name and version of the package that a module belongs to."""
    import importlib.metadata

    package = module.__name__.partition(".")[0]
    for name in (package, package.replace("_", "-")):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return package
