"""Recording unmodified ejkernel operations: the registry's content afterwards, and tuning from it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
from record_support import array_bytes, record_of, records

pytest.importorskip("jax", reason="recording needs JAX")
pytest.importorskip("ejkernel", reason="these record ejkernel's operations")

import jax
import jax.numpy as jnp
import numpy as np
from ejkernel.modules import flash_attention, grouped_matmul
from ejkernel.ops.registry import get_invocations
from ejkernel.ops.utils.fingerprint import device_fingerprint

import autotune_lowered
from autotune_lowered import _native

FLASH, GROUPED = "flash_attention@v2", "grouped_matmul@v0"

Q = jnp.linspace(-1, 1, 1 * 256 * 2 * 32, dtype=jnp.float32).reshape(1, 256, 2, 32)
LHS, RHS = jnp.ones((64, 16)), jnp.ones((4, 16, 32))
SIZES = np.array([10, 20, 30, 4], np.int32)


def attention(q, **more):
    return flash_attention(q, q, q, causal=True, **more).sum()


def grouped(lhs, rhs, sizes):
    return grouped_matmul(lhs, rhs, sizes).sum()


def program_files(folder):
    return sorted(path.name for path in pathlib.Path(folder).glob("programs/*/*"))


def test_a_call_under_jit_is_recorded_in_both_directions_with_shapes_only(tmp_path):
    with autotune_lowered.recording(tmp_path) as recorded:
        text = jax.jit(attention).lower(Q).as_text(debug_info=True)
    forward = record_of(tmp_path, FLASH, "forward")
    # the label that ejkernel itself stamped, with its own key
    assert f"ejkernel_ops#{FLASH}:{forward['call_key']}" in text
    assert [(a["name"], a["spec"]) for a in forward["arguments"]] == [
        (name, "f32[1,256,2,32]") for name in ("query", "key", "value")
    ]
    assert all(argument["fill"] == {"kind": "normal", "scale": 1.0} for argument in forward["arguments"])
    assert forward["static_arguments"]["causal"] is True
    assert forward["static_arguments"]["logits_dtype"] == "float32"
    both = record_of(tmp_path, FLASH, "forward-vjp")
    assert [a["name"] for a in both["arguments"]] == ["query", "key", "value", "output_cotangent"]
    # ejkernel's heuristic on a CPU and its XLA candidates (flash_attention.py: candidate_cfgs_xla)
    assert forward["baseline"]["fwd_params"] == {"q_blocksize": 128, "kv_blocksize": 128}
    blocks = {
        (c["config"]["fwd_params"]["q_blocksize"], c["config"]["fwd_params"]["kv_blocksize"])
        for c in forward["candidates"]
    }
    assert {(128, 128), (128, 256), (256, 256), (256, 128), (128, 512), (256, 512)} <= blocks
    assert all("program" in candidate for candidate in forward["candidates"])
    named = {c["program"]["digest"] + ".mlirbc" for r in (forward, both) for c in r["candidates"]}
    assert sorted(named) == program_files(tmp_path)
    assert not any(entry.get("pending") for entry in recorded.report())


def test_the_programs_are_those_that_ejkernel_runs_under_the_config(tmp_path):
    from ejkernel.modules.operations.configs import FlashAttentionConfig
    from ejkernel.ops import BwdParams, FwdParams
    from ejkernel.ops.config.cache import overlay_cache

    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        jax.jit(attention).lower(Q)
    record = record_of(tmp_path, FLASH, "forward")
    digests = {}
    for candidate in record["candidates"]:
        forward = candidate["config"]["fwd_params"]
        digests.setdefault((forward["q_blocksize"], forward["kv_blocksize"]), set()).add(
            candidate["program"]["semantic_digest"]
        )
    # one program for each pair of blocks, whatever the other parameters
    assert all(len(found) == 1 for found in digests.values())
    # the same through ejkernel's own overlay (its policy `heuristics` ignores `cfg=`)
    from autotune_lowered.record.lowering import lower

    spec = jax.ShapeDtypeStruct(Q.shape, Q.dtype)
    params = FwdParams(q_blocksize=128, kv_blocksize=256), BwdParams()
    config = FlashAttentionConfig(fwd_params=params[0], bwd_params=params[1], platform="xla", backend="any")
    with overlay_cache({(device_fingerprint(), FLASH, record["call_key"]): config}):
        mine = lower(lambda q, k, v: flash_attention(q, k, v, causal=True), [spec] * 3, "cpu")
    assert digests[128, 256] == {mine.semantic_digest}


def test_the_forms_of_a_step_have_the_baseline_and_the_tuned_config_by_force(tmp_path, monkeypatch):
    from ejkernel.modules.operations.configs import FlashAttentionConfig
    from ejkernel.ops import BwdParams, FwdParams
    from ejkernel.ops.config.cache import overlay_cache

    from autotune_lowered.tuning.result import AutotuningResult

    with autotune_lowered.recording(tmp_path / "registry", directions=("forward",)):
        jax.jit(attention).lower(Q)
    record = record_of(tmp_path / "registry", FLASH, "forward")

    def blocks(config):
        return tuple(config["fwd_params"][name] for name in ("q_blocksize", "kv_blocksize"))

    configs = {blocks(one["config"]): one["config"] for one in record["candidates"]}
    # neither is the choice of ejkernel's heuristic (128, 128), and another config is in force outside
    row = {
        "op_id": FLASH, "call_key": record["call_key"], "direction": "forward", "status": "tuned", "reason": "",
        "baseline": {"config": configs[128, 256], "median_ns": 2.0}, "speed_up": 2.0,
        "best": {"config": configs[256, 128], "median_ns": 1.0},
    }  # fmt: skip
    device = {"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}, "environment": {}}
    result = AutotuningResult(
        {"schema": 1, "device": device, "timer": "replay", "operations": [row], "interrupted": False, "notes": []}
    )

    def under(query, keys):
        params = FwdParams(q_blocksize=query, kv_blocksize=keys), BwdParams()
        config = FlashAttentionConfig(fwd_params=params[0], bwd_params=params[1], platform="xla", backend="any")
        return overlay_cache({(device_fingerprint(), FLASH, record["call_key"]): config})

    def digest(text):
        return _native.semantic_digest(text.encode())

    monkeypatch.setenv("EJKERNEL_OPS_STAMP", "hash")
    step = jax.jit(attention)
    with under(256, 256):
        at = autotune_lowered.dump(step, tmp_path / "step", args=(Q,), variants=result)
    variants = json.loads((at / "prove.json").read_text())["variants"]
    found = {tuple(one["tuned"]): digest((at / one["file"]).read_text()) for one in variants}
    expected = {}
    for tuned, pair in [((), (128, 256)), ((0,), (256, 128))]:
        with under(*pair):
            expected[tuned] = digest(step.lower(Q).as_text())
    assert found == expected and len(set(found.values())) == 2


@pytest.fixture
def compiled_here():
    """No executable from ejkernel's cache, whose scopes may be those of another process."""
    jax.config.update("jax_enable_compilation_cache", False)
    yield
    jax.config.update("jax_enable_compilation_cache", True)


