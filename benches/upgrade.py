"""Whether verdicts of `upgrade` agree: each ordered pair of compilers, several times, each run from an empty cache.

    python benches/upgrade.py REGISTRY ENV… [--only OP…] [--repeats N] [--same N] [--exe PROGRAM] [-- FLAG…]

`ENV` is what `--old` takes. Prints a line for each pair and call with the verdicts of all repeats, and how many of them
contradict each other (undecided contradicts nothing). `--same N` compares each compiler with itself, N times, and counts
alarms.
"""

import argparse
import collections
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

ALARMS = ("retune", "compiler-regressed", "breaks")


def upgrade(args, old, new):
    with tempfile.TemporaryDirectory() as cache:
        words = [args.exe, "upgrade", args.registry, "--old", old, "--new", new, "--cache", cache, "--format", "json"]
        for name in args.only:
            words += ["--only", name]
        begin = time.monotonic()
        done = subprocess.run([*words, *args.flags], capture_output=True, text=True)
        if not done.stdout:
            raise SystemExit(f"{old} to {new}: {done.stderr[-2000:]}")
        print(f"{old} to {new}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        return json.loads(done.stdout)["calls"]


def name_of(call):
    return f"{call['op_id']}:{call['call_key']} ({call['direction']})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("registry")
    parser.add_argument("environments", nargs="+")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--same", type=int, default=0)
    parser.add_argument("--exe", default=os.environ.get("AUTOTUNE_LOWERED_EXE", "autotune-lowered"))
    words, _, flags = " ".join(sys.argv[1:]).partition(" -- ")
    args = parser.parse_args(words.split())
    args.flags = flags.split()
    pairs = list(itertools.permutations(args.environments, 2)) if args.repeats else []
    pairs += [(one, one) for one in args.environments] if args.same else []
    contradictions = comparisons = alarms = 0
    print("| old | new | call | verdicts | new/old |\n| --- | --- | --- | --- | --- |")
    for old, new in pairs:
        found = collections.defaultdict(list)
        for _ in range(args.same if old == new else args.repeats):
            for call in upgrade(args, old, new):
                found[name_of(call)].append((call["verdict"], call.get("change", {}).get("ratio")))
        for call, all_of in found.items():
            verdicts = [verdict for verdict, _ in all_of]
            ratios = ", ".join("–" if ratio is None else f"{ratio:.3f}" for _, ratio in all_of)
            decided = set(verdicts) - {"undecided"}
            contradictions += len(decided) > 1
            if old == new:
                comparisons += len(verdicts)
                alarms += sum(verdict in ALARMS for verdict in verdicts)
            counted = ", ".join(f"{verdicts.count(one)} {one}" for one in dict.fromkeys(verdicts))
            print(f"| {old} | {new} | {call} | {counted} | {ratios} |", flush=True)
    print(f"\n{contradictions} pairs and calls with verdicts that contradict each other")
    if comparisons:
        print(f"{alarms} alarms in {comparisons} comparisons of a compiler with itself")


if __name__ == "__main__":
    main()
