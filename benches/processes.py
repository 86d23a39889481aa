"""How much the ratio of a program to its own copy varies between fresh processes, one change of conditions at a time.

    python3 benches/processes.py --exe target/release/autotune-lowered --python PYTHON --runs 10

PYTHON has JAX, which makes the programs and times them. Each run is one process of `compare PROGRAM PROGRAM`. The table
has the standard deviation of the ratio, and in parentheses that of the time, over the runs.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = """
import sys, jax, jax.numpy as jnp
def matmul(a, b): return a @ b
def softmax(x): return jax.nn.softmax(jnp.sin(x) * 2, axis=-1)
square = jnp.zeros((384, 384))
for name, function, arguments in [
    ("matmul 384", matmul, (square, square)), ("softmax 512 x 1024", softmax, (jnp.zeros((512, 1024)),)),
]:
    with open(f"{sys.argv[1]}/{name}.mlir", "w") as file:
        file.write(jax.jit(function).lower(*arguments).as_text())
"""

# each with the words before the command, the variables of its processes, and how many busy processes run beside it
CONDITIONS = {
    "as it is": ([], {}, 0),
    "no address randomization": (["setarch", "-R"], {}, 0),
    "large pages for the heap": ([], {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, 0),
    "one core": (["taskset", "-c", "0"], {}, 0),
    "beside two busy processes": ([], {}, 2),
}


def compared(arguments: argparse.Namespace, program: Path, words: list[str], variables: dict[str, str]):
    """The time in nanoseconds and the ratio of the copy, by one process."""
    with tempfile.TemporaryDirectory() as cache:
        command = [*words, arguments.exe, "--no-config", "compare", program, program]
        command += ["--timer", f"jax:{arguments.python}", "--rounds", "25", "--processes", "3", "--ignore-load"]
        environment = {**os.environ, **variables, "AUTOTUNE_LOWERED_CACHE": cache}
        run = subprocess.run([*command, "--format", "json"], capture_output=True, env=environment, check=False)
    document = json.loads(run.stdout)
    # of the copy that every comparison has, by the rounds of the first process
    return document["contestants"][0]["median_ns"], document["noise"]["ratio"]


def spread(values: list[float]) -> float:
    """The standard deviation of the logarithms, in per cent."""
    return 100 * statistics.stdev(math.log(value) for value in values)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--exe", default="target/release/autotune-lowered")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.python, "-c", PROGRAMS, folder], check=True)
        programs = sorted(Path(folder).glob("*.mlir"))
        print("| program |", " | ".join(CONDITIONS), "|")
        print("| --- |", " | ".join("---" for _ in CONDITIONS), "|")
        cells: dict[Path, list[str]] = {program: [] for program in programs}
        for words, variables, load in CONDITIONS.values():
            busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
            for program in programs:
                seen = [compared(arguments, program, words, variables) for _ in range(arguments.runs)]
                times, ratios = zip(*seen, strict=True)
                cells[program].append(f"{spread(list(ratios)):.1f} % ({spread(list(times)):.0f} %)")
            for process in busy:
                process.kill()
        for program, row in cells.items():
            print(f"| {program.stem} |", " | ".join(row), "|")


if __name__ == "__main__":
    main()
