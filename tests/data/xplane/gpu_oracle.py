"""What `jax.profiler.ProfileData` finds in captures of GPUs: python gpu_oracle.py CAPTURE.xplane.pb.gz ...

Beside each capture it writes `CAPTURE.oracle.json`: by plane, count and sum of durations of each operation
(`module/operation`, all executions) and of the events that name no module. XLA gives all kernels of a command buffer
the buffer's name, so there the operation is the kernel.
"""

import collections
import gzip
import json
import pathlib
import sys

from jax.profiler import ProfileData


def oracle(content):
    planes = {}
    for plane in ProfileData.from_serialized_xspace(content).planes:
        if not plane.name.startswith("/device:GPU:"):
            continue
        found = {"operations": collections.Counter(), "events_without_module": collections.Counter()}
        durations = collections.Counter()
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                module, operation = stats.get("hlo_module"), stats.get("hlo_op", event.name)
                if module is None:
                    kind, name = "events_without_module", event.name
                else:
                    kind = "operations"
                    name = f"{module}/{event.name if operation.startswith('command_buffer') else operation}"
                found[kind][name] += 1
                durations[kind, name] += event.duration_ns
        planes[plane.name] = {
            kind: {name: {"count": count, "total_ns": durations[kind, name]} for name, count in sorted(counts.items())}
            for kind, counts in found.items()
        }
    return planes


def main():
    for path in map(pathlib.Path, sys.argv[1:]):
        content = gzip.decompress(path.read_bytes())
        out = path.with_name(path.name.removesuffix(".xplane.pb.gz") + ".oracle.json")
        out.write_text(json.dumps(oracle(content), indent=1) + "\n")


if __name__ == "__main__":
    main()
