"""`dump`: modules and side files, read back by the program's own scanner."""

import base64
import hashlib
import inspect
import json
import logging
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="dump needs JAX")
import jax.numpy as jnp

import autotune_lowered
from autotune_lowered import module as module_room

KEY = "0123456789abcdef"


def scanned(path):
    """The program's scan of a file, including its side file."""
    beside = pathlib.Path(sys.executable).with_name("autotune-lowered")
    program = os.environ.get("AUTOTUNE_LOWERED_EXE") or (
        beside if beside.exists() else shutil.which("autotune-lowered")
    )
    if not program:
        pytest.skip("the program is not here: set AUTOTUNE_LOWERED_EXE")
    done = subprocess.run([program, "scan", path, "--format", "json"], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)


def stamped(x, w, label=f"ejkernel_ops#rms_norm@v2:{KEY}"):
    with jax.named_scope(label):
        return jnp.tanh(x @ w)


def lowered_of(function=stamped):
    return jax.jit(function).lower(jnp.ones((8, 4)), jnp.ones((4, 3)))


def side_of(path):
    return json.loads(path.with_name(path.name + ".labels.json").read_text())


def named(label):
    return label["op_id"], label["call_key"], label["evidence"]


def test_a_lowered_module_carries_its_labels_and_its_side_file(tmp_path):
    path = autotune_lowered.dump(lowered_of(), tmp_path / "module.mlir")
    side = side_of(path)
    assert side["module_digest"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (side["schema"], side["form"], side["partitioned"]) == (1, "stablehlo-text", False)
    occurrences = path.read_text().count(f"ejkernel_ops#rms_norm@v2:{KEY}")
    assert occurrences > 0
    assert side["labels"] == [
        {
            "op_id": "rms_norm@v2",
            "call_key": KEY,
            "shapes": ["f32[8,4]", "f32[4,3]"],
            "occurrences": occurrences,
            "backward": False,
        }
    ]
    alone = tmp_path / "alone.mlir"
    alone.write_bytes(path.read_bytes())
    for file in (path, alone):
        assert [named(label) for label in scanned(file)["labels"]] == [("rms_norm@v2", KEY, "exact")]


@pytest.mark.skipif(
    "compiler_options" not in inspect.signature(jax.jit).parameters,
    reason="this JAX has no compiler options of a `jit`",
)
def test_the_side_file_says_how_the_module_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_x=1")

    def step(parameters, batch, unused, *, rate):
        return {"w": parameters["w"] - rate * batch.sum().astype(jnp.bfloat16)}

    parameters = {"w": jnp.ones((4, 3), jnp.bfloat16)}
    jitted = jax.jit(step, donate_argnums=0, compiler_options={"xla_llvm_disable_expensive_passes": True})
    lowered = jitted.lower(parameters, jnp.ones(8, jnp.int32), 1.0, rate=jnp.bfloat16(2))
    given = {"xla_cpu_enable_fast_math": True}
    side = side_of(autotune_lowered.dump(lowered, tmp_path / "module.mlir", compiler_options=given))
    # an argument that the program does not need is not a parameter
    assert side["arguments"] == [
        {"path": "parameters/w", "spec": "bf16[4,3]", "donated": True},
        {"path": "batch", "spec": "s32[8]", "donated": False},
        {"path": "rate", "spec": "bf16[]", "donated": False},
    ]
    # a recorder's digest of the printer's own output, with the module's name replaced
    plain = lowered.as_text().replace("module @jit_step", "module @module", 1).strip()
    assert side["stablehlo_digest"] == hashlib.sha256(plain.encode()).hexdigest()
    assert side["libtpu_init_args"] == "--xla_tpu_x=1" and side["xla_flags"] == os.environ.get("XLA_FLAGS")
    assert (side["partitioner"], side["num_partitions"], side["device_assignment"]) == ("shardy", 1, [0])
    from jax._src.lib import xla_client

    options = xla_client.CompileOptions.ParseFromString(base64.b64decode(side["compile_options"]))
    assert dict(options.env_option_overrides) == {"xla_llvm_disable_expensive_passes": True} | given
    assert (options.num_replicas, options.num_partitions) == (1, 1)
    compiled = lowered.compile(compiler_options=given)
    both = side_of(autotune_lowered.dump(compiled, tmp_path / "m.hlo.txt", lowered=lowered, compiler_options=given))
    assert [both[name] for name in ("arguments", "stablehlo_digest", "compile_options")] == [
        side[name] for name in ("arguments", "stablehlo_digest", "compile_options")
    ]
    alone = side_of(autotune_lowered.dump(compiled, tmp_path / "m.hlo.txt"))
    assert (alone["stablehlo_digest"], alone["compile_options"], alone["arguments"]) == (None, None, None)


def test_a_compiled_module_has_whole_labels_by_what_was_lowered(tmp_path, caplog):
    lowered = lowered_of()
    compiled = lowered.compile()
    cut = autotune_lowered.dump(compiled, tmp_path / "cut.hlo.txt")
    assert side_of(cut)["labels"] == [] and "give `lowered=`" in caplog.text
    assert [named(label) for label in scanned(cut)["labels"]] == [("rms_norm", None, "by-name")]
    whole = autotune_lowered.dump(compiled, tmp_path / "whole.hlo.txt", lowered=lowered)
    (label,) = side_of(whole)["labels"]
    assert (label["op_id"], label["call_key"], label["shapes"]) == ("rms_norm@v2", KEY, ["f32[8,4]", "f32[4,3]"])
    assert [named(label) for label in scanned(whole)["labels"]] == [("rms_norm@v2", KEY, "exact")]


def test_a_label_without_an_at_survives_compilation(tmp_path):
    lowered = lowered_of(lambda x, w: stamped(x, w, f"ejkernel_ops#rms_norm.v2:{KEY}"))
    path = autotune_lowered.dump(lowered.compile(), tmp_path / "module.hlo.txt")
    path.with_name("module.hlo.txt.labels.json").unlink()
    assert [named(label) for label in scanned(path)["labels"]] == [("rms_norm@v2", KEY, "exact")]


def test_a_partitioned_module_has_global_and_local_shapes(tmp_path):
    script = f"""
import jax, numpy as np, jax.numpy as jnp, sys
import autotune_lowered
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def f(x):
    with jax.named_scope("ejkernel_ops#scale@v1:{KEY}"):
        return jnp.tanh(x) * 2

mesh = Mesh(np.array(jax.devices()), ("d",))
rows = NamedSharding(mesh, P("d"))
lowered = jax.jit(f, in_shardings=rows, out_shardings=rows).lower(jax.ShapeDtypeStruct((8, 3), jnp.float32))
autotune_lowered.dump(lowered.compile(), sys.argv[1], lowered=lowered)
"""
    path = tmp_path / "module.hlo.txt"
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", script, path]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    side = side_of(path)
    assert side["partitioned"] is True
    (label,) = side["labels"]
    assert (label["shapes"], label["local_shapes"]) == (["f32[8,3]"], ["f32[2,3]"])
    assert [named(label) for label in scanned(path)["labels"]] == [("scale@v1", KEY, "exact")]


def test_a_module_without_labels_is_written_and_the_reason_logged(tmp_path, caplog):
    path = autotune_lowered.dump(lowered_of(lambda x, w: x @ w), tmp_path / "module.mlir")
    assert side_of(path)["labels"] == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and record.name == "autotune_lowered"
    assert "`@autotune_lowered.tunable` makes your function" in record.message and "\n" not in record.message
    assert "EJKERNEL" not in record.message, "nothing of ejkernel is in it"


@pytest.mark.needs_jax("0.6", "the MLIR bindings write artifacts")
def test_whatever_holds_a_program_is_dumped(tmp_path):
    arrays = jnp.ones((8, 4)), jnp.ones((4, 3))
    jitted = jax.jit(stamped)

    class Wrapped:
        """As Equinox and Flax NNX hold what JAX lowered."""

        def __init__(self, lowered):
            self.lowered = lowered

    class Compiled:
        def __init__(self, compiled):
            self.compiled = compiled

    forms = {
        "function": (stamped, {"args": arrays}),
        "jitted": (jitted, {"args": arrays[:1], "kwargs": {"w": arrays[1]}}),
        "wrapped": (Wrapped(Wrapped(lowered_of())), {}),
        "exported": (jax.export.export(jitted)(*arrays), {}),
        "compiled": (Compiled(lowered_of().compile()), {"lowered": Wrapped(lowered_of())}),
    }
    if hasattr(jitted, "trace"):
        forms["traced"] = (jitted.trace(*arrays), {})
    autotune_lowered.dump(lowered_of(), tmp_path / "lowered")
    plain = side_of(tmp_path / "lowered")
    for name, (module, how) in forms.items():
        side = side_of(autotune_lowered.dump(module, tmp_path / name, **how))
        assert [label["op_id"] for label in side["labels"]] == ["rms_norm@v2"], name
        if name in ("function", "jitted", "wrapped", "traced"):
            assert side["stablehlo_digest"] == plain["stablehlo_digest"] and side["compile_options"], name
    with pytest.raises(TypeError, match="a int cannot be lowered: give the step itself"):
        autotune_lowered.dump(3, tmp_path / "none", args=(1,))
    # a look-up knows a wrapped program as the program itself
    assert autotune_lowered.compiler_options(Wrapped(lowered_of())) == {}


def test_what_is_no_module_is_refused(tmp_path):
    lowered = lowered_of()
    with pytest.raises(TypeError, match=r"cannot dump a function: give jax.jit"):
        autotune_lowered.dump(stamped, tmp_path / "x")
    with pytest.raises(TypeError, match="goes with a compiled module"):
        autotune_lowered.dump(lowered, tmp_path / "x", lowered=lowered)
    with pytest.raises(TypeError, match=r"not a jax\.stages\.Lowered"):
        autotune_lowered.dump(lowered.compile(), tmp_path / "x", lowered="x")
    with pytest.raises(FileNotFoundError):
        autotune_lowered.dump(lowered, tmp_path / "none" / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    lowered = jax.jit(lambda x: x * 2).lower(jnp.ones(3))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no such folder: make it, or name another: 'nowhere'"):
        autotune_lowered.dump(lowered, "nowhere/x.mlir")
    with pytest.raises(IsADirectoryError, match="this is a folder: name a file in it: '.'"):
        autotune_lowered.dump(lowered, ".")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = autotune_lowered.dump(lowered_of(), tmp_path / "module.mlir")
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(module_room.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        autotune_lowered.dump(lowered_of(lambda x, w: x @ w), path)
    assert path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["module.mlir", "module.mlir.labels.json"]


def test_files_have_the_modes_that_the_process_gives(tmp_path):
    old = os.umask(0o027)
    try:
        path = autotune_lowered.dump(lowered_of(), str(tmp_path / "module.mlir"))
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o640
