"""Tokamax itself reads the output of `cache export --format tokamax`, and uses the cached config."""

import inspect
import json
import pathlib
import subprocess
import sys

import pytest

tokamax = pytest.importorskip("tokamax", reason="no Tokamax: pip install tokamax==0.0.12")
if not hasattr(tokamax, "AutotuningResult"):
    pytest.skip("this Tokamax has no AutotuningResult; 0.0.12 has it", allow_module_level=True)

import jax
import jax.numpy as jnp
import pydantic
from absl import flags
from tokamax._src.autotuning.autotuner import AutotuningData
from tokamax._src.autotuning.cache import AutotuningCache
from tokamax._src.ops.attention.pallas_triton import PallasTritonFlashAttention

# Tokamax reads its own flags, and absl would search for them among pytest's
flags.FLAGS.mark_as_parsed()

SHAPE = jax.ShapeDtypeStruct((2, 256, 4, 64), jnp.bfloat16)


def call(**settings):
    """A call whose config Tokamax looks up; this does not require a run."""
    return PallasTritonFlashAttention(**settings).bind(SHAPE, SHAPE, SHAPE)


def configs_of(bound, count):
    heuristic = bound.heuristics_config
    others = sorted((config for config in bound.autotuning_configs if config != heuristic), key=repr)
    return [heuristic, *others[: count - 1]]


def plain(config):
    return pydantic.TypeAdapter(type(config)).dump_python(config, mode="json")


def cached(run, cache):
    return json.loads(run("cache", "ls", "--format", "json", "--cache", cache))["entries"]


def test_a_result_comes_back_byte_for_byte(tmp_path, run):
    bound = call()
    default, slow, fast = configs_of(bound, 3)
    data = {
        default: tokamax.BenchmarkData(1.5, 2.5, (9.0, 0.3, 0.2), {}, None),
        slow: tokamax.BenchmarkData(1e-7, 2.0, (1e16, 5.0, 4.0), {"é": [1, None]}, 0.133124),
        # by the mean, another one would win
        fast: tokamax.BenchmarkData(1.0, 2.0, (90.0, 0.1, 0.1), {}),
    }
    text = tokamax.AutotuningResult("cpu", ((bound, AutotuningData(data)),)).dumps()
    source, out = tmp_path / "source.json", tmp_path / "out.json"
    source.write_text(text)
    run("cache", "import", "--format", "tokamax", source, "--cache", tmp_path / "cache")
    run("cache", "export", "--format", "tokamax", out, "--cache", tmp_path / "cache")
    assert out.read_text() == text
    loaded = tokamax.AutotuningResult.loads(out.read_text())
    assert loaded.dumps() == text
    (entry,) = cached(run, tmp_path / "cache")
    assert entry["config"] == plain(fast) != plain(default)
    assert call().default_config == default
    with loaded:
        assert call().default_config == fast


def test_what_tokamax_measured_has_the_label_of_the_module(tmp_path, run):
    def norm_and_attention(x, q):
        return tokamax.layer_norm(x, None, None), tokamax.dot_product_attention(q, q, q, implementation="xla_chunked")

    arguments = jnp.ones((8, 32)), jnp.ones((1, 16, 2, 8))
    lowered = jax.jit(norm_and_attention).lower(*arguments)
    module, source = tmp_path / "module.mlir", tmp_path / "result.json"
    module.write_text(lowered.as_text(debug_info=True))
    result = tokamax.autotune(lowered, progress_bar=False)
    source.write_text(result.dumps())
    run("cache", "import", "--format", "tokamax", source, "--cache", tmp_path / "cache")
    entries = cached(run, tmp_path / "cache")
    labels = json.loads(run("scan", module, "--format", "json"))["labels"]
    assert len(result.data) == len(entries) == len(labels) == 2
    assert {(label["op_id"], label["call_key"]) for label in labels} == {
        (entry["op_id"], entry["call_key"]) for entry in entries
    }


def holds_json(path):
    """Tokamax ships empty files, and one that its own loader cannot read."""
    try:
        return bool(json.loads(path.read_text()))
    except json.JSONDecodeError:
        return False


