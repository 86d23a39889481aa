"""Tuning from Python, and results as contexts."""

import hashlib
import json
import re
import subprocess
import sys
import threading

import pytest

import autotune_lowered
from autotune_lowered import AutotuningResult, TuningError
from autotune_lowered.lookup import in_force

jax = pytest.importorskip("jax")
jnp = jax.numpy


@pytest.fixture(autouse=True)
def nothing_cached():
    """Each test begins with nothing in force, without this machine's cache."""
    in_force.set_lookup(None)


def row(op_id, key, direction, config, best_ns=500_000.0, **more):
    baseline = {"config": {"rows": 4}, "median_ns": 1_000_000.0}
    best = None if config is None else {"config": config, "median_ns": best_ns}
    return {
        "op_id": op_id,
        "call_key": key,
        "direction": direction,
        "status": "tuned" if best else "failed",
        "reason": "",
        "baseline": baseline,
        "best": best,
        "speed_up": 2.0 if best else None,
    } | more


def result_of(*rows):
    identity = {"platform": "cpu", "device_kind": "cpu", "hardware": {"cores": "2"}}
    return AutotuningResult(
        {
            "schema": 1,
            "device": {"identity": identity, "environment": {}},
            "timer": "replay",
            "operations": list(rows),
            "interrupted": False,
            "notes": [],
        }
    )


@autotune_lowered.tunable(op="tuning_test", version=1, space={"rows": [2, 4, 8]})
def tuned(x, *, rows=4):
    return x.reshape(rows, -1).sum(axis=0)


X = jax.ShapeDtypeStruct((16,), jnp.float32)
KEY = tuned.tunable.call_key(X)


def rows_in(lowered):
    return [int(rows) for rows in re.findall(r"stablehlo.reshape .*-> tensor<(\d+)x", lowered.as_text())]


def test_a_result_is_in_force_for_what_was_jitted_outside_and_it_nests():
    jitted = jax.jit(lambda x: tuned(x) + 1)
    x = jnp.arange(16.0)
    plain = jitted(x)
    assert rows_in(jitted.lower(x)) == [4]
    outer, inner = (result_of(row("tuning_test@v1", KEY, "forward", {"rows": rows})) for rows in (8, 2))
    with outer:
        assert rows_in(jitted.lower(x)) == [8] and jitted(x).shape == (2,)
        with inner, inner:
            assert jitted(x).shape == (8,)
        assert jitted(x).shape == (2,)
    assert jitted(x).shape == plain.shape and rows_in(jitted.lower(x)) == [4]


def test_what_was_measured_with_its_backward_pass_goes_before():
    forward = row("tuning_test@v1", KEY, "forward", {"rows": 8})
    both = row("tuning_test@v1", KEY, "forward-vjp", {"rows": 2})
    failed = row("other@v1", "k", "forward", None)
    for rows in ([forward, both, failed], [both, failed, forward]):
        assert result_of(*rows).configs == {("tuning_test@v1", KEY): {"rows": 2}}


@pytest.mark.skipif(not hasattr(jax, "make_user_context"), reason="this JAX cannot keep two threads' traces apart")
def test_a_result_holds_for_the_thread_that_entered_it():
    seen = []
    with result_of(row("tuning_test@v1", KEY, "forward", {"rows": 8})) as result:
        other = threading.Thread(target=lambda: seen.append(tuned(jnp.arange(16.0)).shape))
        other.start()
        other.join()

        def leave():
            with pytest.raises(RuntimeError, match="another thread"):
                result.__exit__(None, None, None)
            seen.append("refused")

        stranger = threading.Thread(target=leave)
        stranger.start()
        stranger.join()
        assert tuned(jnp.arange(16.0)).shape == (2,)
    assert seen == [(4,), "refused"]


def test_a_result_prints_as_a_table_and_converts_to_a_frame():
    result = result_of(
        row("tuning_test@v1", KEY, "forward", {"rows": 8}, best_ns=1234.0),
        row("other@v1", "k", "forward", None, reason="nothing could be measured"),
    )
    lines = str(result).splitlines()
    assert lines[0] == "cpu:cpu, timed by replay"
    assert lines[1].split() == ["operation", "direction", "status", "baseline", "best", "speed-up", "interval"]
    assert lines[2].split() == [
        f"tuning_test@v1:{KEY}",
        "forward",
        "tuned",
        "1",
        "ms",
        "1.23",
        "µs",
        "2.00×",
        "—",
    ]
    assert lines[3].strip() == "use rows=8 (baseline rows=4)" and "—" in lines[4]
    assert lines[5].strip() == "nothing could be measured"
    assert repr(result) == "<AutotuningResult: 1 of 2 operations decided>"
    assert result.device.fingerprint["identity"]["hardware"] == {"cores": "2"}
    with pytest.raises(ValueError, match="schema 2"):
        AutotuningResult({"schema": 2})
    pandas = pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["best_ns"])[0] == 1234.0 and len(frame) == 2


