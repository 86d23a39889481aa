"""The `jax` worker: runs candidates by the host clock, or under `jax.profiler` and gives the tuner the profile of each round.

Speaks the worker protocol of `docs/worker-protocol.md` on stdin and stdout. Every candidate's module is named
`jit_autotune_fn_{candidate}`, so that its executions are found in the XSpace; all launches of a round are in one
trace. Needs only JAX with its MLIR bindings, in version 0.8 or later. The file stands alone, except to build recipes,
because the program carries a copy of it. Importing it has no side effects, and JAX is imported where it is used.
"""

import concurrent.futures
import contextlib
import ctypes
import gc
import glob
import hashlib
import importlib.metadata
import importlib.util
import json
import mmap
import os
import re
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings

LIMIT = 1 << 20
METHODS = ("hello", "begin", "compile-ahead", "load", "measure", "measure-round", "outputs", "end", "shutdown")
MODULE_NAME = "jit_autotune_fn_%d"
# XLA's names of element types to numpy's, where they differ
NUMPY_NAMES = {
    "pred": "bool",
    "s2": "int2",
    "s4": "int4",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u2": "uint2",
    "u4": "uint4",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "f8e5m2": "float8_e5m2",
    "f8e4m3": "float8_e4m3",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e3m4": "float8_e3m4",
    "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e8m0fnu": "float8_e8m0fnu",
    "f4e2m1fn": "float4_e2m1fn",
}
XLA_NAMES = {numpy: xla for xla, numpy in NUMPY_NAMES.items()}


# bytes that are streamed to flush a CPU's caches if the system does not report their sizes, and the maximum
USUAL_CACHE_BYTES = 64 << 20
MAX_FLUSH_BYTES = 1 << 30
# bytes that are written on another device: twice the largest second-level cache of any GPU
DEVICE_FLUSH_BYTES = 256 << 20


# profiles of older ones hold no executions on a CPU, and the oldest crash in a compilation that is not their own
OLDEST_JAX = (0, 8)

# what XLA says of a program that another version wrote
UNREADABLE = ("Failed to parse", "Failed to deserialize", "in bytecode version", "Unsupported Mosaic version")
NOT_READ = "the compiler cannot read the program, because another version wrote it or it is damaged (%s)"


