"""Single programs and whole steps: launches, kernels, compiler options, caches, noise."""

from . import noise
from .steps_machine import LAUNCHES
from .steps_tune import keep_profiles, profiles_hold, selftest
from .tools import Finding, Unfit
from .tuned import Tuned, key

# XLA makes a command buffer of so many kernels by itself
STEP_KERNELS = 5


def measuring(tools):
    """The timer that has a profiler: the plugin's on a GPU, JAX's on a CPU."""
    return tools.timer() if tools.is_gpu() else tools.jax_timer()


def measured(tools, name, program, *words, timer=None):
    """The document of `measure`, or None and the reason if the profiler is refused."""
    try:
        command = ["measure", tools.module(program), *(timer or measuring(tools)), *words]
        return tools.ask(name, *command)[0], None
    except RuntimeError as error:
        return None, str(error)


def host_clock_us(tools, name, program, *words):
    """A program's time without a profiler, in microseconds."""
    document, _ = tools.ask(name, *selftest(tools, program, 2), "--metric", "elapsed", *words)
    if not document["programs"]:
        raise RuntimeError("; ".join(one["reason"] for one in document["failed"]) or f"{program} was not timed")
    return document["programs"][0]["median_ns"] / 1e3


def by_host_clock(tools, program, reason):
    """What is found of a program if the profiler is refused."""
    median = host_clock_us(tools, "host_clock", program)
    figure = f"by the host clock {median:.1f} µs, because the profiler is refused: {reason}"
    return Finding(False, figure, {"reason": reason, "median_us": median})


def measure(tools):
    """One program: is its device time found, and the time between its kernels?"""
    document, reason = measured(tools, "measure", "step_new", "--mode", "span")
    if document is None:
        return by_host_clock(tools, "step_new", reason)
    samples = document["samples"]
    sound = all(one["busy_ns"] <= one["span_ns"] <= one["busy_ns"] + one["gaps_ns"] + 1 for one in samples)
    works = document["source"] == "device-profile" and document["kernels"] > 0 and bool(samples) and sound
    figure = f"{document['kernels']} kernels in {(document['median_ns'] or 0) / 1e3:.1f} µs, by {document['source']}"
    return Finding(works, figure, {"document": document})


def launches(tools, how):
    """A step of six kernels, and a kernel alone, launched in this way."""
    tools.needs_gpu()
    found, figures, wrong = {}, [], []
    for program, fewest in (("step", STEP_KERNELS), ("few", 1)):
        profiles = tools.work / f"profiles-{how}-{program}"
        document, _ = tools.tune(program, program, "--launch", how, "--rounds", 6, "--keep-profiles", profiles)
        tuned = Tuned(document)
        kept = keep_profiles(tools, profiles, program)
        sums = {name: sum(one[name] for one in kept) for name in ("launched", "events", "in_graphs")}
        found[program] = {**tuned.data(), **sums, "profiles": kept}
        if document["launch"] != how or len(tuned.measured) < 2:
            wrong.append(f"{program}: {len(tuned.measured)} configs measured under `{document['launch']}`")
        if document["source"] != "device-profile":
            figures.append(f"{program} {min(tuned.measured.values(), default=0) / 1e3:.1f} µs, {tuned.clock()}")
            wrong.append("how kernels were launched is not seen")
            continue
        figures.append(
            f"{program}: {sums['in_graphs']} of {sums['events']} kernels of {sums['launched']} launches in buffers"
        )
        if not profiles_hold(kept) or sums["events"] < sums["launched"] * fewest:
            wrong.append(f"{program}: not every launch was found")
        if sums["in_graphs"] != (sums["events"] if how == "replay" else 0):
            wrong.append(f"{program}: not every kernel was launched so")
    return Finding(not wrong, "; ".join([*figures, *wrong]), found)


def replay(tools):
    """Are executions found if kernels are launched as command buffers, also a single one?"""
    return launches(tools, "replay")


def eager(tools):
    """Are they found if kernels are launched one by one?"""
    return launches(tools, "eager")


def kernels(tools):
    """Are the kernels of a step named and timed, in the same way by the plugin's and by JAX's profiler?"""
    tools.needs_gpu()
    found, figures, reasons = {}, [], []
    for name, timer in (("pjrt", tools.timer()), ("jax", tools.jax_timer())):
        words = ["--mode", "kernels", "--per-kernel", "--launch", "eager"]
        document, reason = measured(tools, name, "step_new", *words, timer=timer)
        if document is None:
            reasons.append(f"{name}: {reason}")
            continue
        found[name] = document
        figures.append(f"{name} {document['kernels']} kernels in {document['median_ns'] / 1e3:.1f} µs")
    named = {name: [one["name"] for one in document["per_kernel"]] for name, document in found.items()}
    works = len(found) == 2 and named["pjrt"] == named["jax"] and len(named["pjrt"]) > 1
    times = [document["median_ns"] for document in found.values()]
    figure = "; ".join([*figures, f"named {', '.join(named.get('pjrt', [])[:4])}", *reasons])
    return Finding(works, figure, {"documents": found}, len(times) == 2 and abs(times[0] / times[1] - 1) < 0.1)


