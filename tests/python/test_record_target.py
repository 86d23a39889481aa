"""Recording for absent devices: what kernels learn about them, the records, and their meshes."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import threading

import pytest
from record_support import record_of, records

jax = pytest.importorskip("jax", reason="recording needs JAX")

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.extend import backend
from jax.sharding import NamedSharding, PartitionSpec

import autotune_lowered
from autotune_lowered.record.target import Target, names

SPECS = pathlib.Path(__file__).resolve().parent.parent.parent / "candidates" / "targets"

H100 = {
    "platform": "cuda",
    "device_kind": "NVIDIA H100 80GB HBM3",
    "hardware": {"compute_capability": "9.0", "sm_count": "132"},
}
X = jax.ShapeDtypeStruct((16, 128), jnp.float32)

needs_default_device = pytest.mark.skipif(
    not hasattr(backend, "get_default_device"), reason="this JAX is too old: it has no `get_default_device` to ask"
)
needs_abstract_devices = pytest.mark.skipif(
    not hasattr(jax.sharding, "AbstractDevice"), reason="this JAX is too old: it has no abstract devices"
)


def asked_functions():
    return [getattr(backend, "get_default_device", None), jax.devices, jax.local_devices, jax.default_backend]


def pallas_call(kernel, x, block, out_dtype=None, **options):
    spec = pl.BlockSpec((block, x.shape[1]), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct(x.shape, out_dtype or x.dtype)
    grid = (x.shape[0] // block,)
    return pl.pallas_call(kernel, out_shape=out, grid=grid, in_specs=[spec], out_specs=spec, **options)(x)


def for_triton():
    # old JAX has no such module
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=4)}


def doubled(x, block, **options):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    return pallas_call(kernel, x, block, **options)


@autotune_lowered.tunable(op="mosaic_double", version=1, space={"block": [8, 16]})
def mosaic_double(x, *, block=8):
    return doubled(x, block)


@autotune_lowered.tunable(op="triton_double", version=1, space={"block": [8, 16]})
def triton_double(x, *, block=8):
    return doubled(x, block, **for_triton())


@autotune_lowered.tunable(op="triton_float8", version=1, space={"block": [8, 16]})
def triton_float8(x, *, block=8):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].astype(jnp.float8_e4m3fn)

    return pallas_call(kernel, x, block, jnp.float8_e4m3fn, **for_triton())


# like libraries' operations, it asks for its device
@autotune_lowered.tunable(op="by_device", version=1, space={"block": [8, 16]})
def by_device(x, *, block=8):
    device = backend.get_default_device()
    if device.platform == "cpu":
        return x
    return x * float(device.compute_capability) + block


def lowered_for(function, *platforms):
    return jax.jit(lambda x: function(x)).trace(X).lower(lowering_platforms=platforms)


def test_a_target_has_the_identity_that_its_spec_gives_it():
    assert Target.named("cuda:h100_sxm").identity == H100
    files = sorted(SPECS.glob("*.txtpb"))
    assert [f"cuda:{path.stem}" for path in files] == [name for name in names() if name.startswith("cuda:")]
    for path in files:
        from_file, known = Target.named(f"cuda:{path}"), Target.named(f"cuda:{path.stem}")
        assert (from_file.identity, from_file.cores) == (known.identity, known.cores), path


@pytest.mark.parametrize("name", ["", "cuda", "cuda:", "cuda:h99", "tpu:v5e:", "tpu:v5e:0x2", "tpu:v5e:2x-2", "cpu:x"])
def test_what_is_no_target_is_told_with_those_that_are(tmp_path, name):
    for ask in (lambda: autotune_lowered.recording(tmp_path, target=name), lambda: autotune_lowered.target_mesh(name)):
        with pytest.raises(ValueError) as raised:
            ask()
        message = str(raised.value)
        assert message.startswith(f"`{name}` is no target") and "cuda:l40s" in message and "\n" not in message


def test_a_file_that_tells_no_gpu_is_refused(tmp_path):
    own = tmp_path / "own.txtpb"
    with pytest.raises(ValueError, match="cannot be read"):
        Target.named(f"cuda:{own}")
    own.write_text('platform_name: "CUDA"\n# device_description_str: "in a comment"\n')
    with pytest.raises(ValueError, match="has no `device_description_str`"):
        Target.named(f"cuda:{own}")
    own.write_text('core_count: 16 cuda_compute_capability { major: 9 } device_description_str: "H100 MIG 1g.10gb"')
    hardware = {"compute_capability": "9.0", "sm_count": "16", "mig": "1g.10gb"}
    assert Target.named(f"cuda:{own}").identity["hardware"] == hardware


def test_platforms_and_a_target_are_not_for_one_recording(tmp_path):
    with pytest.raises(ValueError, match="name one of them"):
        autotune_lowered.recording(tmp_path, platforms=("cuda",), target="cuda:l4")


@needs_abstract_devices
@pytest.mark.parametrize(
    ("target", "function", "call"),
    [("cuda:l4", triton_double, "__gpu$xla.gpu.triton"), ("tpu:v5e", mosaic_double, "tpu_custom_call")],
)
def test_pallas_kernels_are_recorded_for_the_target_itself(tmp_path, target, function, call):
    with autotune_lowered.recording(tmp_path, target=target, directions=("forward",)) as recorded:
        lowered_for(function, target.split(":")[0])
    record = record_of(tmp_path, function.tunable.op_id, "forward")
    assert record["target"] == {"device": Target.named(target).identity}
    assert [candidate["program"]["custom_calls"] for candidate in record["candidates"]] == [[call], [call]]
    assert not recorded.report()[0]["not_lowered"]


@needs_abstract_devices
def test_what_the_target_lacks_is_not_recorded(tmp_path):
    """Triton casts to this type from compute capability 8.9 on; Pallas assumes 9.0 if it finds no GPU."""
    for target, lowered in (("cuda:a100_sxm_80", 0), ("cuda:l4", 2)):
        with autotune_lowered.recording(tmp_path, target=target, directions=("forward",)) as recorded:
            jax.eval_shape(triton_float8, X)
        (report,) = recorded.report()
        assert (report["programs"], sum(report["not_lowered"].values())) == (lowered, 2 - lowered), report


@needs_abstract_devices
def test_a_tpu_kernel_sees_the_chip_that_is_recorded_for(tmp_path):
    from jax.experimental.pallas import tpu as pltpu

    seen = []

    @autotune_lowered.tunable(op="generation", version=1, space={"block": [8]})
    def generation(x, *, block=8):
        seen.append(pltpu.get_tpu_info().generation)
        return x + seen[-1]

    for target, expected in (("tpu:v5e", 5), ("tpu:v6e", 6)):
        with autotune_lowered.recording(tmp_path, target=target, directions=("forward",)):
            lowered_for(generation, "tpu")
        assert set(seen) == {expected}
        seen.clear()


@needs_default_device
def test_a_kernel_that_asks_for_its_device_is_answered_by_the_target(tmp_path):
    for target in ("cuda:a100_sxm_80", "cuda:h100_sxm"):
        with autotune_lowered.recording(tmp_path, target=target, directions=("forward",)):
            text = lowered_for(by_device, "cuda").as_text()
            # also in the user's own lowering, whose label must match
            assert ("9.0" if "h100" in target else "8.0") in text
    digests = [{c["program"]["semantic_digest"] for c in record["candidates"]} for record in records(tmp_path)]
    assert len(digests) == 2 and not digests[0] & digests[1]


@needs_default_device
def test_what_only_a_device_can_tell_is_not_recorded_for_its_platform(tmp_path):
    with autotune_lowered.recording(tmp_path, platforms=("cpu", "cuda"), directions=("forward",)):
        jax.jit(lambda x: by_device(x)).lower(X)
    for record in records(tmp_path):
        for candidate in record["candidates"]:
            if record["target"] == {"platform": "cuda"}:
                assert "`compute_capability` of cuda, which is absent, is unknown" in candidate["not_lowered"]
            else:
                assert "program" in candidate


@needs_default_device
def test_what_was_traced_for_one_device_is_not_used_for_another(tmp_path):
    jitted = jax.jit(lambda x: x + 1 if backend.get_default_device().device_kind == "NVIDIA L4" else x)
    before = jitted.trace(X).lower().as_text()
    with autotune_lowered.recording(tmp_path, target="cuda:l4"):
        inside = jitted.trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.add" in inside and "stablehlo.add" not in before
    assert jitted.trace(X).lower().as_text() == before


@needs_default_device
def test_jax_is_left_as_it_was_also_after_an_exception(tmp_path):
    before = asked_functions()
    with pytest.raises(ZeroDivisionError), autotune_lowered.recording(tmp_path, target="cuda:l4"):
        assert backend.get_default_device().compute_capability == "8.9"
        # nested: inside it the host answers, because the recording is for the host
        with autotune_lowered.recording(tmp_path / "host", directions=("forward",)):
            assert backend.get_default_device().platform == "cpu"
        assert backend.get_default_device().device_kind == "NVIDIA L4"
        raise ZeroDivisionError
    assert asked_functions() == before
    assert backend.get_default_device().platform == "cpu"


@needs_default_device
def test_other_threads_and_other_code_see_the_devices_that_are_here(tmp_path):
    seen = []
    with autotune_lowered.recording(tmp_path, target="cuda:l4"):
        thread = threading.Thread(target=lambda: seen.append(backend.get_default_device().platform))
        thread.start()
        thread.join()
        # this is how arrays are placed, so it must return existing devices
        assert jax.devices()[0].platform == jax.local_devices()[0].platform == jax.default_backend() == "cpu"
        assert float(jax.jit(lambda x: x.sum())(jnp.ones(4))) == 4
        with pytest.raises(AttributeError, match="`memory_stats` of cuda:l4"):
            backend.get_default_device().memory_stats()
    assert seen == ["cpu"]


@needs_abstract_devices
@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("tpu:v6e:2x2", {"x": 2, "y": 2}),
        ("tpu:v5e", {"x": 2, "y": 2}),
        ("tpu:v5p", {"x": 2, "y": 2, "z": 1}),
        ("tpu:v3:4x4", {"x": 4, "y": 4, "core": 2}),
        ("cuda:h100_sxm", {"x": 1}),
        ("cuda:h100_sxm:8", {"x": 8}),
        ("cuda:h100_sxm:2x4", {"x": 2, "y": 4}),
    ],
)
def test_a_mesh_has_the_sides_of_the_topology(name, axes):
    mesh = autotune_lowered.target_mesh(name)
    assert dict(mesh.shape) == axes
    assert mesh.abstract_device.device_kind.startswith("TPU" if name.startswith("tpu") else "NVIDIA")


@needs_abstract_devices
def test_a_mesh_with_other_axes_holds_the_same_devices():
    mesh = autotune_lowered.target_mesh("tpu:v6e:4x4", (8, 2), ("data", "model"))
    assert dict(mesh.shape) == {"data": 8, "model": 2}
    with pytest.raises(ValueError, match="holds 4 devices, and `tpu:v6e:4x4` has 16"):
        autotune_lowered.target_mesh("tpu:v6e:4x4", (4,), ("data",))
    with pytest.raises(ValueError, match="name both"):
        autotune_lowered.target_mesh("tpu:v6e:4x4", (16,))


@needs_abstract_devices
@pytest.mark.parametrize("target", ["tpu:v6e:2x2", "cuda:h100_sxm:4"])
def test_sharded_programs_are_lowered_for_devices_that_are_not_here(target):
    mesh = autotune_lowered.target_mesh(target, (4,), ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    step = jax.jit(lambda x: (x @ x.T).sum(0), in_shardings=rows, out_shardings=rows)
    text = step.trace(X).lower(lowering_platforms=(target.split(":")[0],)).as_text()
    assert "mhlo.num_partitions = 4" in text and '"data"=4' in text


@needs_abstract_devices
@pytest.mark.parametrize("axis", ["data", None])
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_a_kernel_on_a_mesh_is_recorded_for_the_target(tmp_path, axis, kind):
    mesh = autotune_lowered.target_mesh("tpu:v6e:2x2", (4,), ("data",), (getattr(jax.sharding.AxisType, kind),))

    @autotune_lowered.tunable(op="summed", version=1, space={"block": [8, 16]})
    def summed(x, *, block=8):
        return doubled(x, block) if axis is None else jax.lax.psum(doubled(x, block), axis)

    rows = PartitionSpec("data")
    sharded = jax.shard_map(summed, mesh=mesh, in_specs=rows, out_specs=rows, check_vma=False)
    # on an explicit axis, an array's type has its sharding
    whole = jax.ShapeDtypeStruct((64, 128), jnp.float32, sharding=NamedSharding(mesh, rows))
    with autotune_lowered.recording(tmp_path, target="tpu:v6e:2x2", directions=("forward",)) as recorded:
        jax.jit(sharded).trace(whole).lower(lowering_platforms=("tpu",))
    record = record_of(tmp_path, "summed@v1", "forward")
    assert not recorded.report()[0]["not_lowered"]
    assert record["arguments"][0]["spec"] == ("f32[16,128]" if axis is None else "f32[4,16,128]")
    assert {tuple(candidate["program"]["custom_calls"]) for candidate in record["candidates"]} == {("tpu_custom_call",)}


SCRIPT = """
import jax, jax.numpy as jnp
import autotune_lowered
from jax.extend import backend

@autotune_lowered.tunable(op="told", version=1, space={"block": [8, 16]})
def told(x, *, block=8):
    return x * float(backend.get_default_device().compute_capability)

jax.jit(lambda x: told(x)).trace(jax.ShapeDtypeStruct((8,), jnp.float32)).lower(lowering_platforms=("cuda",))
"""


@needs_default_device
def test_a_program_that_only_lowers_is_recorded_for_a_target(tmp_path):
    script, registry = tmp_path / "lower.py", tmp_path / "registry"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "autotune_lowered", "record", "--registry", registry]
    subprocess.run([*command, "--target", "cuda:h100_sxm", script], check=True, timeout=300)
    assert record_of(registry, "told@v1", "forward")["target"] == {"device": H100}
