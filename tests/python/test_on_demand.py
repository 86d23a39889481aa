"""Candidates that are lowered when the tuner needs them, by the program that recorded them."""

import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs_jax("0.8", "the `jax` worker measures")

SCRIPT = """
import sys

import jax
import jax.numpy as jnp

import autotune_lowered

print("a program prints what it likes")


@autotune_lowered.tunable(op="sums", version=1, space={"parts": [1, 2, 3, 4, 5, 8]})
def sums(x, unused, *, parts=1):
    if parts == 3:
        raise ValueError(f"{parts} parts do not divide {x.shape[0]}")
    if parts == 5 and DIES:
        import os
        os._exit(7)
    return sum(jnp.tanh(part).sum(0) * SCALE for part in jnp.split(x, parts))


def step(x):
    return sums(x, x[:1])


with autotune_lowered.recording("registry", on_demand=True, directions=("forward",)) as recorded:
    lowered = jax.jit(jax.grad(lambda x: step(x).sum()) if GRADIENT else step).lower(jnp.ones((256, 64)))
autotune_lowered.dump(lowered, "module.mlir")
sys.stdout.write("it ends")
"""


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Writes the program, with other values in it, and runs it unless told otherwise."""
    monkeypatch.chdir(tmp_path)

    def record(is_run=True, **values):
        text = f"DIES, SCALE, GRADIENT = {values.get('dies', False)}, "
        text += f"{values.get('scale', 1.0)}, {values.get('gradient', False)}\n{SCRIPT}"
        pathlib.Path("serve.py").write_text(text)
        if is_run:
            subprocess.run([sys.executable, "serve.py"], check=True, capture_output=True)
        return f"{sys.executable} serve.py"

    return record


def records():
    found = [json.loads(path.read_text())["invocation"] for path in pathlib.Path("registry/invocations").glob("*/*")]
    assert found
    return found


def candidates():
    (record,) = records()
    return {one["config"]["parts"]: one for one in record["candidates"]}


def tune(run, *words, module="module.mlir", registry="registry", expected=0):
    timer = ("--timer", f"jax:{sys.executable}", "--cache", "cache", "--min-improvement", "0.9", "--format", "json")
    return json.loads(run("tune", module, "--registry", registry, *timer, *words, expected=expected))


def test_the_program_that_recorded_lowers_what_the_tuner_asks_for(recorded, run):
    command = recorded()
    before = candidates()
    assert "program" in before[1] and all(before[parts] == {"config": {"parts": parts}} for parts in (2, 3, 4, 5, 8))
    # the argument that no program needs is there, because the others might need it
    (record,) = records()
    assert [one["name"] for one in record["arguments"]] == ["x", "unused"]
    assert record["static_arguments"]["lowered"] == "on-demand"
    result = tune(run, "--recorder", command)
    (operation,) = result["operations"]
    measured = {one["config"]["parts"] for one in operation["candidates"] if one.get("median_ns")}
    assert {1, 2, 4, 8} <= measured, operation
    after = candidates()
    assert after[3]["not_lowered"] == "ValueError: 3 parts do not divide 256"
    assert all("program" in after[parts] for parts in (1, 2, 4, 8)) and after[1] == before[1]
    # 5 does not divide 256 either, in words of JAX
    assert "not_lowered" in after[5] and "ended" not in after[5]["not_lowered"]
    # nothing is left to lower, so no recorder is started
    tune(run, "--force", "--recorder", "false")


def test_a_recorder_that_dies_costs_its_candidate_alone(recorded, run):
    command = recorded(dies=True)
    result = tune(run, "--recorder", command)
    assert "it ended two recorders: the worker ended with exit code 7" in json.dumps(result)
    after = candidates()
    assert after[5] == {"config": {"parts": 5}}, "a signal may have been the reason, so the next run tries again"
    assert all("program" in after[parts] for parts in (1, 2, 4, 8))


def test_another_kernel_than_was_recorded_is_told(recorded, run):
    command = recorded()
    recorded(is_run=False, scale=2.0)
    result = tune(run, "--recorder", command, expected=1)
    assert "makes another program of the baseline than was recorded: record again" in json.dumps(result)
    assert "program" not in candidates()[2]


def test_the_command_line_records_on_demand_too(recorded, run, tmp_path):
    recorded(is_run=False)
    text = pathlib.Path("serve.py").read_text()
    own = 'with autotune_lowered.recording("registry", on_demand=True, directions=("forward",)) as recorded:'
    assert own in text
    pathlib.Path("serve.py").write_text(text.replace(own, "if True:") + "\nsys.exit(0)\n")
    command = [sys.executable, "-m", "autotune_lowered", "record", "--registry", "registry", "--on-demand", "serve.py"]
    subprocess.run(command, check=True, capture_output=True)
    tune(run, "--recorder", " ".join(command))
    # its module has no gradient, so those of the other direction stay as they are
    for record in records():
        lowered = {one["config"]["parts"] for one in record["candidates"] if "program" in one}
        assert lowered == ({1, 2, 4, 8} if record["direction"] == "forward" else {1}), record["direction"]


def test_with_gradients_both_directions_answer(recorded, run):
    recorded(is_run=False, gradient=True)
    text = pathlib.Path("serve.py").read_text().replace(', directions=("forward",)', "")
    pathlib.Path("serve.py").write_text(text)
    subprocess.run([sys.executable, "serve.py"], check=True, capture_output=True)
    assert {record["direction"] for record in records()} == {"forward", "forward-vjp"}
    tune(run, "--recorder", f"{sys.executable} serve.py")
    (backward,) = [record for record in records() if record["direction"] == "forward-vjp"]
    assert {one["config"]["parts"] for one in backward["candidates"] if "program" in one} == {1, 2, 4, 8}


SEVERAL = """
import pathlib
import sys

