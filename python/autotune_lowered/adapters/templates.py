"""Templates of other projects' files: JSON tables, whose names, keys and values are expressions over a recorded call."""

from __future__ import annotations

import ast
import dataclasses
import json
import operator
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from .._printable import printable
from .tables import read_text

_SCHEMA = 1
_MOST_BYTES = 16 << 20
# expressions are short, and their numbers too
_LONGEST = 500
_SHOWN = 60
_LARGEST = 1 << 128

_PLACE = re.compile(r"\{([^{}]*)\}")
_FILE = re.compile(r"[A-Za-z0-9_=,][A-Za-z0-9_=,.+-]{0,199}")

_OPERATIONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "next_power_of_two": lambda number: 1 << max(0, number - 1).bit_length(),
    "ceil_div": lambda a, b: -(-a // b),
    "underscored": lambda text: text.replace(" ", "_"),
}


@dataclasses.dataclass(frozen=True)
class FileTable:
    """A JSON file with a row for each call: one file for all calls that give it one name."""

    op_id: str
    file: str
    """The file's name, with expressions in braces: `N={b.shape[1]},device_name={underscored(device.device_kind)}.json`."""
    key: str
    """The row's key."""
    value: Any
    """The row: JSON, in whose texts expressions stand in braces. A text that is one expression becomes its value."""

    @staticmethod
    def read(path: str | os.PathLike[str]) -> FileTable:
        """A template from a JSON file. Raises ValueError if it is none."""
        where = f"`{printable(str(path))}`"
        try:
            said = json.loads(read_text(pathlib.Path(path), _MOST_BYTES))
        except ValueError as error:
            raise ValueError(f"{where} is no template: {error}") from None
        members = {"schema", "operation", "file", "key", "value"}
        if not isinstance(said, dict) or said.keys() != members or said["schema"] != _SCHEMA:
            raise ValueError(
                f"{where} is no template: it needs `schema` {_SCHEMA}, `operation`, `file`, `key` and `value`"
            )
        operation, file, key = (said[name] for name in ("operation", "file", "key"))
        if not all(isinstance(text, str) for text in (operation, file, key)):
            raise ValueError(f"{where}: `operation`, `file` and `key` are texts")
        return FileTable(operation, file, key, said["value"])

    def row(
        self, call: Mapping[str, Any], config: Mapping[str, Any], device: Mapping[str, Any]
    ) -> tuple[str, str, Any]:
        """The file, the key and the value of a call. Raises ValueError if an expression does not hold for it."""
        names = {**call, "config": config, "device": device}
        file = str(_filled(self.file, names))
        if not _FILE.fullmatch(file):
            raise ValueError(f"{file!r} is no plain name of a file")
        return file, str(_filled(self.key, names)), _filled_all(self.value, names)

    def with_rows(self, path: pathlib.Path, rows: Mapping[str, Any]) -> str:
        """The text of a file with these rows, in place of those with the same keys."""
        held: Any = {}
        if os.path.lexists(path):
            held = json.loads(read_text(path, _MOST_BYTES))
        if not isinstance(held, dict):
            raise ValueError(f"`{printable(str(path))}` is no table: it holds no object")
        return json.dumps(held | dict(rows), indent=4) + "\n"


def _filled_all(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return _filled(value, names)
    if isinstance(value, dict):
        return {key: _filled_all(one, names) for key, one in value.items()}
    return [_filled_all(one, names) for one in value] if isinstance(value, list) else value


def _filled(text: str, names: Mapping[str, Any]) -> Any:
    whole = _PLACE.fullmatch(text)
    if whole is not None:
        return _value(whole[1], names)
    return _PLACE.sub(lambda place: str(_value(place[1], names)), text)


def _value(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression: numbers, texts and what is listed here, so a template runs no code."""
    shown = printable(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
    try:
        if len(text) > _LONGEST:
            raise ValueError("it is too long")
        found = _of(ast.parse(text.strip(), mode="eval").body, names)
    except (ValueError, TypeError, LookupError, SyntaxError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"`{shown}`: {printable(str(error))}") from None
    if not isinstance(found, (int, float, str, type(None))):
        raise ValueError(f"`{shown}` is no number and no text")
    return found


def _of(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)):
        return node.value
    if isinstance(node, ast.Name):
        return _known(names, node.id)
    if isinstance(node, ast.Attribute):
        return _member(_of(node.value, names), node.attr)
    if isinstance(node, ast.Subscript):
        held, place = _of(node.value, names), _of(node.slice, names)
        if isinstance(held, (tuple, list)) and type(place) is int:
            return held[place]
        if isinstance(held, Mapping) and isinstance(place, str):
            return held[place]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _bounded(-_number(_of(node.operand, names)))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = (_number(_of(side, names)) for side in (node.left, node.right))
        return _bounded(_OPERATIONS[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _bounded(_known(_FUNCTIONS, node.func.id)(*(_of(argument, names) for argument in node.args)))
    raise ValueError("it has something else than names, numbers, `+ - * // %`, `[…]` and known functions")


def _known(names: Mapping[str, Any], name: str) -> Any:
    if name not in names:
        raise ValueError(f"there is no `{name}`")
    return names[name]


def _member(held: Any, name: str) -> Any:
    if isinstance(held, Mapping):
        return _known(held, name)
    if name == "shape":
        return tuple(int(size) for size in held.shape)
    if name == "dtype":
        return held.dtype.name
    raise ValueError(f"there is no `.{name}`: arrays have `shape` and `dtype`")


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ArithmeticError("a number is too large")
    return value
