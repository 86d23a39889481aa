"""The time of compiling for an absent GPU, compared with one JAX process that compiles the same programs.

    cargo build --release && python benches/targets.py PROGRAM [COUNT]

PROGRAM is `target/release/autotune-lowered`. Records COUNT (100) configs of the Pallas-Triton matrix product of
`tests/data/targets/triton_kernels.py` (`make.py` there lists what must be installed), and compiles them for an H100: with JAX in this
process, one after the other, already lowered; with PROGRAM, with as many workers as cores; and with PROGRAM once more.
No GPU is needed. Exit code 1: PROGRAM and JAX refuse different configs, or PROGRAM takes over 0.75 of JAX's time, or
over 1 s the second time.
"""

import itertools
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
TARGET = "h100_sxm"
# PROGRAM's time over JAX's, and the seconds of a run with nothing to compile
GOALS = (0.75, 1)


def configs(count):
    sizes = itertools.product([32, 64, 128, 256], [32, 64, 128, 256], [32, 64, 128], [4, 8], [2, 3, 4])
    names = ["block_m", "block_n", "block_k", "num_warps", "num_stages"]
    every = [dict(zip(names, values, strict=True)) for values in sizes]
    return random.Random(0).sample(every, count)


def timed(work):
    def processor():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(one.ru_utime + one.ru_stime for one in used)

    begin, before = time.monotonic(), processor()
    result = work()
    return result, time.monotonic() - begin, processor() - before


def main(program, count=100):
    sys.path.append(str(ROOT / "tests" / "data" / "targets"))
    import make
    import triton_kernels

    import autotune_lowered

    jax, shape = make.jax, triton_kernels.SQUARE
    chosen = configs(count)
    matmul = triton_kernels.triton_matmul.__wrapped__
    kernel = autotune_lowered.tunable(op="triton_matmul", version=1, candidates=chosen)(matmul)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with autotune_lowered.recording(str(folder / "registry"), target=f"cuda:{TARGET}", directions=("forward",)):
            lowered = jax.jit(lambda x, y: kernel(x, y)).trace(shape, shape).lower(lowering_platforms=("cuda",))
        autotune_lowered.dump(lowered, str(folder / "module.mlir"))
        sharding = make.sharding_for(TARGET)
        programs = {
            json.dumps(one, sort_keys=True): make.lowered_for(kernel, one, [shape, shape], sharding) for one in chosen
        }

        def by_jax():
            said = {}
            for name, lowered in programs.items():
                try:
                    lowered.compile()
                    said[name] = "compiled"
                except Exception:
                    said[name] = "refused"
            return said

        (plugin,) = pathlib.Path(jax.__file__).parents[1].glob("jax_plugins/xla_cuda1?/xla_cuda_plugin.so")
        command = [
            program,
            "compile",
            str(folder / "module.mlir"),
            "--target",
            f"cuda:{TARGET}",
            "--plugin",
            str(plugin),
        ]
        command += ["-o", str(folder / "store"), "--format", "json"]

        def by_program():
            candidates = json.loads(subprocess.check_output(command))["targets"][0]["calls"][0]["candidates"]
            said = {json.dumps(one["config"], sort_keys=True): one["status"] for one in candidates}
            return {name: said[name] for name in programs}

        of_jax, *jax_took = timed(by_jax)
        ours, *program_took = timed(by_program)
        again, *again_took = timed(by_program)
    assert ours == again
    same = sum(of_jax[name] == ours[name] for name in programs)
    refused = sum(status == "refused" for status in ours.values())
    print(f"{count} configs, {refused} refused, {same} as JAX says; {os.cpu_count()} cores")
    print("| what | seconds | processor time | over JAX |")
    print("| --- | --- | --- | --- |")
    rows = [("one JAX process", jax_took), ("autotune-lowered", program_took), ("the same again", again_took)]
    for name, (seconds, processor) in rows:
        print(f"| {name} | {seconds:.2f} | {processor:.2f} | {seconds / jax_took[0]:.2f} |")
    return 1 if same < count or program_took[0] > GOALS[0] * jax_took[0] or again_took[0] > GOALS[1] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
