"""The message of each feature whose library is missing; the others work."""

import subprocess
import sys

import pytest

# a module that is None cannot be imported
BLOCK = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
import autotune_lowered
"""

CASES = {
    "recording": (["jax"], "autotune_lowered.recording({folder!r}).start()", "jax"),
    "dump": (["jax"], "autotune_lowered.dump(object(), {folder!r} + '/m')", "jax"),
    "device": (["jax"], "autotune_lowered.device()", "autotune-lowered[jax]"),
    "tunable": (
        ["jax"],
        "autotune_lowered.tunable(op='a', version=1, space={{'b': [1]}})(lambda x, *, b=1: x)(1)",
        "jax",
    ),
    "profiling": (["jax"], "autotune_lowered.profiling.profile_context({folder!r}).__enter__()", "jax"),
    "frame": (
        ["pandas"],
        "autotune_lowered.AutotuningResult(dict(schema=1, operations=[])).to_pandas()",
        "autotune-lowered[pandas]",
    ),
    "fields": (["ejkernel"], "import autotune_lowered.ejkernel_fields as f; f.table()", "pip install ejkernel"),
    "operations": (["tokamax"], "import autotune_lowered.tokamax_operations as o; o.table()", "pip install tokamax"),
}


def run(blocked, code):
    script = BLOCK.format(blocked=blocked) + code
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", CASES)
def test_a_missing_library_is_named_with_what_installs_it(name, tmp_path):
    blocked, code, said = CASES[name]
    done = run(blocked, code.format(folder=str(tmp_path)))
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and last.startswith("ImportError: ") and said in last, done.stderr


def test_without_any_of_them_the_rest_works(tmp_path):
    code = f"""
from autotune_lowered import Cache, Device, AutotuningResult, _native
cache = Cache.open({str(tmp_path)!r})
print(cache.get(Device("cpu", "cpu"), "op@v1", "k"), len(list(cache)) > 0)
print(AutotuningResult(dict(schema=1, operations=[])).configs)
print(len(_native.scan(b"HloModule m\\n\\nENTRY e {{ ROOT x = f32[] constant(1) }}")) > 0)
with autotune_lowered.overlay({{("op@v1", "k"): dict(a=1)}}):
    print(cache.get(Device("cpu", "cpu"), "op@v1", "k").config)
"""
    done = run(["jax", "jaxlib", "numpy", "ejkernel", "tokamax", "pandas", "ray"], code)
    assert done.stdout.split("\n")[:4] == ["None True", "{}", "True", "{'a': 1}"], done.stderr
