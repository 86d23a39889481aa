"""Compiler options that were tuned for a program: found by its digest, and applied only at the outermost `jit`."""

import gzip
import hashlib
import importlib.util
import inspect
import json
import logging
import os
import subprocess
import sys

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="compiler options need JAX")
import jax.numpy as jnp
import numpy

import autotune_lowered
from autotune_lowered import _native
from autotune_lowered._stages import text_to_hash
from autotune_lowered.lookup import compiler, compiler_options
from autotune_lowered.worker import work_digest

OPTIONS = {"xla_llvm_disable_expensive_passes": True, "xla_backend_optimization_level": "1"}


def step(x):
    return jnp.tanh(x @ x).sum()


def key_of(lowered, tmp_path):
    """The key as another process reads it: from the side file of a dump."""
    path = autotune_lowered.dump(lowered, tmp_path / "module.mlir")
    return json.loads(path.with_name("module.mlir.labels.json").read_text())["stablehlo_digest"]


def entry(key, config, **environment):
    device = json.loads(json.dumps(autotune_lowered.device().fingerprint))
    device["environment"].update(environment)
    provenance = {
        "job": "0f" * 32, "timer": "jax", "source": "device-profile", "environment": device["environment"],
        "baseline": {}, "baseline_ns": 2.0, "best_ns": 1.0, "ratio": 0.5,
        "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95}, "rounds": 8, "measured": 2, "failed": 0,
        "tool": "t", "decided_at": 7,
    }  # fmt: skip
    return {
        "op_id": "compiler_options@v1", "call_key": key, "direction": "forward", "device": device["identity"],
        "config": config, "provenance": provenance,
    }  # fmt: skip


def cache_of(run, folder, *entries):
    folder.mkdir()
    file = folder / "entries.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in entries))
    run("cache", "import", "--format", "jsonl", file, "--cache", folder / "cache")
    return autotune_lowered.Cache.open(folder / "cache")


@pytest.fixture
def use():
    yield autotune_lowered.use_cache
    from autotune_lowered.lookup import in_force

    in_force.set_lookup(in_force.Default.CACHE, version="default")


def test_options_are_found_by_what_is_computed_and_are_void_for_another_compiler(
    run, use, tmp_path, caplog, monkeypatch
):
    x = jnp.ones((8, 8))
    lowered = jax.jit(step).lower(x)
    key = key_of(lowered, tmp_path)
    caplog.clear()
    use(cache_of(run, tmp_path / "own", entry(key, OPTIONS)))
    assert autotune_lowered.compiler_options(lowered) == OPTIONS
    assert autotune_lowered.compiler_options(jax.jit(lambda x: step(x)).lower(x)) == OPTIONS
    assert autotune_lowered.compiler_options(jax.jit(step).lower(jnp.ones((9, 9)))) == {}
    assert float(lowered.compile(compiler_options=autotune_lowered.compiler_options(lowered))(x)) == 64.0
    use(cache_of(run, tmp_path / "other", entry(key, OPTIONS, plugin="jaxlib 0.0.1")))
    for _ in range(2):
        assert autotune_lowered.compiler_options(lowered) == {}
    (said,) = [record.getMessage() for record in caplog.records]
    assert "measured with jaxlib 0.0.1" in said and "tune the module again" in said
    caplog.clear()
    monkeypatch.setattr(compiler_options, "_told", set())
    of_a_plugin = entry(key, OPTIONS, plugin="xla_cpu_pjrt.so", plugin_digest="ab" * 32)
    use(cache_of(run, tmp_path / "plugin", of_a_plugin))
    assert autotune_lowered.compiler_options(lowered) == {}
    (said,) = [record.getMessage() for record in caplog.records]
    assert "xla_cpu_pjrt.so" in said and "`--timer jax`" in said and "\n" not in said
    # what is on no list is refused when it is imported
    rows = tmp_path / "dumps.jsonl"
    rows.write_text(json.dumps(entry(key, {**OPTIONS, "xla_dump_to": str(tmp_path / "into")})))
    run("cache", "import", "--format", "jsonl", rows, "--cache", tmp_path / "refused", expected=4)
    with autotune_lowered.overlay({("compiler_options@v1", key): {"xla_backend_optimization_level": "0"}}):
        assert autotune_lowered.compiler_options(lowered) == {"xla_backend_optimization_level": "0"}
    use(None)
    assert autotune_lowered.compiler_options(lowered) == {}


