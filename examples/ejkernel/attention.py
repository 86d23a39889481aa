"""ejkernel's attention, unmodified: recorded under `jit`, tuned, exported, and used by ejkernel in a fresh process.

pip install '.[jax]' ejkernel
python examples/ejkernel/attention.py
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

LOWER = """
import importlib, json, sys
import jax, jax.numpy as jnp
# the package gives the function under the module's name
module = importlib.import_module("ejkernel.modules.operations.flash_attention")

def attention(query, key, value):
    return module.flash_attention(query, key, value, causal=True)

def lower():
    shape = jax.ShapeDtypeStruct((1, 1024, 4, 64), jnp.float32)
    return jax.jit(attention).lower(shape, shape, shape).as_text(debug_info=True)
"""

RECORD = (
    LOWER
    + """
import autotune_lowered
with autotune_lowered.recording(sys.argv[1], directions=("forward",)) as recorded:
    text = lower()
open(sys.argv[2], "w").write(text)
"""
)

# without this package: ejkernel reads its own cache folder when it is imported
FRESH = (
    LOWER
    + """
events = []
module._flash_executor.chooser.on_event = lambda event, **data: events.append((event, data.get("level"), str(data["cfg"])))
text = lower()
print(json.dumps({"events": events, "text": text}))
"""
)


def main(folder, *more):
    """Returns what was decided, and what ejkernel saw of it; `more` are further options of the program."""
    folder = pathlib.Path(folder)
    registry, module, cache, exported = (folder / name for name in ("registry", "module.mlir", "cache", "ejkernel"))
    # this package does the tuning; ejkernel uses its heuristics
    python(
        [RECORD, registry, module], EJKERNEL_AUTOTUNE_POLICY="heuristics", EJKERNEL_PERSISTENT_CACHE_DIR=folder / "none"
    )
    options = ["--registry", registry, "--cache", cache, "--format", "json", *more]
    done = run([program(), module, *options, *timer()])
    (operation,) = json.loads(done)["operations"]
    if "best" not in operation:
        sys.exit(f"{operation['status']}: {operation['reason']}")
    print("best:", json.dumps(operation["best"]["config"]), operation["status"])
    run([program(), "cache", "export", "--format", "ejkernel", exported, "--cache", cache])
    seen = json.loads(python([FRESH], EJKERNEL_PERSISTENT_CACHE_DIR=exported))
    print("ejkernel, in a fresh process:", *seen["events"][0])
    return operation, seen


def timer():
    plugin = os.environ.get("AUTOTUNE_LOWERED_TEST_PLUGIN")
    return ["--plugin", plugin] if plugin else ["--timer", f"jax:{sys.executable}"]


def python(arguments, **environment):
    changed = {name: str(value) for name, value in environment.items()}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EJKERNEL_")}
    return run([sys.executable, "-c", *arguments], env=kept | changed)


def run(command, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, timeout=300, **options)
    if done.returncode != 0:
        sys.exit(f"`{command[0]}` ended with {done.returncode}")
    return done.stdout


def program():
    """The program: AUTOTUNE_LOWERED_EXE, else the one beside this Python, else the one in PATH."""
    beside = pathlib.Path(sys.executable).with_name("autotune-lowered")
    found = os.environ.get("AUTOTUNE_LOWERED_EXE") or (beside if beside.exists() else shutil.which("autotune-lowered"))
    return found or sys.exit("the program `autotune-lowered` is missing: pip install .")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
