"""Recording unmodified Tokamax operations (0.0.12 on JAX 0.10.0)."""

from __future__ import annotations

import importlib.util
import json

import pytest
from record_support import program, record_of, records

pytest.importorskip("jax", reason="recording needs JAX")
tokamax = pytest.importorskip("tokamax", reason="these record Tokamax's operations")

import subprocess

from absl import flags

flags.FLAGS(["test"])  # Tokamax reads its options from the command line, which is pytest's

import jax
import jax.numpy as jnp

import autotune_lowered
from autotune_lowered import _native

NORMALIZATION = "tokamax._src.ops.normalization.base.Normalization"
RAGGED_DOT = "tokamax._src.ops.ragged_dot.base.RaggedDot"

X, SCALE = jnp.ones((64, 256)), jnp.ones(256)


def normalized(x, scale):
    return tokamax.layer_norm(x, scale, None).sum()


def labels(path, text):
    """The labels that the program finds in a module."""
    if program() is None:
        pytest.skip("needs the program (AUTOTUNE_LOWERED_EXE)")
    path.write_text(text)
    done = subprocess.run([program(), "scan", path, "--format", "json"], capture_output=True, text=True, check=True)
    return {(label["op_id"], label["call_key"]) for label in json.loads(done.stdout)["labels"]}


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: jax.jit(jax.grad(f)), lambda f: jax.jit(jax.vmap(f, (0, None)))])
def test_a_record_has_the_label_of_the_module(tmp_path, wrap):
    x = jnp.stack([X] * 3) if wrap is not jax.jit and "vmap" in wrap.__code__.co_names else X
    with jax.checking_leaks(), autotune_lowered.recording(tmp_path / "registry", directions=("forward",)):
        text = wrap(normalized).lower(x, SCALE).as_text(debug_info=True)
    found = {(record["op_id"], record["call_key"]) for record in records(tmp_path / "registry")}
    assert labels(tmp_path / "module.mlir", text) <= found
    # Tokamax's own name of the call, for an exported result
    for record in records(tmp_path / "registry"):
        recipe = record["static_arguments"]["recipe"]
        assert (recipe["kind"], recipe["bound"]["op"]["__type"]) == ("tokamax", record["op_id"])
        assert recipe["bound"]["arguments"]["x"].startswith("f32[64,256]")
    # Tokamax's label holds the config, and programs that compute the same are one
    programs = [path.read_bytes() for path in (tmp_path / "registry" / "programs").rglob("*") if path.is_file()]
    assert programs and all(not json.loads(_native.scan(program))["labels"] for program in programs)


def test_both_directions_and_vmap_axes(tmp_path):
    with autotune_lowered.recording(tmp_path):
        jax.jit(jax.vmap(normalized, (0, None))).lower(jnp.stack([X] * 3), SCALE)
    # Tokamax asks once for the plain arguments and once for the batched ones
    specs = {
        tuple((a["name"], a["spec"]) for a in record["arguments"])
        for record in records(tmp_path)
        if (record["op_id"], record["direction"]) == (NORMALIZATION, "forward")
    }
    assert (("x", "f32[3,64,256]"), ("scale", "f32[256]")) in specs
    both = [record for record in records(tmp_path) if record["direction"] == "forward-vjp"]
    assert both and all(record["arguments"][-1]["name"].startswith("output_cotangent") for record in both)
    assert all(record["candidates"][0]["program"] for record in both)


def test_group_sizes_are_the_representative_ones(tmp_path):
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        jax.jit(tokamax.ragged_dot).lower(jnp.ones((64, 32)), jnp.ones((4, 32, 16)), jnp.array([16] * 4, jnp.int32))
    record = record_of(tmp_path, RAGGED_DOT, "forward")
    # Tokamax itself measures with made-up sizes of the right sum: constants in its program, and in ours
    assert [(a["name"], a["spec"]) for a in record["arguments"]] == [("lhs", "f32[64,32]"), ("rhs", "f32[4,32,16]")]
    assert record["static_arguments"]["group_sizes"] == {"value": "s32[4]", "repr_value_or_total_size": 64}
    assert all(candidate["program"] for candidate in record["candidates"])


def test_tokamax_is_left_as_it_was(tmp_path):
    before = tokamax.BoundArguments.default_config
    with autotune_lowered.recording(tmp_path):
        assert tokamax.BoundArguments.default_config is not before
    assert tokamax.BoundArguments.default_config is before


Q = jax.ShapeDtypeStruct((1, 256, 2, 64), jnp.bfloat16)
TRITON = "__gpu$xla.gpu.triton"
ATTENTION = "tokamax._src.ops.attention"
# Tokamax itself would try hundreds, of which a few suffice here
FEW = {
    f"{ATTENTION}.pallas_triton.PallasTritonFlashAttention": [
        {"block_q": 64, "block_k": 64, "num_warps": 4, "num_stages": stages} for stages in (1, 2)
    ],
    f"{ATTENTION}.pallas_mosaic_tpu.PallasMosaicTpuFlashAttention": [],
    "tokamax._src.ops.normalization.pallas_triton.PallasTritonNormalization": [],
}


def for_target(folder, target):
    return autotune_lowered.recording(folder, target=target, directions=("forward",), candidates=FEW)


def attention(implementation):
    return jax.jit(lambda q, k, v: tokamax.dot_product_attention(q, k, v, implementation=implementation))


