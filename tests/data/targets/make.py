"""Makes what the tests compile for GPUs that are not here.

    python tests/data/targets/make.py

writes beside itself a module with one call of a Pallas-Triton matrix product (`module.mlir`), its recorded candidates
(`registry/`), and what JAX's own compile for the same targets says of each config (`oracle.json`): `compiled`, or the words of the
refusal. It needs this package and jax 0.10.2, jax-cuda12-plugin and jax-cuda12-pjrt 0.10.2, nvidia-cuda-nvcc-cu12 12.9.86, and no
GPU. The oracle knows nothing of this program: JAX compiles the functions by itself.
"""

import json
import os
import pathlib
import shutil

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental import topologies
from jax.experimental.pallas import triton as plgpu
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import autotune_lowered

# no folder of the machine that this runs on stands in what is committed
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

HERE = pathlib.Path(__file__).resolve().parent
SIZE = 1024
TARGETS = ["a100_sxm_80", "h100_sxm"]
CONFIGS = [
    {"block_m": m, "block_n": n, "block_k": k, "num_warps": warps, "num_stages": stages}
    for m, n, k, warps, stages in [
        (64, 64, 32, 4, 3),
        (64, 64, 64, 4, 2),
        (64, 128, 32, 4, 4),
        (128, 64, 64, 4, 3),
        (128, 128, 32, 4, 2),
        (128, 128, 64, 4, 3),
        (128, 128, 128, 4, 4),
        (128, 256, 64, 8, 3),
        (256, 128, 128, 8, 3),
        (256, 256, 64, 8, 4),
    ]
]


def kernel(x_ref, y_ref, o_ref, *, block_k):
    block_m, block_n = o_ref.shape

    def step(index, sums):
        part = pl.ds(index * block_k, block_k)
        return sums + jnp.dot(x_ref[:, part], y_ref[part, :], preferred_element_type=jnp.float32)

    zeros = jnp.zeros((block_m, block_n), jnp.float32)
    o_ref[...] = jax.lax.fori_loop(0, SIZE // block_k, step, zeros).astype(o_ref.dtype)


@autotune_lowered.tunable(op="triton_matmul", version=1, candidates=CONFIGS)
def triton_matmul(x, y, *, block_m=64, block_n=64, block_k=32, num_warps=4, num_stages=3):
    return pl.pallas_call(
        lambda *refs: kernel(*refs, block_k=block_k),
        out_shape=jax.ShapeDtypeStruct((SIZE, SIZE), x.dtype),
        grid=(SIZE // block_m, SIZE // block_n),
        in_specs=[
            pl.BlockSpec((block_m, SIZE), lambda i, j: (i, 0)),
            pl.BlockSpec((SIZE, block_n), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        compiler_params=plgpu.CompilerParams(num_warps=num_warps, num_stages=num_stages),
    )(x, y)


def main():
    shape = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)
    shutil.rmtree(HERE / "registry", ignore_errors=True)
    with autotune_lowered.recording(str(HERE / "registry"), platforms=("cuda",), directions=("forward",)) as recorded:
        traced = jax.jit(lambda x, y: triton_matmul(x, y)).trace(shape, shape)
        lowered = traced.lower(lowering_platforms=("cuda",))
    print(json.dumps(recorded.report(), indent=1, default=str)[:3000])
    autotune_lowered.dump(lowered, str(HERE / "module.mlir"))
    (HERE / "oracle.json").write_text(json.dumps(oracle(shape), indent=1, sort_keys=True) + "\n")


def sharding_for(name):
    """On the one device of a target."""
    config = (HERE.parents[2] / "candidates" / "targets" / f"{name}.txtpb").read_text()
    topology = topologies.get_topology_desc(platform="cuda", target_config=config, topology="1x1x1")
    return NamedSharding(Mesh(np.array(topology.devices), ("x",)), PartitionSpec())


def oracle(shape):
    said = {}
    for name in TARGETS:
        sharding = sharding_for(name)
        said[f"cuda:{name}"] = {
            json.dumps(config, sort_keys=True, separators=(",", ":")): compiled(config, shape, sharding)
            for config in CONFIGS
        }
    return said


def lowered_for(config, shape, sharding):
    call = jax.jit(
        lambda x, y: triton_matmul.__wrapped__(x, y, **config), in_shardings=sharding, out_shardings=sharding
    )
    return call.lower(shape, shape)


def compiled(config, shape, sharding):
    try:
        lowered_for(config, shape, sharding).compile()
        return "compiled"
    except Exception as error:
        # the plugin's own words, without JAX's code before and its advice behind them
        return str(error).split(": ", 1)[-1].splitlines()[0]


if __name__ == "__main__":
    main()
