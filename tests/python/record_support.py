"""Helpers of the recording tests: a registry read back from its files, and the program that tunes."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import tempfile

from conftest import find_program

# ejkernel: no tuning of its own, and no results of this user's runs
os.environ.setdefault("EJKERNEL_AUTOTUNE_POLICY", "heuristics")
os.environ.setdefault("EJKERNEL_PERSISTENT_CACHE_DIR", tempfile.mkdtemp(prefix="ejkernel-cache-"))


def records(folder):
    """The invocations of a registry's folder."""
    return [
        json.loads(path.read_text())["invocation"] for path in sorted(pathlib.Path(folder).glob("invocations/*/*.json"))
    ]


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
    return find_program()


def debug_text(lowered):
    """StableHLO with the names of scopes, in any version of JAX."""
    try:
        return lowered.as_text(debug_info=True)
    except TypeError:
        return lowered.compiler_ir("stablehlo").operation.get_asm(enable_debug_info=True)
