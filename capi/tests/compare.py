"""Compares look-ups of programs that use the C ABI with `autotune-lowered cache get`.

python3 capi/tests/compare.py PROGRAM CACHE DEVICE.json LOOKUP...
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def run(*words: str) -> tuple[int, bytes, str]:
    """Exit code, stdout and stderr."""
    done = subprocess.run(words, capture_output=True, timeout=60)
    return done.returncode, done.stdout, done.stderr.decode()


def flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Values by path, without lists and nulls, which the examples do not print."""
    found = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{before}{name}."))
        elif value is not None and not isinstance(value, list):
            found[before + name] = value
    return found


def shown(value: Any) -> bytes:
    """A value as the examples print it."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        # an integer that does not fit in int64_t is read as a double
        return str(value).encode() if -(2**63) <= value < 2**63 else b"%.17g" % value
    return b"%.17g" % value if isinstance(value, float) else value.encode()


def check(program: str, cache: str, device: str, lookups: list[str]) -> int:
    """Compares all calls of a cache, and returns their number."""
    code, listed, said = run(program, "cache", "ls", "--cache", cache, "--format", "json")
    assert code == 0, said
    entries = json.loads(listed)["entries"]
    for entry in entries:
        call = (entry["op_id"], entry["call_key"])
        code, printed, said = run(
            program, "cache", "get", *call, "--match", "kind", "--cache", cache, "--format", "json"
        )
        assert code == 0, said
        expected = json.loads(printed)
        values = flat(expected["config"])
        for lookup in lookups:
            code, printed, said = run(lookup, cache, device, *call, "kind", *values)
            assert code == 0, (lookup, call, said)
            first, _, rest = printed.partition(b"\n")
            assert json.loads(first) == expected["config"], (lookup, call, first)
            assert rest == b"".join(b"%s=%s\n" % (path.encode(), shown(value)) for path, value in values.items()), rest
            for flag in expected["flags"]:
                assert f"{flag['kind']}: {flag['detail']}" in said, (lookup, call, said)
    # a miss has the same reason, too
    call = (entries[0]["op_id"], "nobody tuned this")
    code, _, said = run(program, "cache", "get", *call, "--match", "kind", "--cache", cache)
    reason = said.strip().splitlines()[-1].partition(": ")[2]
    assert code == 3 and "cached" in reason, said
    for lookup in lookups:
        code, printed, said = run(lookup, cache, device, *call, "kind")
        assert (code, printed) == (3, b"") and reason in said, (lookup, said, reason)
    return len(entries)


if __name__ == "__main__":
    _, program, cache, device, *lookups = sys.argv
    print(
        f"compare: {check(program, cache, device, lookups)} calls of {cache} are found alike by {len(lookups)} programs"
    )
