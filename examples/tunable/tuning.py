"""Shared by both examples: records a function, tunes it with the program, and returns the best configs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import jax

import autotune_lowered


def best_configs(step, arguments, folder, directions=("forward",)):
    """The best config of each call in `step(*arguments)`, by `(op_id, call_key)`, without those that could not be
    decided. The step is lowered and not run."""
    folder = pathlib.Path(folder)
    with autotune_lowered.recording(folder / "registry", directions=directions):
        lowered = jax.jit(step).lower(*arguments)
    module = autotune_lowered.dump(lowered, folder / "module.mlir")
    command = [program(), module, "--registry", folder / "registry", "--cache", folder / "cache", "--format", "json"]
    # this Python's own JAX runs the candidates, in separate processes
    command += ["--timer", f"jax:{sys.executable}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300, check=False)
    if done.returncode != 0:
        sys.exit(f"`{' '.join(map(str, command))}` ended with {done.returncode}")
    best = {}
    for operation in json.loads(done.stdout)["operations"]:
        chosen = operation.get("best")
        if chosen is None:
            print(f"{operation['op_id']}: {operation['status']}: {operation['reason']}")
        else:
            print(f"{operation['op_id']}: {operation['baseline']['config']} -> {chosen['config']}")
            best[operation["op_id"], operation["call_key"]] = chosen["config"]
    return best


def program():
    """The program: AUTOTUNE_LOWERED_EXE, else the one beside this Python, else the one in PATH."""
    beside = pathlib.Path(sys.executable).with_name("autotune-lowered")
    found = os.environ.get("AUTOTUNE_LOWERED_EXE") or (beside if beside.exists() else shutil.which("autotune-lowered"))
    return found or sys.exit("the program `autotune-lowered` is missing: pip install .")
