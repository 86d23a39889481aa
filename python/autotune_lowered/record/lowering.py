"""Functions of arrays, lowered for one platform to portable programs that do not depend on where they were recorded."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from .._label import PAYLOAD
from .._stages import mlir_bindings
from .dtypes import is_real

# old enough for plugins of early 2025; a program that needs a newer version is written in JAX's current one
_TARGET_VERSION = "1.8.0"

# kernels that JAX itself refuses to export, because their encoding may change; a recording runs with the version that
# made it
_KNOWN_CUSTOM_CALLS = (
    "__gpu$xla.gpu.triton",
    "triton_kernel_call",
    "mosaic_gpu",
    "mosaic_gpu_v2",
    "tpu_custom_call",
)

_CUSTOM_CALL = re.compile(r'custom_call\s+@"?([\w.$-]+)')

_FRONTEND_ATTRIBUTES = "mhlo.frontend_attributes"

Function = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Lowered:
    """A function lowered for one platform."""

    artifact: bytes
    """StableHLO portable artifact."""
    semantic_digest: str | None
    """SHA-256 of the StableHLO text without debug information, the module named `@module`; `None` if JAX's MLIR
    bindings are missing."""
    custom_calls: list[str]
    """Targets of its custom calls."""
    kept: tuple[int, ...]
    """Indices of the arguments that the program takes, ascending."""


def lower(
    function: Function,
    specs: Sequence[Any],
    platform: str,
    keep_unused: bool = False,
    sharding: Any = None,
    devices: int = 1,
) -> Lowered:
    """Lower a function of positional arrays for one platform, whose device may be absent.

    `specs` holds a `jax.ShapeDtypeStruct` for each argument. All arguments have the `sharding`, if one is given.
    `devices` is the number of devices that the program is for. Raises what tracing the function raises.
    """
    import jax
    from jax import export

    # one platform at a time, because several can add an argument that tells which one runs
    placed = {} if sharding is None else {"in_shardings": sharding}
    jitted = jax.jit(function, keep_unused=keep_unused, **placed)
    named = list(_KNOWN_CUSTOM_CALLS)
    while True:
        checks = [export.DisabledSafetyCheck.custom_call(name) for name in named]
        try:
            exported = export.export(jitted, platforms=[platform], disabled_checks=checks)(*specs)
            break
        except ValueError as error:
            refused = set(_CUSTOM_CALL.findall(str(error))) - set(named)
            if "custom call" not in str(error) or not refused:
                raise
            named.extend(sorted(refused))
    if exported.nr_devices not in (1, devices):
        raise ValueError(f"lowered for {exported.nr_devices} devices: end the recording outside of the mesh's context")
    return _portable(exported)


def lower_taking_all(
    function: Function, specs: Sequence[Any], platform: str, sharding: Any = None, devices: int = 1
) -> Lowered:
    """As `lower`, and the program takes every argument, also those that it does not need."""
    lowered = lower(function, specs, platform, sharding=sharding, devices=devices)
    if len(lowered.kept) == len(specs):
        return lowered
    # only then, because with `keep_unused` JAX keeps dead code too
    return lower(function, specs, platform, keep_unused=True, sharding=sharding, devices=devices)


def _portable(exported: Any) -> Lowered:
    text = exported.mlir_module()
    kept = tuple(exported.module_kept_var_idx)
    try:
        ir, passmanager, stablehlo, make_context = mlir_bindings()
        with make_context():
            module = ir.Module.parse(text)
            module.operation.attributes["sym_name"] = ir.StringAttr.get("module")
            if exported.nr_devices == 1:
                _strip_sharding(ir, module)
            _strip_payloads(ir, module)
            passmanager.PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)
            plain = module.operation.get_asm(enable_debug_info=False).strip()
            artifact: bytes = _serialize(stablehlo, module, has_shardy="sdy." in plain)
    except (ImportError, AttributeError, ValueError):
        # locations stay, because the registry's writer computes the semantic digest from the artifact
        return Lowered(exported.mlir_module_serialized, None, sorted(set(_CUSTOM_CALL.findall(text))), kept)
    calls = sorted(set(_CUSTOM_CALL.findall(plain)))
    return Lowered(artifact, hashlib.sha256(plain.encode()).hexdigest(), calls, kept)


def _strip_sharding(ir: Any, module: Any) -> None:
    """Removes the attributes for partitioning. A program for one device does not need them, and a portable artifact
    cannot represent them.

    JAX gives the custom calls of LAPACK a `sdy.sharding_rule` wherever they run.
    """

    def strip(operation: Any) -> Any:
        attributes = operation.attributes
        # names in newer bindings, pairs in older ones
        for name in [getattr(one, "name", one) for one in attributes]:
            if name.startswith("sdy."):
                del attributes[name]
            elif name in ("arg_attrs", "res_attrs"):
                attributes[name] = ir.ArrayAttr.get([without(held) for held in attributes[name]])
        return ir.WalkResult.ADVANCE

    def without(held: Any) -> Any:
        return ir.DictAttr.get({one.name: one.attr for one in held if not one.name.startswith("sdy.")})

    module.operation.walk(strip)


def _strip_payloads(ir: Any, module: Any) -> None:
    """Removes the labels of the calls in a program, such as Tokamax's, which hold the config: programs that compute the
    same are one program."""

    def strip(operation: Any) -> Any:
        attributes = operation.attributes
        if _FRONTEND_ATTRIBUTES in attributes:
            held = {one.name: one.attr for one in attributes[_FRONTEND_ATTRIBUTES] if one.name != PAYLOAD}
            if held:
                attributes[_FRONTEND_ATTRIBUTES] = ir.DictAttr.get(held)
            else:
                del attributes[_FRONTEND_ATTRIBUTES]
        return ir.WalkResult.ADVANCE

    module.operation.walk(strip)


def _serialize(stablehlo: Any, module: Any, has_shardy: bool) -> Any:
    if has_shardy:
        # for programs of several devices, because the public binding accepts no dialect but StableHLO
        from jaxlib import _jax

        return _jax.mlir.serialize_portable_artifact(module, _TARGET_VERSION, True)
    try:
        return stablehlo.serialize_portable_artifact(module, _TARGET_VERSION)
    except Exception:  # the bindings' own error class differs between versions
        return stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())


def cotangents_of(function: Function, specs: Sequence[Any]) -> list[Any]:
    """The specs of the cotangents of a function: one for each real or complex output; none if nothing can have one."""
    import jax

    if not any(is_real(spec.dtype) for spec in specs):
        return []
    outputs = jax.tree_util.tree_leaves(jax.eval_shape(function, *specs))
    return [jax.ShapeDtypeStruct(spec.shape, spec.dtype) for spec in outputs if is_real(spec.dtype)]


def with_vjp(function: Function, specs: Sequence[Any]) -> Function:
    """The function together with its vector-Jacobian product: the cotangents, see `cotangents_of`, come after the
    arguments. Integer arguments and outputs have none."""
    import jax

    real = [index for index, spec in enumerate(specs) if is_real(spec.dtype)]

    def forward_and_backward(*arguments: Any) -> Any:
        arguments, cotangents = arguments[: len(specs)], arguments[len(specs) :]

        def of_real(*values: Any) -> Any:
            filled = list(arguments)
            for index, value in zip(real, values, strict=True):
                filled[index] = value
            leaves = jax.tree_util.tree_leaves(function(*filled))
            return tuple(leaf for leaf in leaves if is_real(leaf.dtype)), [
                leaf for leaf in leaves if not is_real(leaf.dtype)
            ]

        primals = (arguments[index] for index in real)
        values, pullback, rest = jax.vjp(of_real, *primals, has_aux=True)
        return values, rest, pullback(tuple(cotangents))

    return forward_and_backward


def restricted(function: Function, specs: Sequence[Any], kept: Sequence[int]) -> Function:
    """The function with only the `kept` arguments. The others, which it must not need, are zeros."""
    import jax.numpy as jnp

    def of_kept(*values: Any) -> Any:
        given = dict(zip(kept, values, strict=True))
        return function(*(given[i] if i in given else jnp.zeros(s.shape, s.dtype) for i, s in enumerate(specs)))

    return of_kept
