"""Times the winner and the baseline of the main job with JAX alone.

    python confirm.py OUT.json cuda|cpu TUNE.json

By JAX's own profiler (CUPTI, on a GPU) and by the host clock, the programs interleaved, beside XLA's own product, with
which their results are compared.
"""

import json
import pathlib
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import programs

ROUNDS, RUNS = 12, 20
CUPTI_ROUNDS, CUPTI_RUNS = 5, 3


def by_host_clock(functions, x, y, runs):
    times = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            began = time.perf_counter()
            for _ in range(runs):
                result = function(x, y)
            result.block_until_ready()
            times[name].append((time.perf_counter() - began) / runs * 1e3)
    return {name: statistics.median(values) for name, values in times.items()}


def by_cupti(functions, x, y):
    from jax.experimental.mosaic.gpu import profiler

    times = {name: [] for name in functions}
    for _ in range(CUPTI_ROUNDS):
        for name, function in functions.items():
            _, found = profiler.measure(function, iterations=CUPTI_RUNS)(x, y)
            times[name] += found
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    out, platform, tune = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    operation = json.loads(tune.read_text())["operations"][0]
    configs = {"baseline": operation["baseline"]["config"]}
    configs["best"] = operation.get("best", operation["baseline"])["config"]
    ours = {name: operation.get(name, operation["baseline"])["median_ns"] / 1e6 for name in configs}
    size, dtype = programs.SHAPES[platform][0], programs.DTYPES[platform]
    x, y = (jax.random.normal(jax.random.PRNGKey(seed), (size, size), dtype) for seed in (0, 1))
    product = programs.PRODUCTS[platform]
    functions = {name: jax.jit(lambda a, b, config=config: product(a, b, **config)) for name, config in configs.items()}
    xla = jax.jit(lambda a, b: a @ b)
    reference = xla(x, y).astype(jnp.float32)
    norm = jnp.linalg.norm(reference)
    found = {"configs": configs, "ours_ms": ours}
    found["relative_error"] = {
        name: float(jnp.linalg.norm(function(x, y).astype(jnp.float32) - reference) / norm)
        for name, function in functions.items()
    }
    functions["xla"] = xla
    found["host_ms"] = by_host_clock(functions, x, y, RUNS if platform == "cuda" else 1)
    clocks = {"host": found["host_ms"], "ours": ours}
    if platform == "cuda":
        try:
            clocks["cupti"] = found["cupti_ms"] = by_cupti(functions, x, y)
        except Exception as error:  # whatever the profiler raises: the host clock has answered
            found["cupti_error"] = f"{type(error).__name__}: {error}"[:2000]
    found["speed_up"] = {
        clock: times["baseline"] / times["best"] if times["best"] else None for clock, times in clocks.items()
    }
    out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