def test_the_shipped_databases_come_back_and_are_loaded_alike(tmp_path, run):
    root = pathlib.Path(tokamax.__file__).parent / "data/autotuning"
    files = [path for path in sorted(root.glob("*/*.json")) if holds_json(path)]
    assert len(files) > 20
    run("cache", "import", "--format", "tokamax", root, "--cache", tmp_path / "cache")
    written = run("cache", "export", "--format", "tokamax", tmp_path / "out", "--cache", tmp_path / "cache")
    assert {str(tmp_path / "out" / path.relative_to(root)) for path in files} == set(written.split())
    for path in files:
        text, source = (tmp_path / "out" / path.relative_to(root)).read_text(), path.read_text()
        assert json.loads(text) == json.loads(source), path
        # as Tokamax itself writes it; some of 0.0.12's are spelled otherwise
        assert text == source or source != json.dumps(json.loads(source), indent=2) + "\n", path
    kind = "NVIDIA H100 80GB HBM3"
    shipped = AutotuningCache(PallasTritonFlashAttention())._load_cache(kind)
    assert shipped and loaded_from(tmp_path / "out", PallasTritonFlashAttention(), kind) == shipped


def loaded_from(folder, op, kind):
    """What Tokamax loads of an operation from databases of our own."""
    if "paths" in inspect.signature(AutotuningCache).parameters:
        return AutotuningCache(op, [str(folder)])._load_cache(kind)
    return AutotuningCache(op)._load_cache(kind, (str(folder),))


def test_the_installed_operations_are_named(tmp_path, run):
    table = subprocess.run(
        [sys.executable, "-m", "autotune_lowered.tokamax_operations"], capture_output=True, text=True, check=True
    ).stdout
    classes = json.loads(table)["classes"]
    kinds = [PallasTritonFlashAttention, *PallasTritonFlashAttention.__mro__]
    kinds = {kind.__name__: f"{kind.__module__}.{kind.__qualname__}" for kind in kinds if issubclass(kind, tokamax.Op)}
    assert {kinds[name] for name in ("PallasTritonFlashAttention", "DotProductAttention")} <= set(classes.values())
    # a database imported with it has the class of the running library
    root = pathlib.Path(tokamax.__file__).parent / "data/autotuning"
    (tmp_path / "operations.json").write_text(table)
    command = ("cache", "import", "--format", "tokamax", "--operations", tmp_path / "operations.json", "--cache")
    run(*command, tmp_path / "cache", root / "nvidia_h100_80gb_hbm3/dot_product_attention.json")
    operations = {entry["op_id"] for entry in cached(run, tmp_path / "cache")}
    assert operations == {kinds["DotProductAttention"]}


@pytest.fixture
def tuned(tmp_path, run):
    """A cache with a call of Tokamax's tuned here; its registry, and the best config."""
    bound = call()
    stamp = pydantic.TypeAdapter(tokamax.BoundArguments).dump_json(bound).decode()
    spelled = f"tokamax:{stamp}/call".replace("\\", "\\\\").replace('"', "\\22")
    module = tmp_path / "module.mlir"
    module.write_text(f'module @call {{\n  func.func public @main() {{\n    return loc("{spelled}")\n  }}\n}}\n')
    (label,) = json.loads(run("scan", module, "--format", "json"))["labels"]

    configs = [plain(config) for config in configs_of(bound, 3)]
    names = {"op_id": label["op_id"], "call_key": label["call_key"], "direction": "forward"}
    candidates = []
    for number, config in enumerate(configs):
        program = tmp_path / f"{number}.mlir"
        program.write_text(f"module @m {{ func.func public @main() {{ return }} }} // {number}\n")
        candidates.append({"config": config, "program_file": program.name, "semantic_digest": f"{number:064x}"})
    described = {
        **names,
        "target": {"platform": "cpu"},
        "arguments": [],
        "static_arguments": {"recipe": {"kind": "tokamax", "bound": json.loads(stamp)}},
        "baseline": configs[0],
        "candidates": candidates,
    }
    (tmp_path / "call.json").write_text(json.dumps(described))
    run("registry", "add", tmp_path / "registry", tmp_path / "call.json")

    output = [{"spec": "f32[1]", "hex": "0000803f"}]
    times = [5_000_000, 2_000_000, 3_000_000]
    samples = [
        {"config": config, "epochs": [[ns, ns + 1000, ns - 1000, ns + 500]], "outputs": output}
        for config, ns in zip(configs, times, strict=True)
    ]
    identity = {"platform": "cpu", "device_kind": "cpu", "hardware": {"cpu_model": "simulated"}}
    device = {"identity": identity, "environment": {"platform_version": "cpu"}}
    replay = tmp_path / "replay.json"
    replay.write_text(json.dumps({"schema": 1, "device": device, "invocations": [{**names, "candidates": samples}]}))
    cache, registry = tmp_path / "cache", tmp_path / "registry"
    run(module, "--registry", registry, "--cache", cache, "--timer", f"replay:{replay}")
    return cache, registry, configs[1]


