"""An ejkernel kernel with the static part of one call: its candidates, and the function under each."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from ...record.parameters import spelled
from ...record.registry import LOWERING_PLATFORMS
from ...record.stand_in import answered
from .config import config_from_json, config_to_json

# ejkernel's methods' names for the platforms
_PLATFORMS = {"cpu": "cpu", "cuda": "gpu", "rocm": "gpu", "tpu": "tpu"}

Restore = Callable[[Mapping[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]
"""Arrays by name to a call's positional and named arguments."""


class Operation:
    """An ejkernel kernel with the static part of one call."""

    def __init__(self, kernel: Any, restore: Restore, specs: Mapping[str, Any], asked_platform: Any) -> None:
        # `prepare` has run; the executor would run it again
        self._kernel = copy.copy(kernel)
        self._kernel.prepare = lambda *args, **kwargs: (args, kwargs)
        self._restore = restore
        self._specs = dict(specs)
        self._asked = getattr(asked_platform, "value", asked_platform)
        self._objects: dict[str, Any] = {}
        self._template: Any = None

    def _invocation(self) -> Any:
        from ejkernel.ops import Invocation

        args, kwargs = self._restore(self._specs)
        return Invocation(op_id=self._kernel.op_id, args=args, kwargs=kwargs, stamp=False)

    def _spelled(self, config: Any) -> dict[str, Any]:
        plain = config_to_json(config)
        self._objects.setdefault(spelled(plain), config)
        return plain

    def baseline(self, platform: str) -> dict[str, Any]:
        """The config of ejkernel's heuristics, which it uses untuned."""
        heuristic = _most_specific(self._kernel, "heuristic_cfg", platform)(self._invocation())
        self._template = heuristic
        return self._spelled(heuristic)

    def configs(self, platform: str) -> list[dict[str, Any]]:
        """The candidates that ejkernel's own tuner would try, and on a CPU also those for XLA."""
        methods = [_most_specific(self._kernel, "candidate_cfgs", platform)]
        if platform == "cpu" and hasattr(self._kernel, "candidate_cfgs_xla"):
            methods.append(self._kernel.candidate_cfgs_xla)
        invocation = self._invocation()
        return [self._spelled(config) for method in methods for config in method(invocation)]

    def refuse(self, config: Mapping[str, Any], platform: str) -> str | None:
        """ejkernel picks the implementation of `auto` by the present device: another one's cannot be predicted."""
        if answered() is None:
            return None
        chosen = self._asked if self._asked not in (None, "auto") else config.get("platform")
        if chosen in (None, "auto"):
            return f"which implementation ejkernel takes for it is decided on the {platform} device"
        return None

    def build(self, config: Mapping[str, Any]) -> Callable[..., Any]:
        """The operation under a config, as ejkernel's executor runs it, with its own derivative rule."""
        from ejkernel.ops import Executor

        chosen = self._objects.get(spelled(config))
        if chosen is None:
            if self._template is None:
                # in a worker, which only has the config, the heuristics determine its class
                self._template = _most_specific(self._kernel, "heuristic_cfg", _own_platform())(self._invocation())
            chosen = config_from_json(type(self._template), config)
        # some executors rewrite the platform in place
        executor, names = Executor(_Fixed(copy.deepcopy(chosen))), tuple(self._specs)

        def run(*arrays: Any) -> Any:
            args, kwargs = self._restore(dict(zip(names, arrays, strict=True)))
            return executor(self._kernel, *args, stamp=False, **kwargs)

        return run


def _own_platform() -> str:
    import jax

    return LOWERING_PLATFORMS.get(jax.default_backend(), "cpu")


class _Fixed:
    """An ejkernel `ConfigChooser` with a fixed answer and no cache."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def choose(self, invocation: Any, kernel: Any) -> Any:
        return self._config


def _most_specific(kernel: Any, method: str, platform: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(kernel, f"{method}_{_PLATFORMS[platform]}", None) or getattr(kernel, method)
    return found