def test_a_compiler_is_the_same_by_its_build_or_by_its_file():
    # a file that this process has loaded, instead of a plugin
    path = _native.__file__
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    measured = {"plugin": os.path.basename(path), "plugin_digest": digest, "platform_version": "cuda 12090"}
    here = {"plugin": "jaxlib 0.10.2", "platform_version": "PJRT C API\ncuda 12090"}
    assert compiler.why_another(measured, here) is None
    assert "--timer jax" in compiler.why_another({**measured, "plugin_digest": "ab" * 32}, here)
    assert "--timer jax" in compiler.why_another({**measured, "plugin": "other.so"}, here)
    # JAX's CPU client is its own, whatever else the process has loaded
    assert "--timer jax" in compiler.why_another(measured, {**here, "platform_version": "cpu"})
    # one build of libtpu, in two packages
    libtpu = {"plugin": "libtpu.so", "platform_version": "TFRT TPU v5 lite\nBuilt on Apr 2 2025 (1) cl/742866297"}
    jax_has = {"plugin": "jaxlib 0.10.2", "platform_version": "PJRT C API\n" + libtpu["platform_version"]}
    assert compiler.why_another(libtpu, jax_has) is None
    assert compiler.why_another(libtpu, {**jax_has, "platform_version": "PJRT C API\ncl/7428662970"}) is not None


def test_a_program_is_hashed_once(monkeypatch):
    lowered = jax.jit(step).lower(jnp.ones((3, 3)))
    hashed = []
    digest = _native.semantic_digest
    monkeypatch.setattr(_native, "semantic_digest", lambda text: hashed.append(text) or digest(text))
    for _ in range(3):
        autotune_lowered.compiler_options(lowered)
    assert len(hashed) == 1
    with pytest.raises(TypeError, match=r"those of a jax.stages.Lowered, not of a int: give jax.jit\(f\).lower"):
        autotune_lowered.compiler_options(1)


@pytest.mark.skipif(
    "compiler_options" not in inspect.signature(jax.jit).parameters,
    reason="this JAX's `jit` takes no options of the compiler",
)
def test_jit_compiles_with_them_outside_of_other_transformations(monkeypatch, tmp_path, caplog):
    x = jnp.ones((8, 8))
    given = []
    compile_with = jax.stages.Lowered.compile
    monkeypatch.setattr(
        jax.stages.Lowered,
        "compile",
        lambda self, compiler_options=None, **more: (
            given.append(compiler_options) or compile_with(self, compiler_options, **more)
        ),
    )

    def scaled(x, factor, *, power=1):
        return step(x) * factor**power

    tuned = autotune_lowered.jit(scaled, static_argnames="power")
    key = key_of(jax.jit(scaled, static_argnames="power").lower(x, 2.0, power=2), tmp_path)
    caplog.clear()
    with autotune_lowered.overlay({("compiler_options@v1", key): OPTIONS}):
        for _ in range(2):
            assert float(tuned(x, 2.0, power=2)) == 256.0
        assert given == [OPTIONS]
        # another program has no entry
        assert float(tuned(x, 2.0, power=3)) == 512.0 and len(given) == 1
        own = autotune_lowered.jit(scaled, static_argnames="power", compiler_options=OPTIONS)
        assert float(own(x, 2.0, power=2)) == 256.0 and len(given) == 1, "what the user has set stands"
        assert not caplog.records
        inner = lambda x: tuned(x, 2.0, power=2)
        assert float(jax.jit(inner)(x)) == 256.0
        assert jax.grad(inner)(x).shape == (8, 8)
        assert jax.vmap(inner)(x[None]).tolist() == [256.0]
        assert float(jax.lax.scan(lambda carry, x: (carry + inner(x), None), 0.0, jnp.stack([x, x]))[0]) == 512.0
        # a captured array is no argument, and is traced nevertheless
        assert float(jax.jit(lambda y: tuned(jnp.ones((8, 8)), 2.0, power=2) + y)(1.0)) == 257.0
        assert len(given) == 1
    (said,) = caplog.records
    assert said.levelno == logging.WARNING and "takes no compiler options" in said.getMessage()