def test_tokamax_takes_the_config_that_was_tuned_here(tmp_path, run, tuned):
    cache, registry, best = tuned
    out = tmp_path / "result.json"
    run("cache", "export", "--format", "tokamax", out, "--registry", registry, "--replayed", "--cache", cache)
    result = tokamax.AutotuningResult.loads(out.read_text())
    assert result.device_kind == jax.devices()[0].device_kind
    assert plain(call().default_config) != best
    with result:
        assert plain(call().default_config) == best
        # the operation's own settings are part of Tokamax's key
        assert plain(call(use_base2=True).default_config) != best
    ((_, data),) = result.data
    assert len(data) == 3
    assert data.fastest_config == next(config for config in data if plain(config) == best)
    medians = sorted(measured.median_evaluation_time_ms for measured in data.values())
    assert medians == pytest.approx([2, 3, 5], rel=1e-3)
    # Tokamax reads its own output again
    assert tokamax.AutotuningResult.loads(result.dumps()) == result


def test_recorded_tuned_and_loaded_by_tokamax(tmp_path, run):
    autotune_lowered = pytest.importorskip("autotune_lowered", reason="recording needs the package")

    def norm(x):
        return tokamax.layer_norm(x, None, None).sum()

    x = jnp.ones((8, 32))
    with autotune_lowered.recording(tmp_path / "registry", directions=("forward",)):
        lowered = jax.jit(norm).lower(x)
    module, out = tmp_path / "module.mlir", tmp_path / "result.json"
    module.write_text(lowered.as_text(debug_info=True))
    cache = tmp_path / "cache"
    run(module, "--registry", tmp_path / "registry", "--cache", cache, "--timer", f"jax:{sys.executable}")
    run("cache", "export", "--format", "tokamax", out, "--registry", tmp_path / "registry", "--cache", cache)
    result = tokamax.AutotuningResult.loads(out.read_text())
    # the same call that Tokamax finds in the module itself, with times measured here
    (bound,) = tokamax.autotuning.get_bound_args(lowered)
    ((exported, data),) = result.data
    assert (exported.op, exported.autotuning_cache_key) == (bound.op, bound.autotuning_cache_key)
    (entry,) = cached(run, cache)
    assert plain(data.fastest_config) == entry["config"]
    measured = data[data.fastest_config]
    assert len(measured.evaluation_times_ms) > 3 and measured.median_evaluation_time_ms > 0
    # the deciding time is within these runs; disturbances determine where
    times_ns = [time_ms * 1e6 for time_ms in measured.evaluation_times_ms]
    assert 0.999 * min(times_ns) <= entry["provenance"]["best_ns"] <= 1.001 * max(times_ns)
    with result:
        assert bound.cached_autotuning_data == data


def test_tokamax_loads_the_database_of_what_was_tuned_here(tmp_path, run, tuned):
    cache, registry, best = tuned
    out = tmp_path / "databases"
    run("cache", "export", "--format", "tokamax", out, "--registry", registry, "--replayed", "--cache", cache)
    assert [str(path.relative_to(out)) for path in out.glob("*/*")] == ["cpu/pallas_triton_flash_attention.json"]
    bound = call()
    loaded = loaded_from(out, bound.op, "cpu")
    assert plain(loaded[bound.autotuning_cache_key].fastest_config) == best
