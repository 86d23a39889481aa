"""How much JAX's profiler slows programs down: `python benches/profiler_cost.py` (JAX 0.8 or later, on a CPU).

Two programs do the same work: one matrix product as a whole, and one row by row in a loop of small operations. Each
runs without and with a profiler, in alternating rounds; the host clock times the runs alone. Prints the medians, how
much longer a run takes under a profile, and how long ending the profile takes.
"""

import statistics
import tempfile
import time

import jax
import jax.numpy as jnp

SIZE, RUNS, ROUNDS = 256, 10, 21


def whole(left, right):
    return left @ right


def by_rows(left, right):
    def one_row(row, result):
        product = jax.lax.dynamic_slice(left, (row, 0), (1, SIZE)) @ right
        return jax.lax.dynamic_update_slice(result, product, (row, 0))

    return jax.lax.fori_loop(0, SIZE, one_row, jnp.zeros((SIZE, SIZE)))


def seconds(run, arrays):
    begin = time.perf_counter()
    for _ in range(RUNS):
        run(*arrays).block_until_ready()
    return (time.perf_counter() - begin) / RUNS


def profiled(run, arrays):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        took = seconds(run, arrays)
        begin = time.perf_counter()
        jax.profiler.stop_trace()
        return took, time.perf_counter() - begin


def main():
    jax.config.update("jax_platforms", "cpu")
    arrays = [jnp.ones((SIZE, SIZE))] * 2
    print("jax %s, %d runs under each profile, medians of %d rounds" % (jax.__version__, RUNS, ROUNDS))
    for function in (whole, by_rows):
        run = jax.jit(function).lower(*arrays).compile()
        seconds(run, arrays)
        rounds = [(seconds(run, arrays), *profiled(run, arrays)) for _ in range(ROUNDS)]
        plain, under = (statistics.median(one[part] for one in rounds) for part in (0, 1))
        slower = statistics.median(one[1] / one[0] for one in rounds)
        ending = statistics.median(one[2] for one in rounds)
        line = "%-8s %7.3f ms, under a profile %7.3f ms (%.2f times), ending the profile %6.1f ms"
        print(line % (function.__name__, plain * 1e3, under * 1e3, slower, ending * 1e3))


if __name__ == "__main__":
    main()
