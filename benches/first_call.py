"""From the first call of a function to its table, by this package and by tune-jax, in turns.

    python benches/first_call.py PYTHON --tune-jax PYTHON [--cases NAME…] [--repeats N]

`PYTHON` has this package with JAX, the other one tune-jax with the same JAX. Each repeat is a fresh process that has
imported JAX and made its client; ours begins with an empty cache. The program is found as the package finds it. Prints
a Markdown table: for each case the median seconds, with the least and the most, to tune-jax's table, to our provisional
one and to our confirmed one, of tuning the function once more in that process with an empty cache, and of our first
call in a new process that finds the decision; beside it, the first call of that config by `jax.jit` alone in another
new process, which is what JAX itself takes. A second table has what both chose: how often a repeat's config is not the
one that most repeats chose, and what the chosen configs take of the time of the best one, by further processes that
time all of them in turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

CASES = ("tune-jax's example", "matmul", "attention", "scan", "softmax", "library")


def case(name):
    """The function, its space and its arguments."""
    import functools

    import jax
    import jax.numpy as jnp
    from jax import lax

    def random(*shape, dtype=jnp.float32):
        return jax.random.normal(jax.random.key(len(shape)), shape, dtype)

    if name == "tune-jax's example":
        # the first example of its README with smaller arrays, interpreted, because it is for a GPU
        from jax.experimental.pallas.ops.gpu import attention

        def mha(q, k, v, *, block_q=16, block_k=16):
            sizes = attention.BlockSizes(block_q=block_q, block_k=block_k)
            return attention.mha(q, k, v, segment_ids=None, block_sizes=sizes, interpret=True)

        arrays = [random(2, length, 2, 64) for length in (64, 128, 128)]
        return mha, {"block_q": [16, 32, 64], "block_k": [32, 128]}, arrays
    if name == "matmul":

        def matmul(x, w, *, parts=32):
            pairs = zip(jnp.split(x, parts, axis=1), jnp.split(w, parts, axis=0), strict=True)
            return sum(a @ b for a, b in pairs)

        return matmul, {"parts": [1, 2, 4, 8, 16, 32]}, [random(256, 1024), random(1024, 256)]
    if name == "attention":

        def attention_by_blocks(q, k, v, *, block=32):
            def of_block(part):
                return jax.nn.softmax(part @ k.T / q.shape[1] ** 0.5, axis=-1) @ v

            return lax.map(of_block, q.reshape(-1, block, q.shape[1])).reshape(q.shape)

        return attention_by_blocks, {"block": [8, 16, 32, 64, 256, 1024]}, [random(1024, 64)] * 3
    if name == "scan":

        def state_space(decay, x, *, chunk=16):
            def of_chunk(state, part):
                def combine(one, other):
                    return one[0] * other[0], one[1] * other[0] + other[1]

                factors, states = lax.associative_scan(combine, (jnp.broadcast_to(decay, part.shape), part))
                whole = states + factors * state
                return whole[-1], whole

            return lax.scan(of_chunk, jnp.zeros(x.shape[1]), x.reshape(-1, chunk, x.shape[1]))[1].reshape(x.shape)

        return state_space, {"chunk": [4, 16, 64, 256, 1024, 2048]}, [jnp.full(128, 0.9), random(2048, 128)]
    if name == "softmax":

        def softmax_by_rows(x, *, rows=16):
            return lax.map(functools.partial(jax.nn.softmax, axis=-1), x.reshape(-1, rows, x.shape[1])).reshape(x.shape)

        return softmax_by_rows, {"rows": [1, 4, 16, 64, 256, 2048]}, [random(2048, 512)]
    from jax.experimental.pallas.ops.tpu import matmul as pallas_matmul

    def library(x, y, *, block=128):
        return pallas_matmul.matmul(x, y, block_shape=(block, block), block_k=block)

    import jax.experimental.pallas as pl

    # for a TPU, so it is interpreted
    pallas_matmul.pl.pallas_call = functools.partial(pl.pallas_call, interpret=True)
    return library, {"block": [64, 128, 256, 512]}, [random(512, 512)] * 2


def ours(name, cache):
    import logging

    import jax

    import autotune_lowered

    times = {}

    class Told(logging.Handler):
        def emit(self, record):
            if "provisional" in record.getMessage():
                times.setdefault("provisional", time.perf_counter() - begin)

    log = logging.getLogger("autotune_lowered")
    log.setLevel(logging.INFO)
    log.addHandler(Told())
    function, space, arrays = case(name)
    jax.block_until_ready(arrays)
    begin = time.perf_counter()
    fast = autotune_lowered.autotune(function, space, cache=cache)
    jax.block_until_ready(fast(*arrays))
    times["confirmed"] = time.perf_counter() - begin
    if fast.result is not None:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as empty:
            jax.block_until_ready(autotune_lowered.autotune(function, space, cache=empty)(*arrays))
            times["once more"] = time.perf_counter() - begin
        row = fast.result.operations[0]
        (in_use,) = fast.configs.values()
        times |= {"status": row["status"], "in_use": in_use}
        times |= {"spent": {name: ns / 1e9 for name, ns in row["time_breakdown"].items() if ns}}
    return times


def by_hand(name, config):
    """The first call of the same function with that config, by `jax.jit` alone."""
    import functools

    import jax

    function, _, arrays = case(name)
    jax.block_until_ready(arrays)
    begin = time.perf_counter()
    jax.block_until_ready(jax.jit(functools.partial(function, **json.loads(config)))(*arrays))
    return {"confirmed": time.perf_counter() - begin}


def tune_jax(name, cache):
    import jax
    from tune_jax import tune

    function, space, arrays = case(name)
    jax.block_until_ready(arrays)
    begin = time.perf_counter()
    tuned = tune(function, hyperparams=space)
    jax.block_until_ready(tuned(*arrays))
    return {"confirmed": time.perf_counter() - begin, "config": tuned.optimal_hyperparams}


def reference(name, cache, rounds=30):
    """Median seconds of each config, by its text: all of them in turns, in one process that chose none."""
    import itertools

    import jax

    function, space, arrays = case(name)
    configs = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    jitted = [jax.jit(lambda *args, config=config: function(*args, **config)) for config in configs]
    for one in jitted:
        jax.block_until_ready(one(*arrays))
    times = [[] for _ in configs]
    for turn in range(rounds):
        for index in range(len(configs)):
            index = (index + turn) % len(configs)
            begin = time.perf_counter()
            jax.block_until_ready(jitted[index](*arrays))
            times[index].append(time.perf_counter() - begin)
    medians = [statistics.median(taken) for taken in times]
    return {json.dumps(config, sort_keys=True): taken for config, taken in zip(configs, medians, strict=True)}


def of_all(processes):
    """By config, the median over processes of its time over the mean of all configs there."""
    means = [statistics.geometric_mean(taken.values()) for taken in processes]
    return {
        config: statistics.median(taken[config] / mean for taken, mean in zip(processes, means, strict=True))
        for config in processes[0]
    }


def chosen(configs, taken):
    """How often a repeat chose another config than most, and the slowest choice over the best config."""
    if not configs:
        return "–"
    texts = [json.dumps(config, sort_keys=True) for config in configs]
    flips = len(texts) - max(texts.count(text) for text in texts)
    worst = max(taken[text] for text in texts) / min(taken.values())
    return f"{flips} of {len(texts)}, {worst:.2f}"


def run(python, how, name, cache):
    words = [python, __file__, "--one", how, "--cases", name, "--cache", cache]
    # as an installer leaves the packages: with their bytecode
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{how}, {name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def spelled(seconds):
    if not seconds:
        return "–"
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}–{max(seconds):.2f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python", nargs="?")
    parser.add_argument("--tune-jax")
    parser.add_argument("--cases", nargs="+", default=CASES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", choices=("ours", "tune-jax", "reference", "by-hand"))
    # of `by-hand`, the config
    parser.add_argument("--cache")
    args = parser.parse_args()
    if args.one:
        import jax

        jax.devices()
        one = {"ours": ours, "tune-jax": tune_jax, "reference": reference, "by-hand": by_hand}[args.one]
        print(json.dumps(one(args.cases[0], args.cache)))
        return
    choices = []
    columns = ["case", "tune-jax", "provisional", "confirmed", "confirmed in", "once more in the process"]
    columns += ["in a new process", "there by `jax.jit` alone"]
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for name in args.cases:
        theirs, provisional, confirmed, once_more, again, alone, how = [], [], [], [], [], [], []
        configs = {"ours": [], "tune-jax": []}
        for _ in range(args.repeats):
            with tempfile.TemporaryDirectory() as folder:
                cache = os.path.join(folder, "cache")
                if args.tune_jax:
                    other = run(args.tune_jax, "tune-jax", name, cache)
                    theirs.append(other["confirmed"])
                    configs["tune-jax"].append(other["config"])
                found = run(args.python, "ours", name, cache)
                provisional.append(found.get("provisional", found["confirmed"]))
                confirmed.append(found["confirmed"])
                once_more.append(found["once more"])
                how.append(found.get("status", "-"))
                configs["ours"].append(found["in_use"])
                again.append(run(args.python, "ours", name, cache)["confirmed"])
                alone.append(run(args.python, "by-hand", name, json.dumps(found["in_use"]))["confirmed"])
        statuses = ", ".join(f"{how.count(one)} {one}" for one in dict.fromkeys(how))
        row = [
            name,
            *map(spelled, (theirs, provisional, confirmed)),
            statuses,
            *map(spelled, (once_more, again, alone)),
        ]
        print("| " + " | ".join(row) + " |", flush=True)
        taken = of_all([run(args.python, "reference", name, "") for _ in range(args.repeats)])
        choices.append([name, chosen(configs["ours"], taken), chosen(configs["tune-jax"], taken)])
    print("\n| case | ours: flips, slowest choice | tune-jax: flips, slowest choice |\n| --- | --- | --- |")
    for row in choices:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
