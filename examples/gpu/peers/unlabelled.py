"""An XSpace of kernels that ship with JAX, called by no label: Pallas-Triton's and Mosaic's for GPUs.

    python unlabelled.py OUT.json FOLDER LAUNCHES

Each is launched so many times under one profile. OUT.json says which ones ran, or their errors.
"""

import functools
import glob
import gzip
import json
import pathlib
import sys
import tempfile

import jax
import jax.numpy as jnp


def normal(*shape, dtype=jnp.bfloat16):
    return jax.random.normal(jax.random.PRNGKey(0), shape, dtype)


def mha():
    from jax.experimental.pallas.ops.gpu import attention

    sizes = attention.BlockSizes(block_q=64, block_k=64)
    call = functools.partial(attention.mha, segment_ids=None, block_sizes=sizes)
    return call, [normal(2, 1024, 4, 64, dtype=jnp.float16)] * 3


def layer_norm():
    from jax.experimental.pallas.ops.gpu import layer_norm

    return layer_norm.layer_norm, [normal(2, 8, 1024, dtype=jnp.float32), *[normal(1024, dtype=jnp.float32)] * 2]


def rms_norm():
    from jax.experimental.pallas.ops.gpu import rms_norm

    return rms_norm.rms_norm, [normal(2, 8, 1024, dtype=jnp.float32), *[normal(1024, dtype=jnp.float32)] * 2]


def decode_attention():
    from jax.experimental.pallas.ops.gpu import decode_attention

    return decode_attention.mqa, [normal(2, 8, 64, dtype=jnp.float16), *[normal(2, 1024, 64, dtype=jnp.float16)] * 2]


def hopper_attention():
    from jax.experimental.pallas.ops.gpu import attention_mgpu

    config = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2)
    call = functools.partial(attention_mgpu.attention, config=config)
    return call, [normal(1, 1024, 4, 64, dtype=jnp.float16)] * 3


def hopper_product():
    from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu

    config = hopper_matmul_mgpu.TuningConfig(tile_m=64, tile_n=128, tile_k=64, max_concurrent_steps=4)
    return lambda a, b: hopper_matmul_mgpu.matmul(a, b, None, config), [normal(1024, 1024, dtype=jnp.float16)] * 2


KERNELS = (mha, layer_norm, rms_norm, decode_attention, hopper_attention, hopper_product)


def main():
    out, folder, launches = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    found, ready = {}, []
    for make in KERNELS:
        try:
            call, arguments = make()
            compiled = jax.jit(call).lower(*arguments).compile()
            jax.block_until_ready(compiled(*arguments))
            ready.append((compiled, arguments))
            found[make.__name__] = {}
        except Exception as error:
            found[make.__name__] = {"error": f"{type(error).__name__}: {error}"[:500]}
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level = 1, 0
    with tempfile.TemporaryDirectory() as place:
        with jax.profiler.trace(place, profiler_options=options):
            for compiled, arguments in ready:
                for _ in range(launches):
                    jax.block_until_ready(compiled(*arguments))
        (file,) = glob.glob(f"{place}/**/*.xplane.pb", recursive=True)
        content = pathlib.Path(file).read_bytes()
    (folder / "unlabelled.xplane.pb.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