def test_jit_keeps_programs_of_a_few_states(monkeypatch):
    looked_up = []
    room = importlib.import_module("autotune_lowered.lookup.jit")
    monkeypatch.setattr(room, "compiler_options", lambda lowered: looked_up.append(lowered) or {})
    tuned = autotune_lowered.jit(lambda x: x + 1)
    x = jnp.ones(4)
    # the last ones return, and a first one
    for state in [*range(7), 6, 5, 4, 0]:
        with autotune_lowered.overlay({("tune@v1", "k"): {"block": state}}):
            assert tuned(x).tolist() == [2.0] * 4
    assert len(looked_up) == 8
    assert sum(map(len, tuned._programs.values())) == len(tuned._programs) == 4


@pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="it maps a function over devices by `jax.shard_map`")
def test_arguments_on_several_devices(tmp_path):
    script = """
import sys, pathlib, json
import jax, numpy as np, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import autotune_lowered

def f(x):
    return jnp.tanh(x).sum()

mesh = Mesh(np.array(jax.devices()), ("d",))
x = jax.device_put(jnp.zeros((8, 4)), NamedSharding(mesh, P("d")))
lowered = jax.jit(f).lower(x)
path = autotune_lowered.dump(lowered, sys.argv[1])
side = json.loads(pathlib.Path(str(path) + ".labels.json").read_text())
assert (side["num_partitions"], side["device_assignment"]) == (8, list(range(8)))
given = []
compile_with = jax.stages.Lowered.compile
jax.stages.Lowered.compile = lambda self, compiler_options=None: (
    given.append(compiler_options) or compile_with(self, compiler_options)
)
tuned = autotune_lowered.jit(f)
options = {"xla_backend_optimization_level": "1"}
with autotune_lowered.overlay({("compiler_options@v1", side["stablehlo_digest"]): options}):
    assert float(tuned(x)) == 0.0 and given == [options], given
    # of one device it is another program
    assert float(tuned(jnp.zeros((8, 4)))) == 0.0 and len(given) == 1
    inside = jax.shard_map(lambda x: tuned(x)[None], mesh=mesh, in_specs=P("d"), out_specs=P("d"))
    assert inside(x).tolist() == [0.0] * 8 and len(given) == 1
"""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    command = [sys.executable, "-c", script, tmp_path / "module.mlir"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def dumped_by_jax(lowered, function, path):
    """What `JAX_DUMP_IR_TO` writes when the function is compiled."""
    folder = path.with_name("ir")
    jax.config.update("jax_dump_ir_to", str(folder))
    try:
        jax.jit(function).lower(jnp.ones(4)).compile()
    finally:
        jax.config.update("jax_dump_ir_to", "")
    (written,) = folder.glob("*_compile.mlir")
    written.rename(path)
    folder.rmdir()


def proto(lowered):
    return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()


def proto_with_side_file(lowered, _, path):
    """A proto beside the side file of the program's dump, with the proto's own digest."""
    path.write_bytes(proto(lowered))
    side = json.loads(autotune_lowered.dump(lowered, path.with_name("m")).with_name("m.labels.json").read_text())
    path.with_name("m").unlink()
    path.with_name("m.labels.json").unlink()
    side["module_digest"] = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(path.name + ".labels.json").write_text(json.dumps(side))


FORMS = {
    "text.mlir": lambda lowered, _, path: path.write_text(lowered.as_text()),
    "located.mlir": lambda lowered, _, path: path.write_text(lowered.as_text(debug_info=True)),
    "dumped.mlir": lambda lowered, _, path: autotune_lowered.dump(lowered, path),
    "text.mlir.gz": lambda lowered, _, path: path.write_bytes(gzip.compress(lowered.as_text().encode())),
    "jax_ir0000_jit_f_compile.mlir": dumped_by_jax,
    "told.hlo.pb": proto_with_side_file,
    "bytecode.mlirbc": lambda _, function, path: path.write_bytes(
        jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((4,), jnp.float32)).mlir_module_serialized
    ),
    "proto.hlo.pb": lambda lowered, _, path: path.write_bytes(proto(lowered)),
    "unoptimized.hlo.txt": lambda lowered, _, path: path.write_text(lowered.as_text("hlo")),
}


