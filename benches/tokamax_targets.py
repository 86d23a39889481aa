"""Does every config of Tokamax's attention compile for an absent GPU as JAX itself compiles it?

    cargo build --release && python benches/tokamax_targets.py PROGRAM PLUGIN [JOBS]

PROGRAM is `target/release/autotune-lowered`, PLUGIN the CUDA plugin of this Python's environment, which needs this
package, tokamax, and in JAX's version jax-cuda13-plugin and jax-cuda13-pjrt with nvidia-cuda-nvcc and nvidia-nvvm.
No GPU is needed.

One call, bf16 of 1 x 4096 x 16 x 128, is recorded for an H100: by the implementation that Tokamax chooses there
(Mosaic GPU), and by its Triton kernels. PROGRAM compiles the recorded programs. JAX knows nothing of them: it asks
Tokamax for the configs, traces each call again and compiles it for the same description of the device. Both use JOBS
processes (as many as cores), first PROGRAM, then JAX. Prints how many configs each compiled, those that both refused, and
those on which they differ, also in the reason. Exit code 1: there is one of these, or the configs themselves differ. JAX's
seconds include tracing.
"""

import concurrent.futures
import json
import logging
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import tokamax
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import autotune_lowered

# Tokamax warns of each config that it has not tuned
logging.getLogger("absl").setLevel(logging.ERROR)

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = "h100_sxm"
IMPLEMENTATIONS = {"Mosaic GPU": None, "Triton": "triton"}
SHAPE = jax.ShapeDtypeStruct((1, 4096, 16, 128), jnp.bfloat16)


def attention(implementation):
    return lambda q, k, v: tokamax.dot_product_attention(q, k, v, implementation=implementation)


def device():
    config = (ROOT / "candidates" / "targets" / f"{TARGET}.txtpb").read_text()
    return topologies.get_topology_desc(platform="cuda", target_config=config, topology="1x1x1").devices[0]


def lowered_for(target, implementation):
    """The call, traced for a device as for the default one."""
    sharding = NamedSharding(Mesh(np.array([target]), ("x",)), PartitionSpec())
    call = jax.jit(attention(implementation), in_shardings=sharding, out_shardings=sharding)
    with jax.default_device(target), jax.sharding.use_abstract_mesh(sharding.mesh.abstract_mesh):
        return call.lower(SHAPE, SHAPE, SHAPE)


def call_of(target, implementation):
    """What Tokamax makes of the call: the operation, and its configs by their JSON."""
    (bound,) = tokamax.autotuning.get_bound_args(lowered_for(target, implementation))
    plain = pydantic.TypeAdapter(bound.op.config_cls)
    with jax.default_device(target):
        configs = {name(plain.dump_python(config, mode="json")): config for config in bound.autotuning_configs}
    return bound.op, configs


def name(config):
    return json.dumps(config, sort_keys=True)


def compiled(lower):
    """`compiled`, or the first line of the refusal without its code."""
    try:
        lower().compile()
        return "compiled"
    except Exception as error:
        return re.sub("^[A-Z_]+: ", "", str(error)).splitlines()[0]


class Jax:
    """JAX in a process of its own, which keeps what it found out about a call."""

    calls = {}

    @classmethod
    def says(cls, implementation, config):
        if implementation not in cls.calls:
            target = device()
            cls.calls[implementation] = (target, *call_of(target, implementation))
        target, op, configs = cls.calls[implementation]
        return compiled(lambda: lowered_for(target, [op.replace(config=configs[config])]))


def by_jax(implementation, configs, jobs):
    spawned = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=spawned) as pool:
        return dict(zip(configs, pool.map(Jax.says, [implementation] * len(configs), configs), strict=True))


def record(implementation, folder):
    with autotune_lowered.recording(str(folder / "registry"), target=f"cuda:{TARGET}", directions=("forward",)):
        lowered = jax.jit(attention(implementation)).trace(SHAPE, SHAPE, SHAPE).lower(lowering_platforms=("cuda",))
    autotune_lowered.dump(lowered, str(folder / "module.mlir"))


def by_program(program, plugin, jobs, folder):
    command = [program, "compile", str(folder / "module.mlir"), "--registry", str(folder / "registry")]
    command += ["--target", f"cuda:{TARGET}", "--plugin", plugin, "--compile-jobs", str(jobs)]
    command += ["-o", str(folder / "store"), "--format", "json"]
    (call,) = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["targets"][0]["calls"]
    return {name(one["config"]): (one["status"], one.get("reason", "")) for one in call["candidates"]}


def timed(work, *arguments):
    begin = time.monotonic()
    return work(*arguments), time.monotonic() - begin


def differences(of_jax, ours):
    """The configs of which JAX and the program say different things."""
    for config, said in of_jax.items():
        status, reason = ours.get(config, ("not recorded", ""))
        same = status == "compiled" if said == "compiled" else status == "refused" and said in reason
        if not same:
            yield f"{config}: JAX: {said}; the program: {status} {reason}".strip()
    yield from (f"{config}: only recorded" for config in ours.keys() - of_jax.keys())


def main(program, plugin, jobs=None):
    differ, refused, jobs = [], [], jobs or os.cpu_count()
    print(f"jax {jax.__version__}, tokamax {tokamax.__version__}; {os.cpu_count()} cores, {jobs} processes each")
    print("| implementation | configs | compiled by JAX | by the program | refused by both | differ | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for label, implementation in IMPLEMENTATIONS.items():
        op, configs = call_of(device(), implementation)
        with tempfile.TemporaryDirectory() as folder:
            record(implementation, pathlib.Path(folder))
            ours, our_seconds = timed(by_program, program, plugin, jobs, pathlib.Path(folder))
        of_jax, seconds = timed(by_jax, implementation, sorted(configs), jobs)
        found = list(differences(of_jax, ours))
        said_no = [
            config for config, said in of_jax.items() if said != "compiled" and "refused" in ours.get(config, ())
        ]
        counts = [
            len(configs),
            sum(said == "compiled" for said in of_jax.values()),
            sum(status == "compiled" for status, _ in ours.values()),
            len(said_no),
            len(found),
        ]
        differ += found
        refused += [f"{config}: {of_jax[config]}" for config in said_no]
        row = [f"{label} (`{type(op).__name__}`)", *counts, f"JAX {seconds:.0f}, the program {our_seconds:.0f}"]
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    print("\n".join(["", "Refused by both:", *refused, "", "They differ:", *differ]))
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])))
