"""Asks one question in many fresh runs, each with an empty cache and processes of its own, and counts the answers.

    python benches/options/fresh_runs.py PROGRAM --timer jax:PYTHON [--questions NAME,NAME] [--runs 20] [--busy 2] [--keep FILE]
    python benches/options/fresh_runs.py PROGRAM --timer jax:PYTHON --questions copy --runs 300
    python benches/options/fresh_runs.py PROGRAM --timer jax:PYTHON --questions pairs --runs 12

PROGRAM is `target/release/autotune-lowered`; TIMER runs on the CPU. A question is one compiler option of a small module: whether it makes the
module faster. `scheduler` gains nothing in the mean over processes, though single processes differ by a third; the others gain
from a few per cent to a factor of three. `copy` compares a program with its own copy, so every difference that it claims is false.
`pairs` compares the ten pairs of pairs.py, each of which is also a question by its name.
`--busy` processes keep cores busy meanwhile. `--flags` are more words for the program, such as `--under-load`.

The truth of a question is the geometric mean of the ratios of all fresh processes of all its runs. A run's interval is held
against that of the other runs, because its own processes would agree with it. The columns:

- claims: runs that say that the option is faster (`tuned`; of copies: any difference), and how many of them do not say that the machine was busy
- kept, undecided: the other runs
- hold the truth: of the intervals of runs with fresh processes, those that hold the truth
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import modules
from pairs import PAIRS

bf16, f32 = jnp.bfloat16, jnp.float32


def half_attention(q, k, v):
    """Attention in `bf16` whose softmax is in `f32`; the compiler orders its operations in several ways."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=f32) / 8
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(bf16), v)


def option(name, *values, kind="passes"):
    said = {"does": "what is asked", "source": "xla/debug_options_flags.cc"}
    return {"name": name, "values": list(values), "kind": kind, "scope": "compile", **said}


PASSES, WIDTH = "xla_disable_hlo_passes", "xla_cpu_prefer_vector_width"
# each question with its module and the option
QUESTIONS = {
    "scheduler": (
        (half_attention, [modules.array(2, 128, 4, 64, dtype=bf16)] * 3),
        option(
            "xla_cpu_scheduler_type", "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED", "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"
        ),
    ),
    "jacobi": (modules.MODULES["jacobi"], option(PASSES, "cpu-parallel-task-assigner")),
    "mandelbrot": (modules.MODULES["mandelbrot"], option(PASSES, "cpu-parallel-task-assigner")),
    "embedding": (modules.MODULES["embedding_gradient"], option(PASSES, "cpu-parallel-task-assigner")),
    "lstm": (modules.MODULES["lstm"], option(WIDTH, 512)),
    "bodies": (modules.MODULES["bodies"], option(PASSES, "tree_reduction_rewriter")),
    "cross-entropy": (modules.MODULES["cross_entropy"], option(PASSES, "dot-library-rewriter")),
}
# some 0.2 ms, so that a comparison takes seconds
COPY = modules.MODULES["quantized_product"]


def ask(given, name, folder, seed):
    """One run: the status, whether it says that the machine was busy, its ratio and interval, and the ratios of its processes."""
    module, listed, other = (folder / f"{name}{end}" for end in (".mlir", ".json", ".other.mlir"))
    command = [given.program, "--no-config", "tune", module, "--only-compiler-options", "--compiler-options", "passes"]
    command += ["--options-file", listed, "--seed", seed]
    is_pair = other.exists()
    if is_pair:
        command = [given.program, "--no-config", "compare", module, other]
    with tempfile.TemporaryDirectory() as cache:
        command += ["--timer", given.timer, "--format", "json", *given.flags.split()]
        done = subprocess.run(
            [str(word) for word in command],
            text=True,
            capture_output=True,
            check=False,
            env=given.environment | {"AUTOTUNE_LOWERED_CACHE": cache},
        )
    try:
        said = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    if is_pair:
        one = said["contestants"][1]
        known, status = one.get("confirmation"), one["relation"]
        is_busy = said["measured_by"].get("load") == "contended"
    else:
        (one,) = said["operations"]
        known, status, is_busy = one.get("confirmation"), one["status"], one.get("load") == "contended"
    processes = [row["ratio"] for row in known["processes"]] if known else []
    ends = (known["interval"]["low"], known["interval"]["high"]) if known else None
    return {"status": status, "is_busy": is_busy, "interval": ends, "processes": processes, "reason": one.get("reason")}


def of_others(run, logarithms):
    """The geometric mean over the processes of the other runs."""
    own = [math.log(ratio) for ratio in run["processes"]]
    rest = len(logarithms) - len(own)
    return math.exp((sum(logarithms) - sum(own)) / rest) if rest else None


def row(name, runs):
    """A row of the table."""
    logarithms = [math.log(ratio) for run in runs for ratio in run["processes"]]
    truth = math.exp(statistics.fmean(logarithms)) if logarithms else math.nan
    claims = [run for run in runs if run["status"] in ("tuned", "faster", "slower")]
    kept = sum(run["status"] in ("baseline-kept", "not-separated", "within-noise") for run in runs)
    others = [(run["interval"], of_others(run, logarithms)) for run in runs if run["interval"]]
    intervals = [(ends, mean) for ends, mean in others if mean is not None]
    hold = sum(low <= mean <= high for (low, high), mean in intervals)
    quiet = sum(not run["is_busy"] for run in claims)
    seconds = statistics.median(run["seconds"] for run in runs)
    return (
        f"| {name} | {len(runs)} | {len(claims)} ({quiet}) | {kept} | {len(runs) - len(claims) - kept} | "
        f"{truth:.3f} ({len(logarithms)}) | {hold} of {len(intervals)} | {seconds:.1f} |"
    )


def write(name, folder):
    """The files of a question."""

    def lower(place, function, arguments):
        (folder / place).write_text(jax.jit(function).lower(*arguments).as_text())

    if name in QUESTIONS:
        of_option, asked = QUESTIONS[name]
        lower(f"{name}.mlir", *of_option)
        listed = {"schema": 1, "platform": "cpu", "options": [asked]}
        (folder / f"{name}.json").write_text(json.dumps(listed))
    else:
        function, other, arguments = PAIRS[name] if name in PAIRS else (COPY[0], *COPY)
        lower(f"{name}.mlir", function, arguments)
        lower(f"{name}.other.mlir", other, arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--timer", required=True)
    parser.add_argument("--questions", default=",".join(QUESTIONS))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--flags", default="")
    parser.add_argument("--keep", type=pathlib.Path)
    given = parser.parse_args()
    given.environment = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_LOWERED_")}
    print(
        "| question | runs | claims (not marked busy) | kept | undecided | truth (processes) | hold the truth | seconds |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    kept, busy = {}, []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            busy += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
            for name in given.questions.replace("pairs", ",".join(PAIRS)).split(","):
                write(name, folder)
                kept[name] = []
                for seed in range(given.runs):
                    begin = time.monotonic()
                    run = ask(given, name, folder, seed)
                    kept[name].append(run | {"seconds": time.monotonic() - begin})
                    if given.keep:
                        given.keep.write_text(json.dumps(kept))
                print(row(name, kept[name]), flush=True)
        finally:
            for process in busy:
                process.kill()


if __name__ == "__main__":
    main()
