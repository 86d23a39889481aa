"""The `jax` worker over its pipes: `load` uses what was compiled ahead."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from autotune_lowered import worker as jax_worker

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.needs_jax("0.8", "the `jax` worker measures")

DATA = pathlib.Path(__file__).resolve().parent.parent / "data/timer"


class Worker:
    def __init__(self):
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "autotune_lowered.worker"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.id = 0

    def ask(self, method, **params):
        self.id += 1
        self.process.stdin.write(json.dumps({"id": self.id, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.id
        return answer.get("result"), (answer.get("error") or {}).get("kind")


@pytest.fixture
def worker():
    started = Worker()
    yield started
    started.process.kill()
    started.process.wait()


def begun(worker, folder, **more):
    hello, _ = worker.ask("hello", protocol=1)
    assert "compile-ahead" in hello["capabilities"]
    specs = [line for line in (DATA / "add.mlir").read_text().splitlines() if "@main" in line]
    assert "tensor<4xf32>" in specs[0]
    count = specs[0].split("->")[0].count("tensor<4xf32>")
    inputs = []
    for number in range(count):
        path = folder / f"{number}.bin"
        path.write_bytes(bytes(16))
        inputs.append({"name": f"x{number}", "spec": "f32[4]", "path": str(path), "donated": False})
    begin = {"op_id": "add@v1", "call_key": "k", "direction": "forward", "inputs": inputs, "scratch": str(folder)}
    assert worker.ask("begin", **begin, **more) == ({}, None)


def load_of(candidate, path):
    return {
        "candidate": candidate,
        "config": {"n": candidate},
        "program": {"format": "stablehlo-text", "path": str(path)},
    }


def test_candidates_are_compiled_ahead_and_each_failure_is_its_own(worker, tmp_path):
    begun(worker, tmp_path)
    broken, slow = tmp_path / "broken.mlir", tmp_path / "unused.mlir"
    broken.write_text("module { nonsense }")
    slow.write_text((DATA / "add.mlir").read_text())
    asked = [load_of(0, DATA / "add.mlir"), load_of(1, broken), load_of(2, DATA / "add.mlir"), load_of(3, slow)]
    for load in asked:
        assert worker.ask("compile-ahead", **load) == ({}, None)
    # a request that differs from the compiled one is compiled again
    changed = asked[2] | {"config": {"n": 7}}
    for load, expected in ((asked[0], None), (asked[1], "unreadable"), (changed, None)):
        result, error = worker.ask("load", **load)
        assert error == expected
        assert (result is None) == (expected is not None)
        if result is not None:
            assert result["compile_ns"] > 0 and set(result["signature"]["parameters"]) == {"f32[4]"}
    # number 3 was never loaded: it is no candidate, and does not disturb the round
    launches = [{"candidate": 0, "runs": 2}, {"candidate": 2, "runs": 1}]
    round_, error = worker.ask("measure-round", launches=launches, folder=str(tmp_path))
    assert error is None and pathlib.Path(round_["profile"]).stat().st_size > 0
    assert worker.ask("measure-round", launches=[{"candidate": 3, "runs": 1}], folder=str(tmp_path))[1] == "protocol"
    measured, error = worker.ask("measure", candidate=2, runs=3)
    assert error is None and len(measured["samples_ns"]) == 3 and min(measured["samples_ns"]) > 0
    assert worker.ask("measure", candidate=3, runs=1)[1] == "protocol"
    assert worker.ask("end") == ({}, None)
    assert worker.ask("compile-ahead", **asked[0]) == ({}, None)
    assert worker.ask("shutdown") == ({}, None)
    assert worker.process.wait(60) == 0


def test_what_is_compiled_ahead_without_inputs_serves_the_job_that_has_them(worker, tmp_path):
    worker.ask("hello", protocol=1)
    begin = {"op_id": "add@v1", "call_key": "k", "direction": "forward", "inputs": [], "scratch": str(tmp_path)}
    path = tmp_path / "add.mlir"
    load = load_of(0, path)
    os.mkfifo(path)
    assert worker.ask("begin", **begin) == ({}, None)
    assert worker.ask("compile-ahead", **load) == ({}, None)
    # whoever opens it for writing waits until it is read
    path.write_text((DATA / "add.mlir").read_text())
    path.unlink()
    # it would not compile again, whether it is asked for once more or not
    path.write_text("module { nonsense }")
    assert worker.ask("compile-ahead", **load) == ({}, None)
    begun(worker, tmp_path)
    assert worker.ask("compile-ahead", **load) == ({}, None)
    loaded, error = worker.ask("load", **load)
    assert error is None and loaded["compile_ns"] > 0
    assert worker.ask("measure", candidate=0, runs=3)[1] is None
    # a job with inputs keeps nothing for the next one
    other = load_of(1, path)
    path.unlink()
    os.mkfifo(path)
    assert worker.ask("compile-ahead", **other) == ({}, None)
    path.write_text((DATA / "add.mlir").read_text())
    path.unlink()
    path.write_text("module { nonsense }")
    begun(worker, tmp_path)
    assert worker.ask("load", **other)[1] == "unreadable"


def test_what_tells_its_arguments_is_compiled_once(worker, tmp_path):
    hello, _ = worker.ask("hello", protocol=1)
    begin = {"op_id": "add@v1", "call_key": "k", "direction": "forward", "inputs": [], "scratch": str(tmp_path)}
    assert worker.ask("begin", **begin) == ({}, None)
    path = tmp_path / "add.mlir"
    path.write_text((DATA / "add.mlir").read_text())
    load = load_of(0, path)
    first, _ = worker.ask("load", **load)
    begun(worker, tmp_path)
    # it would not compile again
    path.write_text("module { nonsense }")
    assert worker.ask("compile-ahead", **load) == ({}, None)
    again, error = worker.ask("load", **load)
    assert (error, again["compile_ns"], again["signature"]) == (None, first["compile_ns"], first["signature"])
    measured, error = worker.ask("measure", candidate=0, runs=3)
    assert error is None and min(measured["samples_ns"]) > 0
    # another request is another program, and nothing is kept once runs are timed
    assert worker.ask("load", **load_of(1, path))[1] == "unreadable"
    assert worker.ask("load", **load)[1] == "unreadable"


def test_arrays_of_64_bits_stay_as_they_are(tmp_path):
    import numpy as np

    here = jax_worker.Worker(0)
    # with less than 52 bits of fraction, or less than 64 bits of an integer, both would change
    values = np.array([1 + 2.0**-40, -(2.0**200)]), np.array([2**40 + 1, -1])
    inputs = []
    for name, array in zip(("f64[2]", "s64[2]"), values, strict=True):
        array.tofile(tmp_path / name)
        inputs.append({"name": name, "spec": name, "path": str(tmp_path / name), "donated": False})
    here.begin({"inputs": inputs, "scratch": str(tmp_path)})
    (tmp_path / "program.mlir").write_text("""module {
      func.func public @main(%x: tensor<2xf64>, %n: tensor<2xi64>) -> (tensor<2xf64>, tensor<2xi64>) {
        %0 = stablehlo.add %x, %x : tensor<2xf64>
        return %0, %n : tensor<2xf64>, tensor<2xi64>
      }
    }""")
    here.load(load_of(0, tmp_path / "program.mlir"))
    doubled, same = here.outputs({"candidate": 0, "folder": str(tmp_path)})["outputs"]
    assert (doubled["spec"], same["spec"]) == ("f64[2]", "s64[2]")
    assert np.array_equal(np.fromfile(doubled["path"], "<f8"), 2 * values[0])
    assert np.array_equal(np.fromfile(same["path"], "<i8"), values[1])


def test_fresh_processes_load_what_was_compiled(tmp_path, monkeypatch):
    import numpy as np

    np.arange(4, dtype=np.float32).tofile(tmp_path / "f32[4]")
    text = (DATA / "add.mlir").read_text()
    count = next(line for line in text.splitlines() if "@main" in line).split("->")[0].count("tensor<4xf32>")
    one = {"name": "x", "spec": "f32[4]", "path": str(tmp_path / "f32[4]"), "donated": False}
    kept = tmp_path / "kept"

    def loaded(folder, candidate=0, **overrides):
        here = jax_worker.Worker(0, folder)
        here.begin({"inputs": [one] * count, "scratch": str(tmp_path)})
        answer = here.load(load_of(candidate, DATA / "add.mlir") | {"overrides": overrides})
        (output,) = here.outputs({"candidate": candidate, "folder": str(tmp_path)})["outputs"]
        # in a profile it has its own name, whoever compiled it
        taken = here.measure_round({"launches": [{"candidate": candidate, "runs": 2}], "folder": str(tmp_path)})
        space = jax.profiler.ProfileData.from_serialized_xspace(open(taken["profile"], "rb").read())
        named = {dict(event.stats).get("hlo_module") for p in space.planes for line in p.lines for event in line.events}
        assert {name for name in named if name} == {f"jit_autotune_fn_{candidate}"}
        assert answer["memory"]["output_bytes"] >= 16 and answer["signature"]["parameters"] == ["f32[4]"] * count
        return answer["compile_ns"], answer["executable"], list(np.fromfile(output["path"], "<f4"))

    first = loaded(str(kept))
    assert first[0] > 0 and kept.stat().st_mode & 0o77 == 0
    again = loaded(str(kept))
    assert again[0] == 0 and again[1:] == first[1:]
    # another race's number of the same program
    other = loaded(str(kept), candidate=3)
    assert other[0] == 0 and other[1:] == first[1:] and len(list(kept.iterdir())) == 1
    # other options are another program
    assert loaded(str(kept), xla_llvm_disable_expensive_passes="True")[0] > 0 and len(list(kept.iterdir())) == 2
    # what cannot be read back is compiled, and so is everything without a folder
    for spoilt in (lambda whole: whole[:100], lambda whole: b"", lambda whole: whole[:-9] + b"x" + whole[-8:]):
        for file in kept.iterdir():
            file.write_bytes(spoilt(file.read_bytes()))
        assert loaded(str(kept))[0] > 0
    assert loaded(None)[0] > 0
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    assert jax_worker.Kept(str(kept), jax.devices()[0]).folder is None


def test_options_of_the_compiler_and_programs_in_its_own_form(monkeypatch, tmp_path):
    here = jax_worker.Worker(0)
    assert "compiler-options" in here.hello({})["capabilities"]
    here.begin({"inputs": [], "scratch": str(tmp_path)})
    module = load_of(0, DATA / "add.mlir")
    taken = []
    made = jax_worker.OnOneDevice.__init__
    monkeypatch.setattr(jax_worker.OnOneDevice, "__init__", lambda self, *of: taken.append(of[0]) or made(self, *of))
    expensive = {"xla_llvm_disable_expensive_passes": "True"}
    level = {"xla_backend_optimization_level": "0", "xla_cpu_experimental_ynn_fusion_type": ""}
    at_run_time = {"xla_cpu_multi_thread_eigen": "False"}
    codes = [
        here.load(module | {"candidate": number, "overrides": overrides}).get("executable")
        for number, overrides in enumerate((expensive, level, {}, at_run_time))
    ]
    serialized = [executable.serialize() for executable in taken]
    # the same code for any options and module names; for an option that is read at run time there is no digest
    assert codes[0] == codes[2] != codes[1] and len(codes[1]) == 64 and codes[3] is None
    assert [jax_worker.work_digest(one) for one in serialized[:3]] == codes[:3]
    for cut in [b"", b"\x80", serialized[0][:-1], serialized[0][1:], b"\x00" * 9, None]:
        assert jax_worker.work_digest(cut) is None
    assert b"xla_llvm_disable_expensive_passes" in serialized[0]
    assert b"xla_llvm_disable_expensive_passes" not in serialized[2]
    with pytest.raises(jax_worker.Failed, match="No such compile option: 'xla_none'") as refused:
        here.load(module | {"overrides": {"xla_none": "1"}})
    assert refused.value.kind == "compile"

    lowered = jax.jit(lambda a, b: a @ b).lower(*[jax.ShapeDtypeStruct((4, 4), "float32")] * 2)
    forms = {"hlo-text": lowered.as_text("hlo").encode()}
    forms["hlo-proto"] = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    for form, program in forms.items():
        (tmp_path / form).write_bytes(program)
        load = {"candidate": 1, "config": {}, "program": {"format": form, "path": str(tmp_path / form)}}
        answer = here.load(load)
        assert answer["signature"] == {"parameters": ["f32[4,4]", "f32[4,4]"]}
        assert (answer["memory"]["argument_bytes"], answer["memory"]["output_bytes"]) == (128, 64)
        optimized = taken[-1].hlo_modules()[0].as_serialized_hlo_module_proto()
        assert pathlib.Path(answer["optimized"]).read_bytes() == optimized
    monkeypatch.setitem(sys.modules, "jaxlib._hlo", None)
    with pytest.raises(jax_worker.Failed, match="dump the proto"):
        here.load(load | {"program": {"format": "hlo-text", "path": str(tmp_path / "hlo-text")}})


def test_memory_of_a_device_is_told_where_its_plugin_knows_it():
    def told(stats):
        return jax_worker.device_memory(types.SimpleNamespace(memory_stats=lambda: stats))

    assert told({"bytes_limit": 16 << 30, "bytes_in_use": 3 << 30}) == {"limit_bytes": 16 << 30, "used_bytes": 3 << 30}
    assert told({"bytes_limit": 8}) == {"limit_bytes": 8, "used_bytes": 0}
    assert told({"bytes_in_use": 8}) is told(None) is None
    # this CPU's
    assert jax_worker.device_memory(jax.devices("cpu")[0]) is None


def test_flags_of_libtpu_count_on_a_tpu():
    environment = {"XLA_FLAGS": "--xla_b=1", "LIBTPU_INIT_ARGS": "--xla_tpu_c=2 --xla_a=3"}
    assert jax_worker.xla_flags(environment, "tpu") == ["--xla_a=3", "--xla_b=1", "--xla_tpu_c=2"]
    assert jax_worker.xla_flags(environment, "cpu") == ["--xla_b=1"]
    assert jax_worker.xla_flags({}, "tpu") == []


def test_cudas_folder_is_found_by_other_variables_unless_packages_have_its_tools(monkeypatch, tmp_path):
    for folder in ("own", "packages/cu13"):
        (tmp_path / folder / "bin").mkdir(parents=True)
    own = str(tmp_path / "own")
    (tmp_path / "own/bin/ptxas").touch()
    packages = types.SimpleNamespace(submodule_search_locations=[str(tmp_path / "packages")])
    for found in (None, packages):
        monkeypatch.setattr(jax_worker.importlib.util, "find_spec", lambda name, found=found: found)
        assert jax_worker.cuda_home({}) is None
        assert jax_worker.cuda_home({"CUDA_ROOT": "none", "CUDA_PATH": own, "CUDA_HOME": ""}) == own
        assert jax_worker.cuda_home({"CUDA_ROOT": own, "CUDA_HOME": "/cuda"}) is None
        assert jax_worker.cuda_home({"CUDA_ROOT": str(tmp_path)}) is None
    (tmp_path / "packages/cu13/bin/ptxas").touch()
    assert jax_worker.cuda_home({"CUDA_ROOT": own}) is None


def test_what_a_gpu_lacks_to_compile_is_told_with_its_packages():
    def lacks(message, version="PJRT C API\ncuda 13000"):
        device = types.SimpleNamespace(client=types.SimpleNamespace(platform_version=version))
        return jax_worker.lacks_of_cuda(RuntimeError(message), device)

    none = "UNAVAILABLE: No PTX compilation provider is available. Neither ptxas/nvlink nor nvjtlink is available."
    assert lacks(none).startswith("JAX's plugin finds no ptxas: install nvidia-cuda-nvcc and nvidia-nvvm beside it, or")
    assert " install nvidia-cuda-nvcc-cu12 beside it, " in lacks(none, "PJRT C API\ncuda 12090")
    assert "finds no libdevice: " in lacks("INTERNAL: libdevice not found at ./libdevice.10.bc")
    assert lacks("INTERNAL: No candidates could be compiled.") is None


def test_cudas_folder_is_the_one_of_jaxs_own_compile_options(monkeypatch, tmp_path):
    from jax._src import lib

    for named, found in ((str(tmp_path), str(tmp_path)), (None, None), (str(tmp_path / "none"), None)):
        monkeypatch.setattr(lib, "cuda_path", named, raising=False)
        assert jax_worker.cuda_of_jax() == found


def test_a_compiler_is_told_by_the_records_of_its_wheels(monkeypatch):
    cpu = types.SimpleNamespace(platform="cpu", platform_version="cpu")
    own = jax_worker.compiler_digest(cpu)
    assert len(own) == 64 and jax_worker.compiler_digest(cpu) == own

    records = {"jaxlib": "a.so,sha256=1,2\n"}

    def distribution(name):
        if name not in records:
            raise importlib.metadata.PackageNotFoundError(name)
        return types.SimpleNamespace(read_text=lambda file: records[name] if file == "RECORD" else None)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    first = jax_worker.compiler_digest(cpu)
    records["jaxlib"] = "a.so,sha256=3,2\n"
    second = jax_worker.compiler_digest(cpu)
    assert len({own, first, second}) == 3
    # a locally built one, and a device with an unknown plugin
    gpu = types.SimpleNamespace(platform="gpu", platform_version="PJRT C API\ncuda 12090")
    assert jax_worker.compiler_digest(gpu) is None
    records["jax-cuda12-pjrt"] = "b.so,sha256=4,2\n"
    assert len(jax_worker.compiler_digest(gpu)) == 64
    for none in (None, "", "a.so,,\n"):
        records["jaxlib"] = none
        assert jax_worker.compiler_digest(cpu) is None
        assert jax_worker.compiler_digest(gpu) is None


def test_a_process_that_only_loads_programs_has_lapack(worker, tmp_path):
    import numpy as np

    from autotune_lowered.record.lowering import lower

    rng = np.random.default_rng(0)
    given = rng.normal(size=(8, 8)).astype(np.float32)
    (tmp_path / "x.bin").write_bytes(given.tobytes())
    begin = {"op_id": "inverse@v1", "call_key": "k", "direction": "forward", "scratch": str(tmp_path)}
    inputs = [{"name": "x", "spec": "f32[8,8]", "path": str(tmp_path / "x.bin"), "donated": False}]
    assert worker.ask("hello", protocol=1)[1] is None
    assert worker.ask("begin", **begin, inputs=inputs) == ({}, None)
    lowered = lower(jax.numpy.linalg.inv, [jax.ShapeDtypeStruct((8, 8), np.float32)], "cpu")
    assert "lapack_sgetrf_ffi" in lowered.custom_calls
    (tmp_path / "program").write_bytes(lowered.artifact)
    program = {"format": "stablehlo-portable", "path": str(tmp_path / "program")}
    assert worker.ask("load", candidate=0, config={}, program=program)[1] is None
    answer, error = worker.ask("outputs", candidate=0, folder=str(tmp_path))
    assert error is None
    (output,) = answer["outputs"]
    found = np.fromfile(output["path"], np.float32).reshape(8, 8)
    np.testing.assert_allclose(found, np.linalg.inv(given.astype(np.float64)), rtol=1e-3, atol=1e-4)


def machine(folder):
    """Two cores that share the third level, as sysfs has it."""
    for core in range(2):
        levels = [
            ("Data", "48K", core),
            ("Instruction", "32K", core),
            ("Unified", "1024K", core),
            ("Unified", "32M", "0-1"),
        ]
        for index, (kind, size, owners) in enumerate(levels):
            cache = folder / f"cpu{core}/cache/index{index}"
            cache.mkdir(parents=True)
            for name, text in (("type", kind), ("size", size), ("shared_cpu_list", owners)):
                (cache / name).write_text(f"{text}\n")


def test_caches_are_summed_as_the_pjrt_worker_sums_them(tmp_path):
    machine(tmp_path)
    own, shared = (48 + 1024) << 10, 32 << 20
    assert jax_worker.cache_bytes([0, 1], tmp_path) == 2 * own + shared
    assert jax_worker.cache_bytes([1], tmp_path) == own + shared
    assert jax_worker.cache_bytes([7], tmp_path) == 0
    flush = jax_worker.HostFlush([0, 1], tmp_path)
    assert [buffer.nbytes for buffer in flush.buffers.values()] == [2 * own + shared] * 2
    unknown = jax_worker.HostFlush([0, 1], tmp_path / "nowhere")
    assert sum(buffer.nbytes for buffer in unknown.buffers.values()) == jax_worker.USUAL_CACHE_BYTES
    (tmp_path / "cpu0/cache/index3/size").write_text("900000K\n")
    assert jax_worker.HostFlush([0], tmp_path).buffers[0].nbytes == jax_worker.MAX_FLUSH_BYTES


def test_a_flush_writes_all_of_every_core_and_leaves_the_process_where_it_was(tmp_path):
    machine(tmp_path)
    before = os.sched_getaffinity(0)
    flush = jax_worker.HostFlush(None, tmp_path)
    for _ in range(2):
        flush([])
    assert set(flush.buffers) == before == os.sched_getaffinity(0)
    assert all((buffer == 2).all() for buffer in flush.buffers.values())


def test_a_device_flush_writes_its_bytes_on_each_device():
    written = []
    flush = jax_worker.DeviceFlush(1 << 10)
    program = flush.program
    flush.program = lambda: written.append(program()) or written[-1]
    flush(jax.devices()[:1] * 2)
    assert [(array.nbytes, array.device) for array in written] == [(1 << 10, jax.devices()[0])] * 2
    assert written[0].tolist() == list(range(1 << 8))
    assert jax_worker.DEVICE_FLUSH_BYTES == 256 << 20


def test_cold_caches_are_flushed_before_every_timed_run(monkeypatch, tmp_path):
    here = jax_worker.Worker(0)
    assert "cold-caches" in here.hello({})["capabilities"]
    inputs = []
    for name in "ab":
        (tmp_path / name).write_bytes(bytes(16))
        inputs.append({"name": name, "spec": "f32[4]", "path": str(tmp_path / name), "donated": name == "b"})
    events = []
    monkeypatch.setattr(jax_worker.HostFlush, "__call__", lambda self, devices: events.append(len(devices)))
    execute = jax_worker.OnOneDevice.execute
    monkeypatch.setattr(
        jax_worker.OnOneDevice, "execute", lambda self, arrays: events.append("run") or execute(self, arrays)
    )
    for state, expected in (({"cache_state": "cold"}, [1, "run"] * 3), ({}, ["run"] * 3)):
        here.begin({"inputs": inputs, "scratch": str(tmp_path), **state})
        here.load(load_of(0, DATA / "add.mlir"))
        events.clear()
        here.measure_round({"launches": [{"candidate": 0, "runs": 3}], "folder": str(tmp_path)})
        assert events == expected
        events.clear()
        here.measure({"candidate": 0, "runs": 3})
        assert events == expected
        events.clear()
        here.outputs({"candidate": 0, "folder": str(tmp_path)})
        assert events == ["run"], "outputs are not timed"
    with pytest.raises(jax_worker.Failed, match="neither `warm` nor `cold`"):
        here.begin({"inputs": inputs, "cache_state": "lukewarm"})
    here.end({})


def test_a_failed_round_ends_its_profile_and_a_jax_without_sessions_has_the_public_one(monkeypatch, tmp_path):
    def fail():
        raise jax_worker.Failed("execute", "a run that fails")

    path = tmp_path / "round.xplane.pb"
    with pytest.raises(jax_worker.Failed):
        jax_worker.take_profile(fail, path)
    # a profiler that is still running would refuse the next one
    run = jax.jit(lambda x: x @ x).lower(jax.numpy.ones((64, 64))).compile()
    work = lambda: jax.block_until_ready(run(jax.numpy.ones((64, 64))))
    names = lambda: {
        event.name
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes
        for line in plane.lines
        for event in line.events
        if "hlo_op" in dict(event.stats)
    }
    jax_worker.take_profile(work, path)
    of_session = names()
    monkeypatch.delattr("jax._src.lib._profiler")
    jax_worker.take_profile(work, path)
    assert of_session and names() == of_session
    assert [one.name for one in tmp_path.iterdir()] == ["round.xplane.pb"]


def test_a_cold_round_goes_over_the_pipes(worker, tmp_path):
    begun(worker, tmp_path, cache_state="cold")
    assert worker.ask("load", **load_of(0, DATA / "add.mlir"))[1] is None
    launches = [{"candidate": 0, "runs": 2}]
    round_, error = worker.ask("measure-round", launches=launches, folder=str(tmp_path))
    assert error is None and pathlib.Path(round_["profile"]).stat().st_size > 0


def test_mosaics_runtime_is_found_in_jaxs_plugin_package(monkeypatch, tmp_path):
    name = "MOSAIC_GPU_RUNTIME_LIB_PATH"
    package = tmp_path / "jax_cuda13_plugin"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(name, "")
    monkeypatch.delenv(name)
    jax_worker.prepare_mosaic_gpu()
    assert name not in os.environ, "this package has none"
    runtime = package / "libmosaic_gpu_runtime.so"
    runtime.touch()
    jax_worker.prepare_mosaic_gpu()
    assert os.environ[name] == str(runtime)
    monkeypatch.setenv(name, "/the/users/own.so")
    jax_worker.prepare_mosaic_gpu()
    assert os.environ[name] == "/the/users/own.so"


def test_a_profiler_that_records_nothing_of_a_device_is_not_used(monkeypatch, tmp_path):
    here = jax_worker.Worker(0)
    assert jax_worker.why_no_profile(here.device) is None, "a CPU's profiler is not tried"
    put = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda array, _: put(array))
    gpu = types.SimpleNamespace(platform="gpu")
    # this profile has the CPU's plane alone
    assert jax_worker.why_no_profile(gpu).endswith("its profile holds nothing of the device")
    planes = [types.SimpleNamespace(name="/device:GPU:0", lines=[types.SimpleNamespace(events=["kernel"])])]
    space = types.SimpleNamespace(planes=planes)
    monkeypatch.setattr(jax.profiler.ProfileData, "from_serialized_xspace", lambda _: space, raising=False)
    assert jax_worker.why_no_profile(gpu) is None

    def refuse(*_):
        raise RuntimeError("CUPTI needs\nroot access")

    monkeypatch.setattr(jax_worker, "take_profile", refuse)
    assert jax_worker.why_no_profile(gpu) == "JAX's profiler does not work: CUPTI needs root access"
    monkeypatch.setattr(jax_worker, "why_no_profile", lambda _: "a reason")
    hello = here.hello({})
    assert hello["source"] == "host-wall" and "profile" not in hello["capabilities"]
    assert hello["notes"] == ["timed by the host clock: a reason"]


def test_a_gpus_first_run_is_not_profiled(monkeypatch, tmp_path):
    here = jax_worker.Worker(0)
    runs = []
    monkeypatch.setattr(jax_worker.OnOneDevice, "execute", lambda self, arrays: runs.append("run") or [])
    monkeypatch.setattr(jax_worker, "take_profile", lambda work, path: runs.append("profile") or work())
    (tmp_path / "a").write_bytes(bytes(16))
    inputs = [{"name": name, "spec": "f32[4]", "path": str(tmp_path / "a"), "donated": False} for name in "ab"]
    here.begin({"inputs": inputs, "scratch": str(tmp_path)})
    here.load(load_of(0, DATA / "add.mlir"))
    round_of_two = {"launches": [{"candidate": 0, "runs": 2}], "folder": str(tmp_path)}
    here.device = types.SimpleNamespace(platform="gpu")
    here.measure_round(round_of_two)
    assert runs == ["run", "profile", "run", "run"]
    here.measure_round(round_of_two)
    assert runs[4:] == ["profile", "run", "run"], "it ran before"