@pytest.mark.usefixtures("compiled_here")
@pytest.mark.parametrize("stamp", ["hash", "json"])
def test_the_whole_label_is_in_the_compiled_module(tmp_path, stamp):
    """In the payload, on operations of the backward pass too, and in the scope of hashes, which has no `@`."""
    with autotune_lowered.recording(tmp_path, directions=("forward",), stamp=stamp):
        text = jax.jit(jax.value_and_grad(lambda q: attention(q).sum())).lower(Q).compile().as_text()
    label = f"ejkernel_ops#{FLASH}:{record_of(tmp_path, FLASH, 'forward')['call_key']}"
    if stamp == "hash":
        found = [(one["op_id"], one["evidence"]) for one in json.loads(_native.scan(text.encode()))["labels"]]
        assert found == [(FLASH, "exact")]
    labelled = [line for line in text.splitlines() if f'payload="{label}"' in line]
    assert any("transpose(jvp(" in line for line in labelled) and any("transpose(" not in line for line in labelled)
    # a program of the registry has no label: programs that compute the same are one
    with autotune_lowered.recording(tmp_path / "plain", directions=("forward",), stamp=None):
        jax.jit(attention).lower(Q)
    assert program_files(tmp_path) == program_files(tmp_path / "plain")


def test_backward_parameters_are_not_called_exercised(tmp_path):
    with autotune_lowered.recording(tmp_path) as recorded:
        jax.jit(attention).lower(Q)
    for entry in recorded.report():
        assert entry["exercised"] == ["fwd_params.kv_blocksize", "fwd_params.q_blocksize"]
        assert {"bwd_params.q_blocksize", "bwd_params.kv_blocksize"} <= set(entry["unexercised"])
    parameters = record_of(tmp_path, FLASH, "forward")["static_arguments"]["parameters"]
    assert parameters["exercised"] == ["fwd_params.kv_blocksize", "fwd_params.q_blocksize"]


