"""Recipes: how a worker on the device builds the programs that the recorder could not lower on its machine.

A recipe is JSON. `{"kind": "ejkernel", …}` names a kernel class of ejkernel, its state and the call's arguments;
`{"kind": "tokamax", "bound": …}` is the JSON of Tokamax's own `BoundArguments`. `batch` holds the `vmap`s around the
call. A recipe names only classes of these two libraries, because a registry must not decide what else is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .._specs import spec_from_text, spec_text
from .._vmap import from_recipe
from ..record.call import FORWARD
from ..record.lowering import lower_taking_all, restricted, with_vjp
from ..record.mapped import mapped, whole_spec
from .ejkernel import recipe as ejkernel
from .tokamax import bound as tokamax


def build(
    recipe: Mapping[str, Any], config: Mapping[str, Any], direction: str, inputs: Mapping[str, str], platform: str
) -> bytes:
    """The portable program of a recipe under a config, on this process's device.

    `inputs` are the specs (`f32[2,128]`) of the program's arguments by name, in order: some of the call's arrays, then
    cotangents. Raises ImportError if the library is missing, ValueError for a recipe of another version, and what
    lowering raises.
    """
    function, arrays = _function_of(recipe, config)
    names, batch = list(arrays), from_recipe(recipe.get("batch", ()))
    function = mapped(function, names, batch)
    specs = [whole_spec(name, spec_from_text(text), batch) for name, text in arrays.items()]
    if direction != FORWARD:
        function = with_vjp(function, specs)
        cotangents = [name for name in inputs if name not in arrays]
        specs = specs + [spec_from_text(inputs[name]) for name in cotangents]
        names += cotangents
    unknown = [name for name in inputs if name not in names]
    if unknown:
        raise ValueError(f"the recipe has no argument `{unknown[0]}`")
    kept = [names.index(name) for name in inputs]
    chosen = [specs[index] for index in kept]
    return lower_taking_all(restricted(function, specs, kept), chosen, platform).artifact


def _function_of(recipe: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, str]]:
    kind = recipe.get("kind")
    if kind == "ejkernel":
        return ejkernel.function_of(recipe, config)
    if kind == "tokamax":
        call = tokamax.from_stamp(json.dumps(recipe["bound"]))
        return call.build(config), {name: spec_text(spec) for name, spec in call.arrays.items()}
    raise ValueError(f"this version knows no recipe of the kind `{kind}`")