def test_ejkernel_takes_a_result_for_what_was_jitted_outside():
    pytest.importorskip("ejkernel")
    script = """
import json, os, re, sys
os.environ["EJKERNEL_OPS_STAMP"] = "hash"
os.environ["EJKERNEL_PERSISTENT_CACHE_DIR"] = sys.argv[1]
import jax, jax.numpy as jnp
from ejkernel.modules import flash_attention
from autotune_lowered import AutotuningResult
q = jnp.ones((1, 256, 2, 32), jnp.float32)
attend = jax.jit(lambda q: flash_attention(q, q, q, causal=True, platform="xla"))
text = lambda: attend.lower(q).as_text()
before = text()
key = re.search("flash_attention@v2:([0-9a-f]{16})", attend.lower(q).as_text(debug_info=True)).group(1)
rows = []
for block in (32, 64):
    params = {"q_blocksize": block, "kv_blocksize": block}
    config = {"platform": "xla", "backend": "any", "fwd_params": params, "bwd_params": params}
    rows.append({"op_id": "flash_attention@v2", "call_key": key, "direction": "forward", "status": "tuned", "reason": "",
                 "baseline": {"config": config}, "best": {"config": config}})
def result(row):
    return AutotuningResult({"schema": 1, "operations": [row]})
attend(q)
with result(rows[0]):
    small = text()
with result(rows[1]):
    large = text()
print(json.dumps({"changed": before != small and small != large, "back": text() == before,
                  "small": "x32x32x" in small, "large": "x64x" in large}))
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])["changed"] is True, done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["back"] is True, done.stdout


@pytest.mark.skipif(jax.__version_info__ < (0, 8), reason="profiles of this JAX hold no executions on CPU")
def test_a_lowered_function_is_tuned(tmp_path, program, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", program)

    space = {"steps": [1, 64], "unroll": [1, 4]}
    once = [lambda config: config["steps"] > 1 or config["unroll"] == 1]

    @autotune_lowered.tunable(op="tuning_real", version=1, space=space, constraints=once)
    def slow(x, *, steps=64, unroll=1):
        return jax.lax.fori_loop(0, steps, lambda i, y: jnp.tanh(y @ x), x, unroll=unroll)[0]

    x = jnp.eye(128)
    with autotune_lowered.recording(tmp_path / "registry"):
        lowered = jax.jit(slow).lower(x)
    # other steps have different outputs, on purpose here: a fast but wrong one must not win
    result = autotune_lowered.autotune_lowered(
        # the decision does not hang on how busy the machine is
        lowered,
        registry=tmp_path / "registry",
        cache=tmp_path / "cache",
        min_improvement=0.9,
    )
    (operation,) = [row for row in result.operations if row["direction"] == "forward"]
    best = operation["best"]["config"]
    assert best["steps"] == 64
    failed = [row for row in operation["candidates"] if row["status"] == "failed"]
    assert [row["failure"]["kind"] for row in failed] == ["wrong-output"]

    cache = autotune_lowered.Cache.open(tmp_path / "cache")
    entry = cache.get(autotune_lowered.device(), operation["op_id"], operation["call_key"], "forward")
    assert entry.config == best and entry.tier == "snapshot" and not entry.flags
    with pytest.raises(TuningError, match="ended with") as caught:
        autotune_lowered.autotune_lowered(lowered, registry=tmp_path / "nothing", cache=tmp_path / "cache")
    assert caught.value.exit_code != 0


def test_a_module_without_labels_is_told_how_it_can_be_tuned(tmp_path, caplog):
    lowered = jax.jit(lambda x: x * 2).lower(X)
    with pytest.raises(TuningError, match="the module has no label") as caught:
        autotune_lowered.tune(lowered, registry=tmp_path / "registry", cache=tmp_path / "cache")
    assert caught.value.exit_code == 3 and 'options=["--compiler-options", "safe"]' in str(caught.value)
    # both name no temporary file
    assert "module.txt" not in str(caught.value) and "module.txt" not in caplog.text


def test_tunables_ask_the_cache(tmp_path, run):
    key = tuned.tunable.call_key(X)
    device = autotune_lowered.device().fingerprint["identity"]
    rows = [{"device": device, "op_id": "tuning_test@v1", "call_key": key, "config": {"rows": 8}}]
    (tmp_path / "entries.json").write_text(json.dumps({"schema": 1, "entries": rows}))
    run("cache", "import", "--format", "json", tmp_path / "entries.json", "--cache", tmp_path / "cache")
    jitted = jax.jit(tuned)
    x = jnp.arange(16.0)
    assert jitted(x).shape == (4,)
    autotune_lowered.use_cache(tmp_path / "cache")
    assert jitted(x).shape == (2,)
    with autotune_lowered.overlay({("tuning_test@v1", key): {"rows": 2}}):
        assert jitted(x).shape == (8,)
    assert jitted(x).shape == (2,)
    autotune_lowered.use_cache(None)
    assert jitted(x).shape == (4,)
    # a process without its own choice uses the default folder
    script = """
