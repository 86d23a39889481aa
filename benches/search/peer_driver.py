"""Runs Kernel Tuner's strategies in simulation mode and prints which configs they asked for.

Stdin: one JSON object with `parameters` (name and values of each), `points` (for each config the number of each
value), `times` (null for a failed config), `evaluations`, `seeds`, `strategies` (empty for all), `seconds` for one
strategy.
Stdout: one JSON object per line.
"""

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
answers = os.fdopen(os.dup(1), "w")
# keeps the strategies' own output apart from the answers
os.dup2(2, 1)


def say(**fields):
    answers.write(json.dumps(fields) + "\n")
    answers.flush()


class OutOfTime(BaseException):
    pass


def out_of_time(*_):
    raise OutOfTime


def main():
    task = json.load(sys.stdin)
    from importlib.metadata import version

    import kernel_tuner
    import numpy
    from kernel_tuner import interface
    from kernel_tuner.runners.simulation import SimulationRunner
    from kernel_tuner.searchspace import Searchspace

    names = [name for name, _ in task["parameters"]]
    values = [values for _, values in task["parameters"]]
    configs = [tuple(values[at][level] for at, level in enumerate(point)) for point in task["points"]]
    number = {",".join(map(str, config)): at for at, config in enumerate(configs)}
    cache = {}
    for key, config, took in zip(number, configs, task["times"], strict=False):
        entry = dict(zip(names, config, strict=False))
        entry["time"] = "RuntimeFailedConfig" if took is None else took
        entry.update(compile_time=0, verification_time=0, benchmark_time=0, strategy_time=0, framework_time=0)
        cache[key] = entry
    recorded = {
        "device_name": "recorded",
        "kernel_name": "recorded",
        "problem_size": [1],
        "tune_params_keys": names,
        "tune_params": dict(zip(names, values, strict=False)),
        "objective": "time",
        "cache": cache,
    }
    # the valid configs themselves, built once: the file has no constraints, and building costs more than searching
    space = Searchspace(
        None, None, None, from_cache={"tune_params": dict(zip(names, values, strict=False)), "cache": cache}
    )
    interface.Searchspace = lambda *_, **__: space

    asked = []
    run = SimulationRunner.run

    def noting(self, parameter_space, tuning_options):
        elements = list(parameter_space)
        results = run(self, elements, tuning_options)
        for element, result in zip(elements, results, strict=False):
            at = number.get(",".join(map(str, element)))
            if result is not None and at is not None and at not in noting.seen:
                noting.seen.add(at)
                asked.append(at)
        return results

    SimulationRunner.run = noting
    say(version=version("kernel_tuner"))
    signal.signal(signal.SIGALRM, out_of_time)
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        path = os.path.join(folder, "recorded.json")
        with open(path, "w") as file:
            json.dump(recorded, file)
        os.chdir(folder)
        for strategy in task["strategies"] or list(interface.strategy_map):
            signal.alarm(task["seconds"])
            try:
                for seed in range(task["seeds"]):
                    asked.clear()
                    noting.seen = set()
                    random.seed(seed)
                    numpy.random.seed(seed)
                    began = time.perf_counter()
                    failure = None
                    try:
                        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                            kernel_tuner.tune_kernel(
                                "recorded",
                                "",
                                [1],
                                [],
                                dict(zip(names, values, strict=False)),
                                lang="C",
                                quiet=True,
                                strategy=strategy,
                                strategy_options={"max_fevals": task["evaluations"]},
                                cache=path,
                                simulation_mode=True,
                                seed=seed,
                            )
                    except Exception as error:
                        failure = f"{type(error).__name__}: {error}"
                    # the result of a strategy that ends with an error counts; one that asked for nothing has failed
                    if failure is not None and not asked:
                        say(strategy=strategy, failure=failure)
                        break
                    say(strategy=strategy, seed=seed, asked=asked, failure=failure, seconds=time.perf_counter() - began)
            except OutOfTime:
                say(strategy=strategy, failure=f"not done within {task['seconds']} s")
            finally:
                signal.alarm(0)


main()
