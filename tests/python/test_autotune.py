"""`autotune`: functions that are tuned when they are called.

The baseline of the tuned functions computes the same result dozens of times as long, so that a busy machine decides
likewise; where nothing may win, no gain is enough.
"""

import dataclasses
import enum
import functools
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import pytest

import autotune_lowered
from autotune_lowered import AutotuningResult, TuningError
from autotune_lowered._program import find_program
from autotune_lowered.autotuning import autotuned, process
from autotune_lowered.autotuning.code import code_digest
from autotune_lowered.autotuning.kernel import kernel_of, operation_of

jax = pytest.importorskip("jax")
jnp = jax.numpy

pytestmark = [
    pytest.mark.usefixtures("program"),
    pytest.mark.needs_jax("0.8", "the `jax` worker measures"),
]

KEEPS_BASELINES = {"min_improvement": 0.9, "rounds": 6}


def repeated(x, *, times=400):
    """`tanh` of `tanh` of … of one array, as often as asked, of which one result is used."""
    one = jnp.tanh(x)
    return jax.lax.fori_loop(0, times, lambda i, y: jnp.tanh(x) + 0 * y, one)


@pytest.fixture
def array():
    return jnp.linspace(-1, 1, 1 << 16, dtype=jnp.float32).reshape(256, 256)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", str(folder))
    return folder


def test_the_program_is_told_each_candidate_when_it_is_lowered(array, tmp_path, monkeypatch):
    seen, watching = tmp_path / "stdin", tmp_path / "watching"
    watching.write_text(f"#!/bin/sh\ntee '{seen}' | '{find_program()}' \"$@\"\n")
    watching.chmod(0o755)
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", str(watching))
    fast = autotune_lowered.autotune(repeated, {"times": [1, 400, 900]}, **KEEPS_BASELINES)
    fast(array)
    (row,) = fast.result.operations
    told, _, module = seen.read_text().partition("\n\n")
    told = [json.loads(line) for line in told.splitlines()]
    assert [(one["op_id"], one["call_key"], one["of"]) for one in told] == [(row["op_id"], row["call_key"], 3)] * 3
    assert [one["candidate"]["config"]["times"] for one in told] == [400, 1, 900]
    assert all(one["candidate"]["program"]["digest"] for one in told)
    assert "module @" in module and '"candidate"' not in module
    # of several directions, the program would not know which is measured first
    both = autotune_lowered.autotune(
        repeated, {"times": [1, 400]}, directions=("forward", "forward-vjp"), **KEEPS_BASELINES
    )
    both(array[:8])
    assert '"candidate"' not in seen.read_text()


def test_the_first_call_finds_the_best_config_and_later_ones_take_it(array, cache):
    fast = autotune_lowered.autotune(repeated, {"times": [1, 400, 900]})
    assert jnp.allclose(fast(array), jnp.tanh(array))
    (row,) = fast.result.operations
    assert (row["status"], row["best"]["config"], row["op_id"]) == ("tuned", {"times": 1}, fast.tunable.op_id)
    assert list(fast.configs.values()) == [{"times": 1}]
    # another array of the same kind is not another call, and one of another type is
    measured = fast.result
    fast(array + 1)
    assert fast.result is measured and len(fast.configs) == 1
    # the same function anew, as in a new process: found, and not measured
    again = autotune_lowered.autotune(repeated, {"times": [1, 400, 900]})
    again(array)
    assert (again.result, list(again.configs.values())) == (None, [{"times": 1}])
    # and so does a function that declares it
    declared = autotune_lowered.tunable(op=fast.tunable.op, version=1, space={"times": [1, 400, 900]})(repeated)
    key = declared.tunable.call_key(array)
    found = autotune_lowered.Cache.open(cache).get(autotune_lowered.device(), fast.tunable.op_id, key)
    assert found.config == {"times": 1} and found.provenance["processes"] >= 3
    # the program tunes the same call from the registry, and knows it
    lowered = jax.jit(declared).lower(array)
    result = autotune_lowered.tune(lowered, registry=cache / "autotuned-v1" / "registry")
    assert [one["status"] for one in result.operations] == ["cached"]
    # its caller's choice is obeyed
    assert jnp.allclose(again(array, times=2), jnp.tanh(array)) and len(again.configs) == 1


