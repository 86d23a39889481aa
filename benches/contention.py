"""Whether the tuner sees other processes on its cores: busy processes come and go at known times, beside its rounds.

    python benches/contention.py PROGRAM --timer jax:PYTHON [--runs 40] [--busy 2] [--seed 0]

PROGRAM is `target/release/autotune-lowered`. Each run tunes one compiler option of a small program in 300 rounds, and its trace says when each
round was and whether it is marked as contended. Meanwhile `--busy` processes per turn compute for 0.5 to 2 s and rest for as long. A round
during which they computed all the time must be marked, and one during which none did must not. Rounds that meet a turn's beginning or end are
left out, with 0.3 s around it, because the kernel tells idle times over a tenth of a second.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = """
import sys, jax, jax.numpy as jnp
def f(x): return jax.nn.softmax(jnp.sin(x) * 2, axis=-1)
open(sys.argv[1], "w").write(jax.jit(f).lower(jax.ShapeDtypeStruct((256, 512), jnp.float32)).as_text())
"""
OPTION = {
    "name": "xla_cpu_prefer_vector_width",
    "values": [128],
    "kind": "safe",
    "scope": "compile",
    "does": "code",
    "source": "xla/debug_options_flags.cc",
}
GUARD_S = 0.3


def come_and_go(busy, source, ended, turns):
    """Lets the stopped processes run in turns; adds the beginning and the end of each."""
    while not ended.wait(source.uniform(0.5, 2)):
        begin = time.time()
        for process in busy:
            process.send_signal(signal.SIGCONT)
        ended.wait(source.uniform(0.5, 2))
        for process in busy:
            process.send_signal(signal.SIGSTOP)
        turns.append((begin, time.time()))


def rounds_of(trace):
    """Begin and end in seconds of each round, and whether it is marked."""
    document = json.loads(trace.read_text())
    start = int(document["otherData"]["start_ns"]) / 1e9
    for event in document["traceEvents"]:
        if event.get("name", "").startswith("round ") and "dur" in event:
            begin = start + event["ts"] / 1e6
            yield begin, begin + event["dur"] / 1e6, "cores of other processes" in event.get("args", {})


def run(given, module, option, source, folder):
    """One run: marks of the rounds beside busy processes, and of those without."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    for process in busy:
        process.send_signal(signal.SIGSTOP)
    ended, turns, trace = threading.Event(), [], folder / "run.json"
    coming = threading.Thread(target=come_and_go, args=(busy, source, ended, turns))
    coming.start()
    try:
        command = [
            given.program,
            "--no-config",
            "tune",
            module,
            "--only-compiler-options",
            "--compiler-options",
            "safe",
        ]
        command += ["--options-file", option, "--timer", given.timer, "--rounds", "300", "--under-load"]
        command += ["--trace-run", trace, "--format", "json"]
        done = subprocess.run(
            [str(word) for word in command],
            text=True,
            capture_output=True,
            check=False,
            env=given.environment | {"AUTOTUNE_LOWERED_CACHE": str(folder / "cache")},
        )
    finally:
        ended.set()
        coming.join()
        for process in busy:
            process.kill()
            process.wait()
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    beside, without = [], []
    for begin, end, is_marked in rounds_of(trace):
        if any(first + GUARD_S <= begin and end <= last - GUARD_S for first, last in turns):
            beside.append(is_marked)
        elif all(end <= first - GUARD_S or begin >= last + GUARD_S for first, last in turns):
            without.append(is_marked)
    return beside, without


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--timer", required=True)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--busy", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.environment = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_LOWERED_")}
    source = random.Random(given.seed)
    beside, without = [], []
    with tempfile.TemporaryDirectory() as scratch:
        module, option = pathlib.Path(scratch) / "module.mlir", pathlib.Path(scratch) / "option.json"
        python = given.timer.removeprefix("jax:") if given.timer.startswith("jax:") else sys.executable
        subprocess.run([python, "-c", PROGRAM, module], check=True)
        option.write_text(json.dumps({"schema": 1, "platform": "cpu", "options": [OPTION]}))
        for _ in range(given.runs):
            with tempfile.TemporaryDirectory() as folder:
                found = run(given, module, option, source, pathlib.Path(folder))
            beside += found[0]
            without += found[1]
    print(
        f"{given.runs} runs: {sum(beside)} of {len(beside)} rounds beside {given.busy} busy processes are marked, "
        f"and {sum(without)} of {len(without)} without them"
    )
    return 0 if beside and all(beside) and sum(without) <= 0.02 * len(without) else 1


if __name__ == "__main__":
    sys.exit(main())
