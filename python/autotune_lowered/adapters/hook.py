"""Functions of other projects, replaced by what makes their calls tunable while someone needs it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Protocol

from .._label import labelled
from ..libraries.replaced import Held
from ..lookup.best import config_to_trace
from ..record.describe import one_line
from ..record.recorder import active
from ..tunables.call import split
from ..tunables.call_key import Undescribable
from ..tunables.recorded import arrays_after_recording
from .call import Adapted, AdaptedCall
from .operation import Operation

_LOG = logging.getLogger("autotune_lowered")


# whether this thread is inside of a call of an adapted function: what that calls is part of it
_INSIDE = threading.local()
# the keys of calls that this thread records without running them, while it does
_AT_BORDERS = threading.local()


class _Recorded(Exception):
    """A call at a border is recorded, which is all that is wanted of it."""


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
        at_borders: list[str] | None = getattr(_AT_BORDERS, "keys", None)
        if at_borders is None:
            adapted_call = dataclasses.replace(adapted_call, borders=self._record_borders(bound, adapted_call, key))
        arrays = arrays_after_recording(adapted_call, call, key)
        if at_borders is not None:
            at_borders.append(key)
            raise _Recorded
        config = self._config_for(adapted_call, key)
        # the function chooses by itself what nobody chose for it
        bound.arguments = given | call.fill(list(arrays.values())) if config is None else bound.arguments
        # no `@`, at which HLO cuts names
        with labelled(f"ejkernel_ops#{adapted.op}.v{adapted.operation.version}:{key}", call.arrays.values()):
            if config is None:
                return self.original(*bound.args, **bound.kwargs)
            bound.arguments.update(call.fill(list(arrays.values())))
            return adapted_call.under(bound, config)

    def _record_borders(self, bound: inspect.BoundArguments, call: AdaptedCall, key: str) -> list[str]:
        """Records the calls at both ends of a call's bucket, and returns their keys."""
        import jax

        recorder, borders = active(), self.operation.borders
        if borders is None or recorder is None or not recorder.wants(call.op_id, key):
            return []
        keys: list[str] = []
        _AT_BORDERS.keys = keys
        try:
            for arrays in borders(call.arguments):
                unknown = sorted(arrays.keys() - bound.arguments.keys())
                if unknown:
                    raise ValueError(f"`{unknown[0]}` is no argument")

                def at_border(**arrays: Any) -> Any:
                    there = inspect.BoundArguments(bound.signature, OrderedDict(bound.arguments | arrays))
                    return self._tuned(there.args, there.kwargs)

                others = {name: call.arguments[name] for name in bound.arguments if _has_specs(call.arguments[name])}
                with contextlib.suppress(_Recorded):
                    jax.eval_shape(at_border, **others | dict(arrays))
        except Exception as error:  # what the project raises for such a call is its own affair
            recorder.skipped(call.op_id, "", f"the borders of its bucket are not recorded: {one_line(error)}")
        finally:
            del _AT_BORDERS.keys
        return keys

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


def _has_specs(value: Any) -> bool:
    import jax

    return any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree_util.tree_leaves(value))


class Stand(Protocol):
    """What stands in place of a function."""

    original: Callable[..., Any]

    def misfit(self) -> str | None:
        """The first argument that the adapter expects and the function does not have."""


def replacement(operation: Operation) -> Held:
    """One function's replacement, shared by all who need it."""

    def change(module: ModuleType) -> Callable[[], None] | None:
        stand = _stand_for(operation, module)
        if stand is None:
            return None
        _swap(stand.original, stand)
        return lambda: _swap(stand, stand.original)

    return Held(operation.module, change)


def _stand_for(operation: Operation, module: ModuleType) -> Stand | None:
    """What stands in place of the function; `None`, which is told, if the module is of a version that has none such."""
    original = getattr(module, operation.name, None)
    if callable(original):
        stand: Stand = (operation.stand_in or Hook)(operation, original)
        wanted = stand.misfit()
        what = f"has no argument `{wanted}`"
    else:
        wanted, what = operation.name, "is not there"
    if wanted is None:
        return stand
    message = f"{_version_of(module)}: `{operation.function}` {what}, so its calls are not recorded: the adapter of "
    message += f"`{operation.op}` is for another version"
    recorder = active()
    if recorder is not None:
        recorder.skipped(operation.op_id, "", message)
    else:
        _LOG.warning("%s", message)
    return None


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
