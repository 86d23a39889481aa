"""ejkernel's own tuner on the same functions: `python benches/decisions/peer.py ROUNDS SIZE…` (JAX, ejkernel 0.0.80).

Prints a JSON object a line. First the versions. For each size the tuner's seconds at its defaults and its winner. With
ROUNDS above zero also times of all candidates in this process, in interleaved and shuffled rounds, the baseline first: the
tuner chose for this process's runtime, so its winner is also held against that.
"""

import importlib.metadata
import json
import random
import statistics
import sys
import time

import jax
import matmul
import numpy as np
from ejkernel.ops.config.selection import Tuner

# the shortest sample of a round, and the fewest runs in one
SAMPLE_SECONDS, LEAST_RUNS = 2e-3, 3
WARM_UP_ROUNDS = 3


def arrays(size):
    random_numbers = np.random.default_rng(size)
    factors = random_numbers.standard_normal((2, size, size), dtype=np.float32)
    return jax.device_put(factors[0]), jax.device_put(factors[1] * np.float32(matmul.SCALE(size)))


def tune(size):
    arguments = arrays(size)
    start = time.perf_counter()
    # as ejkernel's selector chain calls it
    winner = Tuner().autotune(matmul.function, arguments, {}, matmul.configs(size))
    return {"size": size, "seconds": time.perf_counter() - start, "winner": winner}


def reference(size, rounds):
    arguments = arrays(size)
    configs = matmul.configs(size)
    compiled = [jax.jit(matmul.function(config)).lower(*arguments).compile() for config in configs]
    first = configs.index(matmul.baseline(size))
    order = [index for index in range(len(configs)) if index != first]
    shuffle = random.Random(size).shuffle

    def nanoseconds(run):
        start = time.perf_counter_ns()
        run(*arguments).block_until_ready()
        return time.perf_counter_ns() - start

    def one_round(runs):
        shuffle(order)
        times = {index: [nanoseconds(compiled[index]) for _ in range(runs)] for index in [first, *order]}
        return [statistics.median(times[index]) for index in range(len(configs))]

    warm = [one_round(LEAST_RUNS) for _ in range(WARM_UP_ROUNDS)]
    runs = max(LEAST_RUNS, round(SAMPLE_SECONDS * 1e9 / min(warm[-1])))
    return {"size": size, "runs": runs, "rounds": [one_round(runs) for _ in range(rounds)]}


def main():
    jax.config.update("jax_platforms", "cpu")
    rounds, sizes = int(sys.argv[1]), [int(word) for word in sys.argv[2:]]
    say = lambda line: print(json.dumps(line), flush=True)
    say({name: importlib.metadata.version(name) for name in ("ejkernel", "jax")})
    jax.block_until_ready(jax.numpy.zeros(1))  # the device is open before a clock runs
    for size in sizes:
        say(tune(size))
    for size in sizes if rounds else []:
        say(reference(size, rounds))


if __name__ == "__main__":
    main()
