"""Compiler options that were tuned for a program: found by what it computes, and taken at the outermost `jit` alone."""

import hashlib
import json
import logging
import os
import subprocess
import sys

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="compiler options need JAX")
import jax.numpy as jnp

import autotune_lowered
from autotune_lowered import _native
from autotune_lowered.lookup import compiler, compiler_options

OPTIONS = {"xla_llvm_disable_expensive_passes": True, "xla_backend_optimization_level": "1"}


def step(x):
    return jnp.tanh(x @ x).sum()


def key_of(lowered, tmp_path):
    """As another process reads it: from the side file of a dump."""
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
    with autotune_lowered.overlay({("compiler_options@v1", key): {"xla_backend_optimization_level": "0"}}):
        assert autotune_lowered.compiler_options(lowered) == {"xla_backend_optimization_level": "0"}
    use(None)
    assert autotune_lowered.compiler_options(lowered) == {}


def test_a_compiler_is_the_same_by_its_build_or_by_its_file():
    # a file that this process has loaded, in the place of a plugin
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
    # one build of libtpu, by two ways
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
        # another program has none
        assert float(tuned(x, 2.0, power=3)) == 512.0 and len(given) == 1
        own = autotune_lowered.jit(scaled, static_argnames="power", compiler_options=OPTIONS)
        assert float(own(x, 2.0, power=2)) == 256.0 and len(given) == 1, "what the user has set stands"
        assert not caplog.records
        inner = lambda x: tuned(x, 2.0, power=2)
        assert float(jax.jit(inner)(x)) == 256.0
        assert jax.grad(inner)(x).shape == (8, 8)
        assert jax.vmap(inner)(x[None]).tolist() == [256.0]
        assert float(jax.lax.scan(lambda carry, x: (carry + inner(x), None), 0.0, jnp.stack([x, x]))[0]) == 512.0
        # what is captured is no argument, and is traced nevertheless
        assert float(jax.jit(lambda y: tuned(jnp.ones((8, 8)), 2.0, power=2) + y)(1.0)) == 257.0
        assert len(given) == 1
    (said,) = caplog.records
    assert said.levelno == logging.WARNING and "takes no compiler options" in said.getMessage()


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
