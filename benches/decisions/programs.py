"""Makes what `decisions` tunes: `python benches/decisions/programs.py FOLDER SIZE…` (JAX 0.10).

`FOLDER/matmul` gets a labelled module and the registry of its operations, one a size with 32 candidates each;
`FOLDER/aa` a module of one operation whose eight candidates are one kernel under eight names.
"""

import hashlib
import importlib.metadata
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/transformer"))

import jax
import matmul
import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import xla_client
from jaxlib import _hlo
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from lowering import TARGET_VERSION, lower
from registry_writer import RegistryWriter

TARGET = "cpu"
NAMES_OF_ONE_KERNEL = 8
AA_SIZE = 64


def call_key(op, size):
    return hashlib.sha256(f"{op} f32 {size}".encode()).hexdigest()[:16]


def stamped(op, size, function):
    """The function under the label of its operation, as a kernel library would stamp it."""

    def call(*arrays):
        # a point instead of `@`: HLO cuts names at the first `@`
        with jax.named_scope(f"ejkernel_ops#{op}.v1:{call_key(op, size)}"):
            return function(*arrays)

    return call


def write_module(path, calls):
    """A module that calls each operation once: `calls` are op, size, and the function in use without tuning."""

    def all_calls(arrays):
        pairs = zip(calls, arrays, strict=True)
        return [stamped(op, size, function)(*pair) for (op, size, function), pair in pairs]

    lowered = jax.jit(all_calls).lower([matmul.specs(size) for _, size, _ in calls])
    path.write_text(lowered.as_text(debug_info=True))


def invocation(op, size, baseline, candidates):
    fills = {"x": 1.0, "w": matmul.SCALE(size)}
    fill = lambda scale: {"kind": "normal", "scale": scale}
    return {
        "target": {"platform": TARGET},
        "op_id": f"{op}@v1",
        "call_key": call_key(op, size),
        "direction": "forward",
        "arguments": [{"name": n, "spec": f"f32[{size},{size}]", "fill": fill(s)} for n, s in fills.items()],
        "static_arguments": {"size": size},
        "baseline": baseline,
        "candidates": candidates,
        "recorded_at": 0,
        "recorder": f"benches/decisions/programs.py, jax {importlib.metadata.version('jax')}",
    }


def write_matmul(folder, sizes):
    writer = RegistryWriter(folder / "registry")
    for size in sizes:
        candidates, seen = [], set()
        for config in matmul.configs(size):
            artifact, semantic, calls, _ = lower(matmul.function(config), matmul.specs(size), TARGET)
            candidates.append({"config": config, "program": writer.put_program(artifact, semantic, calls)})
            seen.add(semantic)
        assert len(seen) == len(candidates), f"{size}: two configs are one program"
        writer.add(invocation(matmul.OP, size, matmul.baseline(size), candidates))
    calls = [(matmul.OP, size, matmul.function(matmul.baseline(size))) for size in sizes]
    write_module(folder / "module.mlir", calls)


def renamed(artifact, name):
    """The same program with one more constant that nothing uses: another text, the same machine work."""
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(stablehlo.deserialize_portable_artifact_str(artifact))
        main = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")
        with ir.InsertionPoint.at_block_begin(main.regions[0].blocks[0]), ir.Location.unknown():
            stablehlo.constant(ir.DenseElementsAttr.get(np.int32(name)))
        assert module.operation.verify()
        text = module.operation.get_asm(enable_debug_info=False).strip()
        return stablehlo.serialize_portable_artifact(module, TARGET_VERSION), hashlib.sha256(text.encode()).hexdigest()


def optimized(artifact):
    """The optimized HLO, names and metadata aside."""
    client = jax.devices()[0].client
    options = xla_client.CompileOptions()
    executable = client.compile_and_load(artifact, client.local_devices()[:1], options)
    (module,) = executable.hlo_modules()
    canonical = _hlo.HloPrintOptions.canonical()
    return module.to_string(canonical)


def write_aa(folder):
    writer = RegistryWriter(folder / "registry")
    op = "one_kernel"
    # small blocks: enough work for one run to be no mere launch, little enough for 200 runs
    block = AA_SIZE // 2
    function = matmul.function({"block_m": block, "block_n": block, "block_k": block})
    artifact, _, _, _ = lower(function, matmul.specs(AA_SIZE), TARGET)
    candidates, texts = [], set()
    for name in range(NAMES_OF_ONE_KERNEL):
        content, semantic = renamed(artifact, name)
        candidates.append({"config": {"name": name}, "program": writer.put_program(content, semantic)})
        texts.add(optimized(content))
    assert len({candidate["program"]["semantic_digest"] for candidate in candidates}) == NAMES_OF_ONE_KERNEL
    assert len(texts) == 1, "the eight names are not one kernel after optimization"
    writer.add(invocation(op, AA_SIZE, {"name": 0}, candidates))
    write_module(folder / "module.mlir", [(op, AA_SIZE, function)])


def main():
    jax.config.update("jax_platforms", TARGET)
    folder, sizes = pathlib.Path(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    write_matmul(folder / "matmul", sizes)
    write_aa(folder / "aa")
    # last: without it the folder is made anew
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib")}
    (folder / "made.json").write_text(json.dumps({"sizes": sizes, "versions": versions}) + "\n")


if __name__ == "__main__":
    main()
