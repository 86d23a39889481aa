"""`upgrade --record` and `bisect --record`: the calls as several environments record them."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

pytestmark = pytest.mark.needs_jax("0.8", "the `jax` worker measures")

# an environment says with a variable what it lowers, or that its script fails or takes long
SCRIPT = """
import os, sys, time
if os.environ.get("FAILS"):
    sys.exit(3)
if os.environ.get("TAKES_LONG"):
    with open("started.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("started.new", "started")
    time.sleep(300)
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


def bisect(program, places, *names):
    """The command that searches these environments, in which one of another name than `old` differs."""
    variables = {"old": "", "new": "NEWER=1", "fails": "FAILS=1", "long": "TAKES_LONG=1"}
    for name in names:
        if not (places / name).exists():
            environment(places, name, variables[name])
    (places / "versions.txt").write_text("\n".join(names))
    words = [program, "bisect", "versions.txt", "--cache", "cache", "--record", "train.py"]
    return [*words, "--processes", "3", "--budget", "1", "--format", "json"]


def test_the_version_that_lowers_another_program_is_found(program, places):
    def search(*names):
        done = subprocess.run(bisect(program, places, *names), cwd=places, capture_output=True, text=True)
        assert done.returncode == 7, done.stderr
        result = json.loads(done.stdout)
        calls = {call["op_id"]: call for call in result["calls"]}
        assert set(calls) == {"both@v1", "older@v1"} and calls["older@v1"]["outcome"] == "undecided", done.stderr
        both = calls["both@v1"]
        return done.stderr, result, (both["outcome"], both["held"], both.get("changed"), both["verdict"])

    said, result, both = search("old", "fails", "new")
    assert both == ("between", 0, 2, "breaks")
    assert said.count("recorded with []") == 2, said
    why = "`--record train.py`: it ended with exit code 3; its output is above"
    assert said.count(f"`fails` is left out: {why}") == 1, said
    assert [one.get("failure") for one in result["comparisons"]] == [None, why]
    assert "1 of 2 environments compared with the first, 1 left out" in said.splitlines()[-1], said
    # outputs alone decided, so that another run finds the same
    assert search("old", "fails", "new")[1] == result
    assert search("old", "new")[2] == ("found", 0, 1, "breaks")
    for names in (["fails", "new"], ["old", "fails"]):
        done = subprocess.run(bisect(program, places, *names), cwd=places, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (5, "")
        assert done.stderr.splitlines()[-1] == f"autotune-lowered: `fails`: {why}", done.stderr


@pytest.mark.parametrize(
    "names, sent, code",
    [
        (["long", "new"], signal.SIGTERM, 130),
        (["old", "long", "new"], signal.SIGTERM, 130),
        (["long", "new"], signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_a_script_ends_with_the_search(program, places, names, sent, code):
    with (places / "said.txt").open("w") as said:
        search = subprocess.Popen(
            bisect(program, places, *names), cwd=places, stdout=subprocess.PIPE, stderr=said, text=True
        )
    started, deadline = places / "started", time.monotonic() + 120
    while not started.exists():
        assert search.poll() is None and time.monotonic() < deadline, (places / "said.txt").read_text()
        time.sleep(0.05)
    script = int(started.read_text())
    # to the search alone, as by a service manager
    search.send_signal(sent)
    try:
        printed, _ = search.communicate(timeout=60)
        assert search.returncode == code, (places / "said.txt").read_text()
        assert ends(script)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(script, signal.SIGKILL)
    if names[0] == "old":
        result = json.loads(printed)
        both = next(call for call in result["calls"] if call["op_id"] == "both@v1")
        assert result["interrupted"] and (both["held"], both["changed"]) == (0, 2), printed
    else:
        assert printed == ""


def ends(process):
    """Whether a process is gone within a minute."""
    deadline = time.monotonic() + 60
    while pathlib.Path(f"/proc/{process}").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