def test_code_that_changed_is_measured_again_and_equal_programs_are_not(array):
    def kernel(x, *, parts=1):
        return x * factor + parts * 0

    def tuned(kernel=kernel):
        made = autotune_lowered.autotune(kernel, {"parts": [1, 2]}, op="changing", **KEEPS_BASELINES)
        made(array)
        return made.result and made.result.operations[0]

    factor = 2.0
    assert tuned()["status"] == "baseline-kept"
    assert tuned() is None
    factor = 3.0
    # both compute the same as the baseline with this factor, which is another program than before
    again = tuned()
    assert again["status"] == "baseline-kept" and again["rounds_kept"] == 0
    assert tuned() is None

    def rewritten(x, *, parts=1):
        y = x * factor
        return y + parts * 0

    # other code, the same programs
    assert tuned(rewritten)["status"] == "cached"


class Mode(enum.Enum):
    SUM = 1
    MEAN = 2


@dataclasses.dataclass(frozen=True)
class Settings:
    bias: float


def test_arguments_are_those_of_jit(array):
    seen = []

    def kernel(tree, scale, settings, name="a", *, dtype=jnp.float32, mode=Mode.SUM):
        seen.append((dtype, mode, settings, name))
        pooled = tree["x"][0].astype(dtype).sum(0)
        return pooled.astype(jnp.float32) * scale + settings.bias * (mode is Mode.SUM) + tree["y"]

    fast = autotune_lowered.autotune(
        kernel,
        {"dtype": [jnp.float32, jnp.bfloat16], "mode": list(Mode)},
        static_argnames="settings",
        donate_argnums=0,
        tolerance=1.0,
        **KEEPS_BASELINES,
    )
    tree = {"x": (array,), "y": jnp.float32(1)}
    expected = array.sum(0) * 2 + 3 + 1
    assert jnp.allclose(fast(jax.tree.map(jnp.copy, tree), 2.0, Settings(3.0)), expected)
    configs = [one["config"] for one in fast.result.operations[0]["candidates"]]
    assert configs[0] == {"dtype": "f32", "mode": "SUM"} and {"dtype": "bf16", "mode": "MEAN"} in configs
    assert {type(mode) for _, mode, _, _ in seen} == {Mode} and {dtype for dtype, *_ in seen} == {
        jnp.float32,
        jnp.bfloat16,
    }
    # a number is an array: another one is the same program, and another static value is not
    before = len(seen)
    assert jnp.allclose(fast(jax.tree.map(jnp.copy, tree), 4.0, Settings(3.0)), array.sum(0) * 4 + 3 + 1)
    assert len(seen) == before and len(fast.configs) == 1
    lowered = fast.lower(tree, 2.0, Settings(3.0))
    assert [one.donated for one in jax.tree.leaves(lowered.args_info[0][1])] == [True, True]
    with pytest.raises(TypeError, match="`settings` holds no array and cannot be hashed"):
        fast(tree, 2.0, [[]])


def test_a_part_of_a_jitted_program_is_tuned_while_that_is_traced(array):
    fast = autotune_lowered.autotune(repeated, {"times": [1, 400]}, op="inside")
    step = jax.jit(lambda x: fast(x) * 2)
    assert jnp.allclose(step(array), 2 * jnp.tanh(array))
    assert fast.result.operations[0]["best"]["config"] == {"times": 1}
    # the config that was found is in the program that was being traced
    assert "400" not in step.lower(array).as_text()
    # a mapped call is another one; it runs, and is not tuned
    assert jax.vmap(fast)(array).shape == array.shape and len(fast.configs) == 1
    assert jax.grad(lambda x: fast(x).sum())(array).shape == array.shape
    # what is recorded is not tuned here
    fresh = autotune_lowered.autotune(repeated, {"times": [1, 400]}, op="recorded")
    with autotune_lowered.recording("registry") as recorded:
        jax.jit(fresh).lower(array)
    assert {row["op_id"] for row in recorded.report()} == {"recorded@v1"} and fresh.configs == {}
    lines = str(recorded).splitlines()
    assert lines[0].split() == ["operation", "direction", "platform", "candidates", "programs"]
    assert [line.split()[1:] for line in lines[1:]] == [["forward", "cpu", "2", "2"], ["forward-vjp", "cpu", "2", "2"]]


