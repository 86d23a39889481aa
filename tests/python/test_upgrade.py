"""`upgrade --record`: the calls as two environments record them."""

import json
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("jax")

# an environment says with a variable what it lowers
SCRIPT = """
import os, sys
import jax, jax.numpy as jnp
import autotune_lowered

def tunable(op):
    return autotune_lowered.tunable(op=op, version=1, space={"rows": [2, 4]})

@tunable("both")
def both(x, *, rows=4):
    more = 2 if os.environ.get("NEWER") else 1
    for _ in range(more):
        x = jnp.sin(x)
    return x.reshape(rows, -1).sum(axis=0)

@tunable("older")
def older(x, *, rows=4):
    return x.reshape(rows, -1).max(axis=0)

def step(x):
    return both(x).sum() + (0 if os.environ.get("NEWER") else older(x).sum())

print("recorded with", sys.argv[1:])
jax.jit(step).lower(jnp.ones(16))
"""


def environment(folder, name, variable=""):
    """A folder that is named like an environment, whose Python is this one with a variable set."""
    python = folder / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n{variable} exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return str(folder / name)


@pytest.fixture
def places(tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "cache").mkdir()
    return tmp_path


def upgrade(program, places, script, *more):
    old, new = environment(places, "old"), environment(places, "new", "NEWER=1")
    words = [program, "upgrade", "--old", old, "--new", new, "--cache", "cache", "--record", script]
    # times decide nothing here
    return subprocess.run(
        [*words, "--processes", "3", "--budget", "1", "--format", "json", *more],
        cwd=places,
        capture_output=True,
        text=True,
    )


def test_each_environment_records_the_calls_for_itself(program, places):
    done = upgrade(program, places, "train.py --steps 'a b'")
    result = json.loads(done.stdout)
    calls = {call["op_id"]: call for call in result["calls"]}
    assert set(calls) == {"both@v1", "older@v1"}, done.stderr
    assert calls["older@v1"]["verdict"] == "undecided"
    assert "the new environment recorded no such call" in calls["older@v1"]["reason"]
    # what the two lower differs by one operation, and returns other values
    assert calls["both@v1"]["verdict"] == "breaks", calls["both@v1"]
    assert done.stderr.count("recorded with ['--steps', 'a b']") == 2, done.stderr


def test_a_script_that_fails_is_named_with_its_environment(program, places):
    (places / "train.py").write_text("import sys; sys.exit(3)")
    done = upgrade(program, places, "train.py")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.splitlines()[-1].endswith("`--record train.py`: it ended with exit code 3; its output is above")


def test_a_script_without_calls_is_named(program, places):
    (places / "train.py").write_text("")
    done = upgrade(program, places, "train.py")
    assert done.returncode == 5 and "it recorded no call" in done.stderr.splitlines()[-1], done.stderr


def test_what_is_wrong_is_told_before_anything_is_recorded(program, places):
    (places / "train.py").write_text("open('ran', 'w')")
    old, new = environment(places, "old"), places / "new/bin/python"
    new.parent.mkdir(parents=True)
    new.write_text(f'#!/bin/sh\nPYTHONPATH= VIRTUAL_ENV= exec "{sys._base_executable}" "$@"\n')
    new.chmod(0o755)
    (places / "registry").mkdir()
    (places / "registry/registry.json").write_text("{}")
    words = [program, "upgrade", "--old", old, "--cache", "cache", "--record", "train.py"]
    for more, code, said in [
        (["--new", "new"], 5, "`new`: `--record`: it has no `autotune_lowered`: install it there"),
        (["registry", "--new", old], 2, "leave out `registry`, or name a module"),
        (["missing.mlir", "--new", old], 4, "`missing.mlir`: no such file or folder"),
    ]:
        done = subprocess.run([*words, *more], cwd=places, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (code, "") and said in done.stderr.splitlines()[-1], done.stderr
    assert not (places / "ran").exists()
