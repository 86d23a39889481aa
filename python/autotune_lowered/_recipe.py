"""Recipes: how a worker on the device builds the programs that the recorder could not lower where it was.

A recipe is JSON. `{"kind": "ejkernel", …}` names a kernel class of ejkernel, its state and the call's arguments;
`{"kind": "tokamax", "bound": …}` is the JSON of Tokamax's own `BoundArguments`. `batch` holds the `vmap`s around the
call. A recipe names classes of these two libraries alone: what a registry says must not decide what else is imported.
"""

from __future__ import annotations

import enum
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._batching import from_recipe, mapped, whole_spec
from ._describe import spec_text

_LONGEST = 64 << 10

# where enumerations that are arguments may come from
_ENUM_PACKAGES = ("jax", "ejkernel")


class NoRecipe(Exception):
    """A call that no recipe can describe."""


def recipe_of_ejkernel(
    kernel: Any, names: Sequence[str], template: Mapping[str, Any], specs: Mapping[str, Any], place: type
) -> dict[str, Any]:
    """The recipe of a call of an ejkernel kernel; `names` are the positional arguments, `place` stands for an array.

    Raises `NoRecipe` with the reason.
    """
    kind = type(kernel)
    if kind.__module__.split(".")[0] != "ejkernel" or "<locals>" in kind.__qualname__:
        raise NoRecipe(f"`{kind.__module__}.{kind.__qualname__}` is no kernel of ejkernel's own")
    recipe = {
        "kind": "ejkernel",
        "module": kind.__module__,
        "class": kind.__qualname__,
        "state": {name: _encoded(value, place) for name, value in vars(kernel).items()},
        "positional": list(names),
        "arguments": {name: _encoded(value, place) for name, value in template.items()},
        # a list: the order is that of the gradients, and JSON objects have none
        "arrays": [[name, spec_text(spec)] for name, spec in specs.items()],
    }
    if len(json.dumps(recipe)) > _LONGEST:
        raise NoRecipe(f"its arguments take more than {_LONGEST} bytes to describe")
    return recipe


def _encoded(value: Any, place: type) -> Any:
    import numpy as np

    if isinstance(value, place):
        return {"array": value.name}
    if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum):
        return {"value": value}
    if isinstance(value, enum.Enum) and type(value).__module__.split(".")[0] in _ENUM_PACKAGES:
        return {"enum": [type(value).__module__, type(value).__qualname__, value.name]}
    if isinstance(value, tuple) and type(value) is tuple:
        return {"tuple": [_encoded(held, place) for held in value]}
    if isinstance(value, list):
        return {"list": [_encoded(held, place) for held in value]}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: _encoded(held, place) for name, held in value.items()}}
    try:
        name = np.dtype(value).name
    except TypeError:
        name = "object"  # which is also what numpy makes of any class
    if name == "object":
        raise NoRecipe(f"an argument of type `{type(value).__qualname__}` is in no recipe")
    return {"dtype": name}


def _decoded(coded: Mapping[str, Any], place: Callable[[str], Any]) -> Any:
    import jax.numpy as jnp

    ((kind, held),) = coded.items()
    if kind == "array":
        return place(held)
    if kind == "value":
        return held
    if kind == "enum":
        found = _class(held[0], held[1], _ENUM_PACKAGES)
        if not issubclass(found, enum.Enum):
            raise ValueError(f"`{held[0]}.{held[1]}` is no enumeration")
        return found[held[2]]
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(_decoded(one, place) for one in held)
    if kind == "dict":
        return {name: _decoded(one, place) for name, one in held.items()}
    if kind == "dtype":
        # the scalar type, not the `dtype`: kernels compare with `jnp.float32`
        found = getattr(jnp, held, None)
        # `jax.numpy` has functions too, and some of them write files
        if not isinstance(found, type) or _name_of_dtype(found) != held:
            raise ValueError(f"a recipe's `{held}` is no element type")
        return found
    raise ValueError(f"this version knows no `{kind}` in a recipe")


def _name_of_dtype(found: type) -> str | None:
    import numpy as np

    try:
        return np.dtype(found).name
    except TypeError:
        return None


def _class(module: str, name: str, packages: Sequence[str]) -> type:
    if module.split(".")[0] not in packages:
        raise ValueError(f"a recipe must not import `{module}`")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
        # a class of this very module: what the module has imported itself leads anywhere
        if not isinstance(found, type) or found.__module__ != module:
            raise ValueError(f"`{module}.{name}` is no class of that module")
    return found


def build(
    recipe: Mapping[str, Any], config: Mapping[str, Any], direction: str, inputs: Mapping[str, str], platform: str
) -> bytes:
    """The portable program of a recipe under a config, on this process's device.

    `inputs` are the specs (`f32[2,128]`) of the program's arguments by name, in order: some of the call's arrays, then
    cotangents. Raises ImportError where the library is missing, ValueError for a recipe of another version, and what
    lowering raises.
    """
    from ._calls import FORWARD
    from ._lowering import lower_taking_all, restricted, with_vjp

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
        return _of_ejkernel(recipe, config)
    if kind == "tokamax":
        from ._tokamax import from_stamp

        call = from_stamp(json.dumps(recipe["bound"]))
        return call.build(config), {name: spec_text(spec) for name, spec in call.arrays.items()}
    raise ValueError(f"this version knows no recipe of the kind `{kind}`")


def _of_ejkernel(recipe: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, str]]:
    from ejkernel.ops import Kernel

    from ._ejkernel import Operation

    kind = _class(recipe["module"], recipe["class"], ("ejkernel",))
    if not (isinstance(kind, type) and issubclass(kind, Kernel)):
        raise ValueError(f"`{recipe['class']}` is no kernel of ejkernel")

    def restore(values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        whole = {name: _decoded(coded, values.__getitem__) for name, coded in recipe["arguments"].items()}
        return tuple(whole.pop(name) for name in recipe["positional"]), whole

    kernel = object.__new__(kind)
    kernel.__dict__.update({name: _decoded(coded, dict.__getitem__) for name, coded in recipe["state"].items()})
    specs = {name: spec_from_text(text) for name, text in recipe["arrays"]}
    return Operation(kernel, restore, specs, None).build(config), dict(recipe["arrays"])


def spec_from_text(text: str) -> Any:
    """`f32[2,128]` as a `jax.ShapeDtypeStruct`."""
    import jax

    from .worker import parse_spec

    dtype, shape = parse_spec(text)
    return jax.ShapeDtypeStruct(shape, dtype)