@pytest.mark.parametrize("wrap", [jax.grad, jax.jit, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f))])
def test_no_tracer_leaks(tmp_path, wrap):
    with jax.checking_leaks(), autotune_lowered.recording(tmp_path):
        wrap(attention)(Q)
    assert {record["direction"] for record in records(tmp_path)} == {"forward", "forward-vjp"}
    # ejkernel's own registry, which would keep the tracers, stayed empty
    assert not get_invocations(device_fingerprint())


def test_vmap_records_a_variant_of_the_call_that_the_key_stands_for(tmp_path):
    with autotune_lowered.recording(tmp_path, directions=("forward",)) as recorded:
        jax.vmap(attention)(jnp.stack([Q, Q, Q]))
    record = record_of(tmp_path, FLASH, "forward")
    assert record["arguments"][0]["spec"] == "f32[3,1,256,2,32]"
    assert record["batch"] == [{"size": 3, "axes": {"query": 0, "key": 0, "value": 0}}]
    assert "vmap" in recorded.report()[0]["notes"][0]


def test_inside_of_shard_map_the_shapes_are_those_of_a_shard(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    spec = jax.sharding.PartitionSpec("x")
    # ejkernel's own loops fail the check of varying axes
    options = {"mesh": mesh, "in_specs": spec, "out_specs": spec, "check_vma": False}
    sharded = jax.shard_map(lambda q: flash_attention(q, q, q, causal=True), **options)
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        text = jax.jit(sharded).lower(Q).as_text(debug_info=True)
    record = record_of(tmp_path, FLASH, "forward")
    assert f"ejkernel_ops#{FLASH}:{record['call_key']}" in text
    assert record["arguments"][0]["spec"] == "f32[1,256,2,32]" and "program" in record["candidates"][0]


def test_integers_are_captured_when_eager_and_follow_the_rule_under_jit(tmp_path):
    with autotune_lowered.recording(tmp_path / "eager", directions=("forward",)):
        grouped(LHS, RHS, jnp.asarray(SIZES))
    by_name = {a["name"]: a for a in record_of(tmp_path / "eager", GROUPED, "forward")["arguments"]}
    assert array_bytes(tmp_path / "eager", by_name["group_sizes"]["fill"]) == SIZES.tobytes()
    assert by_name["lhs"]["fill"] == {"kind": "uniform", "low": 0.5, "high": 1.0}
    with autotune_lowered.recording(tmp_path / "jit", directions=("forward",)):
        jax.jit(grouped).lower(LHS, RHS, jnp.asarray(SIZES))
    by_name = {a["name"]: a for a in record_of(tmp_path / "jit", GROUPED, "forward")["arguments"]}
    assert by_name["group_sizes"]["fill"] == {"kind": "partition", "total": 64}


def test_every_usual_value_is_of_an_argument_that_the_operation_has():
    import importlib
    import inspect
    import pkgutil

    import ejkernel.modules.operations as operations
    from ejkernel.ops import Kernel

    from autotune_lowered.libraries.ejkernel.values import _USUAL

    arguments = {}
    for found in pkgutil.iter_modules(operations.__path__):
        module = importlib.import_module(f"{operations.__name__}.{found.name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, Kernel) and kind.__module__ == module.__name__:
                arguments[kind().op_id] = set(inspect.signature(kind.run).parameters)
    for name, usual in _USUAL.items():
        assert usual.keys() <= arguments[name], name


@pytest.mark.parametrize("seen", [False, True])
def test_a_traced_gated_delta_rule_has_decays_that_forget(tmp_path, seen):
    from ejkernel.modules.operations import gated_delta_rule

    rng = np.random.default_rng(0)
    query = jnp.asarray(rng.normal(size=(1, 64, 2, 16)).astype(np.float32))
    beta = jnp.asarray(np.linspace(0.1, 0.2, 128, dtype=np.float32).reshape(1, 64, 2))
    step = jax.jit(lambda q, beta, decay: gated_delta_rule(q, q, q, beta, decay).sum())
    with autotune_lowered.recording(tmp_path, directions=("forward",), capture_values=seen) as recorded:
        step(query, beta, -beta).block_until_ready()
    (report,) = recorded.report()
    # its triangular solve is a custom call of LAPACK
    assert report["programs"] == 2 and not report["not_lowered"]
    fills = {a["name"]: a["fill"] for a in record_of(tmp_path, "gated_delta_rule@v2", "forward")["arguments"]}
    beta, decay = ((0.1, 0.2), (-0.2, -0.1)) if seen else ((0.0, 1.0), (-1.0, 0.0))
    assert fills["beta"] == {"kind": "uniform", "low": beta[0], "high": beta[1]}
    assert fills["decay"] == {"kind": "uniform", "low": decay[0], "high": decay[1]}


def test_integers_without_a_rule_are_unknown_under_jit_unless_captured(tmp_path):
    segments = jnp.zeros((1, 256), jnp.int32).at[:, 100:].set(1)

    def f(q, segments):
        from ejkernel.types.mask import MaskInfo

        info = MaskInfo.from_segments(segments)
        return flash_attention(q, q, q, mask_info=info, causal=False).sum()

    with autotune_lowered.recording(tmp_path / "plain", directions=("forward",)) as recorded:
        jax.jit(f)(Q, segments)
    record = record_of(tmp_path / "plain", FLASH, "forward")
    fills = {a["name"]: a["fill"] for a in record["arguments"]}
    assert fills["q_segment_ids"] == {"kind": "values-unknown"}
    assert "capture_values=True" in recorded.report()[0]["values_unknown"]["q_segment_ids"]
    with autotune_lowered.recording(tmp_path / "captured", directions=("forward",), capture_values=True):
        jax.jit(f)(Q, segments).block_until_ready()
    fills = {a["name"]: a["fill"] for a in record_of(tmp_path / "captured", FLASH, "forward")["arguments"]}
    assert array_bytes(tmp_path / "captured", fills["q_segment_ids"]) == np.asarray(segments).tobytes()


def test_a_later_eager_call_brings_the_values_that_a_traced_one_lacked(tmp_path):
    segments = jnp.zeros((1, 256), jnp.int32)

    def f(q, segments):
        from ejkernel.types.mask import MaskInfo

        return flash_attention(q, q, q, mask_info=MaskInfo.from_segments(segments), causal=False).sum()

    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        jax.jit(f)(Q, segments)
        f(Q, segments)
    # nothing was lowered during the trace, so there is one record, with values
    fills = {a["name"]: a["fill"]["kind"] for a in record_of(tmp_path, FLASH, "forward")["arguments"]}
    assert fills["q_segment_ids"] == "file"


def test_other_platforms_are_lowered_without_their_device(tmp_path):
    with autotune_lowered.recording(tmp_path, platforms=("cpu", "cuda"), directions=("forward",)):
        jax.jit(attention).lower(Q)
    here = record_of(tmp_path, FLASH, "forward", "cpu")
    assert here["target"]["device"]["hardware"]["cores"].isdigit()
    there = record_of(tmp_path, FLASH, "forward", "cuda")
    assert there["target"] == {"platform": "cuda"}
    by_platform = {}
    for candidate in there["candidates"]:
        by_platform.setdefault(candidate["config"]["platform"], []).append(candidate)
    # XLA's are lowered here; Triton's need the device, with a reason that depends on whether Triton is installed
    assert all("program" in candidate for candidate in by_platform["xla"])
    assert all(candidate["not_lowered"] for candidate in by_platform["triton"])


def test_what_asks_the_gpu_keeps_a_recipe_and_its_reason_for_a_target(tmp_path):
    with autotune_lowered.recording(tmp_path, target="cuda:h100_sxm", directions=("forward",)):
        text = jax.jit(attention).trace(Q).lower(lowering_platforms=("cuda",)).as_text(debug_info=True)
    record = record_of(tmp_path, FLASH, "forward")
    assert f"ejkernel_ops#{FLASH}:{record['call_key']}" in text
    assert record["target"]["device"]["device_kind"] == "NVIDIA H100 80GB HBM3"
    by_platform = {}
    for candidate in record["candidates"]:
        by_platform.setdefault(candidate["config"]["platform"], []).append(candidate)
    for platform, candidates in by_platform.items():
        assert all(("program" in candidate) == (platform == "xla") for candidate in candidates), platform
        assert all(candidate.get("not_lowered") for candidate in candidates if platform != "xla")
    assert "requires the GPU backend" in by_platform["cuda"][0]["not_lowered"]
    assert by_platform["triton"] and record["static_arguments"]["recipe"]["kind"] == "ejkernel"


def test_the_pallas_kernels_of_a_tpu_are_lowered_for_a_target(tmp_path):
    with autotune_lowered.recording(tmp_path, target="tpu:v5e", directions=("forward",)):
        jax.jit(grouped).trace(jnp.ones((256, 128)), jnp.ones((4, 128, 128)), np.array([64] * 4, np.int32))
    candidates = record_of(tmp_path, GROUPED, "forward")["candidates"]
    pallas = [candidate for candidate in candidates if candidate["config"]["platform"] == "pallas"]
    assert pallas and all(one["program"]["custom_calls"] == ["tpu_custom_call"] for one in pallas)
    # the device decides which one ejkernel chooses
    assert all("decided on the tpu" in one["not_lowered"] for one in candidates if one["config"]["platform"] == "auto")


def test_a_callable_argument_is_described_by_name_and_lowered_through_its_closure(tmp_path):
    from ejkernel.ops import ConfigCache, ConfigSelectorChain, Executor, Kernel

    class Mapped(Kernel):
        version = "3"

        def __init__(self):
            super().__init__("mapped")

        def run(self, x, function, *, cfg):
            return function(x) * cfg["factor"]

        def heuristic_cfg(self, invocation):
            return {"factor": 1}

        def candidate_cfgs(self, invocation):
            return [{"factor": 1}, {"factor": 2}]

    executor = Executor(ConfigSelectorChain(ConfigCache()))
    offset = 3.0

    def shifted(x):
        return x + offset

    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        jax.jit(lambda x: executor(Mapped(), x, shifted, cfg={"factor": 1}))(jnp.ones(4))
    record = record_of(tmp_path, "mapped@v3", "forward")
    assert record["static_arguments"]["function"].endswith("<locals>.shifted")
    assert record["arguments"] == [{"name": "x", "spec": "f32[4]", "fill": {"kind": "normal", "scale": 1.0}}]
    assert len({c["program"]["semantic_digest"] for c in record["candidates"]}) == 2

    with autotune_lowered.recording(tmp_path / "traced") as recorded, jax.checking_leaks():
        jax.jit(lambda x, y: executor(Mapped(), x, lambda z: z + y, cfg={"factor": 1}))(jnp.ones(4), jnp.ones(4))
    assert "`function` closes over traced values" in recorded.report()[0]["not_recorded"]


def test_a_function_jitted_before_is_traced_again(tmp_path):
    jitted = jax.jit(lambda q: attention(q) * 2)
    jitted(Q)
    for name in ("first", "second"):
        with autotune_lowered.recording(tmp_path / name, directions=("forward",)):
            jitted(Q)
        assert len(records(tmp_path / name)) == 1


def test_ejkernel_is_left_as_it_was(tmp_path):
    from ejkernel.ops import registry
    from ejkernel.ops.execution.executor import Executor

    stamp = Executor._stamp_hash
    before = registry.record_invocation, os.environ.get("EJKERNEL_OPS_RECORD"), os.environ.get("EJKERNEL_OPS_STAMP")
    with autotune_lowered.recording(tmp_path / "outer"):
        with autotune_lowered.recording(tmp_path / "inner", directions=("forward",)):
            jax.jit(attention).lower(Q)
        assert registry.record_invocation is not before[0] and Executor._stamp_hash is not stamp
    assert Executor._stamp_hash is stamp
    assert before == (
        registry.record_invocation,
        os.environ.get("EJKERNEL_OPS_RECORD"),
        os.environ.get("EJKERNEL_OPS_STAMP"),
    )
    # if two recordings are nested, the inner one records
    assert len(records(tmp_path / "inner")) == 1 and not records(tmp_path / "outer")


SCRIPT = """
    import sys
    import jax, jax.numpy as jnp
    from ejkernel.modules import flash_attention, grouped_matmul

    def f(q, lhs, rhs, sizes):
        return flash_attention(q, q, q, causal=True).sum() + grouped_matmul(lhs, rhs, sizes).sum()

    arguments = jnp.ones((1, 256, 2, 32)), jnp.ones((64, 16)), jnp.ones((4, 16, 32)), jnp.array([16] * 4, jnp.int32)
    open(sys.argv[1], "w").write(jax.jit(f).lower(*arguments).as_text(debug_info=True))
"""


@pytest.mark.parametrize("how", ["runner", "environment"])
def test_an_unmodified_program_is_recorded_and_tuned(tmp_path, how, request):
    script, module, registry = tmp_path / "train.py", tmp_path / "module.mlir", tmp_path / "registry"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), str(module)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    if how == "runner":
        command[1:1] = ["-m", "autotune_lowered", "record", "--registry", str(registry)]
    else:
        script.write_text("import autotune_lowered\n" + script.read_text())
        environment["AUTOTUNE_LOWERED_RECORD"] = str(registry)
    subprocess.run(command, check=True, env=environment, timeout=300, cwd=tmp_path)
    assert {record["op_id"] for record in records(registry)} == {FLASH, GROUPED}

    plugin, program = request.getfixturevalue("plugin"), request.getfixturevalue("program")
    options = [
        "--registry",
        registry,
        "--plugin",
        plugin,
        "--rounds",
        "6",
        "--cache",
        tmp_path / "cache",
        "--format",
        "json",
    ]
    done = subprocess.run([program, module, *options], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {operation["op_id"] for operation in result["operations"]} == {FLASH, GROUPED}
    for operation in result["operations"]:
        assert operation["evidence"] == "exact"
        assert operation["status"] in ("tuned", "baseline-kept", "undecided"), operation
        # dropped or extended candidates take fewer or more than the six requested
        assert operation["rounds_measured"] >= 1
    assert not result["missed"]
