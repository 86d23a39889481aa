"""What JAX says on this machine without any part of this program, and four XSpaces of one program.

    python jax_alone.py OUT.json FOLDER LAUNCHES

The program's launches are traced in four ways: `eager` (kernels one by one), `default` (command buffers, as JAX has
them), `buffers` (command buffers also while a profiler is there) and `loaded` (an executable that was serialized and
loaded again). Each part is tried by itself, and OUT.json has what it found or its error.
"""

import glob
import gzip
import json
import pathlib
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import programs
from jax.experimental import serialize_executable

LAYERS = ((2048, 1024), (1024, 4096), (4096, 1024))
WAYS = {
    "eager": {"xla_gpu_enable_command_buffer": ""},
    "default": {},
    "buffers": {"xla_enable_command_buffers_during_profiling": True, "xla_gpu_graph_min_graph_size": 1},
    "loaded": {},
}
ATTRIBUTES = ("platform", "device_kind", "core_count", "compute_capability", "shared_memory_per_block_optin")


def devices():
    device = jax.devices()[0]
    said = {name: str(getattr(device, name, None)) for name in ATTRIBUTES}
    return {"jax": jax.__version__, "version": device.client.platform_version, "memory": device.memory_stats(), **said}


def normal(shape, dtype=jnp.bfloat16, scale=1.0):
    return jax.random.normal(jax.random.PRNGKey(0), shape, dtype) * scale


def ceiling():
    """How fast a large matrix product of XLA's is: a bound for any other."""
    size, runs = 8192, 20
    x = normal((size, size))
    product = jax.jit(lambda a, b: a @ b)
    product(x, x).block_until_ready()
    began = time.perf_counter()
    for _ in range(runs):
        result = product(x, x)
    result.block_until_ready()
    return {"tflops": 2 * size**3 * runs / (time.perf_counter() - began) / 1e12}


def cupti():
    """The device time that Mosaic's own profiler finds."""
    from jax.experimental.mosaic.gpu import profiler

    x = normal((4096, 4096))
    _, milliseconds = profiler.measure(jax.jit(lambda a, b: a @ b), iterations=5)(x, x)
    return {"matmul4096_ms": milliseconds}


def space(name, folder, launches):
    """One XSpace of so many launches, with one more before it."""
    arguments = [normal(shape, scale=0.02) for shape in LAYERS]
    compiled = jax.jit(programs.layers).lower(*arguments).compile(compiler_options=WAYS[name] or None)
    if name == "loaded":
        compiled = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))
    compiled(*arguments).block_until_ready()
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level, options.python_tracer_level = 1, 0
    with tempfile.TemporaryDirectory() as place:
        with jax.profiler.trace(place, profiler_options=options):
            for _ in range(launches):
                compiled(*arguments).block_until_ready()
        (file,) = glob.glob(f"{place}/**/*.xplane.pb", recursive=True)
        content = pathlib.Path(file).read_bytes()
    (folder / f"{name}.xplane.pb.gz").write_bytes(gzip.compress(content, 9, mtime=0))
    planes = jax.profiler.ProfileData.from_serialized_xspace(content).planes
    return {"bytes": len(content), "planes": {plane.name: outline(plane) for plane in planes}}


def outline(plane):
    """How many events each line of a plane has, and the first of them."""
    lines = {}
    for line in list(plane.lines)[:16]:
        events = list(line.events)
        first = [{"name": one.name, **{str(k): str(v)[:80] for k, v in one.stats}} for one in events[:2]]
        lines[line.name] = {"events": len(events), "first": first}
    return lines


def main():
    out, folder, launches = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    # no folder of this machine stands in what may be committed
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    parts = {"devices": devices, "ceiling": ceiling}
    parts |= {name: lambda name=name: space(name, folder, launches) for name in WAYS}
    parts["cupti"] = cupti
    found = {}
    for name, part in parts.items():
        began = time.monotonic()
        try:
            found[name] = {"found": part()}
        except Exception as error:  # whatever JAX raises: the other parts are tried all the same
            found[name] = {"error": f"{type(error).__name__}: {error}"[:2000]}
        found[name]["seconds"] = round(time.monotonic() - began, 2)
        out.write_text(json.dumps(found, indent=1, default=str))


if __name__ == "__main__":
    main()
