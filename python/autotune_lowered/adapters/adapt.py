"""`adapt`: makes a function that one does not own a tunable operation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from .operation import Operation, Steering
from .places import Grouped, Named, Place, Several
from .sets import attached, named


class adapt:
    """Make the calls of a function of another package tunable, or those of a whole set of adapters.

    ```python
    autotune_lowered.adapt(
        "their.kernels:attention",
        parameters={"block_sizes": ("block_q", "block_kv"), "num_warps": None},
        space={"block_q": (128, 256), "block_kv": (128, 256, 512), "num_warps": (4, 8)},
    )
    ```

    From then on each call is labelled, recorded inside of a `recording`, and run with the config in force for it; without
    one it runs as the caller wrote it. The function is replaced in every module that imported it, until `undo`, or the
    end of a `with` block.

    Arguments:
        function: `package.module:function`. With no further arguments, the name of a set: `jax-pallas`,
            `tpu-inference`, `sglang-jax`, `maxtext`, or an entry point of the group `autotune_lowered_adapters`.
        parameters: The arguments that hold what is tuned. An argument that is a tuple, a named tuple or a dataclass
            names its parts or fields; any other one has `None`. A list names arguments of the last kind.
        space: The values to try, by parameter or part.
        op: Its name in labels and registries; by default the function's path with dots.
        version: Another one makes recorded calls and decisions of earlier ones void.
        platforms: What its kernel is for, such as `("tpu",)`; any by default.
        baseline: What the project would choose for a call that gives no config: a function of the call's arguments by
            name (arrays have `shape` and `dtype`) that returns the parameters.
        refuse: Why the project takes no such config for a call: a function of the arguments and the config that
            returns a reason, raises, or returns `None`.
        steering: Valid values of the integer arrays that steer the kernel: a function of the arguments that returns
            arrays by name, or several such functions by the name of their distribution. The first is used if a call's
            own values are not known, and with each of the others the call is measured as well.
        borders: If the project's table has one row for several shapes, the calls at both ends of that bucket: a function
            of the arguments that returns for each of them the arrays of other shapes (`jax.ShapeDtypeStruct`) by name.
        fills: How values of other arrays are made (`docs/registry.md`), by argument.
        static_key: What identifies an argument without a stable spelling, by argument.

    Raises ValueError for a set that is not known and for what names no function or no parameter. A function that does
    not have the arguments is left alone, and a warning says so.
    """

    def __init__(
        self,
        function: str,
        *,
        parameters: Sequence[str] | Mapping[str, Sequence[str] | None] = (),
        space: Mapping[str, Sequence[Any]] | None = None,
        op: str | None = None,
        version: int = 1,
        platforms: Sequence[str] = (),
        baseline: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        refuse: Callable[[Mapping[str, Any], Mapping[str, Any]], str | None] | None = None,
        steering: Steering | Mapping[str, Steering] | None = None,
        borders: Callable[[Mapping[str, Any]], Sequence[Mapping[str, Any]]] | None = None,
        fills: Mapping[str, Mapping[str, Any]] | None = None,
        static_key: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        if ":" not in function and not parameters:
            self.operations = named(function)
        else:
            own = Operation(
                op=op or function.replace(":", "."),
                function=function,
                place=_place(parameters),
                space=space or {},
                version=version,
                platforms=tuple(platforms),
                baseline=baseline,
                refuse=refuse,
                steering={"usual": steering} if callable(steering) else steering or {},
                borders=borders,
                fills=fills or {},
                static_key=static_key or {},
            )
            self.operations = [own]
        self._attached: contextlib.ExitStack | None = attached(self.operations)

    def undo(self) -> None:
        """Put the functions back."""
        held, self._attached = self._attached, None
        if held is not None:
            held.close()

    def __enter__(self) -> adapt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()


def _place(parameters: Sequence[str] | Mapping[str, Sequence[str] | None]) -> Place:
    if isinstance(parameters, str):
        parameters = [parameters]
    if not isinstance(parameters, Mapping):
        parameters = dict.fromkeys(parameters)
    if not parameters:
        raise ValueError("nothing is tuned: name the `parameters`")
    plain = tuple(name for name, parts in parameters.items() if parts is None)
    grouped = [Grouped(name, tuple(parts)) for name, parts in parameters.items() if parts is not None]
    places: list[Place] = [*grouped, *([Named(plain)] if plain else [])]
    return places[0] if len(places) == 1 else Several(places)
