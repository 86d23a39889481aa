"""`capture`: the arguments of a step as files, so that `--inputs` runs the step on real values."""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ._jax import jax_for
from ._specs import spec_text
from ._stages import Argument, arguments, lowered_for, stablehlo_text

FORMAT = "autotune-lowered-inputs-v1"


def capture(
    step: Any, args: Sequence[Any], folder: str | os.PathLike[str], kwargs: Mapping[str, Any] | None = None
) -> Path:
    """Write the arguments of a step for `autotune-lowered … --inputs FOLDER`; return the folder's path.

    `step` is the result of `jax.jit`, or any function; `args` and `kwargs` are its arguments. It is lowered and not
    run, so nothing is donated. The folder gets one `.npy` file for each argument that the program takes, in order, and
    `manifest.json`. The folder has mode 0700 and its files 0600. It appears complete; it must not exist yet, or be empty.

    The arrays may hold private data. No command sends them anywhere, and `cache push` ignores such folders.

    Raises OSError if the folder cannot be written; ValueError if JAX does not report the program's arguments, XLA
    lacks an element type, or an array is partly on other processes.
    """
    jax = jax_for("capture needs")
    given = dict(kwargs or {})
    lowered = lowered_for(step, args, given)
    found = arguments(lowered, stablehlo_text(lowered))
    if found is None:
        raise ValueError("this version of JAX does not tell which arguments the program takes: use 0.10.2")
    leaves = jax.tree_util.tree_leaves((tuple(args), given))
    if len(leaves) != len(jax.tree_util.tree_leaves(lowered.args_info)):
        raise ValueError("the step has static arguments: capture a function that has them bound")
    target = Path(folder)
    making = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    try:
        rows = [_write(making, number, one, leaves[one.leaf]) for number, one in enumerate(found)]
        manifest = {"format": FORMAT, "arguments": rows}
        _put(making / "manifest.json", json.dumps(manifest, indent=1).encode() + b"\n")
        _sync(making)
        # replaces only an empty folder
        os.rename(making, target)
        _sync(target.absolute().parent)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return target


def _write(folder: Path, number: int, argument: Argument, leaf: Any) -> dict[str, Any]:
    content = _npy(_on_host(argument, leaf))
    name = f"{number}.npy"
    _put(folder / name, content)
    return {
        "path": argument.path,
        "spec": spec_text(argument.array),
        "donated": argument.donated,
        "file": name,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _on_host(argument: Argument, leaf: Any) -> Any:
    """The elements as the program takes them, dense and in C order; those of types that numpy lacks as plain
    integers."""
    import jax
    import numpy

    if not getattr(leaf, "is_fully_addressable", True):
        raise ValueError(f"argument `{argument.path}` lies in part on other processes: gather it first")
    if hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended):
        leaf = jax.random.key_data(leaf)
    # a Python scalar gets JAX's type
    host = numpy.asarray(leaf).astype(argument.array.dtype, copy=False)
    host = numpy.require(host, requirements="C").reshape(argument.array.shape)
    return host if host.dtype.isbuiltin == 1 else host.view(f"u{host.dtype.itemsize}")


def _npy(array: Any) -> bytes:
    import io

    import numpy

    file = io.BytesIO()
    numpy.save(file, array, allow_pickle=False)
    return file.getvalue()


def _put(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
