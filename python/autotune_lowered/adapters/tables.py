"""Tables of other projects: Python source in which a dictionary holds a row for each call."""

from __future__ import annotations

import ast
import collections
import dataclasses
import importlib
import importlib.util
import os
import pathlib
import runpy
import stat
from collections.abc import Callable, Mapping
from typing import Any

from .._printable import printable
from .places import Arguments, Config

Key = tuple[Any, ...]
Row = tuple[Key, tuple[Any, ...]]

# a table with more text is none that somebody wrote
_MOST_BYTES = 16 << 20
# rows may only hold these, whatever an entry says
_PLAIN: tuple[type, ...] = (int, str, type(None))


@dataclasses.dataclass(frozen=True)
class SourceTable:
    """A dictionary in a module of a project, from tuples to tuples; or of dictionaries."""

    module: str
    """`package.module`, which holds it."""
    name: str
    """The variable."""
    row: Callable[[Arguments, Config, Mapping[str, Any]], Row]
    """The row of a call with a config, on a device (`platform`, `device_kind`, `hardware`)."""
    look_up: Callable[[Mapping[str, Any], Arguments], tuple[Any, ...]] | None = None
    """Asks the project's own look-up of a module's members for a call."""
    outer: int = 0
    """The first so many parts of a row's key are the keys of the dictionaries around it."""

    def shipped(self) -> list[tuple[Any, ...]]:
        """The values of its rows as it is installed, the most frequent first."""
        held = [vars(importlib.import_module(self.module))[self.name]]
        for _ in range(self.outer):
            held = [inner for outer in held for inner in outer.values()]
        values = [tuple(value) for rows in held for value in rows.values()]
        return [value for value, _ in collections.Counter(values).most_common()]

    def file_in(self, folder: pathlib.Path) -> pathlib.Path:
        """Where the module is in a checkout, or would be."""
        return folder.joinpath(*self.module.split(".")).with_suffix(".py")

    def source(self, folder: pathlib.Path) -> str:
        """The module as it is in a folder, else as it is installed. Raises ValueError if it is nowhere."""
        path = self.file_in(folder)
        if not os.path.lexists(path):
            spec = importlib.util.find_spec(self.module)
            if spec is None or not spec.origin:
                raise ValueError(f"there is no `{self.module}`: write into a checkout of its project, or install it")
            path = pathlib.Path(spec.origin)
        return read_text(path, _MOST_BYTES)

    def with_rows(self, source: str, rows: Mapping[Key, tuple[Any, ...]]) -> str:
        """The source with these rows: in place of those with the same key, the others at the end of the dictionary.

        Raises ValueError if the source has no such dictionary, and for a row that is not made of numbers and text, or in
        its key of truth values.
        """
        parts = [(part, _PLAIN) for value in rows.values() for part in value]
        parts += [(part, (*_PLAIN, bool)) for key in rows for part in key]
        for part, kinds in parts:
            if type(part) not in kinds:
                raise ValueError(f"a row of `{self.name}` holds {part!r}: only whole numbers and text are written")
        edits = self._edits(source.splitlines(keepends=True), self._dictionary(source), self._nested(rows), 1)
        for start, end, text in sorted(edits, reverse=True):
            source = source[:start] + text + source[end:]
        return source

    def _nested(self, rows: Mapping[Key, tuple[Any, ...]]) -> dict[Any, Any]:
        """The rows under the keys of the dictionaries around them."""
        nested: dict[Any, Any] = {}
        for key, value in rows.items():
            place = nested
            for part in key[: self.outer]:
                place = place.setdefault(part, {})
            place[key[self.outer :]] = value
        return nested

    def _edits(
        self, lines: list[str], found: ast.Dict, rows: Mapping[Any, Any], depth: int
    ) -> list[tuple[int, int, str]]:
        """The parts of the source to replace, by their ends, for the rows of one dictionary."""
        left = dict(rows)
        edits: list[tuple[int, int, str]] = []
        for key, value in zip(found.keys, found.values, strict=True):
            spelled = _literal(key)
            if spelled not in left:
                continue
            new = left.pop(spelled)
            if not isinstance(new, dict):
                edits.append((_offset(lines, value), _end(lines, value), repr(new)))
            elif isinstance(value, ast.Dict):
                edits += self._edits(lines, value, new, depth + 1)
            else:
                raise ValueError(
                    f"`{self.module}` has no dictionary at {spelled!r} of `{self.name}`: its project changed"
                )
        if left and found.lineno == found.end_lineno:
            # before the brace, behind what may be a comma
            text = ", ".join(f"{key!r}: {value!r}" for key, value in left.items())
            end = _end(lines, found) - 1
            inner = ast.get_source_segment("".join(lines), found) or "{}"
            is_open = not found.keys or inner[:-1].rstrip().endswith(",")
            edits.append((end, end, text if is_open else f", {text}"))
        elif left:
            end = self._end_of_rows(lines, found)
            edits.append((end, end, _rows_text(left, "    " * depth)))
        return edits

    def _dictionary(self, source: str) -> ast.Dict:
        for node in ast.parse(source).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if self.name in names and isinstance(value, ast.Dict):
                return value
        raise ValueError(
            f"`{self.module}` has no dictionary `{self.name}`: its project changed, and the adapter did not"
        )

    @staticmethod
    def _end_of_rows(lines: list[str], found: ast.Dict) -> int:
        """Before the mark that ends sorted lines, if there is one, else before the brace."""
        assert found.end_lineno is not None
        last = found.end_lineno - 1
        if lines[last - 1].strip().startswith("#"):
            last -= 1
        return sum(map(len, lines[:last]))

    def prove(self, source: str, rows: Mapping[Key, tuple[Any, ...]], path: pathlib.Path, calls: list[Row]) -> None:
        """Runs the written module, and asks it for each row. Raises ValueError for another answer.

        `calls` has each call's arguments with the value that its look-up has to give.
        """
        compile(source, str(path), "exec")
        members = runpy.run_path(str(path), run_name=self.module)
        for key, value in rows.items():
            held = members[self.name]
            for part in (*key[: self.outer], key[self.outer :]):
                held = held[part]
            if tuple(held) != value:
                raise ValueError(f"`{path}` has {held!r} for {key!r}, and not {value!r}")
        for arguments, value in calls:
            answer = None if self.look_up is None else tuple(self.look_up(members, arguments))  # type: ignore[arg-type]
            if answer is not None and answer[: len(value)] != value:
                raise ValueError(f"the look-up of `{self.module}` gives {answer!r}, and not {value!r}")