def read_as(run, folder, keys):
    """What the program would tune in a folder, by file name: whether a process finds it, and why not."""
    arguments = [
        "--compiler-options",
        "safe",
        "--only-compiler-options",
        "--dry-run",
        "--format",
        "json",
        "--timer",
        f"jax:{sys.executable}",
    ]
    result = json.loads(run(folder, *arguments))
    return {one["how"]: (one["call_key"] in keys, " ".join(one.get("flags", []))) for one in result["operations"]}


@pytest.mark.skipif(
    "debug_info" not in inspect.signature(jax.stages.Lowered.as_text).parameters, reason="this JAX prints no locations"
)
def test_what_is_tuned_of_each_form_is_found_or_it_is_said_why_not(run, tmp_path):
    """Each form has a different program, since equal ones are tuned once."""
    functions = {name: (lambda x, by=by: jnp.tanh(x * by)) for by, name in enumerate(FORMS, 2)}
    lowered = {name: jax.jit(function).lower(jnp.ones(4)) for name, function in functions.items()}
    # what a process looks up
    keys = {compiler_options.program_digest(one) for one in lowered.values()}
    assert len(keys) == len(FORMS)
    dumped = tmp_path / "dumped"
    dumped.mkdir()
    for name, write in FORMS.items():
        write(lowered[name], functions[name], dumped / name)
    found = read_as(run, dumped, keys)
    told = "does not have the digest of its StableHLO text"
    for name in list(FORMS)[:6]:
        assert found.pop(name) == (True, ""), name
    assert sorted(found) == sorted(list(FORMS)[6:])
    for name, (is_found, why) in found.items():
        assert not is_found and told in why, name


@pytest.mark.skipif(importlib.util.find_spec("jaxlib._jax") is None, reason="this jaxlib does not convert HLO text")
def test_what_was_tuned_is_found_by_a_process(run, use, tmp_path):
    """A text, which is found, and HLO text, which is tuned but gives no entry: with this process's JAX."""
    dumped = tmp_path / "dumped"
    dumped.mkdir()
    found = jax.jit(lambda x: jnp.tanh(x * 12)).lower(jnp.ones(4))
    (dumped / "found.mlir").write_text(found.as_text())
    (dumped / "told.hlo.txt").write_text(jax.jit(lambda x: jnp.tanh(x * 13)).lower(jnp.ones(4)).as_text("hlo"))
    # base options are part of every entry, whichever set wins
    named = ["--base-options", "xla_backend_optimization_level=1", "--only-compiler-options", "--budget", "20s"]
    cache = tmp_path / "cache"
    printed = run(
        dumped,
        "--compiler-options",
        "safe",
        *named,
        "--timer",
        f"jax:{sys.executable}",
        "--cache",
        cache,
        "--format",
        "json",
    )
    flags = {one["how"]: " ".join(one["flags"]) for one in json.loads(printed)["operations"]}
    assert "not in the cache" in flags["told.hlo.txt"] and "not in the cache" not in flags["found.mlir"]
    use(autotune_lowered.Cache.open(cache))
    options = autotune_lowered.compiler_options(found)
    assert options["xla_backend_optimization_level"] == 1
    assert found.compile(compiler_options=options)(jnp.zeros(4)).tolist() == [0.0] * 4


