"""Kills processes of tuning runs with `--timer jax`: `python benches/killed_workers.py PROGRAM [--runs 300] [--seed 1]`.

Run it with a Python that has this package and JAX, on a CPU. A run tunes one call whose best config is known. After a random
time one of its processes gets a signal: a worker, the process that forks workers, the supervisor of either, or, in every
sixth run, the program itself. Prints how many of each were hit and how many runs failed: they hung, chose another
config or left a process behind. The exit code is 1 if any failed.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

os.environ["JAX_PLATFORMS"] = "cpu"
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV]
# seconds: a run takes a little more
LONGEST, LIMIT = 1.3, 50


def recorded(folder):
    """A module with one call, and its registry."""
    import jax
    import jax.numpy as jnp

    import autotune_lowered

    @autotune_lowered.tunable(op="repeated", version=1, space={"times": [1, 400, 900]})
    def repeated(x, *, times=400):
        return jax.lax.fori_loop(0, times, lambda i, y: jnp.tanh(x) + 0 * y, jnp.tanh(x))

    with autotune_lowered.recording(folder / "registry", directions=("forward",)):
        lowered = jax.jit(repeated).lower(jnp.ones((256, 256)))
    autotune_lowered.dump(lowered, folder / "module.mlir")


def family(pid):
    """Parents and command lines of all that descend from a process, by process id."""
    found, waiting = {}, [pid]
    while waiting:
        parent = waiting.pop()
        with contextlib.suppress(OSError):
            for child in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                line = pathlib.Path(f"/proc/{child}/cmdline").read_text().split("\0")
                found[int(child)] = (parent, line)
                waiting.append(int(child))
    return found


def role(pid, found):
    """What a process of a run is."""
    parent, line = found[pid]
    if "exec" in line[:3]:
        return "supervisor of a worker" if "--template" in line else "supervisor of the forking process"
    return "worker" if parent in found and "exec" not in found[parent][1][:3] else "forking process"


def is_gone(pid):
    """Whether a process ends within ten seconds; a zombie has ended."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def killed_run(program, folder, draw, kills_program):
    """Which process was killed, and what is wrong; nothing, as a rule."""
    words = [program, "--no-config", folder / "module.mlir", "--registry", folder / "registry", "--ignore-load"]
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory() as cache:
        words += ["--cache", cache, "--timer", f"jax:{sys.executable}", "--format", "json"]
        run = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True)
        time.sleep(draw.uniform(0.02, LONGEST))
        found = family(run.pid)
        hit = "nobody: the run was over or had not begun"
        if run.poll() is None and kills_program:
            hit = "program"
            run.kill()
        elif run.poll() is None and found:
            victim = draw.choice(sorted(found))
            hit = role(victim, found)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, draw.choice(SIGNALS))
        try:
            answer, said = run.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            return hit, f"it hung for {LIMIT} s"
    if not all(is_gone(pid) for pid in found):
        return hit, "a process is left"
    if hit == "program":
        return hit, None
    if run.returncode != 0:
        return hit, f"exit code {run.returncode}: {said[-300:]}"
    (operation,) = json.loads(answer)["operations"]
    best = (operation.get("best") or {}).get("config")
    return hit, None if best == {"times": 1} else f"{operation['status']}, {best}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    hits, failures = collections.Counter(), []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        recorded(folder)
        for number in range(given.runs):
            hit, wrong = killed_run(given.program, folder, draw, number % 6 == 5)
            hits[hit] += 1
            if wrong:
                failures.append(f"run {number}, {hit}: {wrong}")
    print("| killed | runs |\n| --- | --- |")
    for hit, count in sorted(hits.items()):
        print(f"| {hit} | {count} |")
    print(f"\n{len(failures)} of {given.runs} runs failed", *failures, sep="\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
