"""Checks the SIMULATED GPU: tests/simulated_gpu/run OUT PYTHON tests/simulated_gpu/check.py

Each check runs JAX in a process of its own, because the simulated driver reads its settings when it is loaded.
"""

import glob
import json
import os
import struct
import subprocess
import sys
import tempfile

PREFIX = "SIMULATED_GPU_"
RUNS = 3
EAGER = {"xla_gpu_enable_command_buffer": ""}
REPLAYED = {"xla_enable_command_buffers_during_profiling": True}
GIB = 1 << 30


# ---- in a process of its own ----------------------------------------------------------------------------------------


def device():
    import jax
    import numpy as np

    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    there_and_back = np.asarray(jax.device_put(values))
    return {
        "platform": jax.devices()[0].platform,
        "kind": jax.devices()[0].device_kind,
        "copied": bool((there_and_back == values).all()),
    }


def kernels(options):
    """Profiles a program of at least five kernels, which cannot be fused and need no library of NVIDIA's."""
    import jax
    import jax.numpy as jnp
    from jax.profiler import ProfileData

    def program(x):
        for _ in range(4):
            x = jnp.tanh(x) / (1 + jnp.sum(x, axis=0))
        return x

    inputs = [jnp.full((256, 256), float(i)) for i in range(RUNS)]
    # XLA's own autotuner would choose by the made-up times
    compiled = jax.jit(program).lower(inputs[0]).compile({"xla_gpu_autotune_level": 0, **json.loads(options)})
    compiled(inputs[0]).block_until_ready()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            # other arguments, so that graphs must be updated
            for x in inputs:
                compiled(x).block_until_ready()
        (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        profile = ProfileData.from_file(path)
    events = []
    for plane in profile.planes:
        if not plane.name.startswith("/device:GPU:"):
            continue
        for line in plane.lines:
            if not line.name.startswith("Stream "):
                continue
            for event in line.events:
                stats = dict(event.stats)
                if "kernel_details" not in stats:
                    continue
                events.append(
                    {
                        "start": event.start_ns,
                        "name": event.name,
                        "duration": event.duration_ns,
                        "details": stats["kernel_details"],
                        "graph": stats.get("cuda_graph_id"),
                        "node": stats.get("cuda_graph_node_id"),
                    }
                )
    return sorted(events, key=lambda event: event["start"])


def allocate(size, *others):
    """Allocates so many bytes, and while it holds them, another process the next number of bytes, and so on."""
    # without it, JAX refuses what exceeds its share before the driver is asked
    os.environ["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
    import jax.numpy as jnp

    try:
        held = jnp.zeros(int(size), jnp.uint8).block_until_ready()
    except Exception as error:
        return [str(error)]
    settings = {name.removeprefix(PREFIX): value for name, value in os.environ.items() if name.startswith(PREFIX)}
    return [f"{held.nbytes} bytes", *(run("allocate", *others, **settings) if others else [])]


CASES = {case.__name__: case for case in (device, kernels, allocate)}


# ---- the checks -----------------------------------------------------------------------------------------------------


def run(case, *arguments, **settings):
    """The result of a case under these settings of the simulated GPU."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    environment |= {PREFIX + name: str(value) for name, value in settings.items()}
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    command = [sys.executable, "-W", "ignore", __file__, case, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"`{case}` ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def check(what, holds, found):
    print(f"{'ok  ' if holds else 'FAIL'} {what}" + ("" if holds else f": {found}"), flush=True)
    return holds


def without_ids(events):
    return [(event["name"], event["duration"], event["details"]) for event in events]


def check_device():
    found = run("device")
    yield "a client has the device", (found["platform"], found["kind"]) == ("gpu", "NVIDIA H100 80GB HBM3"), found
    yield "what is copied there comes back", found["copied"], found
    found = run("device", NAME="NVIDIA H200")
    yield "its name can be set", found["kind"] == "NVIDIA H200", found


def check_kernels():
    with tempfile.NamedTemporaryFile("r") as log:
        eager = run("kernels", json.dumps(EAGER), LOG=log.name)
        replayed = run("kernels", json.dumps(REPLAYED), LOG=log.name)
        stubs = {line.split()[1] for line in log if len(line.split()) == 2}
    each = len(eager) // RUNS
    yield "a program has at least five kernels", each >= 5 and len(eager) == RUNS * each, eager
    yield "its runs take the same times", without_ids(eager) == without_ids(eager[:each]) * RUNS, eager
    yield "a kernel that is launched alone belongs to no graph", not any(e["graph"] for e in eager), eager
    follow = all(one["start"] + one["duration"] <= other["start"] for one, other in zip(eager, eager[1:], strict=False))
    yield "kernels follow each other", follow, eager
    same = without_ids(replayed) == without_ids(eager)
    yield "a replayed program has the same kernels with the same times", same, replayed
    nodes = [event["node"] for event in replayed]
    yield "replayed kernels belong to one graph", len({e["graph"] for e in replayed} - {None}) == 1, replayed
    yield "each is a node of it", len(set(nodes)) == each and nodes == nodes[:each] * RUNS, nodes
    forced = run("kernels", json.dumps(REPLAYED | {"xla_gpu_graph_min_graph_size": 1}))
    yield "and so if command buffers are forced", without_ids(forced) == without_ids(eager), forced
    used = {stub for stub in stubs if stub.startswith(("cuGraph", "cuLaunch", "cuStream", "cuEvent", "cupti"))}
    yield "no function of launches, graphs and CUPTI was a stub", not used - {"cuStreamGetDevice"}, used


def check_cupti():
    found = run("kernels", json.dumps(EAGER), REFUSE_CUPTI=1)
    yield "a refused CUPTI reports no kernels", found == [], found


def check_memory():
    (found,) = run("allocate", 3 * GIB // 2, MEMORY_BYTES=GIB)
    yield "too much memory is refused", "RESOURCE_EXHAUSTED" in found, found
    half = GIB * 6 // 10
    found = run("allocate", half, half, MEMORY_BYTES=GIB)
    yield "less is not, each process having a device", found == [f"{half} bytes"] * 2, found
    with tempfile.TemporaryDirectory() as folder:
        account = f"{folder}/account"
        first, second = run("allocate", half, half, MEMORY_BYTES=GIB, ACCOUNT=account)
        shared = first == f"{half} bytes" and "RESOURCE_EXHAUSTED" in second
        yield "processes with one account share it", shared, (first, second)
        with open(account, "rb") as file:
            numbers = struct.unpack("<3072Q", file.read())
    peaks = numbers[5 : 3 + 3 * numbers[0] : 3]
    yield "the account has their peaks", len(peaks) == 2 and half <= peaks[0] <= GIB and peaks[1] < half, peaks


def main():
    if len(sys.argv) > 1:
        print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))
        return
    # ends with a failure only after all checks
    results = [
        check(*found) for checks in (check_device, check_kernels, check_cupti, check_memory) for found in checks()
    ]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
