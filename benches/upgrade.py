"""Whether verdicts of `upgrade` agree: each ordered pair of compilers, several times, each run from an empty cache.

    python benches/upgrade.py REGISTRY ENV… [--only OP…] [--repeats N] [--same N] [--exe PROGRAM] [-- FLAG…]
    python benches/upgrade.py --planted N ENV [--exe PROGRAM]

`ENV` is what `--old` takes. Prints a line for each pair and call with the verdicts of all repeats, and how many of them
contradict each other (undecided contradicts nothing). Repeats of a pair are as far apart as they can be. `--same N`
compares each compiler with itself, N times, and counts alarms.

`--planted N` compares an environment with itself, where XLA does not fuse operations: the functions of
`upgrade_fused.py` are recorded, of which all but `product` lose by that. It counts those that are named.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ALARMS = ("retune", "compiler-regressed", "lowering-regressed", "breaks")
SCRIPT = pathlib.Path(__file__).parent / "upgrade_fused.py"
NOT_FUSED = "--xla_disable_hlo_passes=fusion"


def upgrade(args, subject, old, new):
    with tempfile.TemporaryDirectory() as cache:
        words = [args.exe, "upgrade", *subject, "--old", old, "--new", new, "--cache", cache, "--format", "json"]
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


def print_row(old, new, call, verdicts):
    kinds = [verdict for verdict, _ in verdicts]
    ratios = ", ".join("–" if ratio is None else f"{ratio:.3f}" for _, ratio in verdicts)
    counted = ", ".join(f"{kinds.count(one)} {one}" for one in dict.fromkeys(kinds))
    print(f"| {old} | {new} | {call} | {counted} | {ratios} |", flush=True)


def compare(args, subject, pairs):
    """All verdicts, by pair and call."""
    found = collections.defaultdict(list)
    for repeat in range(max(pairs.values(), default=0)):
        for (old, new), repeats in pairs.items():
            for call in upgrade(args, subject, old, new) if repeat < repeats else []:
                found[old, new, name_of(call)].append((call["verdict"], call.get("change", {}).get("ratio")))
    print("| old | new | call | verdicts | new/old |\n| --- | --- | --- | --- | --- |")
    for (old, new, call), verdicts in found.items():
        print_row(old, new, call, verdicts)
    return {place: [verdict for verdict, _ in verdicts] for place, verdicts in found.items()}


def not_fused(environment, folder):
    """The same environment, in which XLA does not fuse."""
    python = folder / "not-fused" / "bin" / "python"
    python.parent.mkdir(parents=True)
    own = pathlib.Path(environment).absolute() / "bin" / "python"
    python.write_text(f'#!/bin/sh\nXLA_FLAGS="$XLA_FLAGS {NOT_FUSED}" exec "{own}" "$@"\n')
    python.chmod(0o755)
    return str(folder / "not-fused")


def planted(args):
    with tempfile.TemporaryDirectory() as folder:
        (environment,) = args.environments
        pair = (environment, not_fused(environment, pathlib.Path(folder)))
        found = compare(args, ["--record", str(SCRIPT)], {pair: args.planted})
    lost = {place: verdicts for place, verdicts in found.items() if not place[2].startswith("product")}
    kept = [verdict for place, verdicts in found.items() if place not in lost for verdict in verdicts]
    named = sum(verdict == "compiler-regressed" for verdicts in lost.values() for verdict in verdicts)
    print(f"\n{named} of {sum(map(len, lost.values()))} planted regressions named with their call")
    print(f"{sum(verdict in ALARMS for verdict in kept)} alarms in {len(kept)} comparisons of what loses nothing")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("registry", nargs="?")
    parser.add_argument("environments", nargs="*")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--same", type=int, default=0)
    parser.add_argument("--planted", type=int)
    parser.add_argument("--exe", default=os.environ.get("AUTOTUNE_LOWERED_EXE", "autotune-lowered"))
    words, _, flags = " ".join(sys.argv[1:]).partition(" -- ")
    args = parser.parse_intermixed_args(words.split())
    args.flags = flags.split()
    if args.planted:
        args.environments = [args.registry, *args.environments]
        return planted(args)
    pairs = {(old, new): args.repeats for old, new in itertools.permutations(args.environments, 2)}
    pairs |= {(one, one): args.same for one in args.environments}
    found = compare(args, [args.registry], pairs)
    contradictions = sum(len(set(verdicts) - {"undecided"}) > 1 for verdicts in found.values())
    print(f"\n{contradictions} of {len(found)} pairs and calls with verdicts that contradict each other")
    alone = [verdict for (old, new, _), verdicts in found.items() if old == new for verdict in verdicts]
    if alone:
        alarms = sum(verdict in ALARMS for verdict in alone)
        print(f"{alarms} alarms in {len(alone)} comparisons of a compiler with itself, {alone.count('holds')} hold")


if __name__ == "__main__":
    main()