def test_functions_of_several_threads_and_functions_within_are_tuned_one_after_the_other(array):
    def within(x, *, times=400):
        return repeated(x, times=times)

    inner = autotune_lowered.autotune(within, {"times": [1, 400]})

    def around(x, *, times=400):
        return inner(x) + repeated(x, times=times)

    outer = autotune_lowered.autotune(around, {"times": [1, 400]})
    others = [autotune_lowered.autotune(repeated, {"times": [1, 400]}, op=f"of_thread_{n}") for n in range(2)]
    threads = [threading.Thread(target=function, args=(array,)) for function in (outer, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for function in (inner, outer, *others):
        assert list(function.configs.values()) == [{"times": 1}], function


def test_what_is_known_later_is_used_later(array, cache, caplog, monkeypatch):
    made = {"op": "later", "space": {"times": [1, 400]}}
    key = (
        "later@v1",
        autotune_lowered.tunable(op="later", version=1, space=made["space"])(repeated).tunable.call_key(array),
    )
    # an overlay's config is not for good
    fast = autotune_lowered.autotune(repeated, **made)
    with autotune_lowered.overlay({key: {"times": 1}}):
        fast(array)
        assert fast.configs == {} and fast.result is None
    # a failed call runs with the default, and then with what is found
    monkeypatch.setattr(autotuned, "why_held", lambda: "held")
    fast(array)
    assert fast.configs == {key: {"times": 400}} and "runs with its default: held" in caplog.text
    monkeypatch.undo()
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", str(cache))
    fast.tune(array)
    assert fast.configs == {key: {"times": 1}}
    compiled = []
    monkeypatch.setattr(fast._tunable, "function", lambda x, *, times: compiled.append(times) or repeated(x, times=1))
    fast(array)
    assert compiled == [1]


def test_a_number_is_an_array_for_a_recording_too(array):
    def scaled(x, scale, *, parts=1):
        return x * scale + 0 * parts

    fast = autotune_lowered.autotune(scaled, {"parts": [1]}, op="scaled")
    with autotune_lowered.recording("registry") as recorded:
        fast(array, 2.0)
        fast(array, 3.0)
    assert {row["call_key"] for row in recorded.report()} == {
        fast.tunable.call_key(array, jnp.float32(2.0)),
    }


def test_a_folder_that_can_only_be_read_has_answers_and_takes_none(array, cache, caplog, monkeypatch):
    made = {"op": "fixed", "space": {"times": [1, 400]}}
    autotune_lowered.autotune(repeated, **made)(array)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: access(path, mode) and not (path == cache and mode == os.W_OK))
    fast = autotune_lowered.autotune(repeated, **made)
    fast(array)
    assert list(fast.configs.values()) == [{"times": 1}] and fast.result is None
    other = autotune_lowered.autotune(repeated, **made)
    assert jnp.allclose(other(array[:64]), jnp.tanh(array[:64])) and "the cache is only read" in caplog.text
    # a folder that cannot be made, and a program that is not there
    caplog.clear()
    file = cache / "file"
    file.write_text("")
    nowhere = autotune_lowered.autotune(repeated, cache=file / "below", **made)
    assert jnp.allclose(nowhere(array), jnp.tanh(array)) and "cannot be written" in caplog.text
    monkeypatch.undo()
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", "/nowhere/autotune-lowered")
    without = autotune_lowered.autotune(repeated, cache=cache, space={"times": [1]}, op="without")
    with pytest.raises(autotuned.ProgramError, match="cannot start `/nowhere/autotune-lowered`: .*; set AUTOTUNE"):
        without.tune(array)
    assert jnp.allclose(without(array), jnp.tanh(array)) and "cannot start" in caplog.text


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_shapes_alone_can_be_tuned_before_there_are_arrays(array):
    fast = autotune_lowered.autotune(repeated, {"times": [390, 400]}, op="ahead", **KEEPS_BASELINES)
    result = fast.tune(jax.ShapeDtypeStruct(array.shape, array.dtype))
    assert isinstance(result, AutotuningResult) and result is fast.result
    measured = fast.result
    fast(array)
    assert fast.result is measured
    assert "400" in fast.lower(array).as_text()


def test_what_cannot_be_tuned_runs_with_its_default_and_says_so(array, cache, caplog, monkeypatch):
    def other_results(x, *, scale=1):
        return x * scale

    fast = autotune_lowered.autotune(other_results, {"scale": [1, 2]})
    assert jnp.array_equal(fast(array), array)
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "`other_results` runs with its default" in said and "differs from the baseline's" in said
    fast(array)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    caplog.clear()
    # a device that no other process can use
    monkeypatch.setattr(autotuned, "why_held", lambda: "this process holds the TPU")
    held = autotune_lowered.autotune(repeated, {"times": [1]}, op="held")
    with pytest.raises(TuningError, match="holds the TPU") as raised:
        held.tune(array)
    assert raised.value.exit_code == 5
    assert jnp.allclose(held(array), jnp.tanh(array)) and "holds the TPU" in caplog.text
    # processes that would choose apart from each other
    caplog.clear()
    monkeypatch.setattr(autotuned, "why_held", lambda: None)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    several = autotune_lowered.autotune(repeated, {"times": [1]}, op="several")
    assert jnp.allclose(several(array), jnp.tanh(array)) and "several processes" in caplog.text
    monkeypatch.undo()
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", str(cache))
    # a cache that is only read
    caplog.clear()
    published = autotune_lowered.autotune(repeated, {"times": [1]}, op="read-only", cache=cache / "best-v1.snapshot")
    assert jnp.allclose(published(array), jnp.tanh(array)) and "only read" in caplog.text


def test_a_device_that_no_other_process_can_use_is_measured_from_this_one(array, cache, monkeypatch):
    def never():
        raise AssertionError("nobody asks")

    monkeypatch.setattr(autotuned, "why_held", never)
    fast = autotune_lowered.autotune(repeated, {"times": [1, 400]}, op="here", in_process=True)
    before = threading.active_count()
    assert jnp.allclose(fast(array), jnp.tanh(array))
    (row,) = fast.result.operations
    assert (row["status"], row["best"]["config"]) == ("tuned", {"times": 1}), row["reason"]
    assert "chosen in one process, and confirmed in no other one (`--processes 0`)" in row["flags"]
    assert "confirmation" not in row and fast.result.json["timer"].endswith("relay.py")
    again = autotune_lowered.autotune(repeated, {"times": [1, 400]}, op="here", in_process=True)
    again(array)
    assert again.result is None and list(again.configs.values()) == [{"times": 1}]
    # nothing is left that listens
    assert not list(pathlib.Path(tempfile.gettempdir()).glob("autotune-lowered-run-*/worker"))
    for thread in threading.enumerate():
        if thread.name.startswith("Thread-") and thread.daemon and "_answer" in thread.name:
            thread.join(10)
    assert threading.active_count() <= before + 1
    with pytest.raises(TypeError, match="does not go with `in_process`"):
        autotune_lowered.autotune(repeated, {"times": [1]}, timer="jax", in_process=True)


def test_an_older_jax_measures_nothing_and_the_function_runs(array, monkeypatch, caplog):
    monkeypatch.setattr(jax, "__version_info__", (0, 7, 2))
    monkeypatch.setattr(jax, "__version__", "0.7.2")
    fast = autotune_lowered.autotune(repeated, {"times": [1, 400]}, op="old", in_process=True)
    assert jnp.allclose(fast(array), jnp.tanh(array))
    assert fast.result is None and list(fast.configs.values()) == [{"times": 400}]
    (said,) = [record.message for record in caplog.records if "runs with its default" in record.message]
    assert said.endswith("JAX 0.7.2 is too old to measure with: it takes 0.8 or later")


@pytest.mark.parametrize(
    ("platform", "environment", "said"),
    [
        ("cpu", {}, None),
        ("tpu", {}, "one process at a time"),
        ("gpu", {}, "XLA_PYTHON_CLIENT_PREALLOCATE=false"),
        ("gpu", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, None),
        ("gpu", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, None),
    ],
)
def test_a_device_that_this_process_holds_alone_is_told(platform, environment, said, monkeypatch):
    for name in ("PREALLOCATE", "ALLOCATOR"):
        monkeypatch.delenv(f"XLA_PYTHON_CLIENT_{name}", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(jax, "devices", lambda: [type("Device", (), {"platform": platform})])
    found = process.why_held()
    assert found is None if said is None else said in found


def test_a_function_keeps_its_way_of_being_called():
    def function(a, block, b=2, *rest, mode, **more):
        return a, block, b, rest, mode, more

    made = kernel_of(function, {"block": [8, 16], "extra": [1]})
    assert made(1, 3, 4, mode="m", other=5) == (1, 8, 3, (4,), "m", {"extra": 1, "other": 5})
    assert made(1, block=9, mode="m", extra=2)[:2] == (1, 9)
    by_default = kernel_of(lambda x, tile=4, y=1: (x, tile, y), {"tile": [8]})
    assert by_default(0) == (0, 4, 1) and by_default(0, 5) == (0, 4, 5)
    with pytest.raises(TypeError, match="`c` is tuned, and `<lambda>` takes no argument `c` by keyword"):
        kernel_of(lambda a: a, {"c": [1]})
    with pytest.raises(TypeError, match="takes no argument `a` by keyword"):
        kernel_of(lambda a, /: a, {"a": [1]})


def test_an_operation_has_the_functions_name():
    class Layer:
        def run(self, x):
            return x

    names = [operation_of(one) for one in (repeated, functools.partial(repeated, times=1), Layer().run, jnp.tanh)]
    here = "test_autotune"
    inside = f"{here}.test_an_operation_has_the_functions_name.Layer.run"
    assert names[:3] == [f"{here}.repeated", f"{here}.repeated", inside] and names[3].endswith("tanh")
    with pytest.raises(ValueError, match="a lambda has no name"):
        operation_of(lambda x: x)
    with pytest.raises(ValueError, match="nothing to tune"):
        autotune_lowered.autotune(repeated)
    with pytest.raises(TypeError, match="give numbers, strings, booleans, dtypes"):
        autotune_lowered.autotune(repeated, {"times": [object()]})
    with pytest.raises(TypeError, match="donate_argnames: `repeated` has no parameter `y`"):
        autotune_lowered.autotune(repeated, {"times": [1]}, donate_argnames="y")
    with pytest.raises(ValueError, match="there is no argument 7"):
        autotune_lowered.autotune(repeated, {"times": [1]}, static_argnums=7)


MODULE = """
import autotune_lowered.autotuning.code as code
SCALE = {scale}
def helper(x): return x * SCALE + {constant}
def unused(x): return {unused}
def kernel(x, *, block=1): return helper(x)
print(code.code_digest(kernel))
"""


def test_a_digest_of_code_changes_with_what_the_function_names(tmp_path):
    def digest(hash_seed="0", **values):
        path = tmp_path / "module.py"
        path.write_text(MODULE.format(**({"scale": 2, "constant": 1, "unused": 1} | values)))
        environment = {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": hash_seed}
        words = [sys.executable, str(path)]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout

    first = digest()
    assert digest(hash_seed="7") == first == digest(unused=9)
    assert len({first, digest(scale=3), digest(constant=4)}) == 3
    # a function that calls itself, and one whose cell is still empty
    assert code_digest(lambda x: later(x)) == code_digest(lambda x: later(x))

    def later(x):
        return later(x)


def test_what_is_no_digest_is_none(tmp_path):
    path = tmp_path / "digest"
    path.write_text("0" * 64)
    assert autotuned.read_digest(path) == "0" * 64
    for text in ("0" * 63, "0" * 65, ""):
        path.write_text(text)
        assert autotuned.read_digest(path) is None
    path.unlink()
    path.symlink_to("/dev/zero")
    assert autotuned.read_digest(path) is None
    path.unlink()
    os.mkfifo(path)
    assert autotuned.read_digest(path) is None
    path.unlink()
    assert autotuned.read_digest(path) is None and autotuned.read_digest(tmp_path) is None


def test_progress_is_printed_where_somebody_waits(array, capfd):
    quiet = autotune_lowered.autotune(repeated, {"times": [390, 400]}, op="quiet", **KEEPS_BASELINES)
    quiet(array)
    assert capfd.readouterr().err == ""
    shown = autotune_lowered.autotune(repeated, {"times": [1, 400]}, op="shown", progress=True)
    shown(array)
    said = capfd.readouterr().err
    for part in ("2 programs ready", "of the baseline's time so far: times=1 0.", "tuned, "):
        assert part in said, said
    assert "fresh processes confirm the winner" in said


def test_a_table_lists_each_config_and_escapes_what_others_wrote():
    result = AutotuningResult(json.loads(RESULT))
    lines = str(result).splitlines()
    assert lines[0] == "cpu:cpu, timed by jax" and lines[1].split() == [
        "operation", "direction", "status", "baseline", "best", "speed-up", "interval",
    ]  # fmt: skip
    assert lines[2].split() == ["a@v1:k", "forward", "tuned", "1", "ms", "500", "µs", "2.00×", "1.80–2.20"]
    assert lines[3].split() == ["config", "time", "of", "the", "baseline's", "interval"]
    assert lines[4].split() == ["b=2", "500", "µs", "0.500", "0.450–0.550", "best"]
    assert lines[5].split() == ["b=1", "1", "ms", "1.000", "1.000–1.000", "baseline"]
    assert lines[6].split() == ["b=<i>\\u{1b}", "—", "—", "—", "compile:", "no", "<b>", "\\u{1b}[2J"]
    page = result._repr_html_()
    assert page.count("<svg") == 2 and "&lt;i&gt;" in page and "<i>" not in page and "\x1b" not in page
    # many calls: the config to use, and how many were rejected
    many = json.loads(RESULT)
    many["operations"] *= 6
    lines = str(AutotuningResult(many)).splitlines()
    assert lines[3:5] == [
        "    use b=2 (baseline b=1)",
        "    1 rejected: compile: no <b> \\u{1b}[2J",
    ] and len(lines) == 20  # fmt: skip


RESULT = """{"schema": 1, "timer": "jax", "interrupted": false, "notes": [],
"device": {"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}, "environment": {}},
"operations": [{"op_id": "a@v1", "call_key": "k", "direction": "forward", "status": "tuned", "reason": "",
"baseline": {"config": {"b": 1}, "median_ns": 1e6}, "best": {"config": {"b": 2}, "median_ns": 5e5}, "speed_up": 2.0,
"speed_up_interval": {"low": 1.8, "high": 2.2, "confidence": 0.95}, "tie_set": [{"b": 2}], "candidates": [
{"config": {"b": 1}, "status": "measured", "median_ns": 1e6, "ratio": 1.0, "interval": {"low": 1.0, "high": 1.0}},
{"config": {"b": "<i>\\u001b"}, "status": "failed", "failure": {"kind": "compile", "message": "no <b> \\u001b[2J"}},
{"config": {"b": 2}, "status": "measured", "median_ns": 5e5, "ratio": 0.5, "tied_with_best": true,
"interval": {"low": 0.45, "high": 0.55}}]}]}"""