def read_text(path: pathlib.Path, most: int) -> str:
    """The text of a regular file of at most so many bytes. Raises ValueError for any other one."""
    # a FIFO would be waited for
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError(f"`{printable(str(path))}` is not a regular file")
        found = file.read(most + 1)
    if len(found) > most:
        raise ValueError(f"`{printable(str(path))}` is larger than {most >> 20} MB")
    return found.decode()


def _rows_text(rows: Mapping[Any, Any], indent: str) -> str:
    """Rows, and dictionaries of them, a line each."""
    text = ""
    for key, value in rows.items():
        inner = f"{{\n{_rows_text(value, indent + '    ')}{indent}}}" if isinstance(value, dict) else repr(value)
        text += f"{indent}{key!r}: {inner},\n"
    return text


def _literal(node: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:  # a row that is computed
        return None


def _offset(lines: list[str], node: ast.expr) -> int:
    return sum(map(len, lines[: node.lineno - 1])) + _columns(lines[node.lineno - 1], node.col_offset)


def _end(lines: list[str], node: ast.expr) -> int:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return sum(map(len, lines[: node.end_lineno - 1])) + _columns(lines[node.end_lineno - 1], node.end_col_offset)


def _columns(line: str, column: int) -> int:
    """Characters before a column, which the parser counts in bytes."""
    return len(line.encode()[:column].decode())
