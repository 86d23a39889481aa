"""Synthetic dumps, and what JAX's own `ProfilerSpec.dump` draws of them.

    python make.py        # with JAX installed; writes into this folder

No device is needed: the buffers are made up, deterministically. The data are given to JAX as int64, so that its subtractions
do not wrap; `back` is given as uint32, where only they do not change the overhead.
"""

import io
import json
import pathlib
import warnings

import numpy as np
from jax.experimental.mosaic.gpu import profiler
from jax.experimental.mosaic.gpu.profiler import ThreadSubset

FOLDER = pathlib.Path(__file__).parent
GRID, BLOCK = (3, 2, 1), (128, 2, 1)


def buffer(spec, random, step, back):
    entries = spec.entries_per_warpgroup
    names = [spec.intern_name(name) for name in ("load", "mma", 'store "out"')]
    made = random.integers(0, 2**32, (spec._num_traces(GRID, BLOCK), entries), dtype=np.uint64)
    for trace in made:
        words, under_way = [], []
        left, time = int(random.integers(0, (entries - 3) // 4 + 1)), int(random.integers(0, 10**6))
        while left or under_way:
            time += int(random.integers(step, 20 * step))
            if back and random.random() < 0.2:
                time -= int(random.integers(0, 6 * step))
            if left and (not under_way or random.random() < 0.5):
                under_way.append(names[random.integers(len(names))])
                words += [under_way[-1], time]
                left -= 1
            else:
                words += [under_way.pop() | 1 << 31, time]
        trace[:3] = 1000 + random.integers(0, 5000), random.integers(0, 132), len(words)
        trace[3 : 3 + len(words)] = words
    return made.astype(np.uint32).reshape(-1)


for name, scope, entries, step, back, given in (
    ("warpgroup", ThreadSubset.WARPGROUP, 35, 20, False, np.int64),
    ("warp", ThreadSubset.WARP, 19, 3, False, np.int64),
    ("back", ThreadSubset.WARPGROUP, 35, 30, True, np.uint32),
):
    spec = profiler.ProfilerSpec(entries, dump_path=str(FOLDER), trace_scope=scope)
    data = buffer(spec, np.random.default_rng(len(name)), step, back)
    np.save(FOLDER / f"{name}.npy", data)
    drawn = io.StringIO()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        spec.dump(data.astype(given), drawn, GRID, BLOCK)
    drawn = json.loads(drawn.getvalue())
    drawn["clock_warnings"] = sum("backwards" in str(one.message) for one in warned)
    (FOLDER / f"{name}.jax.json").write_text(json.dumps(drawn) + "\n")
    (FOLDER / "names.json").write_text(json.dumps(spec.interned_names) + "\n")
