"""What a program's ratio to another one is while a third is compiled: why no race begins before everything is compiled.

    python benches/beside_compilation.py [--turns 5] [--seconds 4]

The two are the baseline of `first_call.py`'s attention and its best config, which uses more cores. A sample is the fastest of three runs, as in
a race; a round has one of each. The compilations run in another process, as XLA's would in the background.
"""

import argparse
import math
import statistics
import subprocess
import sys
import time

import first_call

BASELINE, BEST = 32, 1024


def programs(blocks):
    import jax

    function, _, arrays = first_call.case("attention")
    return [jax.jit(lambda *args, block=block: function(*args, block=block)) for block in blocks], arrays


def compile_for_ever():
    others, arrays = programs([8, 16, 64, 256])
    lowered = [one.lower(*arrays) for one in others]
    for one in lowered:
        one.compile()
    print("begun", flush=True)
    while True:
        for one in lowered:
            one.compile()


def rounds(jitted, arrays, seconds):
    """The logarithm of the best config's time over the baseline's, of each round."""
    import jax

    def sample(one):
        taken = []
        for _ in range(3):
            begin = time.perf_counter()
            jax.block_until_ready(one(*arrays))
            taken.append(time.perf_counter() - begin)
        return min(taken)

    until, found = time.monotonic() + seconds, []
    while time.monotonic() < until:
        baseline = sample(jitted[0])
        found.append(math.log(sample(jitted[1]) / baseline))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--compile", action="store_true", help="what the other process does")
    asked = parser.parse_args()
    if asked.compile:
        return compile_for_ever()
    import jax

    jitted, arrays = programs([BASELINE, BEST])
    for one in jitted:
        jax.block_until_ready(one(*arrays))
    found = {"alone": [], "beside a compilation": []}
    for _ in range(asked.turns):
        found["alone"] += [rounds(jitted, arrays, asked.seconds)]
        words = [sys.executable, __file__, "--compile"]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
            other.stdout.readline()
            found["beside a compilation"] += [rounds(jitted, arrays, asked.seconds)]
            other.kill()
    print("| | median ratio of each turn | quartiles of all rounds | rounds |")
    print("| --- | --- | --- | --- |")
    for how, turns in found.items():
        medians = ", ".join(f"{math.exp(statistics.median(one)):.2f}" for one in turns)
        everything = sum(turns, [])
        quarters = ", ".join(f"{math.exp(one):.2f}" for one in statistics.quantiles(everything, n=4))
        print(f"| {how} | {medians} | {quarters} | {len(everything)} |")


if __name__ == "__main__":
    main()
