"""Several processes: fresh runs of one question, and a GPU that another program uses, too."""

import contextlib
import statistics
import subprocess

from . import process
from .steps_measure import measured
from .steps_tune import selftest
from .tools import Finding, TimeUp, Unfit
from .tuned import Tuned, key, short

RUNS = 4
MOST_START_S = 40


def fresh(tools):
    """Do fresh runs of one question choose the same config, and how long do their confirming processes take?"""
    runs, seconds = [], []
    for number in range(RUNS):
        document, done = tools.tune(f"run_{number}", "few")
        runs.append(Tuned(document))
        seconds.append(done.seconds)
    agreeing = sum(key(one.best) in runs[0].ties or key(runs[0].best) in one.ties for one in runs)
    intervals = [one.operation["speed_up_interval"] for one in runs if one.operation.get("speed_up_interval")]
    overlap = len(intervals) == RUNS and max(one["low"] for one in intervals) <= min(one["high"] for one in intervals)
    confirming = [one.spent("confirming") for one in runs]
    figure = (
        f"{RUNS} runs of {min(seconds):.1f} to {max(seconds):.1f} s, of which {statistics.median(confirming):.1f} s "
    )
    figure += f"confirm; {agreeing} choose what the first cannot tell from its winner"
    if not tools.machine.simulated:
        figure += "; " + ", ".join(f"{short(one.best)} {one.operation.get('speed_up') or 1:.3f}" for one in runs)
    data = {"runs": [one.data() for one in runs], "seconds": seconds, "agreeing": agreeing, "overlap": overlap}
    works = all(len(one.measured) > 1 for one in runs)
    return Finding(works, figure, data, agreeing == RUNS and overlap)


@contextlib.contextmanager
def beside(tools):
    """Another program that computes on the GPU meanwhile."""
    peers = tools.gpu / "peers"
    environment = tools.environment(XLA_PYTHON_CLIENT_PREALLOCATE="false")
    with (tools.folder / "neighbour.err").open("wb") as err:
        child = subprocess.Popen(
            [tools.machine.python, peers / "neighbour.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=err,
            env=environment,
            preexec_fn=process.in_own_group,
        )
        try:
            # ends with the process, or with the step's own limit
            if child.stdout.readline().strip() != b"computing":
                raise RuntimeError("the other program did not start")
            yield
        finally:
            process.end(child)


def neighbour(tools):
    """Another program computes on the GPU: what does the driver say of it, and do times and decisions change?"""
    tools.needs_gpu()
    if not tools.machine.site:
        raise Unfit("no Python with JAX was found: name one with --python")
    try:
        counters, said = tools.peer("counters.py", "counters", limit=MOST_START_S), ""
    except (Unfit, RuntimeError, TimeUp) as error:
        counters, said = {"phases": {}}, f"; {error}"
    quiet, _ = measured(tools, "quiet", "small")
    with beside(tools):
        shared, _ = measured(tools, "shared", "small")
        document, _ = tools.ask("selftest", *selftest(tools, "small", 8), "--under-load")
        tuned, done = tools.tune("tune", "few", "--wait-for-quiet", 2)
    slower = [one["median_ns"] if one and one.get("median_ns") else float("nan") for one in (quiet, shared)]
    programs = document["programs"]
    false, decisions = (sum(one["false_wins"][name] for one in programs) for name in ("at_default", "decisions"))
    outcome = Tuned(tuned)
    load = outcome.operation.get("load", "quiet")
    figure = f"the driver names {len(named(counters))} processes; a step takes {slower[0] / 1e3:.1f} µs alone, "
    figure += f"{slower[1] / 1e3:.1f} µs beside it; {false} false wins of {decisions} decisions; "
    figure += f"tuned in {done.seconds:.1f} s as {load}: {outcome.outcome()}{said}"
    data = {"counters": counters, "medians_ns": slower, "selftest": document, "tuned": outcome.data()}
    data |= {"load": load, "seconds": done.seconds}
    return Finding(None, figure, data, load == "contended" and decisions > 0 and false <= 0.01 * decisions)


def named(counters):
    """The processes whose use of the multiprocessors the driver said."""
    samples = [one for phase in counters["phases"].values() for one in phase["samples"]]
    return {used[0] for one in samples if isinstance(one["used"], list) for used in one["used"]}
