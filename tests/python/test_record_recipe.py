"""Recipes: the worker on the device builds programs that could not be lowered at recording."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from record_support import program, record_of

pytest.importorskip("jax", reason="recording needs JAX")
pytest.importorskip("ejkernel", reason="these record ejkernel's operations")

import jax
import jax.numpy as jnp
import numpy as np
from ejkernel.modules import flash_attention, grouped_matmul

import autotune_lowered
from autotune_lowered.libraries import recipe as recipes
from autotune_lowered.libraries.ejkernel.operation import Operation
from autotune_lowered.worker import Failed, Worker

FLASH, GROUPED = "flash_attention@v2", "grouped_matmul@v0"


def f(q, k, v, lhs, rhs, sizes):
    attention = flash_attention(q, k, v, causal=True, sliding_window=(32, 32), logits_dtype=jnp.float32)
    return attention.sum() + grouped_matmul(lhs, rhs, sizes).sum()


@pytest.fixture(scope="module")
def registries(tmp_path_factory):
    """The same calls lowered here, and with only their baselines lowered: as if the kernels needed the device."""
    normal, without = (tmp_path_factory.mktemp(name) for name in ("normal", "without"))
    q = jnp.ones((1, 256, 2, 32))
    arguments = q, q, q, jnp.ones((64, 16)), jnp.ones((4, 16, 32)), jnp.array([16] * 4, jnp.int32)
    with autotune_lowered.recording(normal):
        jax.jit(f).lower(*arguments)
    refuse = Operation.refuse
    Operation.refuse = lambda self, config, platform: "needs the device"
    try:
        with autotune_lowered.recording(without):
            jax.jit(f).lower(*arguments)
    finally:
        Operation.refuse = refuse
    return normal, without


def programs(folder, record):
    return {
        json.dumps(candidate["config"]): (folder / "programs" / digest[:2] / f"{digest}.mlirbc").read_bytes()
        for candidate in record["candidates"]
        if (digest := candidate["program"]["digest"])
    }


@pytest.mark.parametrize("op_id", [FLASH, GROUPED])
@pytest.mark.parametrize("direction", ["forward", "forward-vjp"])
def test_a_recipe_builds_the_program_that_is_lowered_elsewhere(registries, op_id, direction):
    normal, without = registries
    lowered, missing = record_of(normal, op_id, direction), record_of(without, op_id, direction)
    recipe = missing["static_arguments"]["recipe"]
    assert all(candidate["not_lowered"] == "needs the device" for candidate in missing["candidates"])
    expected = programs(normal, lowered)
    inputs = {argument["name"]: argument["spec"] for argument in lowered["arguments"]}
    for candidate in missing["candidates"][:4]:
        built = recipes.build(recipe, candidate["config"], direction, inputs, "cpu")
        assert built == expected[json.dumps(candidate["config"])]


def test_the_worker_builds_runs_and_gives_the_outputs(registries, tmp_path):
    normal, without = registries
    recipe = record_of(without, GROUPED, "forward")["static_arguments"]["recipe"]
    record = record_of(normal, GROUPED, "forward")
    rng = np.random.default_rng(1)
    values = {
        "lhs": rng.normal(size=(64, 16)).astype(np.float32),
        "rhs": rng.normal(size=(4, 16, 32)).astype(np.float32),
        "group_sizes": np.array([10, 20, 30, 4], np.int32),
    }
    inputs = []
    for argument in record["arguments"]:
        path = tmp_path / argument["name"]
        values[argument["name"]].tofile(path)
        inputs.append({"name": argument["name"], "spec": argument["spec"], "path": str(path), "donated": False})
    worker = Worker(0)
    assert "build-recipes" in worker.hello({})["capabilities"]
    job = {"op_id": GROUPED, "call_key": "k", "direction": "forward", "inputs": inputs, "scratch": str(tmp_path)}
    worker.begin(job | {"recipe": recipe})
    loaded = worker.load({"candidate": 3, "config": record["candidates"][3]["config"]})
    assert loaded["signature"]["parameters"] == [item["spec"] for item in inputs]
    (output,) = worker.outputs({"candidate": 3, "folder": str(tmp_path)})["outputs"]
    starts = np.cumsum([0, 10, 20, 30, 4])
    expected = np.concatenate(
        [values["lhs"][a:b] @ values["rhs"][g] for g, (a, b) in enumerate(zip(starts[:-1], starts[1:], strict=True))]
    )
    np.testing.assert_allclose(np.fromfile(output["path"], np.float32).reshape(64, 32), expected, rtol=1e-4, atol=1e-4)

    worker.begin(job)
    with pytest.raises(Failed, match="neither a program nor a recipe"):
        worker.load({"candidate": 0, "config": {}})


def test_a_recipe_names_nothing_but_the_two_libraries(registries):
    _, without = registries
    recipe = record_of(without, GROUPED, "forward")["static_arguments"]["recipe"]
    for changed, message in (
        ({"module": "os", "class": "system"}, "must not import `os`"),
        ({"class": "GroupedMatmulConfig"}, "no (kernel|class of that module)"),
        ({"kind": "other"}, "no recipe of the kind `other`"),
        ({"state": {"x": {"enum": ["subprocess", "Popen", "x"]}}}, "must not import `subprocess`"),
        ({"state": {"x": {"pickle": "…"}}}, "knows no `pickle`"),
        # a state's members hide the kernel's methods: it must not contain anything callable
        ({"state": {"run": {"enum": ["jax._src.xla_bridge", "os", "system"]}}}, "no class of that module"),
        ({"state": {"run": {"enum": ["ejkernel.ops", "Kernel", "run"]}}}, "no (class of that module|enumeration)"),
        ({"state": {"run": {"dtype": "save"}}}, "`save` is no element type"),
        ({"state": {"run": {"dtype": "ndarray"}}}, "`ndarray` is no element type"),
    ):
        with pytest.raises(ValueError, match=message):
            recipes.build(recipe | changed, {}, "forward", {}, "cpu")


def test_a_stamp_of_tokamax_imports_nothing_else():
    from autotune_lowered.libraries.tokamax import bound

    good = {
        "__type": "tokamax._src.ops.x.X",
        "activation": "jax._src.nn.functions.silu",
        "scale": "0.5",
        "rest": ["a b"],
    }
    bound._check_imports(good)
    for changed, message in (
        ({"activation": "os.system"}, "`os.system`"),
        ({"activation": "os:system"}, "`os:system`"),
        ({"rest": [{"__type": "antigravity"}]}, "`antigravity`"),
        ({"__type": "jaxx.X"}, "`jaxx.X`"),
    ):
        with pytest.raises(ValueError, match=f"must not import {message}"):
            bound._check_imports({"op": good | changed})


def test_a_field_that_this_ejkernel_lacks_is_named(registries):
    _, without = registries
    record = record_of(without, GROUPED, "forward")
    with pytest.raises(ValueError, match="has no field `block_q`"):
        recipes.build(record["static_arguments"]["recipe"], {"block_q": 1}, "forward", {}, "cpu")


def test_the_program_tunes_what_only_the_worker_can_build(registries, tmp_path):
    if program() is None:
        pytest.skip("needs the program (AUTOTUNE_LOWERED_EXE)")
    _, without = registries
    q = jax.ShapeDtypeStruct((1, 256, 2, 32), jnp.float32)
    arguments = q, q, q, jnp.ones((64, 16)), jnp.ones((4, 16, 32)), jnp.array([16] * 4, jnp.int32)
    with autotune_lowered.recording(tmp_path / "again", directions=("forward",)):
        text = jax.jit(f).lower(*arguments).as_text(debug_info=True)
    (tmp_path / "module.mlir").write_text(text)
    options = [
        "--registry",
        without,
        "--timer",
        f"jax:{sys.executable}",
        "--rounds",
        "6",
        "--min-improvement",
        "0.9",
        "--cache",
        tmp_path / "cache",
        "--thorough",
    ]
    done = subprocess.run(
        [program(), tmp_path / "module.mlir", *options, "--format", "json"], capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    operations = {operation["op_id"]: operation for operation in json.loads(done.stdout)["operations"]}
    assert set(operations) == {FLASH, GROUPED}
    for operation in operations.values():
        assert operation["status"] == "baseline-kept", operation
        assert all(candidate["median_ns"] > 0 for candidate in operation["candidates"]), operation