class Failed(Exception):
    """A failure, with its kind in the protocol."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def parse_spec(spec):
    """`f32[2,128]` as a numpy dtype and a shape."""
    import jax

    name, dims = spec.rstrip("]").split("[")
    return jax.numpy.dtype(NUMPY_NAMES[name]), tuple(int(dim) for dim in dims.split(",") if dim)


def spec_of(array):
    return "%s[%s]" % (XLA_NAMES[array.dtype.name], ",".join(map(str, array.shape)))


class OnOneDevice:
    """A program that runs on one device."""

    count = 1

    def __init__(self, executable, device):
        self.executable, self.device, self.devices = executable, device, [device]

    def place_of(self, _):
        return self.device

    def execute(self, arrays):
        return self.executable.execute(arrays)


class OnSeveralDevices:
    """A program of several partitions, one per device. Its arrays are whole ones, and each device holds a part."""

    def __init__(self, executable, devices, shapes):
        # not public: the compiled program has its shardings in XLA's form, which no public class accepts
        from jax._src.sharding_impls import GSPMDSharding

        self.executable, self.count, self.shapes, self.devices = executable, len(devices), shapes, devices
        self.parameters = [GSPMDSharding(devices, one) for one in executable.get_parameter_shardings()]
        self.results = [GSPMDSharding(devices, one) for one in executable.get_output_shardings()]

    def place_of(self, index):
        return self.parameters[index]

    def execute(self, arrays):
        import jax

        parts = self.executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        whole = jax.make_array_from_single_device_arrays
        return [whole(shape, where, of) for shape, where, of in zip(self.shapes, self.results, parts, strict=True)]


class HostFlush:
    """Evicts from a CPU's caches what a run left there: each core reads and writes a separate buffer."""

    def __init__(self, cores=None, root="/sys/devices/system/cpu"):
        import numpy

        if cores is None:
            has_affinity = hasattr(os, "sched_getaffinity")
            cores = sorted(os.sched_getaffinity(0)) if has_affinity else range(os.cpu_count() or 1)
        size = cache_bytes(cores, root)
        size = min(2 * size if size else USUAL_CACHE_BYTES, MAX_FLUSH_BYTES) // len(cores)
        self.buffers = {core: numpy.zeros(size // 8, numpy.uint64) for core in cores}

    def __call__(self, _):
        threads = [threading.Thread(target=self.stream, args=item) for item in self.buffers.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @staticmethod
    def stream(core, buffer):
        try:
            # only for this thread
            os.sched_setaffinity(0, {core})
        except (AttributeError, OSError):
            pass  # no such thing on this system, or the core is another's by now
        # numpy releases the interpreter's lock meanwhile
        buffer += 1


class DeviceFlush:
    """Evicts from an accelerator's caches what a run left there: writes more on the device than they hold. A transfer
    from the host would evict nothing, because a GPU's goes past its second-level cache."""

    def __init__(self, size=DEVICE_FLUSH_BYTES):
        import jax
        import numpy

        def autotune_lowered_flush():
            return jax.lax.iota(numpy.uint32, size // 4)

        self.program = jax.jit(autotune_lowered_flush)

    def __call__(self, devices):
        import jax

        for device in devices:
            with jax.default_device(device):
                # dropped at once, so that the program has the memory again
                self.program().block_until_ready()


def cache_bytes(cores, root):
    """Bytes of all data caches that these cores use. A shared cache counts once; 0 if unknown."""
    sizes = {}
    for core in cores:
        for path in glob.glob(os.path.join(root, "cpu%d" % core, "cache", "index*")):

            def read(name, path=path):
                with open(os.path.join(path, name)) as file:
                    return file.read().strip()

            try:
                if read("type") == "Instruction":
                    continue
                size = read("size")
                number = int(size.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(size[-1:], 0)
                sizes[os.path.basename(path), read("shared_cpu_list")] = number
            except (OSError, ValueError):
                continue  # what is not told is not counted
    return sum(sizes.values())


def partitions_of(module):
    """`mhlo.num_partitions` of a module."""
    attributes = module.operation.attributes
    return attributes["mhlo.num_partitions"].value if "mhlo.num_partitions" in attributes else 1


# options that XLA:CPU reads when it runs a program: with other values the same code behaves differently
AT_RUN_TIME = ("xla_cpu_multi_thread_eigen",)


def fields_of(message):
    """Numbers and values of a protobuf message; ValueError if it is none."""
    found, at = [], 0

    def varint():
        nonlocal at
        value = shift = 0
        while at < len(message) and shift < 64:
            byte = message[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value
        raise ValueError("no varint")

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            found.append((number, varint()))
            continue
        if number == 0 or kind not in (1, 2, 5):
            raise ValueError("no field")
        end = varint() if kind == 2 else {1: 8, 5: 4}[kind]
        end += at
        if end > len(message):
            raise ValueError("a field beyond the end")
        found.append((number, message[at:end]))
        at = end
    return found


def work_digest(serialized):
    """SHA-256 of the code that an executable of a CPU runs, as in `timer/pjrt/compile/work_digest.rs`: object files,
    thunks and buffers, without the options and the module's name and number, which the executable contains too. None if
    it has another form."""
    try:
        # after a message of IFRT's, which follows its length: ExecutableAndOptionsProto
        length = shift = at = 0
        while at == 0 or serialized[at - 1] > 127:
            length, shift, at = length | (serialized[at] & 127) << shift, shift + 7, at + 1
        outer = fields_of(serialized[at + length :])
        (executable,) = [value for number, value in outer if number == 1]
        parts = fields_of(executable)
        (module,) = [value for number, value in parts if number == 1]
        name = fields_of(fields_of(module)[0][1])[0][1]
        if not any(number == 8 for number, _ in parts):
            return None
        # the order of symbols and object files depends on which thread finished first
        ordered = [(number, value) for number, value in parts if number not in (1, 7, 8)]
        ordered += sorted((number, value) for number, value in parts if number in (7, 8))
        digest = hashlib.sha256()
        for number, value in ordered:
            digest.update(of_field(number, plain(value, name, number) if number == 6 else value))
        return digest.hexdigest()
    except (ValueError, IndexError, TypeError, RecursionError):
        return None


def plain(message, name, of):
    """A thunk without its module's name and number, and with its sets in a fixed order."""
    if not isinstance(message, bytes):
        return message
    try:
        found = fields_of(message)
    except ValueError:
        return message
    is_info = (2, name) in found
    parts = []
    for number, value in found:
        if is_info and (value == name or (number == 3 and isinstance(value, int))):
            continue
        is_set = (of, number) == (11, 3) and isinstance(value, bytes)
        parts.append(of_field(number, bytes(sorted(value)) if is_set else plain(value, name, number)))
    return b"".join(parts)


def of_field(number, value):
    value = value if isinstance(value, bytes) else b"%d" % value
    return b"%d:%d:" % (number, len(value)) + value


def prepare_lapack():
    """Gives JAX's LAPACK handlers their functions. JAX does so when it traces a LAPACK call. A process that only
    loads programs traces none, and without this the first run would crash with SIGSEGV."""
    try:
        from jaxlib.lapack import _lapack  # type: ignore[attr-defined]

        _lapack.initialize()
    except (ImportError, AttributeError):
        pass  # this jaxlib keeps them elsewhere, or needs no such thing


def shapes_of(module):
    """Dimensions of `main`'s parameters and results, before partitioning."""
    from jaxlib.mlir import ir

    for operation in module.body.operations:
        if operation.operation.name == "func.func" and operation.attributes["sym_name"].value == "main":
            main = ir.FunctionType(operation.attributes["function_type"].value)
            return [[tuple(ir.RankedTensorType(one).shape) for one in of] for of in (main.inputs, main.results)]
    raise Failed("compile", "the module has no function `main`")


def stablehlo_of(module, form):
    """StableHLO text of a one-partition program in XLA's own form: HLO text, or a serialized HloModuleProto."""
    from jax._src.lib import xla_client  # type: ignore[attr-defined]
    from jaxlib import _jax

    if form == "hlo-text":
        try:
            from jaxlib._hlo import hlo_module_from_text  # type: ignore[import-not-found]
        except ImportError as error:
            how = 'dump the proto: `lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()`, into a `.hlo.pb`'
            raise Failed("compile", "this jaxlib reads no HLO text (0.10.2 does): %s" % how) from error
        module = hlo_module_from_text(module.decode()).as_serialized_hlo_module_proto()
    return _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(module))


def take_profile(work, path):
    """Runs `work` under a profile and writes its XSpace."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    try:
        # not public: `jax.profiler.trace` also writes the profile as JSON, which takes longer than most rounds
        from jax._src.lib import _profiler

        session = _profiler.ProfilerSession(options)
    except (ImportError, AttributeError, TypeError):
        return take_public_profile(work, path, options)
    try:
        work()
    finally:
        space = session.stop()
    with open(path, "wb") as file:
        file.write(space)


def take_public_profile(work, path, options):
    """The same for a JAX that has its profiler elsewhere."""
    import jax

    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            work()
        found = glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb"))
        if len(found) != 1:
            raise Failed("execute", "the profiler left %d XSpace files" % len(found))
        shutil.move(found[0], path)


def why_no_profile(device):
    """Why a profile holds nothing of what this device runs; None if it does. A driver may refuse its profiler, as in
    many containers, and JAX then only logs that."""
    if device.platform == "cpu":
        return None  # it is part of this process
    import jax
    import numpy

    double = jax.jit(lambda x: x + x)
    array = jax.device_put(numpy.ones(1024, numpy.float32), device)

    def run():
        jax.block_until_ready(double(array))

    # the first run loads code onto the device
    try:
        run()
    except Exception as error:
        raise Failed("device", lacks_of_cuda(error, device) or str(error)) from error
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trial.xplane.pb")
            take_profile(run, path)
            with open(path, "rb") as file:
                space = jax.profiler.ProfileData.from_serialized_xspace(file.read())
    except Exception as error:
        return "JAX's profiler does not work: %s" % " ".join(str(error).split())[:500]
    of_device = [plane for plane in space.planes if plane.name.startswith("/device:")]
    if any(True for plane in of_device for line in plane.lines for _ in line.events):
        return None
    return "JAX's profiler was tried, and its profile holds nothing of the device"


# of a SHA-256, which stands before the executable in its file
DIGEST_BYTES = 32


class Kept:
    """Executables that the workers of a run share, so that its fresh processes compile nothing: files in the tuner's
    private folder, named by what was compiled. On a CPU alone, where what is read back runs the same code."""

    def __init__(self, folder, device):
        # what is read at run time might be read from elsewhere
        at_run_time = any(name in os.environ.get("XLA_FLAGS", "") for name in AT_RUN_TIME)
        self.folder = folder if folder and device.platform == "cpu" and not at_run_time else None

    def path(self, module, form, overrides):
        asked = json.dumps([form, sorted(overrides.items())]).encode()
        named = hashlib.sha256(asked + b"\0" + module).hexdigest()
        return self.folder and os.path.join(self.folder, named + ".executable")

    def restore(self, path, device, options):
        """The executable in a file, and the file's content, because what is read back does not give it a second time.
        None if there is none that this JAX reads."""
        try:
            with open(path, "rb") as file:
                digest, content = file.read(DIGEST_BYTES), file.read()
            if hashlib.sha256(content).digest() != digest:
                return None  # cut or changed
            from jax._src.lib import xla_client  # type: ignore[attr-defined]

            return device.client.deserialize_executable(content, xla_client.DeviceList((device,)), options), content
        except Exception:
            return None

    def keep(self, path, content):
        if path is None or self.folder is None:
            return
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(file.name, path)
        except OSError:
            pass  # it is compiled again


class Worker:
    def __init__(self, index, folder=None, devices=None, process=None):
        # that runs the candidates or forks those that do, if the tuner did not start it
        self.process = process
        self.devices, self.index = (devices, index) if devices else own_devices(index)
        self.kept = Kept(folder, self.devices[self.index])
        self.device = self.devices[self.index]
        self.inputs = []
        # inputs on the devices, by their number and placement
        self.placed = {}
        self.loaded = {}
        # candidates that ran since they were loaded
        self.ran = set()
        # how those were loaded whose executable has the name of another race's candidate
        self.renamed = {}
        # what a profile's annotations state about a candidate
        self.configs = {}
        self.job = {}
        # flushes the caches before each run, if they are to be cold
        self.flush = None
        # what was compiled for a job without inputs, by candidate: the request and its answer. It serves the same job once
        # that has its inputs
        self.compiled_before = {}
        # compilations in the background, by candidate: the request and its future. Those for a job without inputs serve the
        # same job once that has its inputs
        self.ahead = {}
        self.pool = None

    def hello(self, _):
        import jax

        told = {"compiler": compiler_digest(self.device.client), "memory": device_memory(self.device)}
        told["process"] = self.process
        no_profile = why_no_profile(self.device)
        if no_profile:
            told["notes"] = ["timed by the host clock: " + no_profile]
        return {
            "protocol": 1,
            "worker": "jax %s" % jax.__version__,
            **{name: value for name, value in told.items() if value},
            # the package builds recipes, and it need not be installed where this file is
            "capabilities": ["compile-ahead", "cold-caches", "compiler-options"]
            + ["profile"] * (not no_profile)
            + ["build-recipes"] * (importlib.util.find_spec("autotune_lowered") is not None),
            "source": "host-wall" if no_profile else "device-profile",
            "devices": [fingerprint(device) for device in self.devices],
            "device": self.index,
        }

    def compile_ahead(self, params):
        """Starts a compilation in the background, because XLA compiles with the interpreter's lock released."""
        # a recipe runs code of other libraries, which may not be thread-safe
        if params.get("program") is None or self.is_compiled(params):
            return {}
        before, replaced = self.ahead.get(params["candidate"], (None, None))
        if before == params:
            return {}
        if replaced is not None:
            replaced.cancel()
        if self.pool is None:
            from jax._src.lib import xla_client  # type: ignore[attr-defined]

            # jaxlib makes the iterator's type when one is first needed: two threads at once may find it half made
            list(xla_client.DeviceList((self.device,)))
            self.pool = concurrent.futures.ThreadPoolExecutor(min(8, available_cores()))
        self.ahead[params["candidate"]] = (params, self.pool.submit(self.compiled, params))
        return {}

    def forget_ahead(self):
        """Cancels compilations that nobody loaded. Waits for those in progress, because they would disturb a
        measurement."""
        waiting, self.ahead = self.ahead, {}
        futures = [future for _, future in waiting.values() if not future.cancel()]
        concurrent.futures.wait(futures)

    def begin(self, params):
        import numpy as np

        if self.inputs:
            self.forget_ahead()
        self.loaded, self.placed, self.configs, self.ran, self.renamed = {}, {}, {}, set(), {}
        self.inputs = []
        self.job = params
        state = params.get("cache_state", "warm")
        if state not in ("warm", "cold"):
            raise Failed("protocol", "`cache_state` is %r: neither `warm` nor `cold`" % state)
        self.flush = None
        if state == "cold":
            self.flush = HostFlush() if self.device.platform == "cpu" else DeviceFlush()
        for item in params["inputs"]:
            dtype, shape = parse_spec(item["spec"])
            host = np.fromfile(item["path"], dtype=dtype).reshape(shape)
            self.inputs.append((host, item["donated"]))
        return {}

    def is_compiled(self, params):
        return self.compiled_before.get(params["candidate"], (None, None))[0] == params

    def load(self, params):
        asked, future = self.ahead.pop(params["candidate"], (None, None))
        if self.is_compiled(params):
            compiled = self.compiled_before[params["candidate"]][1]
        else:
            # raises a failure of the background thread here, like one of this thread
            compiled = future.result() if asked == params else self.compiled(params)
        if not self.inputs:
            self.compiled_before[params["candidate"]] = (params, compiled)
        loaded, answer = compiled
        self.loaded[params["candidate"]] = loaded
        self.ran.discard(params["candidate"])
        self.renamed.pop(params["candidate"], None)
        if answer["compile_ns"] == 0 and name_of(loaded.executable) != MODULE_NAME % params["candidate"]:
            self.renamed[params["candidate"]] = params
        self.configs[params["candidate"]] = params.get("config")
        if self.flush is not None:
            # compiles what it needs, which no profile shall show
            self.flush(loaded.devices)
        return answer | self.costs(loaded.executable)

    def compiled(self, params):
        """A candidate's compiled program, and the answer of `load`."""
        program = params.get("program")
        if program is None:
            form, module = "stablehlo-portable", self.build(params["config"])
        else:
            form = program["format"]
            with open(program["path"], "rb") as file:
                module = file.read()
        start = time.perf_counter_ns()
        overrides = params.get("overrides") or {}
        path = self.kept.path(module, form, overrides)
        restored = self.restore(path, module, overrides) if path and os.path.exists(path) else None
        try:
            loaded, signature, content = restored or (
                *self.compile(module, form, params["candidate"], overrides),
                None,
            )
        except Failed:
            raise
        except Exception as error:
            if lacking := lacks_of_cuda(error, self.device):
                raise Failed("device", lacking) from error
            if any(words in str(error) for words in UNREADABLE):
                raise Failed("unreadable", NOT_READ % error) from error
            kind = "custom-call" if "custom call" in str(error) else "compile"
            raise Failed(kind, str(error)) from error
        compile_ns = 0 if restored else time.perf_counter_ns() - start
        answer = {"compile_ns": compile_ns, "signature": {"parameters": signature}}
        # on other platforms, JAX's serialization contains the options and the module's number, so no two are equal
        if self.device.platform == "cpu" and loaded.count == 1 and not overrides.keys() & set(AT_RUN_TIME):
            try:
                content = content or loaded.executable.serialize()
            except Exception:
                content = None  # not every program can be serialized, such as one that calls back into Python
            digest = work_digest(content)
            answer |= {"executable": digest} if digest else {}
            if content is not None and not restored:
                self.kept.keep(path, content)
        return loaded, answer

    def restore(self, path, module, overrides):
        """What another worker of this run compiled, as `compile` gives it; None if it cannot be read back."""
        if b"custom_call" in module:
            prepare_lapack()
        found = self.kept.restore(path, self.device, self.options_of(1, overrides))
        if found is None:
            return None
        executable, content = found
        try:
            return OnOneDevice(executable, self.device), self.signature(executable), content
        except Exception:
            return None  # one that does not show its program

    def costs(self, executable):
        """The memory of a run, and the optimized program, from which the tuner counts the work of a run."""
        told: dict[str, object] = {}
        try:
            stats = executable.get_compiled_memory_stats()
            told["memory"] = {
                "argument_bytes": stats.argument_size_in_bytes,
                "output_bytes": stats.output_size_in_bytes,
                "temporary_bytes": stats.temp_size_in_bytes,
                "alias_bytes": stats.alias_size_in_bytes,
                "code_bytes": stats.generated_code_size_in_bytes,
            }
        except Exception:
            pass  # some plugins do not tell
        # the tuner reads it before it requests the next one
        path = os.path.join(self.job["scratch"], "optimized.pb")
        try:
            with open(path, "wb") as file:
                file.write(executable.hlo_modules()[0].as_serialized_hlo_module_proto())
            told["optimized"] = path
        except Exception:
            pass  # no decision depends on it
        return told

    def build(self, config):
        """Builds, by its recipe, the program of a config that the recorder could not lower."""
        if self.job.get("recipe") is None:
            raise Failed("no-program", "there is neither a program nor a recipe for it")
        try:
            from autotune_lowered.libraries.recipe import build
        except ImportError as error:
            raise Failed("no-program", "recipes need the package autotune-lowered: %s" % error) from error
        inputs = {item["name"]: item["spec"] for item in self.job["inputs"]}
        platform = fingerprint(self.device)["identity"]["platform"]
        try:
            return build(self.job["recipe"], config, self.job["direction"], inputs, platform)
        except Exception as error:
            raise Failed("compile", "%s: %s" % (type(error).__name__, error)) from error

    def compile(self, module, form, candidate, overrides):
        if form in ("hlo-text", "hlo-proto"):
            module = stablehlo_of(module, form).encode()
        import numpy
        from jax._src.interpreters import mlir as jax_mlir
        from jax._src.lib import xla_client  # type: ignore[attr-defined]
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        with jax_mlir.make_ir_context() as context:
            try:
                if form == "stablehlo-portable":
                    parsed = stablehlo.deserialize_portable_artifact(context, module)
                else:
                    parsed = ir.Module.parse(module.decode())
            except Exception as error:
                raise Failed("unreadable", NOT_READ % error) from error
            parsed.operation.attributes["sym_name"] = ir.StringAttr.get(MODULE_NAME % candidate)
            if self.device.platform == "cpu" and b"custom_call" in module:
                prepare_lapack()
            count = partitions_of(parsed)
            if count > 1:
                parameters, results = shapes_of(parsed)
                # the other partitioner refuses a module with Shardy's shardings
                is_shardy = "sdy." in str(parsed.operation.get_asm(large_elements_limit=16))
            code = jax_mlir.module_to_bytecode(parsed)
        options = self.options_of(count, overrides)
        devices = self.devices_for(count)
        if count > 1:
            ids = numpy.array([[device.id for device in devices]])
            options.device_assignment = xla_client.DeviceAssignment.create(ids)
            options.executable_build_options.use_spmd_partitioning = True
            options.executable_build_options.use_shardy_partitioner = is_shardy
        executable = self.device.client.compile_and_load(code, xla_client.DeviceList(devices), options)
        signature = self.signature(executable)
        if count == 1:
            return OnOneDevice(executable, self.device), signature
        # the compiled program's parameters are those of one device
        names = [spec.partition("[")[0] for spec in signature]
        signature = ["%s[%s]" % (name, ",".join(map(str, dims))) for name, dims in zip(names, parameters, strict=True)]
        return OnSeveralDevices(executable, devices, results), signature

    @staticmethod
    def options_of(count, overrides):
        from jax._src.lib import xla_client  # type: ignore[attr-defined]

        options = xla_client.CompileOptions()
        options.num_replicas = 1
        options.num_partitions = count
        options.env_option_overrides = sorted(overrides.items())
        if folder := cuda_of_jax():
            options.executable_build_options.debug_options.xla_gpu_cuda_data_dir = folder
        return options

    def devices_for(self, count):
        """The devices for this many partitions: the chosen one and those after it."""
        devices = tuple(self.devices[self.index : self.index + count])
        if len(devices) < count:
            ways = {
                "cpu": "set XLA_FLAGS=--xla_force_host_platform_device_count=%d" % (self.index + count),
                "gpu": "name them in JAX_CUDA_VISIBLE_DEVICES (or JAX_ROCM_VISIBLE_DEVICES)",
            }
            raise Failed(
                "device",
                "the program has %d partitions and needs as many devices, from number %d on; %d are there%s"
                % (count, self.index, len(devices), "; ".join(["", *filter(None, [ways.get(self.device.platform)])])),
            )
        return devices

    @staticmethod
    def signature(executable):
        from jax._src.lib import xla_client  # type: ignore[attr-defined]

        program = executable.hlo_modules()[0]
        shape = xla_client.XlaComputation(program.as_serialized_hlo_module_proto()).program_shape()
        found = []
        for parameter in shape.parameter_shapes():
            name = XLA_NAMES[parameter.numpy_dtype().name]
            found.append("%s[%s]" % (name, ",".join(map(str, parameter.dimensions()))))
        return found

    def find(self, candidate):
        if candidate not in self.loaded:
            raise Failed("protocol", "candidate %d is not loaded" % candidate)
        return self.loaded[candidate]

    def place(self, program):
        """Puts the inputs where a program expects them: those that it may destroy each time, the others once."""
        import jax

        arrays = []
        with sixty_four_bits():
            for index, (host, donated) in enumerate(self.inputs):
                where = program.place_of(index)
                if donated:
                    arrays.append(jax.device_put(host, where))
                    continue
                if (index, where) not in self.placed:
                    self.placed[index, where] = jax.device_put(host, where)
                arrays.append(self.placed[index, where])
        return jax.block_until_ready(arrays)

    def run(self, candidate, flush=None):
        import jax

        program = self.find(candidate)
        try:
            arrays = self.place(program)
            if flush is not None:
                flush(program.devices)
            results = jax.block_until_ready(program.execute(arrays))
            self.ran.add(candidate)
            return results
        except Exception as error:
            raise Failed("execute", str(error)) from error

    def measure(self, params):
        """Runs a candidate and returns each run's time by the host clock, from launch to completion."""
        self.forget_ahead()
        self.compiled_before = {}
        candidate, samples = params["candidate"], []
        program = self.find(candidate)
        # a garbage collection during a run would count as its time
        gc.disable()
        try:
            for _ in range(params["runs"]):
                arrays = self.place(program)
                if self.flush is not None:
                    self.flush(program.devices)
                begin = time.perf_counter_ns()
                for result in program.execute(arrays):
                    result.block_until_ready()
                samples.append(time.perf_counter_ns() - begin)
        except Exception as error:
            raise Failed("execute", str(error)) from error
        finally:
            gc.enable()
        return {"samples_ns": samples}

    def measure_round(self, params):
        """Runs the launches in order under one trace and writes its XSpace."""
        import jax

        self.forget_ahead()
        self.compiled_before = {}
        devices = [self.find(launch["candidate"]).count for launch in params["launches"]]
        for launch in params["launches"]:
            self.compile_renamed(launch["candidate"])
            # A GPU's first run loads code, and XLA captures kernels in it that later runs replay: a profile would name
            # them differently.
            if self.device.platform != "cpu" and launch["candidate"] not in self.ran:
                self.run(launch["candidate"])

        def launch_all():
            for launch in params["launches"]:
                # shows in the profile which candidate ran when
                name = "autotune-lowered candidate %d" % launch["candidate"]
                with jax.profiler.TraceAnnotation(name, runs=launch["runs"], **self.marks(launch["candidate"])):
                    for _ in range(launch["runs"]):
                        self.run(launch["candidate"], self.flush)

        path = os.path.join(params["folder"], "round.xplane.pb")
        take_profile(launch_all, path)
        return {"profile": path, "module_name": MODULE_NAME.replace("%d", "{candidate}"), "devices": devices}

    def compile_renamed(self, candidate):
        """Compiles a candidate again if its executable has the name of another one, because a profile shows names."""
        params = self.renamed.pop(candidate, None)
        if params is None:
            return
        with open(params["program"]["path"], "rb") as file:
            module = file.read()
        overrides = params.get("overrides") or {}
        self.loaded[candidate], _ = self.compile(module, params["program"]["format"], candidate, overrides)
        self.ran.discard(candidate)

    def marks(self, candidate):
        """An annotation's data on a candidate. The profiler cuts it at a `#`, so JSON escapes that character."""
        config = json.dumps(self.configs.get(candidate), separators=(",", ":")).replace("#", "\\u0023")
        operation = "%s:%s" % (self.job.get("op_id"), self.job.get("call_key"))
        return {"operation": operation.replace("#", ""), "config": config}

    def outputs(self, params):
        import numpy as np

        written = []
        for index, array in enumerate(self.run(params["candidate"])):
            # `ascontiguousarray` would turn a scalar into an array of one element
            host = np.asarray(array, order="C")
            path = os.path.join(params["folder"], "output-%d-%d.bin" % (params["candidate"], index))
            host.tofile(path)
            written.append({"spec": spec_of(host), "path": path})
        return {"outputs": written}

    def end(self, _):
        self.forget_ahead()
        self.loaded, self.placed, self.inputs, self.flush, self.compiled_before = {}, {}, [], None, {}
        self.renamed = {}
        return {}

    def shutdown(self, _):
        return {}


def name_of(executable):
    """The name of an executable's module; None if it does not show it."""
    try:
        return executable.hlo_modules()[0].name
    except Exception:
        return None


def sixty_four_bits():
    """While this is open, JAX keeps 64-bit arrays as they are; otherwise it converts them to 32 bits."""
    import jax
    import jax.experimental

    # older JAX has it in `jax.experimental`
    place = jax if hasattr(jax, "enable_x64") else jax.experimental
    return place.enable_x64(True)


def prepare_mosaic_gpu():
    """Tells the plugin where Mosaic GPU's runtime is. JAX does so when it imports Mosaic GPU. A process that only loads
    programs imports none, and without this the plugin would refuse every Mosaic GPU kernel."""
    for package in ("jax_cuda13_plugin", "jax_cuda12_plugin"):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations if spec else None) or ():
            path = os.path.join(folder, "libmosaic_gpu_runtime.so")
            if os.path.isfile(path):
                os.environ.setdefault("MOSAIC_GPU_RUNTIME_LIB_PATH", path)


def cuda_home(environment):
    """CUDA's folder as `CUDA_HOME`, the only variable that XLA reads, if another one names it. `None` if that variable is
    set or NVIDIA's packages bring the assembler: XLA prefers the variable to them, and an old CUDA may not fit."""

    def has_assembler(folder):
        return os.path.isfile(os.path.join(folder, "bin", "ptxas"))

    packages = importlib.util.find_spec("nvidia")
    of_packages = (packages.submodule_search_locations if packages else None) or ()
    beside = (os.path.join(folder, cuda) for folder in of_packages for cuda in ("cu13", "cuda_nvcc"))
    if environment.get("CUDA_HOME") or any(map(has_assembler, beside)):
        return None
    named = (environment.get(name, "") for name in ("CUDA_ROOT", "CUDA_PATH"))
    return next((folder for folder in named if os.path.isabs(folder) and has_assembler(folder)), None)


def cuda_of_jax():
    """CUDA's folder as JAX names it in its own compile options, from a variable or a package; None if it found none."""
    from jax._src import lib

    folder = getattr(lib, "cuda_path", None)
    return folder if folder and os.path.isdir(folder) else None


def lacks_of_cuda(error, device):
    """Which tool of CUDA is not there, if that is why XLA compiles nothing, and what to install; None otherwise. Packages'
    names changed with CUDA 13."""
    for words, tool in (("No PTX compilation provider", "ptxas"), ("libdevice not found", "libdevice")):
        if words in str(error):
            is_12 = re.search(r"cuda 12\d{3}\b", device.client.platform_version)
            packages = "nvidia-cuda-nvcc-cu12" if is_12 else "nvidia-cuda-nvcc and nvidia-nvvm"
            what = "JAX's plugin finds no %s: install %s beside it, or name CUDA's folder with CUDA_HOME (%s)"
            return what % (tool, packages, words)
    return None


@contextlib.contextmanager
def without_collections():
    """No collections of garbage, of which an import makes none: JAX's is a tenth faster."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def prepare_environment():
    """What must be set before JAX is imported. No memory is preallocated, because the tuner's user may be on the same
    device."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    prepare_mosaic_gpu()
    if found := cuda_home(os.environ):
        os.environ["CUDA_HOME"] = found


def why_too_old():
    """Why this JAX measures nothing; None if it is new enough."""
    import jax

    if jax.__version_info__[:2] >= OLDEST_JAX:
        return None
    return "JAX %s is too old to measure with: it takes %d.%d or later" % (jax.__version__, *OLDEST_JAX)


def own_devices(index):
    """The devices that this process opens, and the place of the wanted one among them.

    A GPU is opened alone, because each client reserves memory on every device that it opens, and other workers use
    the others.
    """
    prepare_environment()
    try:
        with without_collections():
            import jax
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        what = "worker jax: `%s` has no JAX: `%s -m pip install jax`, or name one that has with `--timer jax:PYTHON`"
        sys.exit(what % (sys.executable, sys.executable))
    if refused := why_too_old():
        sys.exit("worker jax: %s; name a Python that has it with `--timer jax:PYTHON`" % refused)

    for option in ("jax_cuda_visible_devices", "jax_rocm_visible_devices"):
        # the user's own choice stays
        if option.upper() not in os.environ:
            try:
                jax.config.update(option, str(index))
            except (AttributeError, ValueError):
                pass  # this JAX has no such option
    try:
        devices = jax.local_devices()
    except RuntimeError as error:
        # the rest of libtpu's message advises `sudo rm` of a file that is the other process's lock
        if "multi-process lockfile" not in str(error):
            raise
        sys.exit("worker jax: another process on this machine has the TPU; wait until it ends, or end it")
    if devices[0].platform == "gpu" and len(devices) == 1:
        return devices, 0
    if index >= len(devices):
        sys.exit("worker jax: there is no device %d: %d are there" % (index, len(devices)))
    return devices, index


def fingerprint(device):
    """A device and its environment, as the `pjrt` worker reports them, so that both measure for the same device."""
    import jax

    client = device.client
    platform = client.platform.lower()
    if platform == "gpu":
        platform = "rocm" if "rocm" in client.platform_version.lower() else "cuda"
    hardware = {}
    if platform == "cpu":
        hardware = {"cpu_model": cpu_model(), "cores": str(available_cores())}
    else:
        for ours, theirs in (("compute_capability", "compute_capability"), ("sm_count", "core_count")):
            if getattr(device, theirs, None) is not None:
                hardware[ours] = str(getattr(device, theirs))
        # the driver adds the slice to the device's name: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`
        _, is_slice, name = device.device_kind.partition(" MIG ")
        if is_slice:
            hardware["mig"] = name
    return {
        "identity": {"platform": platform, "device_kind": device.device_kind, "hardware": hardware},
        "environment": {
            "platform_version": client.platform_version,
            "plugin": "jaxlib %s" % jax.lib.__version__,  # type: ignore[attr-defined]
            "xla_flags": xla_flags(os.environ, platform),
        },
    }


def device_memory(device):
    """Bytes of a device's memory that programs may use, and bytes in use; `None` if its plugin does not report
    them, as on a CPU."""
    try:
        stats = device.memory_stats() or {}
    except Exception:
        return None
    if "bytes_limit" not in stats:
        return None
    return {"limit_bytes": int(stats["bytes_limit"]), "used_bytes": int(stats.get("bytes_in_use", 0))}


def compiler_digest(client):
    """Digest of the compiler, from the records of its wheels, which list the digest of every file; `None` if one
    has no record."""
    platform = client.platform.lower()
    wheels = ["jaxlib"]
    if platform == "tpu":
        wheels += ["libtpu"]
    elif platform != "cpu":
        if "rocm" in client.platform_version.lower():
            return None  # the wheels of its plugin change their names with every version of ROCm
        wheels += ["jax-cuda%d-%s" % (version, part) for version in (12, 13) for part in ("plugin", "pjrt")]
    digest = hashlib.sha256()
    digest.update(("%s\0%s\0" % (platform, client.platform_version)).encode())
    found = 0
    for wheel in wheels:
        try:
            record = importlib.metadata.distribution(wheel).read_text("RECORD")
        except importlib.metadata.PackageNotFoundError:
            continue
        if not record or "sha256=" not in record:
            return None  # built here, and may be another one next time
        digest.update(("%s\0%s\0" % (wheel, record)).encode())
        found += 1
    # jaxlib compiles for the CPU only; elsewhere the plugin does
    return digest.hexdigest() if found > (platform != "cpu") else None


def xla_flags(environment, platform):
    """Flags by name. Flags of the same name keep their order, because the last one counts. On a TPU, also libtpu's
    own flags. A text that does not begin with a dash names a file of flags."""
    text = environment.get("XLA_FLAGS", "")
    if text.strip() and not text.lstrip().startswith("-"):
        try:
            with open(text) as file:
                text = file.read(1 << 20)
        except OSError:
            pass
    of_libtpu = environment.get("LIBTPU_INIT_ARGS", "") if platform == "tpu" else ""
    return sorted([*text.split(), *of_libtpu.split()], key=lambda flag: flag.partition("=")[0])


def cpu_model(path="/proc/cpuinfo"):
    """The CPU's name, family and model."""
    fields: dict[str, str] = {}
    try:
        with open(path) as file:
            for line in file:
                name, _, value = line.partition(":")
                fields.setdefault(name.strip(), " ".join(value.split()))
    except OSError:
        pass
    for name in ("model name", "Model", "cpu model", "uarch"):
        if fields.get(name):
            if "cpu family" in fields and "model" in fields:
                # virtual machines often shorten the name, but family and model still identify the generation
                return "%s (family %s model %s)" % (fields[name], fields["cpu family"], fields["model"])
            return fields[name]
    if "CPU part" in fields and "CPU implementer" in fields:
        return "arm %s %s" % (fields["CPU implementer"], fields["CPU part"])
    return "unknown %s" % os.uname().machine


def available_cores(cgroup="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """The cores that this process may use: its affinity, and the quota of its control groups (version 2) rounded down."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open(cgroup) as file:
            path = next(line[3:].strip() for line in file if line.startswith("0::"))
    except (OSError, StopIteration):
        return cores
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts) + 1):
        try:
            with open(os.path.join(root, *parts[:depth], "cpu.max")) as file:
                quota, period = file.read().split()
            cores = min(cores, int(quota) // int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue  # `max`, or no such file: no quota here
    return max(cores, 1)


def may_fork():
    """Whether a fork of this process measures like a started one: JAX has no client yet, and will open a CPU alone, since
    drivers of other devices may take something at their import that no fork has."""
    with without_collections():
        import jax

    if not sys.platform.startswith("linux") or why_too_old():
        return False
    if platforms := getattr(jax.config, "jax_platforms", None):
        return platforms == "cpu"
    plugins = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return not plugins and not importlib.metadata.entry_points(group="jax_plugins")


# of `prctl`: the signal that this process gets when its parent dies
PARENT_DEATH_SIGNAL = 1
# pages of the address space among which a worker's mappings begin, as many as Linux draws from on 64 bits
LAYOUT_PAGES = 1 << 28
# bytes of the heap among which a worker's own begin
HEAP_BYTES = 1 << 16


# before the number of a listening socket: the whole process is a template
TEMPLATE_OPTION = "--template"


class Template:
    """A process that has imported JAX, and forks a worker for each connection to its socket: a fork is ready in the
    hundredth part of the time that an import takes.

    A connection hands over the worker's command line, as JSON in a line, and its stdin, stdout and stderr. It is told the
    worker's process id, or 0 if none is forked for it, and how the worker ended: its exit code, or a signal as a negative
    number. A connection that says anything more, or is closed, ends its worker.
    """

    def __init__(self, listening):
        self.libc = ctypes.CDLL(None)
        self.own = os.getpid()
        self.listening = listening
        # of the workers that run, by process id
        self.connections = {}
        # a worker's end wakes the wait below
        self.ended, self.wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)

    def serve(self):
        """Returns in each worker. The template itself ends when its stdin is closed."""
        # what lives on is not moved into each worker's own memory by a collection
        gc.freeze()
        while True:
            connections = {connection: pid for pid, connection in self.connections.items()}
            ready, _, _ = select.select([0, self.ended, self.listening, *connections], [], [])
            if 0 in ready and not os.read(0, 1 << 16):
                # the workers get their signal
                os._exit(0)
            if self.ended in ready:
                os.read(self.ended, 1 << 16)
                self.reap()
            for connection in ready:
                pid = connections.get(connection)
                # another worker may have got its number meanwhile
                if self.connections.get(pid) is connection:
                    self.finish(pid)
            if self.listening in ready and self.fork(self.listening.accept()[0]):
                return

    def fork(self, connection):
        """Whether this is the worker."""
        streams: list[int] = []
        try:
            # a connection that hands over nothing does not hold up the others
            connection.settimeout(5)
            line, streams, _, _ = socket.recv_fds(connection, LIMIT, 3)
            words = json.loads(line)
            is_command = isinstance(words, list) and all(isinstance(word, str) for word in words)
            # one that waits no longer may have started another worker with these streams
            is_waiting = not select.select([connection], [], [], 0)[0]
            if len(streams) != 3 or not is_command or not is_waiting:
                raise ValueError("no worker")
            with warnings.catch_warnings():
                # of threads, of which there are none but numpy's, which it ends at a fork
                warnings.simplefilter("ignore")
                pid = os.fork()
            if pid == 0:
                self.become_worker(connection, streams)
                # as if it had been started: behind the interpreter's own option
                sys.argv = words[2:]
                return True
            self.connections[pid] = connection
            # the worker does it too, and can be ended by it from now on
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            connection.sendall(b"%d\n" % pid)
        except (OSError, ValueError):
            if os.getpid() != self.own:
                os._exit(1)
            # the tuner starts a worker by itself, unless this one has its pipes
            with contextlib.suppress(OSError):
                connection.sendall(b"0\n")
        finally:
            for stream in streams:
                os.close(stream)
        return False

    def become_worker(self, connection, streams):
        os.setpgid(0, 0)
        self.libc.prctl(PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != self.own:
            os._exit(1)
        # as of a started one: a crash leaves no core file, and short memory ends it first
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one in (connection, self.listening, *self.connections.values()):
            one.close()
        os.close(self.ended)
        os.close(self.wakes)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        self.layout = another_layout()

    def reap(self):
        while self.connections:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            self.finish(found.si_pid)

    def finish(self, pid):
        """Ends what is left of a worker and tells how it ended."""
        # its id is nobody else's until it is waited for
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        # another child than a worker has none
        if connection := self.connections.pop(pid, None):
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def another_layout():
    """Moves by a random length what this process maps and allocates from now on, because the time of a run depends on its
    addresses: a started process draws them anew, and forks of one process have the same. What it returns is to be kept."""
    pages, size = (int.from_bytes(os.urandom(8)) % most for most in (LAYOUT_PAGES, HEAP_BYTES))
    mapped = None
    with contextlib.suppress(OSError):  # of a process that may map less
        # nobody may use it, so it takes no memory
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        mapped = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE, flags=flags, prot=0)
    return bytearray(size), mapped


def answer_to(worker, line):
    answer: dict[str, object] = {"id": None}
    try:
        request = json.loads(line)
        answer["id"] = request["id"]
        method = request["method"]
        if method not in METHODS:
            raise Failed("protocol", "unknown method %r" % method)
        answer["result"] = getattr(worker, method.replace("-", "_"))(request["params"])
        return answer, method == "shutdown"
    except Failed as failure:
        answer["error"] = {"kind": failure.kind, "message": " ".join(str(failure).split())[:1000]}
    except Exception as error:
        answer["error"] = {"kind": "protocol", "message": " ".join(repr(error).split())[:1000]}
    return answer, False


def prepared_template(listening):
    """A template at a socket, or at the path of one to come; `None` if each worker is to be started."""
    prepare_environment()
    try:
        if not may_fork():
            return None
        if isinstance(listening, str):
            path, listening = listening, socket.socket(socket.AF_UNIX)
            listening.bind(path)
            listening.listen()
        return Template(listening)
    except (ImportError, OSError):
        return None  # without JAX, the worker says so


def answers_alone():
    """Stdout for the protocol: anything else that is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def template_of(line):
    """The socket's path in a first request for a template, and the request's number; `None` if it is another request."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        request = json.loads(line)
        if request["method"] == "template":
            return request["params"]["socket"], request["id"]
    return None


def main():
    answers = answers_alone()
    # every measured program is compiled in this run, never taken from JAX's cache
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    worker = template = None
    if sys.argv[1:2] == [TEMPLATE_OPTION]:
        template = prepared_template(socket.socket(fileno=int(sys.argv[2])))
        if template is None:
            return
        template.serve()
        answers.close()
        answers = answers_alone()
    while line := sys.stdin.buffer.readline(LIMIT):
        too_long = len(line) == LIMIT and not line.endswith(b"\n")
        while too_long and line and not line.endswith(b"\n"):
            line = sys.stdin.buffer.readline(LIMIT)
        if worker is None and template is None and (asked := template_of(line)):
            path, number = asked
            template = prepared_template(path)
            print(json.dumps({"id": number, "result": {"forks": template is not None}}), file=answers, flush=True)
            if template is not None:
                template.serve()
                answers.close()
                answers = answers_alone()
            continue
        if worker is None:
            index, folder = (sys.argv[1:3] + [None, None])[:2]
            worker = Worker(int(index or 0), folder, process=template and template.own)
        answer, is_last = answer_to(worker, b"" if too_long else line)
        print(json.dumps(answer), file=answers, flush=True)
        if is_last:
            break
    if template is not None:
        # JAX and its client take longer to end than to be forked, and leave nothing that outlives the process
        os._exit(0)


if __name__ == "__main__":
    main()
