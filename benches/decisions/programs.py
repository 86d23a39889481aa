"""Makes the programs that `decisions` tunes: `python benches/decisions/programs.py FOLDER CASE…` (JAX 0.10).

`FOLDER/cases` gets a labelled module that calls each case once, and the registry of their candidates.
`FOLDER/aa` gets a module of one operation, whose eight candidates are one kernel under eight names.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/transformer"))

import jax
import numpy as np
from cases import CASES, Case
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import xla_client
from jaxlib import _hlo
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from lowering import TARGET_VERSION, lower
from registry_writer import RegistryWriter

TARGET = "cpu"
NAMES_OF_ONE_KERNEL = 8
AA_CASE = "one-kernel"


def call_key(name):
    return hashlib.sha256(f"{name} f32".encode()).hexdigest()[:16]


def stamped(name, case, function):
    """The function under its operation's label, as a kernel library would stamp it."""

    def call(*arrays):
        # a point instead of `@`: HLO cuts names at the first `@`
        with jax.named_scope(f"ejkernel_ops#{case.op}.v1:{call_key(name)}"):
            return function(*arrays)

    return call


def write_module(path, cases):
    """A module that calls each case once, with the config in use without tuning."""

    def all_calls(arrays):
        functions = [stamped(name, case, case.function(case.baseline)) for name, case in cases.items()]
        return [function(*own) for function, own in zip(functions, arrays, strict=True)]

    lowered = jax.jit(all_calls).lower([list(case.specs.values()) for case in cases.values()])
    path.write_text(lowered.as_text(debug_info=True))


def argument(name, spec, scale):
    shape = ",".join(map(str, spec.shape))
    return {"name": name, "spec": f"f32[{shape}]", "fill": {"kind": "normal", "scale": scale}}


def invocation(name, case, candidates):
    return {
        "target": {"platform": TARGET},
        "op_id": f"{case.op}@v1",
        "call_key": call_key(name),
        "direction": "forward",
        "arguments": [argument(name, spec, case.scales[name]) for name, spec in case.specs.items()],
        # the parameters in the order of a config: JSON objects have no order
        "static_arguments": {"case": name, "parameters": list(case.baseline)},
        "baseline": case.baseline,
        "candidates": candidates,
        "recorded_at": 0,
        "recorder": f"benches/decisions/programs.py, jax {importlib.metadata.version('jax')}",
    }


def write_cases(folder, cases):
    writer = RegistryWriter(folder / "registry")
    for name, case in cases.items():
        candidates, seen = [], set()
        for config in case.configs:
            artifact, semantic, calls, _ = lower(case.function(config), list(case.specs.values()), TARGET)
            candidates.append({"config": config, "program": writer.put_program(artifact, semantic, calls)})
            seen.add(semantic)
        assert len(seen) == len(candidates), f"{name}: two configs are one program"
        writer.add(invocation(name, case, candidates))
    write_module(folder / "module.mlir", cases)


def renamed(artifact, name):
    """The same program with one more, unused constant: another text, the same machine work."""
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(stablehlo.deserialize_portable_artifact_str(artifact))
        main = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")
        with ir.InsertionPoint.at_block_begin(main.regions[0].blocks[0]), ir.Location.unknown():
            stablehlo.constant(ir.DenseElementsAttr.get(np.int32(name)))
        assert module.operation.verify()
        text = module.operation.get_asm(enable_debug_info=False).strip()
        return stablehlo.serialize_portable_artifact(module, TARGET_VERSION), hashlib.sha256(text.encode()).hexdigest()


def optimized(artifact):
    """The optimized HLO, without names and metadata."""
    client = jax.devices()[0].client
    options = xla_client.CompileOptions()
    executable = client.compile_and_load(artifact, client.local_devices()[:1], options)
    (module,) = executable.hlo_modules()
    canonical = _hlo.HloPrintOptions.canonical()
    return module.to_string(canonical)


def write_aa(folder):
    writer = RegistryWriter(folder / "registry")
    product = CASES["matmul-64"]
    # small blocks: enough work for one run to outweigh its launch, little enough for 200 runs
    function = product.function({"block_m": 32, "block_n": 32, "block_k": 32})
    artifact, _, _, _ = lower(function, list(product.specs.values()), TARGET)
    candidates, texts = [], set()
    for name in range(NAMES_OF_ONE_KERNEL):
        content, semantic = renamed(artifact, name)
        candidates.append({"config": {"name": name}, "program": writer.put_program(content, semantic)})
        texts.add(optimized(content))
    assert len({candidate["program"]["semantic_digest"] for candidate in candidates}) == NAMES_OF_ONE_KERNEL
    assert len(texts) == 1, "the eight names are not one kernel after optimization"
    configs = [candidate["config"] for candidate in candidates]
    case = Case("one_kernel", lambda config: function, configs, configs[0], product.specs, product.scales)
    writer.add(invocation(AA_CASE, case, candidates))
    write_module(folder / "module.mlir", {AA_CASE: case})


def main():
    jax.config.update("jax_platforms", TARGET)
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    write_cases(folder / "cases", {name: CASES[name] for name in names})
    write_aa(folder / "aa")
    # written last: without this file the folder is made again
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    (folder / "made.json").write_text(json.dumps({"cases": names, "versions": versions}) + "\n")


if __name__ == "__main__":
    main()
