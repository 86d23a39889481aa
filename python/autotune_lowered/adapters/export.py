"""`export_rows`: hands best configs back in the form that a project reads."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from .._printable import printable
from .._specs import spec_from_text
from ..lookup.cache import Cache
from ..lookup.entry import Entry
from ..record.describe import one_line
from ..record.stand_in import answering
from ..record.target import Target, names
from .operation import Operation
from .sets import named
from .tables import SourceTable, read_text
from .templates import FileTable

_MOST_RECORD_BYTES = 64 << 20
# as many as the program reads
_MOST_BORDERS = 8


@dataclasses.dataclass
class Exported:
    """What was written, and what was not."""

    rows: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    """For each entry: `op_id`, `call_key`, `device`, `config`, `ratio`, `interval`, and `row` or `settings`."""
    files: list[pathlib.Path] = dataclasses.field(default_factory=list)
    """The modules that have new rows."""
    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    """Variables of the environment."""
    yml: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Keys of a configuration file."""
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    """Entries that are not written, settings that hold for another call, and rows that are not the best everywhere in
    their bucket, each with the reason."""

    def yml_text(self) -> str:
        """The keys as a fragment of a YAML file."""
        return "".join(f"{key}: {json.dumps(value)}\n" for key, value in sorted(self.yml.items()))

    def markdown(self) -> str:
        """A table for a pull request: what was tuned, where, by how much, and how sure that is."""
        lines = [
            "| call | device | row | time of the baseline's | interval | compiler |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for one in self.rows:
            shown = one.get("row") or one.get("settings") or one.get("yml")
            low, high = one["interval"]
            call, interval = f"{one['op_id']}:{one['call_key']}", f"{low:.3f} to {high:.3f}"
            cells = (call, one["device"], shown, f"{one['ratio']:.3f}", interval, one["compiler"])
            lines.append("| " + " | ".join(printable(str(cell)).replace("|", "/") for cell in cells) + " |")
        return "\n".join(lines) + "\n"


def export_rows(
    adapters: str | Operation | Iterable[str | Operation],
    *,
    registry: str | os.PathLike[str],
    cache: Cache | str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    templates: Iterable[FileTable | str | os.PathLike[str]] = (),
) -> Exported:
    """Write the best configs of adapted kernels as rows of their projects' own tables, and as their settings.

    ```python
    written = autotune_lowered.export_rows("tpu-inference", registry="registry", out="checkout")
    print(written.markdown())
    ```

    A row replaces the one with the same key, or comes at the end of its table. Every written module is run, and its own
    look-up has to give the new values, before it takes its place. Only what was measured on a quiet machine is written:
    no entry from replayed samples, from a busy machine, or by hand.

    Arguments:
        adapters: Sets or operations, as for `recording`.
        registry: The folder of recorded calls, which say what a key stands for.
        cache: A cache, or its folder; by default the one in force.
        out: A checkout of the project. Its modules are changed in place; one that is not there is written as it is
            installed. Without it, tables are not written, and only settings and rows are returned.
        templates: Further tables, in JSON: files with templates, or `templates.FileTable`s. Their operations need no
            adapter, so `adapters` may be empty. Their files are in `out`.

    Raises ValueError for an unknown set and for a table that is not as the adapter expects, OSError if a file cannot be
    written, and what opening a cache raises.
    """
    forms = [one if isinstance(one, FileTable) else FileTable.read(one) for one in templates]
    known: dict[str, Operation | None] = {form.op_id: None for form in forms}
    known |= {operation.op_id: operation for operation in named(adapters)}
    opened = cache if isinstance(cache, Cache) else Cache.open(cache)
    calls = _recorded(pathlib.Path(registry), known)
    found = Exported()
    tables: dict[tuple[str, str], tuple[SourceTable, dict[Any, Any], list[Any], str]] = {}
    files: dict[str, tuple[FileTable, dict[str, Any]]] = {}
    entries = [entry for entry in opened if entry.op_id in known and entry.direction == "forward"]
    borders = {name: call["@borders"] for name, call in calls.items()}
    at_borders = {border for of_call in borders.values() for border in of_call}
    for entry in entries:
        name = _name(entry)
        if name in at_borders and not borders.get(name):
            # it is measured for another call's row
            continue
        operation = known[entry.op_id]
        reason = _unproven(entry) or (None if name in calls else "no call of this key is recorded in the registry")
        if reason is not None:
            found.skipped.append((name, reason))
            continue
        arguments = calls[name]
        try:
            row = _described(entry)
            if operation is not None and operation.settings is not None:
                row["settings"] = operation.settings(arguments, entry.config)
                found.skipped += [(name, why) for why in _join(found.settings, row["settings"])]
            if operation is not None and operation.yml is not None:
                row["yml"] = operation.yml(arguments, entry.config)
                found.skipped += [(name, why) for why in _join(found.yml, row["yml"])]
            for form in (form for form in forms if form.op_id == entry.op_id):
                file, name_of_row, filled = form.row(arguments, entry.config, entry.device)
                row["row"] = f"{file}: {name_of_row}: {json.dumps(filled)}"
                files.setdefault(file, (form, {}))[1][name_of_row] = filled
            if operation is not None and operation.table is not None:
                kind = entry.device.get("device_kind", "")
                with _on(kind):
                    key, value = operation.table.row(arguments, entry.config, entry.device)
                row["row"] = f"{key!r}: {value!r}"
                place = (operation.table.module, operation.table.name)
                held = tables.setdefault(place, (operation.table, {}, [], kind))
                if held[1].setdefault(key, value) != value:
                    raise ValueError(f"another call has the row {key!r} with {held[1][key]!r}")
                held[2].append((arguments, value))
                there = {_name(one): one for one in entries if one.device == entry.device}
                found.skipped += [(name, why) for why in _at_borders(entry, borders[name], there)]
        except Exception as error:  # a recorded call may lack what a row needs
            found.skipped.append((name, one_line(error)))
            continue
        found.rows.append(row)
    if out is not None:
        for table, rows, wanted, kind in tables.values():
            found.files.append(_write(pathlib.Path(out), table, rows, wanted, kind))
        for file, (form, filled_rows) in files.items():
            path = pathlib.Path(out) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, form.with_rows(path, filled_rows), lambda fresh: None)
            found.files.append(path)
    return found


