"""A function as it is tuned: its tuned parameters by keyword alone, each with a default."""

from __future__ import annotations

import functools
import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..tunables.call_key import qualified_name

# what a name of an operation may hold
_ELSE = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 128


def operation_of(function: Callable[..., Any]) -> str:
    """The operation's name: the function's own, with its module. Raises ValueError for a function without a name."""
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    name = qualified_name(named).replace("<locals>.", "")
    if "<" in name:
        raise ValueError("a lambda has no name by which its configs could be found again: give `op=`")
    return _ELSE.sub("_", name)[-_LONGEST_NAME:]


def kernel_of(function: Callable[..., Any], tried: Mapping[str, Sequence[Any]]) -> Callable[..., Any]:
    """The function with the `tried` parameters after `*`. Where one has no default, the first value to try is it.

    Raises TypeError for a parameter that the function does not have, or takes by its place alone.
    """
    try:
        own = inspect.signature(function)
    except ValueError:
        raise TypeError(f"`{function!r}` does not tell its parameters: wrap it in a function that names them") from None
    kinds = inspect.Parameter
    takes_all = any(parameter.kind is kinds.VAR_KEYWORD for parameter in own.parameters.values())
    tuned = []
    for name, values in tried.items():
        parameter = own.parameters.get(name)
        by_keyword = parameter is not None and parameter.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
        if not by_keyword and (parameter is not None or not takes_all):
            raise TypeError(f"`{name}` is tuned, and `{_named(function)}` takes no argument `{name}` by keyword")
        has_default = parameter is not None and parameter.default is not kinds.empty
        default = parameter.default if parameter is not None and has_default else next(iter(values), None)
        tuned.append(kinds(name, kinds.KEYWORD_ONLY, default=default))
    chosen = {parameter.name: parameter.default for parameter in tuned}
    others = [parameter for name, parameter in own.parameters.items() if name not in tried]
    last = [parameter for parameter in others if parameter.kind is kinds.VAR_KEYWORD]
    shown = own.replace(parameters=[*_without_gaps(others[: len(others) - len(last)]), *tuned, *last])

    @functools.wraps(function)
    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = chosen | shown.bind(*args, **kwargs).arguments
        extra = {name: value for name, value in given.items() if name not in own.parameters}
        named = {name: given[name] for name in own.parameters if name in given}
        bound = inspect.BoundArguments(own, OrderedDict(named))
        return function(*bound.args, **(bound.kwargs | extra))

    kernel.__signature__ = shown  # type: ignore[attr-defined]
    # as of the function, though a callable object has no name of its own
    kernel.__name__ = _named(function)
    return kernel


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _without_gaps(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """Parameters in an order that a signature may have: one without a default that came after a tuned one is by keyword
    if an earlier one has a default."""
    found: list[inspect.Parameter] = []
    has_default = False
    for parameter in parameters:
        is_placed = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if is_placed and has_default and parameter.default is parameter.empty:
            parameter = parameter.replace(kind=parameter.KEYWORD_ONLY)
        has_default = has_default or (is_placed and parameter.default is not parameter.empty)
        found.append(parameter)
    return sorted(found, key=lambda parameter: parameter.kind)