def custom_calls(record):
    return {tuple(candidate["program"]["custom_calls"]) for candidate in record["candidates"] if "program" in candidate}


@pytest.mark.parametrize("target", ["cuda:h100_sxm", "cuda:a100_sxm_80"])
def test_attention_is_recorded_for_a_gpu_that_is_not_here(tmp_path, target):
    with for_target(tmp_path / "registry", target):
        lowered = attention(("triton", "xla")).trace(Q, Q, Q).lower(lowering_platforms=("cuda",))
    (record,) = records(tmp_path / "registry")
    assert record["target"]["device"]["platform"] == "cuda" and "PallasTriton" in record["op_id"]
    assert custom_calls(record) == {(TRITON,)} and len(record["candidates"]) >= 2
    assert all("program" in candidate for candidate in record["candidates"])
    assert labels(tmp_path / "module.mlir", lowered.as_text(debug_info=True)) == {(record["op_id"], record["call_key"])}


def test_attention_is_recorded_for_a_tpu_that_is_not_here(tmp_path):
    with for_target(tmp_path, "tpu:v6e"):
        attention(("mosaic", "xla")).trace(Q, Q, Q).lower(lowering_platforms=("tpu",))
    (record,) = records(tmp_path)
    assert "PallasMosaicTpu" in record["op_id"] and custom_calls(record) == {("tpu_custom_call",)}


@pytest.mark.skipif(
    importlib.util.find_spec("tokamax._src.ops.normalization.pallas_triton") is None,
    reason="this Tokamax's kernel of it needs `jax_triton`",
)
def test_heuristics_count_the_targets_multiprocessors(tmp_path):
    """Normalization asks `jax.devices()` for them; a CPU has none."""
    baselines = []
    for target in ("cuda:l4", "cuda:b200"):
        with for_target(tmp_path / target, target):
            jax.jit(lambda x, s: tokamax.layer_norm(x, s, None)).trace(
                jax.ShapeDtypeStruct((4096, 256), jnp.float32), jax.ShapeDtypeStruct((256,), jnp.float32)
            ).lower(lowering_platforms=("cuda",))
        record = records(tmp_path / target)[0]
        assert custom_calls(record) == {(TRITON,)}
        baselines.append(record["baseline"]["block_m"])
    assert baselines[0] > baselines[1]


def is_left_to_the_device(record, reason):
    recipe = record["static_arguments"]["recipe"]
    assert (recipe["kind"], recipe["bound"]["op"]["__type"]) == ("tokamax", record["op_id"])
    return all(reason in candidate["not_lowered"] for candidate in record["candidates"])


def test_what_tokamax_chose_for_the_host_is_no_program_of_another_platform(tmp_path):
    with autotune_lowered.recording(tmp_path, platforms=("cpu", "cuda"), directions=("forward",)):
        attention(None).trace(Q, Q, Q).lower()
    for record in records(tmp_path):
        if record["target"] == {"platform": "cuda"}:
            assert is_left_to_the_device(record, "record with a `target`")
        else:
            assert all("program" in candidate for candidate in record["candidates"])


def test_what_lies_on_the_host_makes_tokamax_choose_for_the_host(tmp_path):
    keys = jnp.ones(Q.shape, Q.dtype)
    with for_target(tmp_path, "cuda:h100_sxm"):
        jax.jit(lambda q: tokamax.dot_product_attention(q, keys, keys)).trace(Q)
    (record,) = records(tmp_path)
    assert is_left_to_the_device(record, "chose the operation for the device here and not for cuda:h100_sxm")


def test_tokamax_is_left_as_it_was_after_an_exception(tmp_path):
    before = vars(tokamax.BoundArguments)["default_config"], vars(tokamax.Op)["__call__"]
    with pytest.raises(ZeroDivisionError), autotune_lowered.recording(tmp_path, target="cuda:l4"):
        assert vars(tokamax.Op)["__call__"] is not before[1]
        raise ZeroDivisionError
    assert before == (vars(tokamax.BoundArguments)["default_config"], vars(tokamax.Op)["__call__"])
    # on the host again
    text = attention(None).lower(*(jnp.ones(Q.shape, Q.dtype),) * 3).as_text()
    assert TRITON not in text


def test_rows_that_tokamax_ships_are_tried_first(tmp_path):
    from tokamax._src.ops.attention.pallas_triton import PallasTritonFlashAttention

    from autotune_lowered.libraries.tokamax import shipped

    operation = PallasTritonFlashAttention()
    rows = operation.get_autotuning_cache("nvidia_h100_80gb_hbm3")
    arguments, row = next((key, row) for key, row in rows.items() if shipped._fastest(row))
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    own = shipped.configs(operation.bind(**arguments))
    assert row.fastest_config in own, "the row of this very call"
    # another call has those of most calls
    with autotune_lowered.recording(tmp_path, target="cuda:h100_sxm", directions=("forward",)):
        attention("triton").trace(Q, Q, Q).lower(lowering_platforms=("cuda",))
    record = record_of(tmp_path, f"{ATTENTION}.pallas_triton.PallasTritonFlashAttention", "forward")
    starts, configs = record["static_arguments"]["starts"], [one["config"] for one in record["candidates"]]
    assert 1 <= len(starts) <= 4 and all(start in configs[: len(starts) + 1] for start in starts)
