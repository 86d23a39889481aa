"""The whole walk with unmodified ejkernel: record under `jit`, tune, export, and a fresh process that obeys."""

from __future__ import annotations

import pathlib
import runpy

import pytest

pytest.importorskip("jax", reason="recording needs JAX")
pytest.importorskip("ejkernel", reason="it tunes ejkernel's attention")

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ejkernel" / "attention.py"


def test_ejkernel_obeys_what_was_tuned_from_a_recording(tmp_path, program, plugin, monkeypatch):
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", str(program))
    monkeypatch.setenv("AUTOTUNE_LOWERED_TEST_PLUGIN", plugin)
    operation, seen = runpy.run_path(str(EXAMPLE))["main"](tmp_path)
    assert operation["op_id"] == "flash_attention@v2" and operation["evidence"] == "exact"
    (event, level, config) = seen["events"][0]
    assert (event, level) == ("cache_hit", "persistent")
    blocks = operation["best"]["config"]["fwd_params"]
    assert f"q_blocksize={blocks['q_blocksize']}, kv_blocksize={blocks['kv_blocksize']}" in config
    # 1024 queries are cut into blocks of that size
    assert f"tensor<1x{blocks['q_blocksize']}x4x64xf32>" in seen["text"]
    others = {128, 256} - {blocks["q_blocksize"], blocks["kv_blocksize"]}
    assert not any(f"tensor<1x{other}x4x64xf32>" in seen["text"] for other in others)
