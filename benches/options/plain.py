"""The pairs of pairs.py by plain JAX, without the tuner: `python benches/options/plain.py [PAIR…] [--processes 12]`.

Each process is fresh, compiles both programs with `jax.jit` and times them in turns by the host's clock. Prints for each pair
the other program's time over the first one's, which is what fresh_runs.py calls the truth: the geometric mean over the
processes, and the standard deviation of its logarithm.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import time

ROUNDS, RUNS = 40, 3


def ratio(name):
    """Of one process."""
    import jax
    import numpy as np
    from pairs import PAIRS

    draw = np.random.default_rng()

    def drawn(spec):
        is_real = np.issubdtype(spec.dtype, np.floating)
        return (draw.normal(size=spec.shape) if is_real else draw.integers(0, 32, size=spec.shape)).astype(spec.dtype)

    first, other, specs = PAIRS[name]
    arguments = [jax.device_put(drawn(spec)) for spec in specs]
    programs = [jax.jit(function).lower(*arguments).compile() for function in (first, other)]
    times = [[], []]
    # one more round, to warm up
    for turn in range(ROUNDS + 1):
        for place in (0, 1) if turn % 2 else (1, 0):
            for _ in range(RUNS):
                begin = time.perf_counter()
                jax.block_until_ready(programs[place](*arguments))
                times[place].append(time.perf_counter() - begin)
    own, others = (statistics.median(taken[RUNS:]) for taken in times)
    return others / own


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--one")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(ratio(given.one)))
        return
    from pairs import PAIRS

    print("| pair | ratio | between processes |\n| --- | --- | --- |")
    for name in given.pairs or PAIRS:
        words = [sys.executable, __file__, "--one", name]
        answers = [subprocess.run(words, capture_output=True, text=True, check=True) for _ in range(given.processes)]
        logs = [math.log(json.loads(answer.stdout.splitlines()[-1])) for answer in answers]
        print(f"| {name} | {math.exp(statistics.mean(logs)):.3f} | {100 * statistics.stdev(logs):.1f} % |", flush=True)


if __name__ == "__main__":
    main()
