"""Fresh runs of seven ejkernel calls, by this package and by ejkernel's own tuner: how often two runs disagree.

    python benches/ejkernel/flips.py PROGRAM [--runs 10] [--peer-runs 10] [--busy 2] [--keep FILE]

PROGRAM is `target/release/autotune-lowered`. The Python has this package, JAX and ejkernel. The calls are unmodified
ejkernel on a CPU (`calls.py`), forward. Both tuners take turns. Each run is a process with an empty store; ours measures
by the same Python's JAX, ejkernel's has the policy `autotune` and calls each operation once. `--busy` processes keep
cores busy meanwhile, and ours gets `--under-load`. Prints a Markdown table:

- regret: the time of the published config over that of the best, minus one. Two runs of ours without a store measure all
  configs in every one of 20 rounds, one before all others and one after them; the mean of their ratios is the reference.
- flips: the part of all pairs of runs that publish different configs. Undecided runs count as the baseline.
- replayed: the decisions that a second process takes from the store.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

CALLS = pathlib.Path(__file__).with_name("calls.py")


def output(command, **environment):
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("EJKERNEL_", "AUTOTUNE_LOWERED_"))
    }
    changed = {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=kept | changed, check=False
    )
    # exit code 1: a call is undecided
    if done.returncode > 1:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def leaves(config):
    """The parameters of a config without its nesting."""
    pairs = ((name, leaves(value) if isinstance(value, dict) else value) for name, value in config.items())
    return {
        f"{name}.{inner}" if inner else name: leaf
        for name, value in pairs
        for inner, leaf in (value.items() if isinstance(value, dict) else [("", value)])
    }


class Ours:
    name = "autotune-lowered"

    def __init__(self, given, folder):
        self.given, self.folder = given, folder
        heuristics = {"EJKERNEL_AUTOTUNE_POLICY": "heuristics", "EJKERNEL_PERSISTENT_CACHE_DIR": folder / "none"}
        record = [sys.executable, CALLS, "record", folder / "registry", folder / "module.mlir"]
        self.keys = json.loads(output(record, **heuristics))

    def tune(self, cache, *flags):
        words = [self.given.program, "--no-config", self.folder / "module.mlir", "--registry", self.folder / "registry"]
        words += ["--timer", f"jax:{sys.executable}", "--cache", cache, "--format", "json", *flags]
        by_key = {one["call_key"]: one for one in json.loads(output(words))["operations"]}
        return {name: by_key[key] for name, key in self.keys.items()}

    def run(self, store):
        said = self.tune(store, *(["--under-load"] if self.given.busy else []))
        published = {name: (one.get("best") or {"config": one["baseline"]})["config"] for name, one in said.items()}
        stored = sum(one["status"] == "cached" for one in said.values())
        undecided = sum(one["status"] not in ("tuned", "baseline-kept", "cached") for one in said.values())
        return {name: leaves(config) for name, config in published.items()}, stored, undecided

    def reference(self):
        """The ratio of each config to the baseline, by call."""
        with tempfile.TemporaryDirectory() as cache:
            said = self.tune(cache, "--thorough", "--rounds", "20", "--ignore-load")
        return {
            name: [
                (leaves(one["config"]), one.get("ratio", 1.0)) for one in said[name]["candidates"] if "median_ns" in one
            ]
            for name in said
        }


class Ejkernel:
    name = "ejkernel"

    def __init__(self, given, folder):
        del given, folder

    def run(self, store):
        tuned = {"EJKERNEL_AUTOTUNE_POLICY": "autotune", "EJKERNEL_PERSISTENT_CACHE_DIR": store}
        said = json.loads(output([sys.executable, CALLS, "call"], **tuned))
        stored = sum(one["is_stored"] for one in said.values())
        return {name: leaves(one["config"]) for name, one in said.items()}, stored, 0


def place_of(config, reference):
    """The candidate that a tuner published, which may name more parameters than vary."""
    return next(
        place
        for place, (known, _) in enumerate(reference)
        if all(config.get(name) == value for name, value in known.items())
    )


def rows(tuner, runs, references):
    """What each call's runs published, and the sums."""
    flips, regrets, told = [], [], []
    for name, (first, last) in references.items():
        logs = [(math.log(a[1]) + math.log(b[1])) / 2 for a, b in zip(first, last, strict=True)]
        places = [place_of(run["published"][name], first) for run in runs]
        pairs = list(itertools.combinations(places, 2))
        flips.append(sum(a != b for a, b in pairs) / max(1, len(pairs)))
        regrets += [math.exp(logs[place] - min(logs)) - 1 for place in places]
        told.append(
            f"| {tuner} | {name} | {len(first)} | {statistics.fmean(regrets[-len(runs) :]):.1%} | {flips[-1]:.1%} |"
        )
    seconds = statistics.median(run["seconds"] for run in runs)
    undecided, stored = (sum(run[of] for run in runs) for of in ("undecided", "stored"))
    decided = len(runs) * len(references) - undecided
    found = f"{statistics.fmean(regrets):.1%} | {statistics.fmean(flips):.1%} | {stored} of {decided} | {undecided}"
    return told, f"| {tuner} | {len(runs)} | {found} | {seconds:.1f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--peer-runs", type=int, default=10)
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path)
    given = parser.parse_args()
    runs, busy = {}, []
    with tempfile.TemporaryDirectory() as scratch:
        tuners = [tuner(given, pathlib.Path(scratch)) for tuner in (Ours, Ejkernel)]
        try:
            busy += [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
            first = tuners[0].reference()
            of_tuners = zip(tuners, (given.runs, given.peer_runs), strict=True)
            turns = sorted((turn / of, turn, place) for place, (_, of) in enumerate(of_tuners) for turn in range(of))
            for _, turn, place in turns:
                tuner = tuners[place]
                with tempfile.TemporaryDirectory() as store:
                    begin = time.monotonic()
                    published, _, undecided = tuner.run(store)
                    seconds = time.monotonic() - begin
                    stored = tuner.run(store)[1]
                print(f"run {turn + 1}, {tuner.name}: {seconds:.1f} s, {published}", file=sys.stderr)
                run = {"published": published, "undecided": undecided, "seconds": seconds, "stored": stored}
                runs.setdefault(tuner.name, []).append(run)
            last = tuners[0].reference()
        finally:
            for process in busy:
                process.kill()
    references = {name: (first[name], last[name]) for name in first}
    if given.keep:
        given.keep.write_text(json.dumps({"runs": runs, "references": references}))
    judged = [rows(tuner, of_tuner, references) for tuner, of_tuner in runs.items()]
    print("| tuner | call | configs | mean regret | flips |\n| --- | --- | --- | --- | --- |")
    print("\n".join(line for told, _ in judged for line in told))
    print("\n| tuner | runs | mean regret | flips: mean | replayed | undecided | seconds of a run |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(summary for _, summary in judged))


if __name__ == "__main__":
    main()
