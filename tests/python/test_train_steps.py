"""A train step of each of seven ejkernel operations, unmodified: recorded, and tuned with exit code 0 by each timer
that can run its custom calls."""

from __future__ import annotations

import importlib
import json
import pathlib
import sys

import pytest

pytest.importorskip("jax", reason="recording needs JAX")
pytest.importorskip("ejkernel", reason="it tunes ejkernel's operations")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ejkernel"
NAMES = (
    "blocksparse_attention",
    "fused_cross_entropy",
    "gated_delta_rule",
    "grouped_matmul",
    "kernel_delta_attention",
    "mean_pooling",
    "recurrent",
)
# on a CPU only the baseline runs, or all candidates are one program
ALONE = {
    "fused_cross_entropy": "no other config can run here (8 configs without a program): ",
    "blocksparse_attention": "every candidate is the same program",
    "mean_pooling": "every candidate is the same program",
    "recurrent": "every candidate is the same program",
}
# the plugin has no LAPACK
JAX_ALONE = ("gated_delta_rule",)


@pytest.fixture
def steps(monkeypatch, program):
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", str(program))
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("train_steps")


def test_all_of_them_are_tried(steps):
    assert sorted(steps.LOSSES) == sorted(NAMES)


@pytest.mark.parametrize("timer", ["jax", "plugin"])
@pytest.mark.parametrize("name", NAMES)
def test_a_train_step_is_tuned(steps, name, timer, tmp_path, request):
    words = ["--timer", f"jax:{sys.executable}"] if timer == "jax" else ["--plugin", request.getfixturevalue("plugin")]
    done = steps.tune(
        name, tmp_path, [*words, "--min-improvement", "0.9", "--format", "json"], capture_output=True, text=True
    )
    (operation,) = json.loads(done.stdout)["operations"]
    assert operation["op_id"].split("@")[0] == name
    if timer == "plugin" and name in JAX_ALONE:
        assert (done.returncode, operation["failure"]["kind"]) == (1, "custom-call")
        assert "time with `--timer jax`" in operation["reason"]
        return
    assert done.returncode == 0, done.stderr
    assert (operation["direction"], operation["evidence"]) == ("forward-vjp", "exact")
    assert operation["status"] == "baseline-kept", operation["reason"]
    assert operation["baseline"]["median_ns"] > 0
    if name in ALONE:
        assert operation["reason"].startswith(ALONE[name])
