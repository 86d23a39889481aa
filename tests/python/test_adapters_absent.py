"""Kernels of other projects, compiled by the vendors' own compilers for devices that are not here.

Their plugins are those that are installed in this environment: `libtpu`, and JAX's CUDA plugin. The projects are
installed, or in the folder that `AUTOTUNE_LOWERED_TEST_PROJECTS` names. `.ci/full adapters` brings all of it.
"""

import json
import pathlib
import subprocess
import sys
import sysconfig
import time

import pytest
from adapter_support import (
    JAX_CALLS,
    SERVING_CALLS,
    lowered,
    of_tpu_inference,
    project,
    records,
    rpa_arrays,
    without_cuda,
)

import autotune_lowered

SITE = pathlib.Path(sysconfig.get_path("purelib"))


def recorded(folder, target, function, arrays, adapters, candidates=None):
    with autotune_lowered.recording(
        folder / "registry", target=target, directions=("forward",), adapters=adapters, candidates=candidates
    ) as recorder:
        module = lowered(function, arrays, target)
    autotune_lowered.dump(module, str(folder / "module.mlir"))
    # without the calls at the borders of a bucket of its table, which no module has
    labelled = (folder / "module.mlir").read_text()
    return [one for one in recorder.report() if one["call_key"] in labelled]


@pytest.mark.parametrize("name", SERVING_CALLS)
def test_kernels_of_servers_and_trainers_are_lowered(name, tmp_path):
    adapters, package, function, arrays = SERVING_CALLS[name]
    project(package)
    (report,) = recorded(tmp_path, "tpu:v6e", function, arrays(), adapters)
    assert report["op_id"] == f"{name}@v1" and report["programs"] >= 6, report
    assert not report["values_unknown"] and len(report["exercised"]) >= 2, report


def test_its_own_check_refuses_blocks_before_they_are_lowered(tmp_path):
    project("tpu_inference")
    function = SERVING_CALLS["tpu_inference.rpa_v3"][2]
    baseline = {"d_bq": 1, "d_bkv": 2048, "d_bq_c": 1, "d_bkv_c": 512}
    mixed = {"m_bq": 128, "m_bkv": 1024, "m_bq_c": 128, "m_bkv_c": 512}
    odd = [baseline | mixed | {"d_bkv_c": 96}]
    (report,) = recorded(
        tmp_path, "tpu:v6e", function, rpa_arrays(), "tpu-inference", candidates={"tpu_inference.rpa_v3@v1": odd}
    )
    ((reason, count),) = report["not_lowered"].items()
    assert count == 1 and reason.startswith("ValueError: decode bkv_csz=96 and bkv_sz=2048 must satisfy"), report


def test_a_batch_is_valid_by_the_projects_own_check(tmp_path):
    import numpy as np

    project("tpu_inference")
    function, arrays = SERVING_CALLS["tpu_inference.rpa_v3"][2:]
    recorded(tmp_path, "tpu:v6e", function, arrays(), "tpu-inference", candidates={"tpu_inference.rpa_v3@v1": []})
    (record,) = records(tmp_path / "registry")
    values = {
        one["name"]: np.frombuffer((tmp_path / "registry" / one["fill"]["path"]).read_bytes(), np.int32)
        for one in record["invocation"]["arguments"]
        if one["fill"]["kind"] == "file"
    }
    assert values.keys() == {"kv_lens", "page_indices", "cu_q_lens", "distribution"}
    real = [np.zeros(one.shape, one.dtype) for one in arrays()[:4]]
    order = ("kv_lens", "page_indices", "cu_q_lens", "distribution")
    kernel = of_tpu_inference("ragged_paged_attention.v3.kernel")
    kernel.dynamic_validate_inputs(*real, *(values[name] for name in order))


def compiled(folder, target, plugin, run, *more):
    words = ["compile", folder / "module.mlir", "--registry", folder / "registry", "--target", target]
    words += ["--plugin", plugin, "-o", folder / "store", "--format", "json", *more]
    try:
        document = json.loads(run(*words))
    except AssertionError:
        # some programs were not decided
        document = json.loads(run(*words, expected=1))
    return [one for call in document["targets"][0]["calls"] for one in call["candidates"]]


