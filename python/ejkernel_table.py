"""Writes `src/cache/exchange/ejkernel.json`: what the installed ejkernel's persistent caches are called and hold.

    pip install ejkernel==0.0.80.3
    python python/ejkernel_table.py

Names, versions and defaults are read from the running library; a config is one that `cache export` may write when it
holds no other field than those listed here.
"""

import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import os
import pathlib
import pkgutil
import typing

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import ejkernel.modules.operations as operations
from ejkernel.ops import Kernel
from ejkernel.ops.execution.executor import Executor


def fields_of(config_class):
    """Each field's default; a nested parameter class as its own table beside it."""
    found = {}
    hints = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        entry = {}
        nested = [kind for kind in typing.get_args(hints[field.name]) if dataclasses.is_dataclass(kind)]
        if nested:
            entry["fields"] = fields_of(nested[0])
        if field.default is not dataclasses.MISSING:
            entry["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
            entry["default"] = dataclasses.asdict(default) if dataclasses.is_dataclass(default) else default
        found[field.name] = entry
    return found


def main():
    table = {}
    for info in pkgutil.iter_modules(operations.__path__):
        module = importlib.import_module(f"{operations.__name__}.{info.name}")
        caches = {}
        for value in vars(module).values():
            if isinstance(value, Executor) and value.chooser.persistent is not None:
                caches[pathlib.Path(value.chooser.persistent.path).name] = value.chooser.persistent.cfg_type is not None
        for kernel in vars(module).values():
            if not (inspect.isclass(kernel) and issubclass(kernel, Kernel) and kernel.__module__ == module.__name__):
                continue
            config_class = next(args[0] for base in kernel.__orig_bases__ if (args := typing.get_args(base)))
            operation = kernel()
            # a module with two operations names each file after its own
            file = f"{operation.op_id}.json" if len(caches) > 1 else next(iter(caches))
            table[operation.op_id] = {
                "file": file,
                "version": operation.version,
                "typed": caches[file],
                "fields": fields_of(config_class),
            }
    rows = [f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in sorted(table.items())]
    version = json.dumps(importlib.metadata.version("ejkernel"))
    text = f'{{"ejkernel": {version}, "operations": {{\n' + ",\n".join(rows) + "\n}}"
    path = pathlib.Path(__file__).resolve().parent.parent / "src/cache/exchange/ejkernel.json"
    path.write_text(text + "\n")


if __name__ == "__main__":
    main()
