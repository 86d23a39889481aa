"""The cost of a look-up in Python, compared with ejkernel's PersistentCache on the same entries, in one run.

pip install . ejkernel==0.0.80.3 jax==0.10.2
cargo bench --bench lookup -- --write /tmp/lookup.snapshot --entries 100000
python benches/lookup.py /tmp/lookup.snapshot
"""

import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

OP = "flash_attention@v2"
FINGERPRINT = "NVIDIA H200|PJRT C API\ncuda 12090"


def median(name, values, unit="ms", scale=1e3):
    values = sorted(value * scale for value in values)
    low, high = values[len(values) // 4], values[3 * len(values) // 4]
    print(f"{name:<34} {statistics.median(values):10.3f} {unit}  (quartiles {low:.3f} to {high:.3f})")


def times(count, call):
    for _ in range(count):
        start = time.perf_counter()
        call()
        yield time.perf_counter() - start


def fresh(code):
    """Seconds that the code reports, in a fresh process."""
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def each(keys, get):
    """Seconds per call, over all keys."""
    start = time.perf_counter()
    for key in keys:
        get(key)
    return (time.perf_counter() - start) / len(keys)


def main():
    path = sys.argv[1]
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    median("import autotune_lowered", [fresh(code.format("autotune_lowered")) for _ in range(11)])
    median("import autotune_lowered.cache", [fresh(code.format("autotune_lowered.cache")) for _ in range(11)])

    from autotune_lowered.cache import Cache, Device

    device = Device("cuda", "NVIDIA H200", {"compute_capability": "9.0", "sm_count": "132"})
    with open(path + ".json") as file:
        calls = [name.rsplit("|", 1)[1] for name in json.load(file)]
    median(f"open, {len(calls)} entries", times(51, lambda: Cache.open(path)))
    cache = Cache.open(path)
    keys = calls[::37][:2000]
    assert all(cache.get(device, OP, key) for key in keys)
    median(
        "get, first time",
        (each([key], lambda key: cache.get(device, OP, key)) for key in calls[1::41][:2000]),
        "us",
        1e6,
    )
    median("get, known", [each(keys, lambda key: cache.get(device, OP, key)) for _ in range(21)], "us", 1e6)

    if importlib.util.find_spec("ejkernel") is None:
        print("ejkernel is not installed: its PersistentCache is left out")
        return
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from ejkernel.modules.operations.configs import FlashAttentionConfig
    from ejkernel.ops.config.persistent import PersistentCache

    peer_path = str(pathlib.Path(path + ".json"))
    load = lambda: PersistentCache("flash-attn", path=peer_path, cfg_type=FlashAttentionConfig)
    median("ejkernel: open", times(5, load))
    peer = load()
    assert all(peer.get(FINGERPRINT, OP, key) is not None for key in keys)
    median("ejkernel: get", [each(keys, lambda key: peer.get(FINGERPRINT, OP, key)) for _ in range(21)], "us", 1e6)


if __name__ == "__main__":
    main()
