"""Whether verdicts of `upgrade` agree: each ordered pair of compilers, several times, each run from an empty cache.

    python benches/upgrade.py REGISTRY ENV… [--only OP…] [--repeats N] [--same N] [--exe PROGRAM] [-- FLAG…]
    python benches/upgrade.py --planted N ENV [--exe PROGRAM]

`ENV` is what `--old` takes. Prints a line for each pair and call with the verdicts of all repeats, and how many of them
contradict each other (undecided contradicts nothing). Repeats of a pair are as far apart as they can be. `--same N`
compares each compiler with itself, N times, and counts alarms.

`--planted N` compares an environment with itself, where XLA does not fuse operations: the functions of
`upgrade_fused.py` are recorded, most of which lose by that. What they lose is measured by plain JAX as well, and those
are counted that lose twice the difference that matters and are named.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ALARMS = ("retune", "compiler-regressed", "lowering-regressed", "breaks")
SCRIPT = pathlib.Path(__file__).parent / "upgrade_fused.py"
NOT_FUSED = "--xla_disable_hlo_passes=fusion"
# twice the difference that matters, and what does not matter
LOST, KEPT = 1.1, 1.05


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


def truth(old, new):
    """How each function's time changes by plain JAX, in processes one after the other: the geometric mean."""
    ratios = collections.defaultdict(list)
    for _ in range(5):
        taken = []
        for environment in (old, new):
            words = [f"{environment}/bin/python", str(SCRIPT), "times"]
            taken.append(json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout))
        for name, ns in taken[0].items():
            ratios[name].append(taken[1][name] / ns)
    return {name: statistics.geometric_mean(all_of) for name, all_of in ratios.items()}


def planted(args):
    with tempfile.TemporaryDirectory() as folder:
        (environment,) = args.environments
        pair = (environment, not_fused(environment, pathlib.Path(folder)))
        changes = truth(*pair)
        found = compare(args, ["--record", str(SCRIPT)], {pair: args.planted})
    print("\nby plain JAX: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in changes.items()))
    kinds = collections.defaultdict(list)
    for (_, _, call), verdicts in found.items():
        name, _, direction = call.partition("@v1:")
        ratio = changes[f"{name} {direction.partition(' ')[2]}"]
        kind = "lost" if ratio >= LOST else "kept" if ratio <= KEPT else "between"
        kinds[kind] += verdicts
    named = kinds["lost"].count("compiler-regressed")
    print(f"{named} of {len(kinds['lost'])} regressions by {LOST - 1:.0%} or more named with their call")
    alarms = sum(verdict in ALARMS for verdict in kinds["kept"])
    print(f"{alarms} alarms in {len(kinds['kept'])} comparisons of what loses at most {KEPT - 1:.0%}")
    print(f"between: {collections.Counter(kinds['between'])}")


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
