"""What the recording's tests share: a registry read back from its files, and the program that tunes."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import shutil
import sys


def records(folder):
    """The invocations of a registry's folder."""
    return [json.loads(path.read_text())["invocation"] for path in sorted(pathlib.Path(folder).glob("invocations/*/*.json"))]


def record_of(folder, op_id, direction, platform=None):
    """The only record of an operation in a direction."""

    def of(invocation):
        target = invocation["target"]
        return target.get("platform") or target["device"]["platform"]

    found = [
        invocation
        for invocation in records(folder)
        if (invocation["op_id"], invocation["direction"]) == (op_id, direction) and platform in (None, of(invocation))
    ]
    assert len(found) == 1, f"{len(found)} records of {op_id} {direction}"
    return found[0]


def array_bytes(folder, fill):
    """The captured bytes of an argument, checked against their digest."""
    content = (pathlib.Path(folder) / fill["path"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == fill["digest"]
    return content


def program():
    """The `autotune-lowered` program, or `None`."""
    named = os.environ.get("AUTOTUNE_LOWERED_EXE")
    beside = pathlib.Path(sys.executable).with_name("autotune-lowered")
    return named or (str(beside) if beside.exists() else shutil.which("autotune-lowered"))
