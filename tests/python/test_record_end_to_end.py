"""The whole way with unmodified ejkernel: record under `jit`, tune, export, and use the config in a fresh process."""

from __future__ import annotations

import json
import os
import pathlib
import runpy
import subprocess
import sys

import pytest
import record_support

import autotune_lowered

pytest.importorskip("jax", reason="recording needs JAX")
pytest.importorskip("ejkernel", reason="it tunes ejkernel's attention")

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ejkernel" / "attention.py"


def test_ejkernel_obeys_what_was_tuned_from_a_recording(tmp_path, program, plugin, monkeypatch, run):
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", str(program))
    monkeypatch.setenv("AUTOTUNE_LOWERED_TEST_PLUGIN", plugin)
    example = runpy.run_path(str(EXAMPLE))
    # nothing gains that much: the decision does not hang on how busy the machine is
    operation, seen = example["main"](tmp_path, "--min-improvement", "0.9")
    assert (operation["op_id"], operation["evidence"]) == ("flash_attention@v2", "exact")
    assert operation["status"] == "baseline-kept", operation["reason"]
    has_blocks(seen, operation["best"]["config"])

    # samples that choose what ejkernel would not choose by itself
    (record,) = record_support.records(tmp_path / "registry")
    output = {"spec": "f32[1]", "hex": "0000803f"}
    samples = [
        {"config": config, "epochs": [[ns, ns + 1, ns + 2]], "outputs": [output]}
        for config in (one["config"] for one in record["candidates"])
        for ns in [1000 if blocks_of(config) == (256, 128) else 2000]
    ]
    # the recorded call is for this device alone
    device = autotune_lowered.device().fingerprint
    names = {name: record[name] for name in ("op_id", "call_key", "direction")}
    replay, cache, exported = tmp_path / "replay.json", tmp_path / "replayed", tmp_path / "ejkernel-replayed"
    replay.write_text(json.dumps({"schema": 1, "device": device, "invocations": [{**names, "candidates": samples}]}))
    words = ["--registry", tmp_path / "registry", "--cache", cache, "--timer", f"replay:{replay}", "--format", "json"]
    (operation,) = json.loads(run(tmp_path / "module.mlir", *words))["operations"]
    chosen = operation["best"]["config"]
    assert (operation["status"], blocks_of(chosen)) == ("tuned", (256, 128))
    assert blocks_of(record["baseline"]) != (256, 128)
    run("cache", "export", "--format", "ejkernel", exported, "--replayed", "--cache", cache)
    has_blocks(json.loads(example["python"]([example["FRESH"]], EJKERNEL_PERSISTENT_CACHE_DIR=exported)), chosen)


def blocks_of(config):
    return tuple(config["fwd_params"][name] for name in ("q_blocksize", "kv_blocksize"))


def has_blocks(seen, config):
    """Whether ejkernel took the config from its cache, and its program has these blocks."""
    (event, level, used) = seen["events"][0]
    assert (event, level) == ("cache_hit", "persistent")
    queries, keys = blocks_of(config)
    assert f"q_blocksize={queries}, kv_blocksize={keys}" in used
    # 1024 queries are cut into blocks of that size
    assert f"tensor<1x{queries}x4x64xf32>" in seen["text"]
    others = {128, 256} - {queries, keys}
    assert not any(f"tensor<1x{other}x4x64xf32>" in seen["text"] for other in others)


DELTA_RULE = """
import importlib, json, sys
import jax, jax.numpy as jnp

module = importlib.import_module("ejkernel.modules.operations.gated_delta_rule")
array, gate = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1, 256, 2, 16), (1, 256, 2)))

def loss(q, k, v, beta, decay):
    return (module.gated_delta_rule(q, k, v, beta, decay) ** 2).sum()

def lower():
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3, 4))).lower(array, array, array, gate, gate)
"""

RECORD = """
import autotune_lowered
with autotune_lowered.recording(sys.argv[1]):
    lowered = lower()
open(sys.argv[2], "w").write(lowered.as_text(debug_info=True))
"""

OBEY = """
seen = []
module._executor.chooser.on_event = lambda event, **data: seen.append((event, data.get("level"), data["cfg"].chunk_size))
lower()
print(json.dumps(seen))
"""


def python(code, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("EJKERNEL_")}
    command = [sys.executable, "-c", DELTA_RULE + code, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=kept | environment).stdout


@pytest.fixture(scope="module")
def delta_rule(tmp_path_factory):
    """A train step of the gated delta rule, whose triangular solve is a call of LAPACK: its registry and module."""
    folder = tmp_path_factory.mktemp("delta-rule")
    environment = {"EJKERNEL_AUTOTUNE_POLICY": "heuristics", "EJKERNEL_PERSISTENT_CACHE_DIR": str(folder / "none")}
    python(RECORD, folder / "registry", folder / "module.mlir", **environment)
    return [
        folder / "module.mlir",
        "--registry",
        folder / "registry",
        "--rounds",
        "6",
        "--format",
        "json",
        "--min-improvement",
        "0.9",
    ]


def test_a_gated_delta_rule_is_tuned_exported_and_obeyed(tmp_path, run, delta_rule):
    cache, exported = tmp_path / "cache", tmp_path / "ejkernel"
    done = run(*delta_rule, "--cache", cache, "--timer", f"jax:{sys.executable}")
    (operation,) = json.loads(done)["operations"]
    assert (operation["op_id"], operation["direction"]) == ("gated_delta_rule@v2", "forward-vjp")
    assert operation["status"] == "baseline-kept", operation["reason"]
    # values of its domain: both candidates run and agree, and no output is huge or NaN
    assert [row["status"] for row in operation["candidates"]] == ["measured", "measured"]
    assert operation.get("flags", []) == []
    run("cache", "export", "--format", "ejkernel", exported, "--cache", cache)
    seen = json.loads(python(OBEY, EJKERNEL_PERSISTENT_CACHE_DIR=str(exported)))
    assert seen[0] == ["cache_hit", "persistent", operation["best"]["config"]["chunk_size"]]


def test_a_plugin_without_lapack_points_to_the_timer_that_has_it(tmp_path, run, delta_rule, plugin):
    done = run(*delta_rule, "--cache", tmp_path, "--plugin", plugin, expected=1)
    (operation,) = json.loads(done)["operations"]
    assert (operation["status"], operation["failure"]["kind"]) == ("failed", "custom-call")
    assert "`lapack_strsm_ffi`: time with `--timer jax`" in operation["reason"]
