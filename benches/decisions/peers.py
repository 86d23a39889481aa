"""What the scripts of other tuners share: the arguments, the command line, and a reference in their own runtime.

A script is called with `ROUNDS STORE CASE…`. STORE is a folder for what the tuner keeps between processes; `-` is none.
It prints one JSON value per line: first its versions, then for each case the tuner's seconds, its winner and whether
that came from the store. If ROUNDS is above zero, also the times of all candidates in this process, in interleaved and
shuffled rounds, the baseline first: the tuner chose for this process's runtime, so its winner is also judged by that.
"""

import importlib.metadata
import json
import pathlib
import random
import statistics
import sys
import time

import jax
import numpy as np
from cases import CASES

# the shortest sample of a round, and the fewest runs in it
SAMPLE_SECONDS, LEAST_RUNS = 2e-3, 3
WARM_UP_ROUNDS = 3


def arrays(name):
    # a different seed for each case
    random_numbers = np.random.default_rng(list(name.encode()))
    case = CASES[name]
    of_spec = lambda spec, scale: random_numbers.standard_normal(spec.shape, dtype=np.float32) * np.float32(scale)
    return [jax.device_put(of_spec(spec, case.scales[argument])) for argument, spec in case.specs.items()]


def reference(name, rounds):
    arguments, case = arrays(name), CASES[name]
    configs = case.configs
    compiled = [jax.jit(case.function(config)).lower(*arguments).compile() for config in configs]
    first = configs.index(case.baseline)
    order = [index for index in range(len(configs)) if index != first]
    shuffle = random.Random(name).shuffle

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
    return {"case": name, "runs": runs, "rounds": [one_round(runs) for _ in range(rounds)]}


def main(package, tune):
    """Calls `tune(name, case, arguments, store)`, which returns the winner and whether it was stored, for each case."""
    jax.config.update("jax_platforms", "cpu")
    rounds, folder, names = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    store = None if folder == "-" else pathlib.Path(folder)
    say = lambda line: print(json.dumps(line), flush=True)
    say(", ".join(f"{name} {importlib.metadata.version(name)}" for name in (package, "jax")))
    jax.block_until_ready(jax.numpy.zeros(1))  # the device is open before a clock runs
    for name in names:
        arguments = arrays(name)
        start = time.perf_counter()
        winner, is_stored = tune(name, CASES[name], arguments, store)
        say({"case": name, "seconds": time.perf_counter() - start, "winner": winner, "is_stored": is_stored})
    for name in names if rounds else []:
        say(reference(name, rounds))