def check(outcomes):
    """Every candidate is compiled, refused in the compiler's words, or says how the compiler ended."""
    for one in outcomes:
        print(one["status"], one["config"], one.get("failure") or one.get("reason") or "")
        if one["status"] not in ("compiled", "same-program"):
            assert one.get("failure") or one.get("reason"), one
    assert any(one["status"] == "compiled" for one in outcomes)


def libtpu():
    found = SITE / "libtpu" / "libtpu.so"
    return found if found.is_file() else None


@pytest.mark.parametrize("name", [*SERVING_CALLS, *(name for name in JAX_CALLS if ".tpu." in name)])
def test_libtpu_decides_every_candidate(name, tmp_path, run):
    plugin = libtpu()
    if plugin is None:
        pytest.skip("no libtpu is installed")
    if name in JAX_CALLS:
        _, function, arrays, _ = JAX_CALLS[name]
        recorded(tmp_path, "tpu:v6e", function, arrays, "jax-pallas")
    else:
        adapters, package, function, make = SERVING_CALLS[name]
        project(package)
        recorded(tmp_path, "tpu:v6e", function, make(), adapters)
    check(compiled(tmp_path, "tpu:v6e", plugin, run))


@pytest.mark.parametrize("name", [name for name in JAX_CALLS if ".gpu." in name])
def test_cudas_compiler_decides_every_candidate(name, tmp_path, run, monkeypatch):
    plugin = next(SITE.glob("jax_plugins/xla_cuda*/xla_cuda_plugin.so"), None)
    if plugin is None:
        pytest.skip("no CUDA plugin is installed")
    target, function, arrays, _ = JAX_CALLS[name]
    without_cuda(name, monkeypatch)
    recorded(tmp_path, target, function, arrays, "jax-pallas")
    check(compiled(tmp_path, target, plugin, run))


@pytest.mark.needs_jax("0.8", "the adapted kernels are written for it")
@pytest.mark.parametrize("name", [*SERVING_CALLS, *JAX_CALLS])
def test_a_kernel_carries_its_own_operations_label(name, tmp_path, run, monkeypatch):
    if name in JAX_CALLS:
        target, function, arrays, _ = JAX_CALLS[name]
        adapters = "jax-pallas"
        without_cuda(name, monkeypatch)
    else:
        adapters, package, function, make = SERVING_CALLS[name]
        project(package)
        target, arrays = "tpu:v6e", make()
    recorded(tmp_path, target, function, arrays, adapters, candidates={f"{name}@v1": []})
    scan = json.loads(run("scan", tmp_path / "module.mlir", "--format", "json"))
    assert [one["op_id"] for one in scan["labels"]] == [f"{name}@v1"]
    assert not [one for one in scan["diagnosis"] if one["code"] == "stale-adapter"], scan


ON_DEMAND = """
import pathlib
import sys

sys.path.insert(0, {tests!r})
import jax
from adapter_support import SERVING_CALLS, lowered, project

import autotune_lowered

project("tpu_inference")
function, arrays = SERVING_CALLS["tpu_inference.rpa_v3"][2:]
with autotune_lowered.recording(
    "registry", target="tpu:v6e", adapters="tpu-inference", on_demand=True, directions=("forward",)
):
    module = lowered(function, arrays(), "tpu:v6e")
autotune_lowered.dump(module, "module.mlir")
"""


def test_candidates_of_a_server_are_lowered_on_demand_and_compiled(tmp_path, run, monkeypatch):
    plugin = libtpu()
    if plugin is None:
        pytest.skip("no libtpu is installed")
    project("tpu_inference")
    (tmp_path / "serve.py").write_text(ON_DEMAND.format(tests=str(pathlib.Path(__file__).parent)))
    monkeypatch.chdir(tmp_path)
    command = f"{sys.executable} serve.py"
    subprocess.run(command, shell=True, check=True)
    (record,) = records(tmp_path / "registry")
    lowered_before = [one for one in record["invocation"]["candidates"] if "program" in one]
    assert len(lowered_before) == 1 and len(record["invocation"]["candidates"]) >= 12
    began = time.monotonic()
    outcomes = compiled(tmp_path, "tpu:v6e", plugin, run, "--recorder", command)
    print(f"{len(outcomes)} candidates, lowered on demand and compiled in {time.monotonic() - began:.0f} s")
    check(outcomes)
    (record,) = records(tmp_path / "registry")
    assert all("program" in one or "not_lowered" in one for one in record["invocation"]["candidates"])