def _name(entry: Entry) -> str:
    return f"{entry.op_id}:{entry.call_key}"


def _names(op_id: str, keys: Any) -> list[str]:
    """The names of the calls with these keys, which a record lists."""
    listed = keys[:_MOST_BORDERS] if isinstance(keys, list) else []
    return [f"{op_id}:{key}" for key in listed if isinstance(key, str)]


def _at_borders(entry: Entry, borders: Iterable[str], entries: Mapping[str, Entry]) -> list[str]:
    """What the ends of a row's bucket say against its config."""
    against = []
    for name in borders:
        there = entries.get(name)
        if there is None or _unproven(there) is not None:
            against.append(f"its row is for a bucket, and nothing is known at the border {name}: tune that call too")
        elif entry.config not in (there.config, *(there.provenance or {}).get("tie_set", ())):
            against.append(f"its row is for a bucket, and at the border {name} the best config is {there.config}")
    return against


def _join(held: dict[str, Any], more: Mapping[str, Any]) -> list[str]:
    """Adds settings, which hold for all calls; returns those that another call needs otherwise."""
    others = {name: value for name, value in more.items() if held.setdefault(name, value) != value}
    said = "`{}` is {} for another call and would be {} for this one, and it holds for all"
    return [said.format(name, held[name], value) for name, value in others.items()]


def _unproven(entry: Entry) -> str | None:
    """Why an entry is no proof."""
    how = entry.provenance
    if how is None or "interval" not in how:
        return "it was not measured here"
    if how.get("load", "quiet") != "quiet":
        return "it was measured beside other processes"
    return None


def _described(entry: Entry) -> dict[str, Any]:
    how = entry.provenance or {}
    environment = how.get("environment", {})
    return {
        "op_id": entry.op_id,
        "call_key": entry.call_key,
        "device": entry.device.get("device_kind") or entry.device.get("platform"),
        "config": entry.config,
        "ratio": how["ratio"],
        "interval": (how["interval"]["low"], how["interval"]["high"]),
        "compiler": environment.get("compiler") or environment.get("plugin") or "unknown",
    }


def _recorded(registry: pathlib.Path, known: Mapping[str, Operation | None]) -> dict[str, dict[str, Any]]:
    """The arguments of every recorded call of these operations, with specs for arrays; what is not there is `None`."""
    if not registry.is_dir():
        raise ValueError(f"`{printable(str(registry))}` is no registry: name the folder that a recording wrote")
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(registry.glob("invocations/*/*.json")):
        try:
            call = json.loads(read_text(path, _MOST_RECORD_BYTES))["invocation"]
            if call["op_id"] in known:
                static = call.get("static_arguments", {})
                of_bucket = {"@borders": _names(call["op_id"], static.get("borders"))}
                arrays = {one["name"]: spec_from_text(one["spec"]) for one in call["arguments"]}
                found[f"{call['op_id']}:{call['call_key']}"] = _Arguments(static | arrays | of_bucket)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return found


class _Arguments(dict[str, Any]):
    """Arguments by name; those that a call did not give are `None`."""

    def __missing__(self, name: str) -> None:
        return None


def _write(folder: pathlib.Path, table: SourceTable, rows: dict[Any, Any], calls: list[Any], kind: str) -> pathlib.Path:
    """Writes a module with new rows beside its place, proves it, and puts it there."""
    source = table.with_rows(table.source(folder), rows)
    path = table.file_in(folder)
    path.parent.mkdir(parents=True, exist_ok=True)

    def prove(fresh: pathlib.Path) -> None:
        with _on(kind):
            table.prove(source, rows, fresh, calls)

    _replace(path, source, prove)
    return path


def _replace(path: pathlib.Path, text: str, prove: Callable[[pathlib.Path], None]) -> None:
    """Writes a file beside its place, proves it, and puts it there."""
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(fresh, path.stat().st_mode & 0o777 if path.exists() else 0o644)
        prove(pathlib.Path(fresh))
        os.replace(fresh, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh)
        raise


@contextlib.contextmanager
def _on(kind: str) -> Iterator[None]:
    """Answers a look-up that asks for the device with the one that the rows are for."""
    targets = [Target.named(name) for name in names()]
    target = next((target for target in targets if target.device_kind == kind), None)
    with answering(target) if target is not None else contextlib.nullcontext():
        yield
