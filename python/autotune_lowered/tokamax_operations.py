"""The operations of the installed Tokamax: a JSON table on stdout, which class each database is named after.

    python -m autotune_lowered.tokamax_operations > operations.json
    autotune-lowered cache import --format tokamax --operations operations.json DIR

Tokamax names a database after a class alone, in snake case, while labels in modules hold the class path, which changes
from version to version. The sources are read and not imported, because some import libraries of other devices. Tables
of other versions may follow the command: their operations that the installed Tokamax does not have stay in the new
table. So the program's own table was made from Tokamax 0.0.12 to 0.0.17, the oldest first.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import pathlib
import re
import sys
from collections.abc import Iterator

_BASE = "Op"


def table(*older: str) -> str:
    """The table as JSON text, with what it lacks of `older` tables. Raises ImportError without Tokamax."""
    spec = importlib.util.find_spec("tokamax")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the operations are those of the installed Tokamax: pip install tokamax")
    found: dict[str, str] = {}
    for text in older:
        found |= json.loads(text)["classes"]
    found |= _operations(pathlib.Path(spec.submodule_search_locations[0]))
    rows = [f"{json.dumps(name)}: {json.dumps(path)}" for name, path in sorted(found.items())]
    version = json.dumps(importlib.metadata.version("tokamax"))
    return f'{{"tokamax": {version}, "classes": {{\n' + ",\n".join(rows) + "\n}}"


def _operations(package: pathlib.Path) -> dict[str, str]:
    """The class paths of all operations below a package, by the names of their databases."""
    classes = [one for file in sorted(package.rglob("*.py")) for one in _classes(package, file)]
    derived = {_BASE}
    while more := {name for name, _, bases in classes if bases & derived} - derived:
        derived |= more
    return {
        re.sub(r"(?!^)([A-Z])", r"_\1", name).lower(): f"{module}.{name}"
        for name, module, _ in classes
        if name in derived - {_BASE} and not name.startswith("_")
    }


def _classes(package: pathlib.Path, file: pathlib.Path) -> Iterator[tuple[str, str, set[str]]]:
    """The classes of a source file: name, module and the names of their bases."""
    if file.stem.endswith("_test"):
        return
    module = ".".join((package.name, *file.relative_to(package).with_suffix("").parts))
    try:
        body = ast.parse(file.read_text(encoding="utf-8")).body
    except SyntaxError as error:
        print(f"{file} is left out, because this Python cannot read it: {error}", file=sys.stderr)
        return
    for node in body:
        if isinstance(node, ast.ClassDef):
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            yield node.name, module, {ast.unparse(base).rsplit(".", 1)[-1] for base in bases}


if __name__ == "__main__":
    print(table(*(pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:])))