import jax
import jax.numpy as jnp

import autotune_lowered


def kernel(name):
    @autotune_lowered.tunable(op=name, version=1, space={"parts": [1, 2, 4]})
    def sums(x, *, parts=1):
        return sum(jnp.tanh(part).sum(0) * (2 if name == "decode" else 1) for part in jnp.split(x, parts))

    return sums


def note(what):
    with open("log", "a") as log:
        print(what, file=log)


prefill, decode = kernel("prefill"), kernel("decode")
steps = {
    "prefill": (REGISTRIES[0], lambda x: prefill(x)),
    "decode": (REGISTRIES[1], lambda x: decode(x) + prefill(x)),
}
for name, (registry, step) in steps.items():
    if name in sys.argv:
        break
    with autotune_lowered.recording(registry, on_demand=True, directions=("forward",)):
        lowered = jax.jit(step).lower(jnp.ones((256, 64)))
    autotune_lowered.dump(lowered, f"{name}.mlir")
    note(name)
note("the end")
"""


@pytest.fixture
def of_several(tmp_path, monkeypatch):
    """Records two steps of one program on demand, each into one of these registries."""
    monkeypatch.chdir(tmp_path)

    def record(*registries):
        pathlib.Path("serve.py").write_text(SEVERAL.replace("REGISTRIES", repr(registries)))
        subprocess.run([sys.executable, "serve.py"], check=True, capture_output=True)
        assert said() == ["prefill", "decode", "the end"]
        pathlib.Path("log").unlink()
        return f"{sys.executable} serve.py"

    return record


def said():
    log = pathlib.Path("log")
    return log.read_text().split("\n")[:-1] if log.exists() else []


def lowered_in(registry):
    """The configs that have a program, by operation and recording."""
    found = {}
    for path in pathlib.Path(registry, "invocations").glob("*/*"):
        call = json.loads(path.read_text())["invocation"]
        lowered = {one["config"]["parts"] for one in call["candidates"] if "program" in one}
        found[call["op_id"], call["static_arguments"].get("lowered_by_recording", 1)] = lowered
    return found


@pytest.mark.parametrize("registries", [("registry", "registry"), ("registry", "other")])
def test_several_recordings_of_a_program_answer_each_for_its_calls(of_several, run, registries):
    command = of_several(*registries)
    apart = registries[0] != registries[1]
    tune(run, "--recorder", command, "--compile-jobs", "1", module="prefill.mlir", registry=registries[0])
    assert {1, 2, 4} in lowered_in(registries[0]).values()
    assert said() == [] or not apart, "the first recording is as far as they come"
    tune(run, "--recorder", command, "--compile-jobs", "1", module="decode.mlir", registry=registries[1])
    found = lowered_in(registries[1])
    assert found["decode@v1", 2] == {1, 2, 4}, found
    # a call of both steps is lowered by one of them in each registry
    assert {1, 2, 4} in [lowered for (op_id, _), lowered in found.items() if op_id == "prefill@v1"], found
    assert set(said()) == {"prefill"}, "what comes after the recordings is not run again"


def test_a_recording_that_the_program_does_not_make_this_time_is_told(of_several, run):
    command = of_several("registry", "other")
    result = tune(run, "--recorder", f"{command} decode", module="decode.mlir", registry="other", expected=1)
    told = "the worker ended with exit code 0 during `hello`, before the end of its recording 2 on demand"
    assert told in json.dumps(result), result


def test_a_program_that_fails_is_no_recorder(recorded, run):
    recorded()
    result = tune(run, "--recorder", f"{sys.executable} -c 'raise KeyError(\"no model\")'", expected=1)
    assert "no recorder: the worker ended with exit code 1" in json.dumps(result)
    assert "no model" in json.dumps(result)
    # without one, nothing that is open competes
    result = tune(run, "--force")
    assert any("name the command that recorded them with `--recorder`" in note for note in result["notes"]), result
    assert [one["config"]["parts"] for one in result["operations"][0]["candidates"]] == [1]


def test_only_the_named_descriptors_answer(recorded, monkeypatch):
    from autotune_lowered.record.on_demand import VARIABLE, descriptors

    for odd in ("", "4", "4,", "4,x", "-1,3", "4,3,5"):
        monkeypatch.setenv(VARIABLE, odd)
        assert descriptors() is None, odd
    monkeypatch.setenv(VARIABLE, "4,3")
    assert descriptors() == (4, 3)
    assert descriptors() is None, "not for the processes that this one starts"
