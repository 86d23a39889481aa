"""Compares `examples/load_best.rs` with what the program tuned: compare.py LOAD_BEST CACHE DEVICE.json TUNED.json"""

import json
import subprocess
import sys

load_best, cache, device, tuned = sys.argv[1:]
identity = json.load(open(device))["plugins"][0]["devices"][0]["identity"]
hardware = [f"{name}={value}" for name, value in identity["hardware"].items()]
entries = json.load(open(tuned))["entries"]
for entry in entries:
    words = [
        load_best,
        cache,
        identity["platform"],
        identity["device_kind"],
        entry["op_id"],
        entry["call_key"],
        *hardware,
    ]
    printed = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    config, found, _ = printed.partition(" (from the ")
    assert found and json.loads(config) == entry["config"], (printed, entry)
assert entries
print(f"load_best: {len(entries)} calls are found alike")
