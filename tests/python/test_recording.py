"""The recording core, with operations described by hand."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import pathlib
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from record_support import array_bytes, program, record_of, records

pytest.importorskip("jax", reason="recording needs JAX")

import jax
import jax.numpy as jnp
import numpy as np

import autotune_lowered
from autotune_lowered.record.call import RecordedCall
from autotune_lowered.record.parameters import parameters_of

# older ones cannot strip locations; the registry's own digest ignores them
STRIPS = pytest.mark.needs_jax("0.6", "the MLIR bindings write artifacts")

KEY = "0123456789abcdef"
CONFIGS = [{"block": block} for block in (1, 2, 4)]


def scaled(config):
    return lambda x, y: jnp.sum(x * config["block"]) + y


def call(key="k1", op_id="scaled@v1", build=scaled, configs=CONFIGS, **more):
    arrays = {"x": jax.ShapeDtypeStruct((8, 2), jnp.float32), "y": jax.ShapeDtypeStruct((), jnp.float32)}
    given = {"arrays": arrays, "static": {"function": len}, "baseline": configs[0]} | more
    return RecordedCall(op_id=op_id, call_key=key, configs=configs, build=build, **given)


def test_importing_the_package_is_quick_and_loads_no_jax():
    # processor time: a busy machine or a slow disk takes longer, but no more processor time
    code = "import time; t = time.process_time(); import autotune_lowered, sys; print(time.process_time() - t, 'jax' in sys.modules)"
    taken = []
    for _ in range(3):
        seconds, has_jax = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        assert has_jax == "False"
        taken.append(float(seconds))
    assert min(taken) < 0.05


def test_a_call_outside_of_a_trace_is_written_at_once(tmp_path):
    with autotune_lowered.recording(tmp_path) as recorded:
        assert autotune_lowered.recording.active() is not None
        autotune_lowered.recording.active().record(call())
        assert len(records(tmp_path)) == 2
    assert autotune_lowered.recording.active() is None
    forward = record_of(tmp_path, "scaled@v1", "forward")
    assert forward["baseline"] == {"block": 1}
    assert [candidate["config"] for candidate in forward["candidates"]] == CONFIGS
    assert forward["static_arguments"]["function"] == "builtins.len"
    assert forward["static_arguments"]["parameters"]["exercised"] == ["block"]
    assert [entry["programs"] for entry in recorded.report()] == [3, 3]
    assert pathlib.Path(recorded.report()[0]["record"]).exists()


def test_a_call_inside_of_a_trace_is_written_when_it_has_ended(tmp_path):
    inside = []

    @jax.jit
    def traced(x):
        autotune_lowered.recording.active().record(call())
        inside.append(len(records(tmp_path)))
        return x

    with autotune_lowered.recording(tmp_path):
        traced(1.0)
        assert inside == [0] and not records(tmp_path)
        # the next call outside a trace writes both
        autotune_lowered.recording.active().record(call("k2"))
        assert len(records(tmp_path)) == 4


@STRIPS
def test_arguments_that_no_program_takes_are_left_out(tmp_path):
    arrays = {name: jax.ShapeDtypeStruct((4,), jnp.float32) for name in "abc"}

    def build(config):
        # only one config needs `b`, and none needs `c`
        return lambda a, b, c: a + b if config["block"] == 2 else a * config["block"]

    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        autotune_lowered.recording.active().record(call(build=build, arrays=arrays))
    record = record_of(tmp_path, "scaled@v1", "forward")
    assert [argument["name"] for argument in record["arguments"]] == ["a", "b"]
    # each program takes both
    for candidate in record["candidates"]:
        digest = candidate["program"]["digest"]
        artifact = (tmp_path / "programs" / digest[:2] / f"{digest}.mlirbc").read_bytes()
        from autotune_lowered._stages import mlir_bindings

        _, _, stablehlo, context = mlir_bindings()
        with context() as made:
            text = str(stablehlo.deserialize_portable_artifact(made, artifact))
        head = next(line for line in text.splitlines() if "func.func public @main" in line)
        assert head.count("tensor<4xf32>") == 3, head  # two in, one out


def test_a_vjp_has_one_cotangent_for_each_real_output(tmp_path):
    arrays = {"x": jax.ShapeDtypeStruct((3,), jnp.float32), "i": jax.ShapeDtypeStruct((3,), jnp.int32)}

    def build(config):
        return lambda x, i: {"a": x * config["block"], "n": i + 1, "b": jnp.sum(x * i)}

    with autotune_lowered.recording(tmp_path):
        autotune_lowered.recording.active().record(
            call(build=build, arrays=arrays, fills={"i": {"kind": "integer-range", "low": 0, "high": 5}}),
        )
    both = record_of(tmp_path, "scaled@v1", "forward-vjp")
    assert [(a["name"], a["spec"]) for a in both["arguments"]] == [
        ("x", "f32[3]"),
        ("i", "s32[3]"),
        ("output_cotangent_0", "f32[3]"),
        ("output_cotangent_1", "f32[]"),
    ]
    assert both["arguments"][1]["fill"] == {"kind": "integer-range", "low": 0, "high": 5}


def test_the_vjp_program_computes_the_gradient():
    from autotune_lowered.record.lowering import cotangents_of, with_vjp

    def function(x, i):
        return jnp.sum(x**3) + i, i + 1

    x, i = jnp.array([1.0, 2.0]), jnp.array(7)
    specs = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in (x, i)]
    (cotangent,) = cotangents_of(function, specs)
    assert (cotangent.shape, cotangent.dtype) == ((), jnp.float32)
    values, rest, (gradient,) = with_vjp(function, specs)(x, i, jnp.float32(2.0))
    assert float(values[0]) == 16.0 and int(rest[0]) == 8
    # 2 · 3x²
    np.testing.assert_allclose(gradient, [6.0, 24.0])


def test_an_operation_of_integers_has_no_second_direction(tmp_path):
    arrays = {"i": jax.ShapeDtypeStruct((3,), jnp.int32)}
    with autotune_lowered.recording(tmp_path):
        one = call(
            build=lambda config: lambda i: i * config["block"],
            arrays=arrays,
            values={"i": np.arange(3, dtype=np.int32)},
        )
        autotune_lowered.recording.active().record(one)
    (record,) = records(tmp_path)
    assert record["direction"] == "forward"
    assert array_bytes(tmp_path, record["arguments"][0]["fill"]) == bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])


def test_what_cannot_be_lowered_is_kept_with_its_reason(tmp_path):
    def build(config):
        if config["block"] == 2:
            raise NotImplementedError("block 2 needs\n a device")
        return scaled(config)

    def refuse(config, platform):
        return f"not on {platform}" if config["block"] == 4 else None

    with autotune_lowered.recording(tmp_path, platforms="tpu", directions=("forward",)) as recorded:
        autotune_lowered.recording.active().record(call(build=build, refuse=refuse))
    record = record_of(tmp_path, "scaled@v1", "forward")
    assert [c.get("not_lowered") for c in record["candidates"]] == [
        None,
        "NotImplementedError: block 2 needs a device",
        "not on tpu",
    ]
    assert recorded.report()[0]["not_lowered"] == {"NotImplementedError: block 2 needs a device": 1, "not on tpu": 1}


def test_a_kernel_that_cannot_be_differentiated_is_recorded_forward(tmp_path, caplog):
    caplog.set_level("INFO")

    def loop(config):
        # reverse mode has no rule for a `while` loop
        return lambda x, y: jax.lax.while_loop(lambda v: v.sum() < 100, lambda v: v * (1 + config["block"]), x) + y

    with autotune_lowered.recording(tmp_path) as recorded:
        autotune_lowered.recording.active().record(call(build=loop))
    assert record_of(tmp_path, "scaled@v1", "forward")["candidates"][0]["program"]
    entry = [e for e in recorded.report() if e["direction"] == "forward-vjp"][0]
    assert "it cannot be differentiated: " in entry["not_recorded"] and "while_loop" in entry["not_recorded"]
    assert {record["direction"] for record in records(tmp_path)} == {"forward"}
    # a step can run nothing else of it
    assert not [said for said in caplog.records if said.levelname == "WARNING"]
    assert "only its forward pass is recorded" in caplog.text
    with autotune_lowered.recording(tmp_path / "backward", directions=("forward-vjp",)):
        autotune_lowered.recording.active().record(call(build=loop))
    (warned,) = [said.getMessage() for said in caplog.records if said.levelname == "WARNING"]
    assert "is not recorded: it cannot be differentiated: " in warned


def test_a_record_without_a_program_is_a_warning_and_its_reason_reaches_whoever_asks(tmp_path, caplog, run, plugin):
    def broken(config):
        def function(x, y):
            raise NotImplementedError("no kernel for this shape")

        return function

    caplog.set_level("INFO")
    with autotune_lowered.recording(tmp_path / "registry", directions=("forward",)) as recorded:
        autotune_lowered.recording.active().record(call(key=KEY, build=broken))
    told = [record for record in caplog.records if "no kernel for this shape" in record.getMessage()]
    assert [record.levelname for record in told] == ["WARNING"], "once"
    assert "no program is recorded" in told[0].getMessage()
    assert not any(str(entry) in record.getMessage() for entry in recorded.report() for record in caplog.records)

    device = autotune_lowered.device()
    cache = autotune_lowered.Cache.open(tmp_path / "cache")
    answer = cache.explain(device, "scaled@v1", KEY, registry=tmp_path / "registry")
    assert answer.count("no kernel for this shape") == 1 and "recorded without a program" in answer
    assert "no kernel" not in cache.explain(device, "scaled@v1", "0" * 16, registry=tmp_path / "registry")
    with pytest.raises(autotune_lowered.CacheError, match="nowhere"):
        cache.explain(device, "scaled@v1", KEY, registry=tmp_path / "nowhere")

    module = tmp_path / "module.mlir"
    scope = jax.named_scope(f"ejkernel_ops#scaled.v1:{KEY}")

    def labelled(x):
        with scope:
            return jnp.sin(x)

    autotune_lowered.dump(jax.jit(labelled).lower(jnp.ones(4)), module)
    (tmp_path / "cache").mkdir()
    options = ["--registry", tmp_path / "registry", "--cache", tmp_path / "cache", "--format", "json"]
    ((told),) = json.loads(
        run("cache", "coverage", module, *options, "--match", "any", "--plugin", plugin, expected=1)
    )["calls"]
    assert told["reason"].count("no kernel for this shape") == 1 and not told["covered"]


def test_what_is_recorded_is_said_in_words(tmp_path, caplog):
    caplog.set_level("INFO")
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        autotune_lowered.recording.active().record(call(configs=CONFIGS[:1]))
    (said,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("recorded ")]
    assert said.endswith(": 1 candidate, 1 program")


@pytest.mark.skipif(not hasattr(jax, "ffi"), reason="needs `jax.ffi` to make such calls")
def test_triton_calls_are_exported_by_name_and_listed():
    from autotune_lowered.record.lowering import lower

    def function(x):
        spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
        x = jax.ffi.ffi_call("__gpu$xla.gpu.triton", spec)(x)
        return jax.ffi.ffi_call("somebody.else$kernel", spec)(x)

    lowered = lower(function, [jax.ShapeDtypeStruct((4,), jnp.float32)], "cuda")
    assert lowered.custom_calls == ["__gpu$xla.gpu.triton", "somebody.else$kernel"]


@STRIPS
def test_programs_do_not_depend_on_where_the_function_stands(tmp_path):
    from autotune_lowered.record.lowering import lower

    source = "def f(x):\n    return x * 2 + 1\n"
    found = []
    for place in ("a.py", "deeper/b.py"):
        namespace = {}
        exec(compile("\n" * len(place) + source, str(tmp_path / place), "exec"), namespace)
        found.append(lower(namespace["f"], [jax.ShapeDtypeStruct((4,), jnp.float32)], "cpu"))
    assert found[0].artifact == found[1].artifact
    assert found[0].semantic_digest == found[1].semantic_digest


def test_fills_follow_the_data(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "wide": rng.normal(size=(1000,), scale=5).astype(np.float32),
        "mask": np.where(rng.random(50) < 0.5, -np.inf, 0).astype(np.float32),
        "same": np.full((5,), 2.5, np.float32),
        "decay": np.linspace(0.25, 0.75, 20, dtype=np.float32),
        "factor": np.array(0.125, np.float32),
        "flags": rng.random(9) < 0.5,
        "large": np.arange(100, dtype=np.int64).astype(np.int32),
    }
    specs = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in arrays.items()}

    def build(config):
        return lambda *arrays: sum(array.sum() for array in arrays) * config["block"]

    with autotune_lowered.recording(tmp_path, directions=("forward",), max_array_bytes=399) as recorded:
        autotune_lowered.recording.active().record(call(build=build, arrays=specs, values=arrays))
    fills = {a["name"]: a["fill"] for a in record_of(tmp_path, "scaled@v1", "forward")["arguments"]}
    # larger than the limit for reading: the rule for unknown reals
    assert fills["wide"] == {"kind": "normal", "scale": 1.0}
    assert array_bytes(tmp_path, fills["mask"]) == arrays["mask"].tobytes()
    # other values of the same sign, and none larger
    assert fills["same"] == {"kind": "uniform", "low": 1.25, "high": 2.5}
    assert fills["decay"] == {"kind": "uniform", "low": 0.25, "high": 0.75}
    assert fills["factor"] == {"kind": "constant", "value": 0.125}
    assert array_bytes(tmp_path, fills["flags"]) == arrays["flags"].tobytes()
    assert fills["large"] == {"kind": "values-unknown"}
    assert "400 bytes are more than the 399" in recorded.report()[0]["values_unknown"]["large"]
    with autotune_lowered.recording(tmp_path / "all", directions=("forward",)):
        autotune_lowered.recording.active().record(call(build=build, arrays=specs, values=arrays))
    fills = {a["name"]: a["fill"] for a in record_of(tmp_path / "all", "scaled@v1", "forward")["arguments"]}
    assert (
        fills["wide"]["kind"] == "normal" and abs(fills["wide"]["scale"] - np.sqrt(np.mean(arrays["wide"] ** 2))) < 0.01
    )


def wide(config):
    return lambda *arrays: sum(jnp.sum(array) for array in arrays) * config["block"]


def filled(folder, arrays, **more):
    """The fills of a call with these arrays, and its report."""
    specs = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in arrays.items()}
    with autotune_lowered.recording(folder, directions=("forward",)) as recorded:
        described = call(build=wide, arrays=specs, values=arrays, **more)
        autotune_lowered.recording.active().record(described)
    fills = {a["name"]: a["fill"] for a in record_of(folder, "scaled@v1", "forward")["arguments"]}
    return fills, recorded.report()[0]


def test_usual_values_stand_in_where_those_seen_tell_nothing(tmp_path):
    decay = {"kind": "uniform", "low": -1.0, "high": 0.0}
    usual = {name: decay for name in ("zeros", "ones", "seen", "unseen", "ruled")}
    arrays = {name: np.full((8,), value, np.float32) for name, value in (("zeros", 0), ("ones", -1), ("ruled", -1))}
    arrays |= {"seen": np.linspace(-0.5, -0.25, 8, dtype=np.float32)}
    specs = {name: jax.ShapeDtypeStruct((8,), np.float32) for name in usual}
    rule = {"kind": "normal", "scale": 2.0}
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        described = call(build=wide, arrays=specs, values=arrays, usual=usual, fills={"ruled": rule})
        autotune_lowered.recording.active().record(described)
    fills = {a["name"]: a["fill"] for a in record_of(tmp_path, "scaled@v1", "forward")["arguments"]}
    expected = {"zeros": decay, "ones": decay, "unseen": decay, "ruled": rule}
    assert fills == expected | {"seen": {"kind": "uniform", "low": -0.5, "high": -0.25}}


def test_a_range_that_three_digits_do_not_hold_is_kept_whole(tmp_path):
    value = np.array([1.0001, 1.0002], np.float32)
    fills, _ = filled(tmp_path, {"x": value})
    assert fills["x"] == {"kind": "uniform", "low": float(value[0]), "high": float(value[1])}


def test_what_is_no_number_is_kept_and_said(tmp_path, caplog):
    value = np.array([1, np.nan, 2, np.nan], np.float32)
    fills, report = filled(tmp_path, {"x": value, "mask": np.array([0, -np.inf], np.float32)})
    assert array_bytes(tmp_path, fills["x"]) == value.tobytes()
    (note,) = report["notes"]
    assert note == "`x`: 50.0% of its values are NaN: outputs that follow from them prove nothing"
    assert note in caplog.text


TRACED = {
    "gate": np.linspace(0.25, 0.75, 20, dtype=np.float32),
    "decay": np.linspace(-3, -0.5, 7, dtype=np.float32),
    "both": np.array([-3, 4], np.float32),
    "narrow": np.array([300, 400], jnp.bfloat16),
    "complex": np.array([3 + 4j, 0], np.complex64),
    "factor": np.array(0.125, np.float32),
    "mask": np.array([0, 0, 0, -np.inf], np.float32),
    "group_sizes": np.array([3, 1, 4], np.int32),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize("wrap", ["jit", "grad", "scan", "vmap"])
def test_a_trace_tells_size_and_sign_of_real_arguments(tmp_path, wrap):
    @autotune_lowered.tunable(op="traced", version=1, space={"block": [1, 2]})
    def traced(arrays, *, block=1):
        return sum(jnp.sum(jnp.real(array)) for array in arrays.values()) * block

    def stepped(arrays):
        return jax.lax.scan(lambda carry, _: (carry + traced(arrays), None), 0.0, None, length=2)[0]

    wrapped = {
        "jit": lambda: jax.jit(traced)(TRACED),
        "grad": lambda: jax.jit(jax.grad(traced, allow_int=True))(TRACED),
        "scan": lambda: jax.jit(stepped)(TRACED),
        "vmap": lambda: jax.jit(jax.vmap(traced))(jax.tree_util.tree_map(lambda one: jnp.stack([one, one]), TRACED)),
    }[wrap]
    with autotune_lowered.recording(tmp_path, directions=("forward",), capture_values=True) as recorded:
        jax.block_until_ready(wrapped())
    fills = {a["name"]: a["fill"] for a in record_of(tmp_path, "traced@v1", "forward")["arguments"]}
    named = {name: fills.pop(f"arrays['{name}']") for name in TRACED}
    assert not fills
    calls = 2 if wrap == "vmap" else 1
    assert array_bytes(tmp_path, named.pop("group_sizes")) == TRACED["group_sizes"].tobytes() * calls
    assert named == {
        "gate": {"kind": "uniform", "low": 0.25, "high": 0.75},
        "decay": {"kind": "uniform", "low": -3.0, "high": -0.5},
        "both": {"kind": "normal", "scale": 3.54},
        "narrow": {"kind": "uniform", "low": 300.0, "high": 400.0},
        "complex": {"kind": "normal", "scale": 3.54},
        "factor": {"kind": "constant", "value": 0.125},
        "mask": {"kind": "normal", "scale": 1.0},
        "empty": {"kind": "normal", "scale": 1.0},
    }
    (note,) = recorded.report()[0]["notes"]
    assert note.startswith("`arrays['mask']`: 25.0% of its values are infinite") and "eagerly once" in note


def test_a_traced_call_that_never_runs_is_written_without_its_values(tmp_path):
    @autotune_lowered.tunable(op="traced", version=1, space={"block": [1, 2]})
    def traced(x, *, block=1):
        return x.sum() * block

    with autotune_lowered.recording(tmp_path, directions=("forward",), capture_values=True):
        jax.jit(traced).lower(jax.ShapeDtypeStruct((4,), jnp.float32))
    (argument,) = record_of(tmp_path, "traced@v1", "forward")["arguments"]
    assert argument["fill"] == {"kind": "normal", "scale": 1.0}


def test_an_exception_in_the_block_loses_nothing(tmp_path):
    @jax.jit
    def traced(x):
        autotune_lowered.recording.active().record(call())
        raise KeyError("the program's own")

    with pytest.raises(KeyError, match="the program's own"), autotune_lowered.recording(tmp_path):
        traced(1.0)
    assert len(records(tmp_path)) == 2
    assert autotune_lowered.recording.active() is None


def test_the_second_call_of_a_key_is_a_look_up(tmp_path):
    built = []

    def build(config):
        built.append(config)
        return scaled(config)

    with autotune_lowered.recording(tmp_path) as recorded:
        recorder = autotune_lowered.recording.active()
        recorder.record(call(build=build))
        count = len(built)
        # the quickest of many: disturbances only slow it down
        took = []
        for _ in range(1000):
            start = time.perf_counter()
            assert not recorder.wants("scaled@v1", "k1")
            took.append(time.perf_counter() - start)
        assert min(took) < 20e-6
        recorder.record(call(build=build))
    assert len(built) == count
    assert len(recorded.report()) == 2


def test_a_registry_of_another_schema_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "registry.json").write_text('{"kind":"autotune-lowered-registry","schema":99}\n')
    with pytest.raises(ValueError, match="99"):
        autotune_lowered.recording(tmp_path)


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(ValueError, match="no platform `metal`"):
        autotune_lowered.recording(tmp_path, platforms=("metal",))
    with pytest.raises(ValueError, match="no direction `backward`"):
        autotune_lowered.recording(tmp_path, directions=("backward",))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file`: it is a file; name a folder for the registry"):
        autotune_lowered.recording(tmp_path / "file")


def test_without_jax_the_error_says_what_to_install(tmp_path):
    code = """
        import importlib.machinery, sys
        find = importlib.machinery.PathFinder.find_spec
        importlib.machinery.PathFinder.find_spec = classmethod(lambda cls, name, *rest: None if name == "jax" else find(name, *rest))
        import autotune_lowered
        try:
            autotune_lowered.recording(sys.argv[1])
        except ImportError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "recording needs JAX: pip install 'autotune-lowered[jax]'"


