"""What JAX's stages, a `Lowered` and a `Compiled`, say about a program: its text, its arguments, how it is compiled.

Private attributes of JAX are read with care: if a version of JAX has one elsewhere, its value counts as unknown.
"""

from __future__ import annotations

import base64
import functools
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _native
from ._jax import jax_for
from ._specs import spec_text

# objects in objects, as that of a library around that of another
_MOST_WRAPPERS = 4

# errors of a JAX version that stores something elsewhere
_UNTOLD = (ImportError, AttributeError, KeyError, TypeError, ValueError, RuntimeError)


class Argument(NamedTuple):
    """An argument of a program."""

    path: str
    """The parameter's name, then keys and names inside: `params/w`; its place in the call if JAX does not name it."""
    array: Any
    """Its shape and element type; for typed random keys, those of the integers in them."""
    donated: bool
    """Whether the caller donates it."""
    leaf: int
    """Which leaf of the Python function's arguments it is."""


def stage_of(module: Any) -> Any:
    """The `jax.stages.Lowered` or `Compiled` in an object: itself, what other libraries wrap it in, or what a `Traced`
    lowers to. Any other object is returned as it is."""
    stages = jax_for("a module needs").stages
    for _ in range(_MOST_WRAPPERS):
        if isinstance(module, (stages.Lowered, stages.Compiled)):
            break
        # the wrappers of Equinox and Flax NNX
        inner = getattr(module, "lowered", None) or getattr(module, "compiled", None)
        traced: Any = getattr(stages, "Traced", None)
        if inner is None and traced is not None and isinstance(module, traced):
            inner = module.lower()
        if inner is None:
            break
        module = inner
    return module


def lowered_for(step: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The `jax.stages.Lowered` of a step for these arguments: of any function, or of what a library's `jit` made."""
    if not callable(step):
        raise TypeError(f"a {type(step).__qualname__} cannot be lowered: give the step itself and its `args`")
    jitted = step if hasattr(step, "lower") else jax_for("lowering needs").jit(step)
    return stage_of(jitted.lower(*args, **kwargs))


def exported_text(module: Any) -> str | None:
    """The StableHLO text, with locations, of a `jax.export.Exported`; `None` for another object."""
    content = getattr(module, "mlir_module_serialized", None)
    if not isinstance(content, bytes):
        return None
    _, _, stablehlo, make_context = mlir_bindings()
    with make_context() as context:
        parsed = stablehlo.deserialize_portable_artifact(context, content)
        return str(parsed.operation.get_asm(enable_debug_info=True))


@functools.cache
def mlir_bindings() -> tuple[Any, Any, Any, Any]:
    """MLIR's bindings: those of `jaxlib`, because the public ones of newer JAX import Pallas first. ImportError where
    they are too old."""
    import jax

    if jax.__version_info__ < (0, 6):
        # seen in 0.4.30: serializing a module from Python ends the process
        raise ImportError("MLIR's bindings of this JAX do not write artifacts")
    from jax.interpreters.mlir import make_ir_context

    def of(bindings: str) -> tuple[Any, Any, Any]:
        parts = ("ir", "passmanager", "dialects.stablehlo")
        ir, passmanager, stablehlo = (importlib.import_module(f"{bindings}.{part}") for part in parts)
        return ir, passmanager, stablehlo

    try:
        return *of("jaxlib.mlir"), make_ir_context
    except ImportError:
        return *of("jax.extend.mlir"), make_ir_context


def stablehlo_text(lowered: Any) -> str:
    """StableHLO text with locations. If JAX takes no `debug_info` (0.4.30), its MLIR module prints it."""
    try:
        return str(lowered.as_text(debug_info=True))
    except TypeError:
        module = lowered.compiler_ir("stablehlo")
    if module is None:
        raise ValueError("this backend gives no StableHLO of what it lowers")
    return str(module.operation.get_asm(enable_debug_info=True))


def text_to_hash(lowered: Any) -> str:
    """StableHLO text without locations. It is printed unverified, because JAX verified the program when it lowered
    it, and verifying it again costs a third more."""
    try:
        return str(lowered.compiler_ir("stablehlo").operation.get_asm(assume_verified=True))
    except _UNTOLD:
        return str(lowered.as_text())


def arguments(lowered: Any, text: str) -> list[Argument] | None:
    """A program's arguments in order, without those that it does not need. `text` is its StableHLO with locations.

    None if JAX does not report them.
    """
    import jax

    try:
        kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
        leaves, _ = jax.tree_util.tree_flatten_with_path(lowered.args_info)
        # named as the program that reads the module names them
        names = _native.argument_paths(text.encode()) or [""] * len(kept)
        found = []
        for leaf, name in zip(kept, names, strict=True):
            path, info = leaves[leaf]
            array = jax.ShapeDtypeStruct(info.shape, info.dtype)
            if jax.numpy.issubdtype(info.dtype, jax.dtypes.extended):
                array = jax.eval_shape(jax.random.key_data, array)
            found.append(Argument(name or _path(path), array, bool(info.donated), leaf))
        return found
    except (*_UNTOLD, IndexError):
        return None


def _path(path: tuple[Any, ...]) -> str:
    """A path as text, without its first part, because the second shows whether the argument is positional."""
    return "/".join(_part(part) for part in path[1:])


def _part(part: Any) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(part, name):
            return str(getattr(part, name))
    return str(part)


def compiled_as(lowered: Any, text: str | None, compiler_options: Mapping[str, Any] | None) -> dict[str, Any]:
    """How a program is compiled, for the side file (`docs/scanning.md`); None means unknown."""
    import jax

    devices = devices_of(lowered)
    # JAX without the setting only has GSPMD
    partitioner = "shardy" if getattr(jax.config, "jax_use_shardy_partitioner", False) else "gspmd"
    options = _compile_options(lowered, devices, dict(compiler_options or {}))
    try:
        told = None if text is None else arguments(lowered, text)
        described = [{"path": one.path, "spec": spec_text(one.array), "donated": one.donated} for one in told or ()]
    except ValueError:
        described = []
    return {
        "compile_options": None if options is None else base64.b64encode(options).decode(),
        "xla_flags": os.environ.get("XLA_FLAGS"),
        "libtpu_init_args": os.environ.get("LIBTPU_INIT_ARGS"),
        "partitioner": partitioner,
        "num_partitions": None if devices is None else len(devices),
        "device_assignment": None if devices is None else [device.id for device in devices],
        "arguments": described or None,
    }


def devices_of(lowered: Any) -> list[Any] | None:
    """The devices that a program is lowered for, in the partitions' order."""
    try:
        inner = lowered._lowering
        devices = getattr(inner, "_device_list", None) or inner.compile_args.get("device_assignment")
        return None if devices is None else list(devices)
    except _UNTOLD:
        return None


def _compile_options(lowered: Any, devices: list[Any] | None, given: dict[str, Any]) -> bytes | None:
    """`CompileOptionsProto` as JAX passes it to the compiler; None if this JAX builds it differently."""
    if devices is None:
        return None
    try:
        import numpy
        from jax._src.interpreters import pxla

        inner = lowered._lowering
        its = inner.compile_args
        # JAX stores open shardings separately from the user's options
        parameters, results = pxla.get_prop_to_input_output(
            its["in_shardings"], its["out_shardings"], len(its["ordered_effects"])
        )
        placed = numpy.array(devices, dtype=object)
        own = dict(inner._compiler_options_kvs) | given
        made = pxla.create_compile_options(
            inner.stablehlo(), its["tuple_args"], parameters, results, its["backend"], placed, own
        )
        return bytes(made.SerializeAsString())
    except _UNTOLD:
        return None
