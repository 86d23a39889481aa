"""Writes `src/exchange/tokamax/tokamax.json`: which class a file of a Tokamax database is named after.

    pip install tokamax==0.0.12
    python python/tokamax_table.py

Tokamax names a file after the class alone, in snake case; the class path is read from the running library.
"""

import importlib
import importlib.metadata
import json
import os
import pathlib
import pkgutil
import re

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tokamax._src.ops as operations
from tokamax._src.ops.op import Op


def subclasses(kind):
    for found in kind.__subclasses__():
        yield found
        yield from subclasses(found)


def main():
    for info in pkgutil.walk_packages(operations.__path__, operations.__name__ + "."):
        if "test" not in info.name.rsplit(".", 1)[-1]:
            try:
                importlib.import_module(info.name)
            except (ImportError, AttributeError) as error:  # benchmarks need more packages, one module is broken
                print(f"{info.name}: {error}")
    table = {}
    for kind in subclasses(Op):
        stem = re.sub(r"(?!^)([A-Z])", r"_\1", kind.__name__).lower()
        path = f"{kind.__module__}.{kind.__qualname__}"
        if table.setdefault(stem, path) != path:
            raise SystemExit(f"{stem}: both {table[stem]} and {path}")
    rows = [f"{json.dumps(stem)}: {json.dumps(path)}" for stem, path in sorted(table.items())]
    version = json.dumps(importlib.metadata.version("tokamax"))
    text = f'{{"tokamax": {version}, "classes": {{\n' + ",\n".join(rows) + "\n}}"
    path = pathlib.Path(__file__).resolve().parent.parent / "src/exchange/tokamax/tokamax.json"
    path.write_text(text + "\n")


if __name__ == "__main__":
    main()
