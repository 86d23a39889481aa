"""`jit`: like `jax.jit`, but compiles with the options that were tuned for the program."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from .._jax import jax_for
from . import in_force
from .compiler_options import compiler_options

_LOG = logging.getLogger("autotune_lowered")

_STATES = 4
"""Number of look-up states whose programs a function keeps, the most recently used ones, because overlays and
caches change."""


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Like `jax.jit`, with the same arguments; `@jit` and `@jit(static_argnames=…)` decorate.

    The first call of each signature lowers, looks up the program's compiler options (`compiler_options`) and compiles
    with them. Options that you give as `compiler_options=` are kept. Without an entry it is `jax.jit`'s function.

    JAX accepts such options only at the outermost `jit`. Under another transformation (`jit`, `grad`, `vmap`, `scan`,
    `shard_map`) it is `jax.jit`'s function too, and a warning says so once.
    """
    if function is None:
        return functools.partial(jit, **options)
    return Jitted(function, options)


class Jitted:
    """A function that is compiled with tuned options; other attributes are those of `jax.jit`'s function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        """Private: see `jit`."""
        functools.update_wrapper(self, function)
        self._jitted = jax_for("jit needs").jit(function, **options)
        self._given = options.get("compiler_options") or {}
        self._static = _Static(function, options.get("static_argnums"), options.get("static_argnames"))
        # by the number of the state, the most recently used last
        self._programs: OrderedDict[int, dict[Any, Any]] = OrderedDict()
        self._warned = False

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import jax

        leaves, tree = jax.tree_util.tree_flatten(self._static.without(args, kwargs))
        if not _outermost(leaves):
            if not self._warned:
                self._warned = True
                _LOG.warning(
                    "`%s` runs inside another transformation of JAX, which takes no compiler options: its own are left out",
                    getattr(self, "__qualname__", "a function"),
                )
            return self._jitted(*args, **kwargs)
        programs = self._programs_of(in_force.generation())
        key = (tree, tuple(map(_kind, leaves)), self._static.of(args, kwargs), _context())
        try:
            program = programs[key]
        except KeyError:
            program = programs[key] = self._program(args, kwargs)
        if program is None:
            return self._jitted(*args, **kwargs)
        positional, named = self._static.without(args, kwargs)
        return program(*positional, **named)

    def _programs_of(self, state: int) -> dict[Any, Any]:
        try:
            self._programs.move_to_end(state)
            return self._programs[state]
        except KeyError:
            # another thread may have been faster, both here and in removing one
            programs = self._programs.setdefault(state, {})
            with contextlib.suppress(KeyError):
                while len(self._programs) > _STATES:
                    self._programs.popitem(last=False)
            return programs

    def _program(self, args: Any, kwargs: Any) -> Any:
        """The program compiled with tuned options; None if there are none."""
        lowered = self._jitted.lower(*args, **kwargs)
        options = {name: value for name, value in compiler_options(lowered).items() if name not in self._given}
        return lowered.compile(compiler_options=options) if options else None


class _Static:
    """Which arguments are not arrays: a compiled program does not take them."""

    def __init__(self, function: Callable[..., Any], numbers: Any, names: Any):
        self.numbers = set(_listed(numbers))
        self.names = set(_listed(names))
        if not self.numbers and not self.names:
            return
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return
        # each implies the other, as in `jax.jit`
        by_place = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        places = {name: place for place, name in enumerate(by_place)}
        known = {number + len(by_place) if number < 0 else number for number in self.numbers}
        self.numbers = known | {places[name] for name in self.names if name in places}
        self.names |= {by_place[number] for number in known if number < len(by_place)}

    def without(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that are arrays."""
        if not self.numbers and not self.names:
            return args, kwargs
        positional = tuple(one for place, one in enumerate(args) if place not in self.numbers)
        return positional, {name: one for name, one in kwargs.items() if name not in self.names}

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The others, with their positions."""
        if not self.numbers and not self.names:
            return ()
        placed = [(place, one) for place, one in enumerate(args) if place in self.numbers]
        named = [(name, one) for name, one in sorted(kwargs.items()) if name in self.names]
        return (*placed, *named)


def _listed(one: Any) -> Iterable[Any]:
    if one is None:
        return ()
    return (one,) if isinstance(one, (int, str)) else tuple(one)


def _outermost(leaves: Iterable[Any]) -> bool:
    """Whether no other transformation is active: an array may also be captured without being an argument."""
    import jax

    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return False
    try:
        from jax._src.core import trace_state_clean
    except ImportError:
        return True
    return bool(trace_state_clean())


def _kind(leaf: Any) -> Any:
    """The part of an argument that determines its program."""
    if not hasattr(leaf, "dtype"):
        return type(leaf)
    sharding = leaf.sharding if getattr(leaf, "committed", False) else None
    return (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), sharding)


def _context() -> Any:
    """What else determines the program: JAX's settings in force here."""
    try:
        from jax._src.config import trace_context

        return trace_context()
    except ImportError:
        return None
