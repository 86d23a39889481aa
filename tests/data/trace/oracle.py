"""What `jax.profiler.ProfileData` reads in the captures of `../xplane`: slices, nanoseconds and stats, for each line.

    python oracle.py > oracle.json
"""

import gzip
import json
import pathlib

from jax.profiler import ProfileData

captures = {}
for path in sorted((pathlib.Path(__file__).parent.parent / "xplane").glob("*.xplane.pb*")):
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    lines = {}
    for plane in ProfileData.from_serialized_xspace(data).planes:
        for line in plane.lines:
            # of two stats with one name an argument can be only one
            events = [(round(one.start_ns), round(one.duration_ns), len(dict(one.stats))) for one in line.events]
            if events:
                lines[f"{plane.name} {line.name}"] = {
                    "slices": len(events),
                    "total_ns": sum(duration for _, duration, _ in events),
                    "first_ns": min(start for start, _, _ in events),
                    "last_ns": max(start + duration for start, duration, _ in events),
                    "stats": sum(stats for _, _, stats in events),
                }
    captures[path.name.split(".")[0]] = lines
print(json.dumps(captures, indent=1))
