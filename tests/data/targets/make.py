"""Makes what the tests compile for GPUs that are not here.

    python tests/data/targets/make.py triton|mosaic_gpu FOLDER

writes into FOLDER a module with one call of each kernel of `triton_kernels.py` or `mosaic_gpu_kernels.py` (`module.mlir`), the
recorded candidates (`registry/`), and what JAX's own compile for the same targets says of each config (`oracle.json`): `compiled`,
or the words of the refusal. It needs this package, jax, and the CUDA plugin in JAX's version with NVIDIA's compiler
(jax-cuda13-plugin, jax-cuda13-pjrt, nvidia-cuda-nvcc, nvidia-nvvm), and no GPU. The oracle knows nothing of this program: JAX
compiles the functions by itself.
"""

import importlib
import json
import os
import pathlib
import re
import shutil
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import autotune_lowered

# no folder of the machine that this runs on stands in what is committed
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

HERE = pathlib.Path(__file__).resolve().parent


def main():
    name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    kernels = importlib.import_module(f"{name}_kernels")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / "registry", ignore_errors=True)
    for target in kernels.TARGETS:
        record(kernels.OPERATIONS, target, folder)
    said = {f"cuda:{target}": oracle(kernels.OPERATIONS, target) for target in kernels.TARGETS}
    (folder / "oracle.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")


def record(operations, target, folder):
    """Records every operation of the module for a target, and writes the module."""
    counts = [len(arguments) for _, _, arguments in operations]

    def step(*arguments):
        given = iter(arguments)
        return [
            operation(*(next(given) for _ in range(count)))
            for (operation, _, _), count in zip(operations, counts, strict=True)
        ]

    arguments = [argument for _, _, arguments in operations for argument in arguments]
    registry = str(folder / "registry")
    with autotune_lowered.recording(registry, target=f"cuda:{target}", directions=("forward",)) as recorded:
        lowered = jax.jit(step).trace(*arguments).lower(lowering_platforms=("cuda",))
    print(json.dumps(recorded.report(), indent=1, default=str)[:3000])
    autotune_lowered.dump(lowered, str(folder / "module.mlir"))


def sharding_for(name):
    """On the one device of a target."""
    config = (HERE.parents[2] / "candidates" / "targets" / f"{name}.txtpb").read_text()
    topology = topologies.get_topology_desc(platform="cuda", target_config=config, topology="1x1x1")
    return NamedSharding(Mesh(np.array(topology.devices), ("x",)), PartitionSpec())


def oracle(operations, target):
    """By operation and config."""
    sharding = sharding_for(target)
    return {
        f"{operation.__wrapped__.__name__}@v1": {
            json.dumps(config, sort_keys=True, separators=(",", ":")): compiled(operation, config, arguments, sharding)
            for config in configs
        }
        for operation, configs, arguments in operations
    }


def lowered_for(operation, config, arguments, sharding):
    call = jax.jit(
        lambda *arrays: operation.__wrapped__(*arrays, **config), in_shardings=sharding, out_shardings=sharding
    )
    # from JAX 0.11 on, kernels ask the mesh for their device
    with jax.sharding.use_abstract_mesh(sharding.mesh.abstract_mesh):
        return call.lower(*arguments)


def compiled(operation, config, arguments, sharding):
    try:
        lowered_for(operation, config, arguments, sharding).compile()
        return "compiled"
    except Exception as error:
        # its own words, without a code before and JAX's advice behind them
        return re.sub("^[A-Z_]+: ", "", str(error)).splitlines()[0]


if __name__ == "__main__":
    main()
