"""How the package's files use each other: no cycles, and no subpackage uses one on a higher floor.

Every import counts, including those inside functions and those for types alone.
"""

import ast
import pathlib

import pytest

import autotune_lowered

PACKAGE = pathlib.Path(autotune_lowered.__file__).parent
NAME = "autotune_lowered"

# subpackages and top-level files, the lowest first: each uses those below it, and on its own floor only itself
FLOORS = [
    [
        "_version",
        "_printable",
        "_jax",
        "_specs",
        "_vmap",
        "_scratch",
        "_program",
        "_native",
        "ejkernel_fields",
        "tokamax_operations",
    ],
    ["_stages", "_label"],
    ["module", "inputs", "profiling", "record", "fleet"],
    ["libraries"],
    # it builds the programs of recipes, and must stand alone, so it identifies devices itself
    ["worker"],
    ["lookup"],
    ["cache", "tunables", "tuning"],
    ["adapters"],
    ["_recording"],
    ["autotuning", "variants"],
    ["__init__", "__main__"],
]


def modules(folder):
    """The package's modules by dotted name, each with its source."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(part for part in (NAME, *parts) if part != "__init__")] = path.read_text()
    return found


def imports(name, source, known):
    """The package's modules that a module imports, anywhere in it."""
    is_package = any(other.startswith(f"{name}.") for other in known)
    here = name.split(".") if is_package else name.split(".")[:-1]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # a name is a module, or is defined in the one from which it is imported
            whole = {f"{base}.{alias.name}" for alias in node.names}
            found |= {one if one in known or one == f"{NAME}._native" else base for one in whole}
    return {one for one in found if one.split(".")[0] == NAME} - {name}


def graph(folder):
    known = modules(folder)
    return {name: imports(name, source, known) for name, source in known.items()}


def circles(arrows):
    """The sets of two or more modules that can all reach each other (Tarjan's components)."""
    index, low, stack, found = {}, {}, [], []

    def visit(name):
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            members = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(members)

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return found


def against_floors(arrows):
    """The edges from a subpackage to one that is not below it."""
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

    def room(name):
        return name.split(".")[1] if "." in name else "__init__"

    return [
        f"{name} -> {other}"
        for name, others in sorted(arrows.items())
        for other in sorted(others)
        if room(name) != room(other) and floor[room(name)] <= floor[room(other)]
    ]


def test_no_files_use_each_other_in_a_circle():
    assert circles(graph(PACKAGE)) == []


def test_rooms_use_only_rooms_below_them():
    assert against_floors(graph(PACKAGE)) == []


def test_no_file_names_another_but_by_an_import():
    """`sys.modules` and `import_module` would hide an edge; the package's own names are resolved from one table."""
    hiding = [
        name
        for name, source in modules(PACKAGE).items()
        if name != NAME
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{NAME}.")
    ]
    assert hiding == []


def planted(folder, files):
    for name, source in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    return graph(folder)


@pytest.mark.parametrize(
    "back",
    [
        "from .. import a\n",
        "from ..a import one\n",
        "def late():\n    from ..a import one\n",
        "import autotune_lowered.a\n",
        "def late():\n    import autotune_lowered.a as other\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..a import one\n",
    ],
)
def test_a_planted_circle_is_found(tmp_path, back):
    files = {"__init__.py": "", "a.py": "from .room.b import two\none = 1\n", "room/__init__.py": "", "room/c.py": back}
    arrows = planted(tmp_path, files | {"room/b.py": "from . import c\ntwo = 2\n"})
    assert circles(arrows) == [{"autotune_lowered.a", "autotune_lowered.room.b", "autotune_lowered.room.c"}]
    files["room/c.py"] = "import json\n"
    assert circles(planted(tmp_path, files)) == []


def test_a_planted_arrow_up_is_found(tmp_path):
    files = {"__init__.py": "", "record/__init__.py": "", "record/call.py": "def f():\n    from ..tuning import run\n"}
    arrows = planted(tmp_path, files | {"tuning/__init__.py": "", "tuning/run.py": "from ..record import call\n"})
    assert against_floors(arrows) == ["autotune_lowered.record.call -> autotune_lowered.tuning.run"]
