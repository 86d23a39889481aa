"""Recipes of calls of ejkernel's operations: a kernel class, its state and the call's arguments as JSON, and back.

A recipe names only classes of ejkernel and enumerations of JAX, because a registry must not decide what else is
imported.
"""

from __future__ import annotations

import enum
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..._specs import spec_from_text, spec_text
from ...record.arguments import Leaf
from .operation import Operation

_LONGEST = 64 << 10

# packages whose enumerations may be arguments
_ENUM_PACKAGES = ("jax", "ejkernel")


class NoRecipe(Exception):
    """A call that no recipe can describe."""


def recipe_of(
    kernel: Any, names: Sequence[str], template: Mapping[str, Any], specs: Mapping[str, Any]
) -> dict[str, Any]:
    """The recipe of a call of an ejkernel kernel; `names` are the positional arguments.

    Raises `NoRecipe` with the reason.
    """
    kind = type(kernel)
    if kind.__module__.split(".")[0] != "ejkernel" or "<locals>" in kind.__qualname__:
        raise NoRecipe(f"`{kind.__module__}.{kind.__qualname__}` is no kernel of ejkernel's own")
    recipe = {
        "kind": "ejkernel",
        "module": kind.__module__,
        "class": kind.__qualname__,
        "state": {name: _encoded(value) for name, value in vars(kernel).items()},
        "positional": list(names),
        "arguments": {name: _encoded(value) for name, value in template.items()},
        # a list, because the order is that of the gradients, and JSON objects have none
        "arrays": [[name, spec_text(spec)] for name, spec in specs.items()],
    }
    if len(json.dumps(recipe)) > _LONGEST:
        raise NoRecipe(f"its arguments take more than {_LONGEST} bytes to describe")
    return recipe


def _encoded(value: Any) -> Any:
    import numpy as np

    if isinstance(value, Leaf):
        return {"array": value.name}
    if value is None or isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum):
        return {"value": value}
    if isinstance(value, enum.Enum) and type(value).__module__.split(".")[0] in _ENUM_PACKAGES:
        return {"enum": [type(value).__module__, type(value).__qualname__, value.name]}
    if isinstance(value, tuple) and type(value) is tuple:
        return {"tuple": [_encoded(held) for held in value]}
    if isinstance(value, list):
        return {"list": [_encoded(held) for held in value]}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {"dict": {name: _encoded(held) for name, held in value.items()}}
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
        scalar = getattr(jnp, held, None)
        # `jax.numpy` has functions too, and some of them write files
        if not isinstance(scalar, type) or _name_of_dtype(scalar) != held:
            raise ValueError(f"a recipe's `{held}` is no element type")
        return scalar
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
        # a class defined in this module: its imports could lead anywhere
        if not isinstance(found, type) or found.__module__ != module:
            raise ValueError(f"`{module}.{name}` is no class of that module")
    kind: type = found
    return kind


def function_of(recipe: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, str]]:
    """The function of the arrays that a recipe's call runs under a config; and their specs by name, in order."""
    from ejkernel.ops import Kernel

    kind = _class(recipe["module"], recipe["class"], ("ejkernel",))
    if not (isinstance(kind, type) and issubclass(kind, Kernel)):
        raise ValueError(f"`{recipe['class']}` is no kernel of ejkernel")

    def restore(values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        whole = {name: _decoded(coded, values.__getitem__) for name, coded in recipe["arguments"].items()}
        return tuple(whole.pop(name) for name in recipe["positional"]), whole

    def no_array(name: str) -> Any:
        raise ValueError(f"a recipe's kernel holds the array `{name}`")

    kernel: Any = object.__new__(kind)
    kernel.__dict__.update({name: _decoded(coded, no_array) for name, coded in recipe["state"].items()})
    specs = {name: spec_from_text(text) for name, text in recipe["arrays"]}
    return Operation(kernel, restore, specs, None).build(config), dict(recipe["arrays"])