def test_a_default_that_crashes_is_rescued(run, tmp_path):
    """The sum of docs/options.md, with whose default options a process dies."""
    version = jax.lib.__version__
    if version != "0.10.2":
        pytest.skip(f"jaxlib 0.10.2 alone crashes on this sum, and this is {version}")
    x = jnp.ones((3, 1, 2, 2, 8, 8, 8))
    module, listed = tmp_path / "sum.mlir", tmp_path / "list.json"
    module.write_text(jax.jit(lambda x, y: (x * y).sum(axis=3)).lower(x, x).as_text())
    options = [
        {"name": name, "values": [value], "kind": "safe", "scope": "compile", "does": "-", "source": "own"}
        for name, value in [("xla_backend_optimization_level", 1), ("xla_cpu_experimental_ynn_fusion_type", "")]
    ]
    listed.write_text(json.dumps({"schema": 1, "platform": "cpu", "options": options}))
    how = ["--compiler-options", "safe", "--options-file", listed, "--timer", f"jax:{sys.executable}"]
    # nothing gains that much: the decision does not hang on how busy the machine is
    how += ["--min-improvement", "0.9"]
    (found,) = json.loads(run(module, *how, "--cache", tmp_path / "cache", "--format", "json"))["operations"]
    without_fusion = {"xla_cpu_experimental_ynn_fusion_type": ""}
    assert found["baseline"]["config"] == without_fusion and without_fusion.items() <= found["best"]["config"].items()
    assert any("the default options fail" in flag and "SIGSEGV" in flag for flag in found["flags"]), found["flags"]
    (default,) = [row for row in found["candidates"] if row["config"] == {}]
    assert default["failure"]["kind"] == "crash" and "SIGSEGV" in default["failure"]["message"]


def test_what_is_hashed_is_what_jax_prints():
    x, table = jnp.ones((8, 8)), numpy.arange(3000.0)
    programs = [
        jax.jit(step).lower(x),
        jax.jit(jax.grad(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c @ x), c.sum()), x, None, 3)[1].sum())).lower(x),
        jax.jit(lambda i: jnp.asarray(table)[i] + jax.random.normal(jax.random.key(0))).lower(3),
    ]
    for lowered in programs:
        assert text_to_hash(lowered) == lowered.as_text()

    class Elsewhere:
        """A JAX that has its module elsewhere."""

        def as_text(self):
            return "module @m {}"

    assert text_to_hash(Elsewhere()) == "module @m {}"


COMPILED_BY_JAX = """
import pathlib, sys
from jax._src import xla_bridge
xla_bridge.register_plugin("cpu_plugin", priority=1000, library_path=sys.argv[1])
import autotune_lowered, jax
from autotune_lowered._stages import text_to_hash
from autotune_lowered.worker import work_digest
square = jax.ShapeDtypeStruct((256, 256), "float32")
lowered = jax.jit(lambda x, y: jax.nn.softmax(x @ y).sum(0)).lower(square, square)
module = autotune_lowered.dump(lowered, pathlib.Path(sys.argv[2]) / "module.mlir")
module.with_name("plain.mlir").write_bytes(module.read_bytes())
print(work_digest(lowered.compile().runtime_executable().serialize()))
"""


def test_the_tool_compiles_what_jax_compiles(run, plugin, tmp_path):
    environment = os.environ | {"JAX_PLATFORMS": "cpu_plugin", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [sys.executable, "-c", COMPILED_BY_JAX, plugin, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    both = [tmp_path / "module.mlir", tmp_path / "plain.mlir"]
    run("compare", *both, "--timer", "pjrt", "--plugin", plugin, "--rounds", 6, "--cache", tmp_path / "cache")
    found = {}
    for path in (tmp_path / "cache" / "executables-v1").glob("*.exe"):
        # magic, length of the header, its digest, the header; no message of IFRT's before the plugin's bytes
        kept = path.read_bytes()
        start = 44 + int.from_bytes(kept[8:12], "little")
        is_told = "base_options" in json.loads(kept[44:start])["key"]
        found.setdefault(is_told, set()).add(work_digest(b"\0" + kept[start:]))
    assert found[True] == {done.stdout.strip()}
    # with the plugin's own options it is another program
    assert len(found[False]) == 1 and found[False] != found[True]
