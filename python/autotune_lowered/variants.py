"""`dump` of a module, or of a step in several forms: with its calls tuned, at their baselines, and by parts (`prove`)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _native
from ._stages import compiled_as, lowered_for, stablehlo_text
from ._vmap import unmapped_key
from .libraries.ejkernel.overlay import overlay as ejkernel_overlay
from .lookup.in_force import only_in_force
from .module import dump as dump_module
from .module import write_whole
from .tuning.result import AutotuningResult

FORMAT = "autotune-lowered-prove-v1"
MANIFEST = "prove.json"

# the limit that `prove` reads, and the smallest difference of a step that it seeks by default
MAX_CALLS = 1024
MIN_SHARE = 0.01

Label = tuple[str, str]


def dump(
    module: Any,
    path: str | os.PathLike[str],
    *,
    lowered: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    variants: AutotuningResult | None = None,
    without: Iterable[str | Label] = (),
) -> Path:
    """Write a module for `autotune-lowered`, with `<path>.labels.json` beside it; return its path.

    `module` is a `jax.stages.Lowered`, `Compiled` or `Traced`, what Equinox and Flax NNX give in their place, a
    `jax.export.Exported`, or with `args` and `kwargs` a function. `module.dump` describes `lowered` and
    `compiler_options`.

    With `variants`, a result of `tune`, `module` is the step itself (a function, or the result of `jax.jit`), and
    `path` a folder for `autotune-lowered prove`. The step is lowered for `args` and `kwargs` without running it: with
    no call tuned, with all tuned, and with sets of calls put back to their baselines. The sets are halves, halves of
    these, down to each call alone, which makes at most twice as many lowerings as there are tuned calls. No cache and
    no other overlay is in force meanwhile. Calls whose share of the profile (`tune` with `--profile`) is below 1 % are
    tuned or not along with the others, and get no separate set.

    The calls in `without`, `op:key` or `(op, key)`, are put back in every form. `prove` says which, if several lose.

    Files are named by their SHA-256, so equal programs are one file; `prove.json` is written last. Raises ValueError
    if the result has no tuned call of this step, or `without` names none of them; TypeError and OSError as `module.dump`.
    """
    if variants is None:
        if tuple(without):
            raise TypeError("`without` goes with `variants`")
        if args or kwargs:
            module = lowered_for(module, args, kwargs or {})
        return dump_module(module, path, lowered=lowered, compiler_options=compiler_options)
    if lowered is not None or compiler_options is not None:
        raise TypeError("`lowered` and `compiler_options` do not go with `variants`")
    return _dump_variants(module, Path(path), tuple(args), dict(kwargs or {}), variants, without)


def _dump_variants(
    step: Any,
    folder: Path,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: AutotuningResult,
    without: Iterable[str | Label],
) -> Path:
    def lowered_with(configs: Mapping[Label, Mapping[str, Any]]) -> Any:
        with _only(configs):
            return lowered_for(step, args, kwargs)

    tuned = {label: row for label, row in result.rows.items() if row["best"]["config"] != row["baseline"]["config"]}
    put_back = [_label(one) for one in without]
    for label in put_back:
        if label not in tuned:
            raise ValueError(f"`without` names `{':'.join(label)}`, which the result has not tuned")
    baselines = {label: row["baseline"]["config"] for label, row in tuned.items()}
    at_baselines = lowered_with(baselines)
    first = stablehlo_text(at_baselines)
    # the compile options are the same for each form of the step
    told = compiled_as(at_baselines, None, None)["compile_options"]
    calls = _calls_of(first, tuned)
    if not set(calls) - set(put_back):
        raise ValueError("the step has none of the calls that the result has tuned")
    if len(calls) > MAX_CALLS:
        raise ValueError(
            f"the step has {len(calls)} tuned calls, and `prove` takes {MAX_CALLS}: give a result of fewer"
        )
    number = {label: place for place, label in enumerate(calls)}
    every = [label for label in calls if label not in put_back]
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    divided = _divided(every, tuned)
    sets = [set(divided)] if 0 < len(divided) < len(every) else []
    sets += _halves(divided)
    for names in [[], every, *([one for one in every if one not in out] for out in sets)]:
        configs = baselines | {name: tuned[name]["best"]["config"] for name in names}
        text = first if not names else stablehlo_text(lowered_with(configs))
        content = text.encode()
        digest = hashlib.sha256(content).hexdigest()
        if not (folder / f"{digest}.mlir").exists():
            write_whole(folder / f"{digest}.mlir", content)
        rows.append({"tuned": sorted(number[name] for name in names), "file": f"{digest}.mlir", "sha256": digest})
    manifest = {
        "format": FORMAT,
        "digest": "0" * 64,
        "calls": [_row(tuned[label]) for label in calls],
        "variants": rows,
    } | ({} if told is None else {"compile_options": told})
    digest = hashlib.sha256(_bytes(manifest)).hexdigest()
    write_whole(folder / MANIFEST, _bytes(manifest | {"digest": digest}))
    return folder


@contextlib.contextmanager
def _only(configs: Mapping[Label, Mapping[str, Any]]) -> Iterator[None]:
    with only_in_force(configs), ejkernel_overlay({label: dict(config) for label, config in configs.items()}):
        yield


def _label(given: str | Label) -> Label:
    op_id, _, key = given.partition(":") if isinstance(given, str) else (given[0], ":", given[1])
    return op_id, key


def _calls_of(text: str, tuned: Mapping[Label, dict[str, Any]]) -> list[Label]:
    """The tuned calls in a module, those with the largest share first, then in order of occurrence."""
    occurs: dict[Label, int] = {}
    labels = json.loads(_native.scan(text.encode()))["labels"]
    labels.sort(key=lambda label: label.get("line") or 0)
    for place, label in enumerate(labels):
        if label["call_key"] is not None:
            # JAX may map a call after it was labelled
            occurs.setdefault((label["op_id"], unmapped_key(label["call_key"])), place)
    found = [label for label in tuned if (label[0], unmapped_key(label[1])) in occurs]
    return sorted(
        found, key=lambda label: (-(tuned[label].get("share") or 0), occurs[label[0], unmapped_key(label[1])])
    )


def _divided(labels: Sequence[Label], tuned: Mapping[Label, dict[str, Any]]) -> list[Label]:
    """The calls whose parts may get separate sets, including those without a share."""
    return [label for label in labels if (share := tuned[label].get("share")) is None or share >= MIN_SHARE]


def _halves(labels: list[Label]) -> Iterator[set[Label]]:
    """Halves, and halves of these, down to single calls; the whole is none of them."""
    if len(labels) < 2:
        return
    middle = (len(labels) + 1) // 2
    for half in (labels[:middle], labels[middle:]):
        yield set(half)
        yield from _halves(half)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: row[name] for name in ("op_id", "call_key", "direction")}
    found |= {"baseline": row["baseline"]["config"], "tuned": row["best"]["config"]}
    told = {
        "share": row.get("share"),
        "alone": row.get("speed_up"),
        "alone_interval": row.get("speed_up_interval"),
    }
    return found | {name: value for name, value in told.items() if value is not None}


def _bytes(manifest: Mapping[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1).encode() + b"\n"
