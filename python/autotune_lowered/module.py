"""`dump`: a lowered or compiled module as a file that carries its labels, with a side file that lists them."""

import errno
import json
import logging
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import _native
from ._jax import jax_for
from ._stages import compiled_as, exported_text, stablehlo_text, stage_of

_LOG = logging.getLogger("autotune_lowered")

# a call site has few inputs; more than this do not help to distinguish calls
MAX_SHAPES = 256


def dump(
    module: Any,
    path: str | os.PathLike[str],
    *,
    lowered: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Path:
    """Write a module for `autotune-lowered`, and `<path>.labels.json` beside it; return the module's path.

    `module` is a `jax.stages.Lowered`, written as StableHLO text with its locations, which hold every label whole, or
    a `jax.stages.Traced`, which is lowered, or a `jax.export.Exported`, likewise; or a `jax.stages.Compiled`, written as HLO text after optimisation. Compiled text cuts labels at an `@`; give the
    `lowered` from which it was compiled, and the side file has them whole.

    The side file has the SHA-256 of the module's bytes. For each label it has `op_id`, `call_key`, `shapes` (of the
    arrays that flow in, in the lowered program: whole under automatic partitioning, of one device inside `shard_map`),
    `local_shapes` (on one device, if the compiled module is partitioned), `occurrences` and `backward`.

    It also says how the module is compiled, as far as JAX reports it: `stablehlo_digest`, `compile_options`,
    `xla_flags`, `libtpu_init_args`, `partitioner`, `num_partitions`, `device_assignment`, `arguments`. Pass the options
    of `lowered.compile(compiler_options=…)` here too, because JAX does not keep them.

    Each file is replaced completely or not at all. A module without labels is written too, and the reason is logged.
    Raises TypeError for another object, ValueError if the compiler gives no text, OSError if a file cannot be
    written.
    """
    path, complaint = Path(path), dump_quietly(module, Path(path), lowered, compiler_options)
    if complaint is not None:
        _LOG.warning("`%s` %s", path, complaint)
    return path


def dump_quietly(
    module: Any, path: Path, lowered: Any = None, compiler_options: Mapping[str, Any] | None = None
) -> str | None:
    """Write the files of `dump`; return what is wrong with the module's labels, or None."""
    stages = jax_for("dump needs").stages
    module, lowered = stage_of(module), stage_of(lowered)
    if (text := exported_text(module)) is not None:
        source = None
    elif isinstance(module, stages.Lowered):
        if lowered is not None:
            raise TypeError("`lowered` goes with a compiled module; this one is the lowered itself")
        text, source = stablehlo_text(module), None
    elif isinstance(module, stages.Compiled):
        if lowered is not None and not isinstance(lowered, stages.Lowered):
            raise TypeError(f"`lowered` is a {type(lowered).__qualname__}, not a jax.stages.Lowered")
        text, source = _hlo_text(module), None if lowered is None else stablehlo_text(lowered)
    else:
        raise TypeError(
            f"cannot dump a {type(module).__qualname__}: give jax.jit(f).lower(…), or that with .compile() after it; "
            "for a function, `dump(f, path, args=(…))`"
        )
    content = text.encode()
    scan = json.loads(_native.scan(content))
    whole = scan if source is None else json.loads(_native.scan(source.encode()))
    stablehlo = source if isinstance(module, stages.Compiled) else text
    side = {
        "schema": 1,
        "module_digest": _native.digest(content),
        "module": scan.get("module"),
        "form": scan["form"],
        "partitioned": scan.get("partitioned"),
        "stablehlo_digest": None if stablehlo is None else _native.semantic_digest(stablehlo.encode()),
        **compiled_as(module if isinstance(module, stages.Lowered) else lowered, stablehlo, compiler_options),
        "labels": _side_labels(scan, whole),
    }
    write_whole(path, content)
    write_whole(path.with_name(path.name + ".labels.json"), json.dumps(side, indent=1).encode() + b"\n")
    if not whole["labels"]:
        return f"has no labels: {_why_none(whole)}"
    if not side["labels"]:
        return "holds its labels in part only: give `lowered=`, what it was compiled from, for the whole ones"
    return None


def _side_labels(scan: dict[str, Any], whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The complete labels, each with the shapes of the lowered program and of the partitioned one."""
    partitioned = bool(scan.get("partitioned"))
    labels = []
    for label in whole["labels"]:
        # the registry finds a lost version; the module itself has the rest
        if label["call_key"] is None or (label["evidence"] != "exact" and "@v" not in label["op_id"]):
            continue
        side = {"op_id": label["op_id"], "call_key": label["call_key"]}
        shapes = {
            "shapes": [] if whole is scan and partitioned else _shapes([label]),
            "local_shapes": _shapes(_same_label(scan["labels"], label)) if partitioned else [],
        }
        side |= {name: found for name, found in shapes.items() if found}
        side |= {"occurrences": label["occurrences"], "backward": label["backward"]}
        if label.get("arguments") is not None:
            side["arguments"] = label["arguments"]
        labels.append(side)
    return labels


def _same_label(labels: list[dict[str, Any]], label: dict[str, Any]) -> list[dict[str, Any]]:
    """A label as a module shows it: the label itself, or its operation if the module truncated it."""
    keyed = [found for found in labels if (found["op_id"], found["call_key"]) == (label["op_id"], label["call_key"])]
    name = label["op_id"].rpartition("@v")[0]
    return keyed or [found for found in labels if found["call_key"] is None and found["op_id"] == name]


def _shapes(labels: Iterable[dict[str, Any]]) -> list[str]:
    """The shapes that flow in at any forward call site, else at any; each once."""
    sites = [site for label in labels for site in label.get("call_sites", ())]
    forward = [site for site in sites if not site.get("backward")] or sites
    shapes = dict.fromkeys(shape for site in forward for shape in site.get("operands", ()))
    return list(shapes)[:MAX_SHAPES]


def _why_none(scan: dict[str, Any]) -> str:
    return "; ".join(said["message"] for said in scan["diagnosis"]) or "nothing that it calls is a tunable operation"


def _hlo_text(compiled: Any) -> str:
    text = compiled.as_text()
    if not text:
        raise ValueError("this backend gives no text of a compiled module; dump what was lowered instead")
    return str(text)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees all of it or none."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder: make it, or name another", str(path.parent))
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder: name a file in it", str(path))
    descriptor, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o666 & ~_umask())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _umask() -> int:
    # read from Linux without setting it, which would affect other threads
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0o022
    return next((int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:")), 0o022)