def in_child(registry):
    autotune_lowered.recording.active().record(call("child"))


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_fork_in_the_middle_loses_nothing_and_writes_nothing_twice(tmp_path):
    """In a separate process: forking one that has started JAX's threads is not supported."""
    code = f"""
        import os, sys
        sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
        os.environ["SOURCE_DATE_EPOCH"] = "0"
        import multiprocessing
        import autotune_lowered
        from test_recording import call, in_child
        from unittest import mock

        with autotune_lowered.recording(sys.argv[1], directions=("forward",)):
            recorder = autotune_lowered.recording.active()
            with mock.patch("autotune_lowered.record.recorder.trace_state_is_clean", return_value=False):
                recorder.record(call("parent"))
                if (child := os.fork()) == 0:
                    del os.environ["SOURCE_DATE_EPOCH"]
                    recorder.record(call("plain-child"))
                    sys.exit(0)  # leaves the `with` block
                assert os.waitpid(child, 0)[1] == 0
                process = multiprocessing.get_context("fork").Process(target=in_child, args=(sys.argv[1],))
                os.environ.pop("SOURCE_DATE_EPOCH")
                process.start()
                os.environ["SOURCE_DATE_EPOCH"] = "0"
                process.join(60)
                assert process.exitcode == 0
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    found = sorted((record["call_key"], record["recorded_at"] == 0) for record in records(tmp_path))
    # only the parent, whose clock stands at zero, writes its call
    assert found == [("child", False), ("parent", True), ("plain-child", False)]


def test_two_recorders_may_write_into_one_folder(tmp_path):
    code = f"""
        import sys
        sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
        import autotune_lowered
        from test_recording import call
        with autotune_lowered.recording(sys.argv[1], directions=("forward",)):
            for key in ["shared", *sys.argv[2:]]:
                autotune_lowered.recording.active().record(call(key))
    """
    started = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path), *keys])
        for keys in (["a", "b"], ["c", "d"])
    ]
    assert [process.wait(200) for process in started] == [0, 0]
    assert {record["call_key"] for record in records(tmp_path)} == {"shared", "a", "b", "c", "d"}
    if program() is not None:
        done = subprocess.run([program(), "registry", "verify", tmp_path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_many_threads_record_each_call_once(tmp_path):
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        recorder = autotune_lowered.recording.active()
        threads = [threading.Thread(target=lambda: recorder.record(call("one"))) for _ in range(4)]
        threads += [threading.Thread(target=recorder.record, args=(call(f"t{i}"),)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(record["call_key"] for record in records(tmp_path)) == ["one", "t0", "t1", "t2"]


def test_a_folder_that_cannot_be_written_is_an_error_at_the_end(tmp_path):
    if os.geteuid() == 0:
        blocked = tmp_path / "invocations"
    else:
        pytest.skip("as root, since a file in the folder's place is what is refused")
    with pytest.raises(OSError), autotune_lowered.recording(tmp_path, directions=("forward",)) as recorded:
        blocked.write_text("in the way") if not blocked.exists() else (blocked.rmdir(), blocked.write_text(""))
        autotune_lowered.recording.active().record(call())
    assert recorded.report()[-1]["pending"]


def exercised(function, configs, baseline):
    asked = []

    def probe(config):
        asked.append(config)
        return str(function(config))

    return parameters_of([(c, str(function(c))) for c in configs], baseline, probe), asked


def test_parameters_that_vary_alone_need_no_further_program():
    grid = [{"a": a, "b": b, "c": 1} for a, b in itertools.product((1, 2), repeat=2)]
    found, asked = exercised(lambda c: c["a"], grid, grid[0])
    assert found == {"exercised": ["a"], "unexercised": ["b"], "not_varied": ["c"], "unknown": []}
    assert not asked


def test_parameters_that_vary_together_are_told_apart():
    # ejkernel's forward and backward blocks: each of the latter is half of the former
    pairs = [{"fwd": {"q": q, "k": k}, "bwd": {"q": q // 2, "k": k // 2}} for q in (128, 256) for k in (128, 256)]
    found, asked = exercised(lambda c: c["fwd"], pairs, pairs[0])
    assert (found["exercised"], found["unexercised"]) == (["fwd.k", "fwd.q"], ["bwd.k", "bwd.q"])
    assert len(asked) <= 8
    # an additional config shows nothing about parameters that it does not change
    found, _ = exercised(lambda c: 0, pairs, pairs[0])
    assert found["unexercised"] == ["bwd.k", "bwd.q", "fwd.k", "fwd.q"]


def test_a_parameter_left_out_is_one_that_is_null():
    found, _ = exercised(lambda c: c.get("a"), [{"a": None, "b": 1}, {"b": 1}], {"b": 1})
    assert found["not_varied"] == ["a", "b"]


def test_the_device_is_the_one_that_the_program_sees(plugin):
    if program() is None:
        pytest.skip("needs the program (AUTOTUNE_LOWERED_EXE)")
    from autotune_lowered.worker import fingerprint

    done = subprocess.run([program(), "device", "--plugin", plugin, "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def identities(value):
        if isinstance(value, dict):
            if "identity" in value:
                yield value["identity"]
            value = list(value.values())
        if isinstance(value, list):
            for held in value:
                yield from identities(held)

    assert fingerprint(jax.devices("cpu")[0])["identity"] in list(identities(json.loads(done.stdout)))


def test_the_quota_of_a_control_group_counts(tmp_path):
    from autotune_lowered.worker import available_cores

    (tmp_path / "cgroup").write_text("0::/outer/inner\n")
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "outer" / "inner" / "cpu.max").write_text("max 100000\n")
    assert available_cores(tmp_path / "cgroup", tmp_path) == 1
    (tmp_path / "outer" / "cpu.max").write_text("max 100000\n")
    assert available_cores(tmp_path / "cgroup", tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.needs_jax("0.8", "the `jax` worker measures")
def test_the_jax_worker_keeps_to_the_protocol():
    if program() is None:
        pytest.skip("needs the program (AUTOTUNE_LOWERED_EXE)")
    command = f"{sys.executable} -m autotune_lowered.worker"
    done = subprocess.run([program(), "worker", "check", command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("version", "said"), [("0.7.2", "is too old"), ("0.8.0", "no attribute"), ("1.0.0", "no attribute")]
)
def test_a_worker_opens_no_device_of_an_older_jax(version, said, tmp_path):
    of_version = f"__version__ = {version!r}\n__version_info__ = {tuple(map(int, version.split('.')))}\n"
    (tmp_path / "jax.py").write_text(of_version)
    worker = pathlib.Path(importlib.util.find_spec("autotune_lowered.worker").origin)
    where = os.environ | {"PYTHONPATH": str(tmp_path)}
    hello = json.dumps({"id": 1, "method": "hello", "params": {"protocol": 1}})
    command = [sys.executable, worker, "0"]
    done = subprocess.run(command, input=hello, env=where, capture_output=True, text=True, timeout=60)
    # the newer ones get as far as what this module lacks
    assert done.returncode == 1 and said in done.stderr, done.stderr
    if said == "is too old":
        assert done.stderr == (
            f"worker jax: JAX {version} is too old to measure with: it takes 0.8 or later; name a Python that has it with "
            "`--timer jax:PYTHON`\n"
        )


@pytest.mark.needs_jax("0.8", "the `jax` worker measures")
def test_a_worker_opens_its_device_alone_and_takes_no_memory_ahead():
    script = """
import os, jax
from autotune_lowered import worker
devices, place = worker.own_devices(0)
print(len(devices), place, os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"], jax.config.values["jax_cuda_visible_devices"])
worker.own_devices(7)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["1", "0", "false", "0"], done.stderr
    assert done.stderr.strip().endswith("worker jax: there is no device 7: 1 are there") and done.returncode == 1