def unlabelled(tools):
    """Are kernels that ship with JAX recognised in a profile, although nothing labels them?"""
    tools.needs_gpu()
    ran = tools.peer("unlabelled.py", "unlabelled", tools.folder, LAUNCHES)
    failed = {name: one["error"] for name, one in ran.items() if "error" in one}
    summary, _ = tools.ask("summary", "profile", "summary", tools.folder / "unlabelled.xplane.pb.gz", limit=30)
    kernels = summary["known_kernels"]
    figure = f"{len(ran) - len(failed)} of {len(ran)} ran; recognised "
    figure += ", ".join(f"{one['operation']} {one['share']:.1%}" for one in kernels) or "none"
    figure = "; ".join([figure, *(f"{name}: {error}" for name, error in failed.items())])
    return Finding(len(kernels) > 2, figure, {"ran": ran, "kernels": kernels})


def compare(tools):
    """A whole step with the baseline and with a good config: do both run, and is the difference beyond the noise?"""
    words = [tools.module("step_old"), tools.module("step_new"), *tools.timer(), "--budget", "15s"]
    document, _ = tools.ask("compare", "compare", *words, "--cache", tools.work / "caches" / "compare")
    first, second = document["contestants"]
    works = all(one.get("median_ns") for one in (first, second)) and document["noise"] is not None
    figure = "; ".join(
        f"{one['name'].rsplit('/', 1)[-1]} {one['median_ns'] / 1e3:.1f} µs" for one in (first, second) if works
    )
    failures = [one["failure"]["message"] for one in (first, second) if one.get("failure")]
    if not tools.machine.simulated and works:
        figure += f", {second.get('relation')}, noise {document['noise'].get('bound', 0):.2%}, "
        figure += f"outputs {second['outputs']['status']}"
    computed = second.get("relation") == "faster" and second["outputs"]["status"] == "equal"
    return Finding(works, "; ".join([figure, *failures]), {"document": document}, computed)


def options(tools):
    """Compiler options of a module without labels: are they tried, within the time that is given?"""
    budget = 25
    # nothing in it has XLA measure kernels while it compiles, so that it compiles on all cores
    words = [tools.module("small"), "--only-compiler-options", "--compiler-options", "safe", "--budget", f"{budget}s"]
    words += [*tools.timer(), "--rounds", 6, "--cache", tools.work / "caches" / "options"]
    document, done = tools.ask("options", *words)
    tuned = Tuned(document)
    unknown = [one["message"] for one in tuned.failed.values()]
    works = len(tuned.measured) > 1 and done.seconds < budget + 20
    figure = f"{len(tuned.measured)} of {len(tuned.candidates)} sets measured, {len(unknown)} failed, "
    figure += f"{done.seconds:.1f} s of {budget}"
    if not tools.machine.simulated:
        figure += f"; {tuned.outcome()}"
    return Finding(works, figure, {**tuned.data(), "seconds": done.seconds})


def same_against_same(tools):
    """How often is a program called faster than itself, and how small a difference can be told?"""
    document, done = tools.ask("selftest", *selftest(tools, None, 16, rounds=12))
    programs = document["programs"]
    false, decisions = (sum(one["false_wins"][name] for one in programs) for name in ("at_default", "decisions"))
    # disjoint pairs of copies: what of the decisions is independent
    trials = sum(one["copies"] // 2 for one in programs)
    low, high = noise.interval(false, decisions) if decisions else (0, 1)
    floor = max((one["resolution"] for one in programs), default=None)
    figure = (
        f"{false} false wins of {decisions} decisions among {trials} disjoint pairs ({low:.2%} to {high:.2%} if all "
    )
    figure += f"were independent); the noise floor is {floor or 0:.2%}; {document['source']}, {done.seconds:.1f} s"
    data = {"document": document, "false": false, "decisions": decisions, "interval": [low, high], "trials": trials}
    return Finding(None, figure, data, decisions > 0 and false <= 0.01 * decisions)


def caches(tools):
    """Does a run with a cold second-level cache take longer than one with a warm cache?"""
    tools.needs_gpu()
    medians, reasons = {}, []
    for state in ("warm", "cold"):
        document, reason = measured(tools, state, "stream", "--cache-state", state)
        if document is None:
            medians[state] = host_clock_us(tools, f"{state}_host", "stream", "--cache-state", state) * 1e3
            reasons.append(f"by the host clock, because the profiler is refused: {reason}")
        else:
            medians[state] = document["median_ns"]
    works = all(medians.values())
    figure = f"warm {(medians['warm'] or 0) / 1e3:.1f} µs, cold {(medians['cold'] or 0) / 1e3:.1f} µs"
    computed = works and medians["cold"] > medians["warm"]
    return Finding(works, "; ".join([figure, *reasons[:1]]), {"medians_ns": medians}, computed)


def host(tools):
    """Do the metrics with and without the host's part differ, and does the same config win?"""
    tools.needs_gpu()
    runs = {}
    for metric in ("elapsed", "busy"):
        # the second finds the executables of the first
        try:
            document, _ = tools.tune(metric, "few", "--metric", metric, "--rounds", 6, cache="host")
        except RuntimeError as error:
            raise Unfit(f"it needs both clocks: {error}") from None
        runs[metric] = Tuned(document)
    best = {metric: run.measured.get(key(run.best), 0) for metric, run in runs.items()}
    figure = (
        f"the winner takes {best['elapsed'] / 1e3:.1f} µs with the host's part, {best['busy'] / 1e3:.1f} µs without"
    )
    data = {metric: run.data() for metric, run in runs.items()}
    return Finding(all(best.values()), figure, data, best["elapsed"] > best["busy"] > 0)
