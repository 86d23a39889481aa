"""Regenerates `module.stablehlo.mlir`, `module.hlo.txt` and `registry/` beside this file.

    pip install jax==0.10.2 ejkernel==0.0.80.3
    python examples/transformer/record.py

The module is a training step that was never run: lowering it needs no accelerator and no weights. Each tunable call in
it is recorded forward, and forward with its vector-Jacobian product, with all its candidates.
"""

import dataclasses
import itertools
import os
import pathlib
import platform
import shutil
import time

import ejkernel
import jax
import model
from ejkernel.ops import Invocation as KernelCall
from ejkernel.ops.registry import get_invocations
from ejkernel.ops.utils.fingerprint import device_fingerprint
from jaxlib import _hlo
from lowering import lower, with_vjp
from registry_writer import RegistryWriter

HERE = pathlib.Path(__file__).resolve().parent
TARGET = "cpu"

SHORT_DTYPES = {"float32": "f32", "int32": "s32"}

# the space of `candidates/blocked_matmul.json` and `candidates/chunked_cross_entropy.json`, enumerated
SPACES = {
    "blocked_matmul@v1": [
        {"block_m": m, "block_n": n, "block_k": k} for m, n, k in itertools.product((64, 256), repeat=3) if m <= k
    ],
    "chunked_cross_entropy@v1": [
        {"token_chunk": tokens, "vocabulary_chunk": vocabulary}
        for tokens, vocabulary in itertools.product((32, 128, 512), (512, 4096))
    ],
}

# fills of the inputs: the weights are small, so that sums over the width stay near one
FILLS = {
    "blocked_matmul@v1": {"x": {"kind": "normal", "scale": 1.0}, "w": {"kind": "normal", "scale": 0.0625}},
    "chunked_cross_entropy@v1": {
        "x": {"kind": "normal", "scale": 1.0},
        "w": {"kind": "normal", "scale": 0.0625},
        "targets": {"kind": "integer-range", "low": 0, "high": model.VOCABULARY - 1},
    },
    "flash_attention@v2": {name: {"kind": "normal", "scale": 1.0} for name in ("query", "key", "value")},
}


def our_calls():
    """The calls of the operations of `model.py`: op_id, call key, specs by name, static arguments, configs, function."""
    for (op_id, key), (specs, static) in model.CALLS.items():
        function, baseline = model.OPERATIONS[op_id]
        build = lambda config, f=function, s=static: lambda *arrays: f(*arrays, config=config, **s)
        yield op_id, key, dict(zip(FILLS[op_id], specs)), static, baseline, SPACES[op_id], build


def ejkernel_calls():
    """The same for the calls in ejkernel's registry."""
    for op_id, calls in get_invocations(device_fingerprint()).items():
        for key, (kernel, args, kwargs) in calls.items():
            # these include tracers of the lowering: only their shapes and types are used
            specs = {name: jax.ShapeDtypeStruct(x.shape, x.dtype) for name, x in kwargs.items() if hasattr(x, "shape")}
            static = {name: value for name, value in kwargs.items() if name not in specs}
            assert not args, f"{op_id} was called with positional arguments"
            call = KernelCall(op_id=kernel.op_id, args=(), kwargs=specs | static, stamp=False)
            configs = {repr(as_json(config)): config for config in kernel.candidate_cfgs_xla(call)}

            def build(config, kernel=kernel, names=tuple(specs), static=static, configs=configs):
                return lambda *arrays: kernel.run(**dict(zip(names, arrays)), **static, cfg=configs[repr(config)])

            spellings = [as_json(config) for config in configs.values()]
            # ejkernel's heuristic on this platform, which is the first of its candidates
            yield op_id, key, specs, static, spellings[0], spellings, build


def as_json(config):
    """A config as ejkernel's persistent cache spells it: fields without a value left out."""
    fields = dataclasses.asdict(config) if dataclasses.is_dataclass(config) else config
    plain = lambda value: as_json(value) if isinstance(value, dict) else getattr(value, "value", value)
    return {name: plain(value) for name, value in fields.items() if value is not None}


def record(writer, recorded, op_id, key, specs, static, baseline, configs, build):
    """Stores one call in both directions."""
    for direction in ("forward", "forward-vjp"):
        named, candidates, kept = dict(specs), [], None
        if direction == "forward-vjp":
            _, named["output_cotangent"] = with_vjp(build(baseline), list(specs.values()))
        for config in configs:
            function = build(config)
            if direction == "forward-vjp":
                function, _ = with_vjp(function, list(specs.values()))
            artifact, semantic, calls, kept_here = lower(function, list(named.values()), TARGET)
            assert kept in (None, kept_here), f"{op_id}: candidates take different arguments"
            kept = kept_here
            candidates.append({"config": config, "program": writer.put_program(artifact, semantic, calls)})
        fills = FILLS[op_id] | {"output_cotangent": {"kind": "normal", "scale": 1.0}}
        names = [name for index, name in enumerate(named) if index in kept]
        invocation = {
            "target": {"platform": TARGET},
            "op_id": op_id,
            "call_key": key,
            "direction": direction,
            "arguments": [{"name": name, "spec": spell(named[name]), "fill": fills[name]} for name in names],
            "static_arguments": {name: scalar(value) for name, value in static.items() if value is not None},
            "baseline": baseline,
            "candidates": candidates,
        }
        print(writer.add(invocation | recorded).relative_to(HERE))


def scalar(value):
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def spell(spec):
    return f"{SHORT_DTYPES[spec.dtype.name]}[{','.join(map(str, spec.shape))}]"


def provenance():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if platform.system() == "Linux" else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    hardware = {"cpu_model": models[0] if models else platform.machine(), "cores": str(os.cpu_count())}
    identity = {"platform": TARGET, "device_kind": jax.devices()[0].device_kind, "hardware": hardware}
    return {
        "recorded_on": {"identity": identity, "environment": {"platform_version": jax.devices()[0].client.platform_version}},
        "recorded_at": int(os.environ.get("SOURCE_DATE_EPOCH", time.time())),
        "recorder": f"examples/transformer/record.py, jax {jax.__version__}, ejkernel {ejkernel.__version__}",
    }


def write_modules(lowered):
    (HERE / "module.stablehlo.mlir").write_text(lowered.as_text(debug_info=True))
    options = _hlo.HloPrintOptions()
    options.print_metadata = True
    # large constants, written out in full, would make up most of the file
    options.print_large_constants = False
    hlo = lowered.compiler_ir("hlo").as_hlo_module()
    (HERE / "module.hlo.txt").write_text(hlo.to_string(options))


def main():
    jax.config.update("jax_platforms", TARGET)
    # file names in the modules must not depend on the checkout's location
    jax.config.update("jax_hlo_source_file_canonicalization_regex", r".*/(?=examples/)|.*/site-packages/")
    lowered = jax.jit(model.train_step).lower(model.weight_specs(), model.token_specs(), model.token_specs())
    write_modules(lowered)
    shutil.rmtree(HERE / "registry", ignore_errors=True)
    writer, recorded = RegistryWriter(HERE / "registry"), provenance()
    for call in itertools.chain(our_calls(), ejkernel_calls()):
        record(writer, recorded, *call)


if __name__ == "__main__":
    main()
