"""Tunes one module from nothing by several versions of the program, in turns: how long a first run takes, and what flips.

    python benches/decisions/in_turns.py PROGRAM… --module FILE --registry DIR --plugin FILE [--runs 6] [--keep DIR]

`cargo bench --bench decisions` makes the module and the registry, in `target/bench-decisions/programs-…/cases`. Prints
each program's seconds: the median, the least and the most, and those of confirming. Then, for a program that confirms
winners in fresh processes, which part of all pairs of runs publish different configs: as they did, and as they would
with other tolerances for equals, by the ratios that the fresh processes told. Of equals the first in the order of the
space counts. `--keep` keeps the runs' documents there, and takes those that are there into the count.
"""

import argparse
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOLERANCES = (0.0, 0.01, 0.02, 0.03)


def tune(program, given):
    """A run's seconds and its document."""
    with tempfile.TemporaryDirectory() as cache:
        words = [program, "--no-config", given.module, "--registry", given.registry, "--plugin", given.plugin]
        begin = time.monotonic()
        done = subprocess.run(
            [*words, "--cache", cache, "--format", "json"], capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - begin
    # exit code 1: a call is undecided
    if done.returncode > 1:
        sys.exit(f"{program}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return {"seconds": seconds, "operations": json.loads(done.stdout)["operations"]}


def published(operation, tolerance):
    """The config that a run published, or would with this tolerance; the baseline if it decided nothing."""
    best, known = operation.get("best"), operation.get("confirmation")
    if tolerance is None or not best or not known:
        return json.dumps(best["config"] if best else operation["baseline"])
    told = [(best["config"], known["ratio"])] + [(one["config"], one["ratio"]) for one in operation.get("rivals", [])]
    least = min(ratio for _, ratio in told)
    order = [one["config"] for one in operation["candidates"]]
    return json.dumps(min((config for config, ratio in told if math.log(ratio / least) <= tolerance), key=order.index))


def flips(runs, tolerance):
    """The part of all pairs of runs that publish different configs, in the mean over the calls."""
    by_call = zip(*([published(one, tolerance) for one in run["operations"]] for run in runs), strict=True)
    pairs = (list(itertools.combinations(configs, 2)) for configs in by_call)
    return statistics.fmean(statistics.fmean(a != b for a, b in of_call) for of_call in pairs)


def confirming(run):
    return sum(one["time_breakdown"].get("confirming_ns", 0) for one in run["operations"]) / 1e9


def spread(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    for name in ("module", "registry", "plugin"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--keep", type=pathlib.Path)
    given = parser.parse_args()
    runs = {program: [] for program in given.programs}
    for _ in range(given.runs):
        for program, own in runs.items():
            own.append(tune(program, given))
            print(f"{program}: {own[-1]['seconds']:.1f} s", file=sys.stderr)
    for number, own in enumerate(runs.values()):
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            own += [json.loads(path.read_text()) for path in sorted(given.keep.glob(f"{number}-*.json"))]
            for place, run in enumerate(own):
                (given.keep / f"{number}-{place}.json").write_text(json.dumps(run))
    columns = ["as published", *(f"tolerance {tolerance:.0%}" for tolerance in TOLERANCES)]
    print(f"| program | runs | seconds | of them confirming | flips {' | '.join(columns)} |")
    print("| --- " * (4 + len(columns)) + "|")
    for program, own in runs.items():
        times, confirmed = [run["seconds"] for run in own], [confirming(run) for run in own]
        shown = [f"{flips(own, one):.1%}" if len(own) > 1 else "–" for one in (None, *TOLERANCES)]
        print(f"| {program} | {len(own)} | {spread(times)} | {spread(confirmed)} | {' | '.join(shown)} |")


if __name__ == "__main__":
    main()
