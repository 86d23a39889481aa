"""Uses tuned configs in another process: loads them from the cache, and times the step with and without them."""

import statistics
import sys
import time

import jax
import transformer

import autotune_lowered


def seconds(step, arguments):
    began = time.perf_counter()
    jax.block_until_ready(step(*arguments))
    return time.perf_counter() - began


cache, device = autotune_lowered.Cache.open(), autotune_lowered.device()
labels = [(entry.op_id, entry.call_key) for entry in cache if entry.op_id.startswith("tutorial_")]
if not labels:
    sys.exit("the cache has no config of the tutorial's operations: tune, prove and publish first")
for label in labels:
    # the result of a look-up; the tunable functions query the same cache themselves
    found = cache.get(device, *label) or sys.exit(cache.explain(device, *label))
    print(f"{':'.join(label)}: {found.config}")

arguments = transformer.arguments()
tuned = jax.jit(transformer.train_step).lower(*arguments).compile()
autotune_lowered.use_cache(None)
default = jax.jit(transformer.train_step).lower(*arguments).compile()
# alternating, so that disturbances affect both alike; the first runs are warm-up
pairs = [(seconds(default, arguments), seconds(tuned, arguments)) for _ in range(25)][5:]
before, now = (statistics.median(times) for times in zip(*pairs, strict=True))
print(f"gained: a step takes {now * 1e3:.1f} ms with the cached configs and {before * 1e3:.1f} ms without them")
