"""The names and fields of the installed ejkernel's persistent caches: a JSON table on stdout.

    python -m autotune_lowered.ejkernel_fields > fields.json
    autotune-lowered cache export --format ejkernel --fields fields.json DIR

Names, versions, fields and defaults come from the installed library, so that a config which this ejkernel cannot accept
is refused before it is written. The same command made the program's own table from ejkernel 0.0.80.3.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import json
import os
import pathlib
import pkgutil
import sys
import typing
from typing import Any


def fields_of(config_class: Any) -> dict[str, Any]:
    """Each field's default; a nested parameter class becomes a table of its own."""
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
            is_nested = dataclasses.is_dataclass(default) and not isinstance(default, type)
            entry["default"] = dataclasses.asdict(default) if is_nested else default
        found[field.name] = entry
    return found


def table() -> str:
    """The table as JSON text. Raises ImportError without ejkernel."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    try:
        import ejkernel.modules.operations as operations
        from ejkernel.ops import Kernel
        from ejkernel.ops.execution.executor import Executor
    except ImportError as error:
        raise ImportError("the fields are those of the installed ejkernel: pip install ejkernel") from error
    found = {}
    for info in pkgutil.iter_modules(operations.__path__):
        module = importlib.import_module(f"{operations.__name__}.{info.name}")
        caches = {}
        for value in vars(module).values():
            if isinstance(value, Executor) and value.chooser.persistent is not None:
                caches[pathlib.Path(value.chooser.persistent.path).name] = value.chooser.persistent.cfg_type is not None
        classes = [value for value in vars(module).values() if inspect.isclass(value)]
        kernels: list[Any] = [one for one in classes if issubclass(one, Kernel) and one.__module__ == module.__name__]
        for kernel in kernels:
            config_class = next(args[0] for base in kernel.__orig_bases__ if (args := typing.get_args(base)))
            operation = kernel()
            # a module with two operations names each file after its own
            file = f"{operation.op_id}.json" if len(caches) > 1 else next(iter(caches))
            found[operation.op_id] = {
                "file": file,
                "version": operation.version,
                "typed": caches[file],
                "fields": fields_of(config_class),
            }
    rows = [f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in sorted(found.items())]
    version = json.dumps(importlib.metadata.version("ejkernel"))
    return f'{{"ejkernel": {version}, "operations": {{\n' + ",\n".join(rows) + "\n}}"


if __name__ == "__main__":
    # libraries that print during import must not print into the table
    stdout, sys.stdout = sys.stdout, sys.stderr
    print(table(), file=stdout)
