"""Counts wins of compiler options that change a program's bytes but not its time: each one is false.

    python benches/options/false_wins.py PROGRAM PLUGIN [--candidates 299] [--busy 2]

PROGRAM is `target/release/autotune-lowered`, PLUGIN a PJRT plugin for CPUs. Each module is a matrix product of some
milliseconds, which a library computes, and a few sums of 64 numbers, whose code depends on the options. Modules of
various sizes are tuned until `--candidates` candidates with different executables were measured, while `--busy`
processes keep cores busy. Prints a line for each module, and how many of them got a set of options. Exit code 1 if any
did.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import jax.numpy as jnp
from jax import lax

FAST = {f"xla_cpu_fast_math_honor_{what}": False for what in ["nans", "infs", "division", "functions"]}
VALUES = {
    "xla_cpu_prefer_vector_width": [128, 512],
    "xla_backend_optimization_level": [1, 2],
    "xla_llvm_disable_expensive_passes": [True],
    "xla_cpu_use_fusion_emitters": [False],
    "xla_cpu_enable_fast_math": [True],
    "xla_cpu_enable_fast_min_max": [True],
    "xla_disable_hlo_passes": ["algsimp", "fusion", "tree-reduction-rewriter", "cse", "simplify-while-loops", "dce"],
    "xla_cpu_copy_insertion_use_region_analysis": [True],
}


def options():
    return [
        {
            "name": name,
            "values": values,
            "kind": "safe",
            "scope": "compile",
            "with": FAST if name == "xla_cpu_enable_fast_math" else {},
            "does": "code of the small part",
            "source": "xla/debug_options_flags.cc",
        }
        for name, values in VALUES.items()
    ]


def lowered(size):
    def program(x, y, small):
        turned = lax.fori_loop(0, 3, lambda _, z: jnp.tanh(z) / (1 + jnp.abs(z)), small)
        best = jnp.maximum(jnp.exp(turned), 1 - turned)
        return lax.dot(x, y), best.sum(), jnp.minimum(best, turned).reshape(8, 8).sum(0)

    square, small = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in [(size, size), (64,)])
    return jax.jit(program).lower(square, square, small)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("plugin")
    parser.add_argument("--candidates", type=int, default=299)
    parser.add_argument("--busy", type=int, default=2)
    given = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    measured, wins, modules = 0, [], 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            listed = folder / "options.json"
            listed.write_text(json.dumps({"schema": 1, "platform": "cpu", "options": options()}))
            while measured < given.candidates:
                size = 384 + 8 * modules
                module = folder / f"{size}.mlir"
                module.write_text(lowered(size).as_text())
                command = [
                    given.program, module, "--compiler-options", "safe", "--options-file", listed, "--timer", "pjrt",
                    "--plugin", given.plugin, "--cache", folder / f"cache-{size}", "--format", "json",
                ]  # fmt: skip
                done = subprocess.run(list(map(str, command)), text=True, capture_output=True, check=False)
                if done.returncode not in (0, 1):
                    sys.exit(f"exit code {done.returncode}\n{done.stderr[-2000:]}")
                (operation,) = json.loads(done.stdout)["operations"]
                singles = [row for row in operation["candidates"] if len(row["config"]) in (1, 5)]
                new = sum(row["status"] == "measured" for row in singles)
                if not new:
                    sys.exit("no candidate has an executable of its own")
                measured, modules = measured + new, modules + 1
                print(
                    f"{size:5} {new:3} measured, {operation['status']}, {operation.get('speed_up') or 1:.3f}×: {operation['reason']}",
                    flush=True,
                )
                if operation["status"] == "tuned":
                    wins.append((size, operation["best"]["config"]))
    finally:
        for process in busy:
            process.kill()
    print(
        f"{len(wins)} false wins of {measured} candidates on {modules} modules, {given.busy} busy processes beside, load {os.getloadavg()[0]:.1f}"
    )
    for size, config in wins:
        print(f"  {size}: {config}")
    return 1 if wins else 0


if __name__ == "__main__":
    sys.exit(main())