import jax.numpy as jnp
import autotune_lowered
@autotune_lowered.tunable(op="tuning_test", version=1, space={"rows": [2, 4, 8]})
def tuned(x, *, rows=4):
    return x.reshape(rows, -1).sum(axis=0)
print(tuned(jnp.arange(16.0)).shape)
"""
    environment = {"AUTOTUNE_LOWERED_CACHE": str(tmp_path / "cache")}
    import os

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | environment)
    assert done.stdout.strip() == "(2,)", done.stderr


@autotune_lowered.tunable(op="other_test", version=1, space={"rows": [2, 4, 8]})
def other(x, *, rows=4):
    return x.reshape(rows, -1).sum(axis=1)


@pytest.mark.skipif(jax.__version_info__ < (0, 5), reason="this JAX does not tell how a step is compiled")
def test_a_step_is_dumped_in_the_forms_that_prove_races(tmp_path):
    key = other.tunable.call_key(X)
    rows = [row("other_test@v1", key, "forward", {"rows": 8}), row("tuning_test@v1", KEY, "forward", {"rows": 2})]
    absent = row("absent@v1", "k", "forward", {"rows": 8})
    kept = row("kept@v1", "k", "forward", {"rows": 4})
    result = result_of(absent, kept, *rows)
    step = jax.jit(lambda x: tuned(x).sum() + other(x).sum())
    x = jnp.arange(16.0)

    def forms(folder, **more):
        # configs in force outside count in none of them
        with autotune_lowered.overlay({("other_test@v1", key): {"rows": 16}}):
            at = autotune_lowered.dump(step, tmp_path / folder, args=(x,), variants=result, **more)
        text = (at / "prove.json").read_text()
        manifest = json.loads(text)
        zeros = text.replace(manifest["digest"], "0" * 64)
        assert hashlib.sha256(zeros.encode()).hexdigest() == manifest["digest"]
        # the step's own side file has this
        side = autotune_lowered.dump(step.lower(x), tmp_path / "step.mlir").with_name("step.mlir.labels.json")
        assert manifest["compile_options"] == json.loads(side.read_text())["compile_options"] is not None
        found = {}
        for one in manifest["variants"]:
            content = (at / one["file"]).read_bytes()
            assert hashlib.sha256(content).hexdigest() == one["sha256"] == one["file"].removesuffix(".mlir")
            reshaped = re.findall(r"stablehlo.reshape .*-> tensor<(\d+)x", content.decode())
            found[tuple(one["tuned"])] = [int(rows) for rows in reshaped]
        assert len(list(at.iterdir())) == len(found) + 1
        return manifest["calls"], found

    calls, found = forms("all")
    first = {"op_id": "tuning_test@v1", "call_key": KEY, "direction": "forward", "alone": 2.0}
    assert calls[0] == first | {"baseline": {"rows": 4}, "tuned": {"rows": 2}} and calls[1]["op_id"] == "other_test@v1"
    assert found == {(): [4, 4], (0, 1): [2, 8], (0,): [2, 4], (1,): [4, 8]}
    assert rows_in(step.lower(x)) == [4, 4]
    # put back in every form, and a share too small for any race
    assert forms("less", without=[f"other_test@v1:{key}"])[1] == {(): [4, 4], (0,): [2, 4]}
    rows[0]["share"], rows[1]["share"] = 0.5, 0.001
    rows[0]["speed_up_interval"] = {"low": 1.9, "high": 2.1, "confidence": 0.95}
    calls, found = forms("profile")
    assert [call["share"] for call in calls] == [0.5, 0.001]
    assert [call.get("alone_interval") for call in calls] == [rows[0]["speed_up_interval"], None]
    assert found == {(): [4, 4], (0, 1): [2, 8], (1,): [2, 4]}
    with pytest.raises(ValueError, match="has not tuned"):
        forms("wrong", without=["kept@v1:k"])
    with pytest.raises(ValueError, match="none of the calls"):
        autotune_lowered.dump(lambda x: x + 1, tmp_path / "none", args=(x,), variants=result)
    with pytest.raises(TypeError, match="goes with `variants`"):
        autotune_lowered.dump(step.lower(x), tmp_path / "module.mlir", without=["a:b"])
