"""The main job, and what belongs to it: executables from elsewhere, Mosaic kernels, peers, bad candidates."""

import json
import statistics
import zipfile

from . import machine, xspace
from .steps_machine import executions
from .tools import Finding, Unfit
from .tuned import Tuned, key, short

# of a time beside the same program's, compiled elsewhere
SAME_TIME = 0.05
# profiles of a run that are brought home
MOST_PROFILES = 2
FEWEST_CONFIGS = 5


def keep_profiles(tools, folder, stem="round"):
    """Copies the fullest rounds of `--keep-profiles`; of each it returns what was launched and what is found."""
    index = folder / "profiles.json"
    if not index.is_file():
        return []
    rounds = [
        one
        for invocation in json.loads(index.read_text())["invocations"]
        for one in invocation["profiles"]
        if "profile" in one
    ]
    rounds.sort(key=lambda one: len({function for function, _ in one["launches"]}), reverse=True)
    kept = []
    for number, one in enumerate(rounds[:MOST_PROFILES]):
        file = tools.folder / f"{stem}_{number}.xplane.pb.gz"
        content = (folder / one["profile"]).read_bytes()
        file.write_bytes(content)
        events, in_graphs = xspace.launched_in_graphs(content)
        found = executions(tools, file) | {"events": events, "in_graphs": in_graphs}
        kept.append({"file": file.name, "launched": sum(count for _, count in one["launches"]), **found})
    return kept


def profiles_hold(kept):
    """Whether every launch of the profiles is found in them."""
    return bool(kept) and all(one["executions"] == one["launched"] for one in kept)


def main_job(tools):
    """The main job: which of 16 configs of a matrix product is the fastest?"""
    profiles = tools.work / "profiles-main_job"
    words = ["--rounds", 8, "--thorough", "--keep-profiles", profiles, "--trace-run", tools.folder / "trace.json.gz"]
    document, done = tools.tune("tune", "product", *words)
    tuned = Tuned(document)
    kept = keep_profiles(tools, profiles)
    by_profile = document["source"] == "device-profile"
    works = len(tuned.measured) >= FEWEST_CONFIGS and not [one for one in tuned.unexpected if "wrong-output" not in one]
    works = works and (profiles_hold(kept) or not by_profile)
    figure = f"{len(tuned.measured)} of {len(tuned.candidates)} configs measured, {len(tuned.refused)} refused, "
    figure += f"{done.seconds:.1f} s, {tuned.clock()}"
    if by_profile:
        figure += f", {sum(one['executions'] for one in kept)} launches found in {len(kept)} profiles"
    if not tools.machine.simulated:
        figure += f"; {tuned.outcome()}"
    data = {**tuned.data(), "seconds": done.seconds, "profiles": kept}
    computed = tuned.operation["status"] == "tuned" and not tuned.unexpected
    return Finding(works, "; ".join([figure, *tuned.unexpected]), data, computed)


def store(tools):
    """Do executables that were compiled without the device load, and take the same time? Are their registers known?"""
    target = tools.target()
    here = Tuned(tools.earlier("main_job", "tune.json"))
    document, done = tools.tune("tune", "product", "--rounds", 8, "--thorough", *tools.store())
    there = Tuned(document)
    ratios = {
        config: there.measured[config] / time for config, time in here.measured.items() if config in there.measured
    }
    compiled_here = there.spent("compile_candidates") + there.spent("compile_baselines")
    kernels = registers(tools, target)
    works = bool(ratios) and compiled_here == 0 and there.refused == here.refused and not there.unexpected
    works = works and 0 < kernels["known"] == kernels["compiled"]
    median = statistics.median(ratios.values()) if ratios else float("nan")
    figure = f"{len(ratios)} programs loaded, {compiled_here:.1f} s of compiling here, {len(there.refused)} refused; "
    figure += f"registers of {kernels['known']} of {kernels['compiled']} programs"
    if not tools.machine.simulated:
        figure += f"; their time over that of the same compiled here: {median:.3f}"
    data = {**there.data(), "seconds": done.seconds, "ratios": ratios, "compiled_here_s": compiled_here, **kernels}
    return Finding(works, figure, data, bool(ratios) and abs(median - 1) <= SAME_TIME)


def registers(tools, target):
    """What the store's executables say of their kernels; nothing is compiled for it."""
    place = tools.programs() / "product"
    words = ["compile", place / "module.mlir", "--registry", place / "registry", "--target", target]
    words += ["--compiled", tools.gpu / "store", "-o", tools.work / "registers", "--plugin", tools.plugin()]
    document, _ = tools.ask("registers", *words, limit=30)
    programs = [one for call in document["targets"][0]["calls"] for one in call["candidates"]]
    compiled = [one for one in programs if one.get("status") == "compiled"]
    known = [one for one in compiled if one.get("kernels")]
    return {"compiled": len(compiled), "known": len(known), "kernels": [one["kernels"] for one in known]}


def mosaic_pjrt(tools):
    """Do JAX's default kernels on a GPU, Mosaic's, run in the plugin alone? Tokamax's attention, 17 configs of the store"""
    tools.needs_gpu()
    profiles = tools.work / "profiles-mosaic"
    found = mosaic(tools, *tools.store(), "--keep-profiles", profiles)
    found.data["profiles"] = keep_profiles(tools, profiles)
    return found


def mosaic_jax(tools):
    """Do they run in JAX, compiled on this machine?"""
    tools.needs_gpu()
    return mosaic(tools, timer=tools.jax_timer())


def mosaic(tools, *words, timer=None):
    document, done = tools.tune("tune", "attention", "--rounds", 6, "--thorough", *words, timer=timer)
    tuned = Tuned(document)
    figure = (
        f"{len(tuned.measured)} of {len(tuned.candidates)} configs measured in {done.seconds:.1f} s, {tuned.clock()}"
    )
    if not (tools.machine.simulated and tuned.measured):
        figure += f"; {tuned.outcome()}"
    others = [one for one in tuned.unexpected if "wrong-output" not in one]
    reasons = sorted({one["message"] for one in tuned.failed.values()})[:2]
    works = len(tuned.measured) == len(tuned.candidates) and not others
    data = {**tuned.data(), "seconds": done.seconds}
    return Finding(works, "; ".join([figure, *reasons]), data, not tuned.unexpected)


def confirm(tools):
    """Is the winner faster outside of this program, too: by JAX's own profiler (CUPTI) and by the host clock?"""
    tools.earlier("main_job", "tune.json")
    tune = tools.files / "main_job" / "tune.json"
    found = tools.peer("confirm.py", "confirm", "cuda" if tools.is_gpu() else "cpu", tune)
    gains = {clock: value for clock, value in found["speed_up"].items() if value}
    figure = ", ".join(f"{clock} {value:.2f}" for clock, value in gains.items())
    if found.get("cupti_error"):
        figure += f"; no CUPTI: {found['cupti_error'].splitlines()[0][:200]}"
    wrong = [name for name, error in found["relative_error"].items() if not error < 0.02]
    if wrong:
        figure += f"; wrong results: {', '.join(wrong)}"
    outside = [value for clock, value in gains.items() if clock != "ours"]
    holds = bool(outside) and not wrong and min(outside) > 1
    if tools.is_gpu() and gains.get("cupti") and gains.get("ours"):
        holds = holds and abs(gains["cupti"] / gains["ours"] - 1) < 0.1
    return Finding(None, f"the winner's time into the baseline's: {figure}", found, holds)


def peer_triton(tools):
    """The same work by triton.autotune, and by cuBLAS: how long do they take, and how good is what they choose?"""
    tools.needs_gpu()
    ours = Tuned(tools.earlier("main_job", "tune.json"))
    for package in ("torch", "triton"):
        if not machine.site_with(tools.machine.python, f"{package}/__init__.py"):
            raise Unfit(f"{package} is not installed")
    found = tools.peer("triton_peer.py", "triton", tools.files / "main_job" / "tune.json")
    times = found["times_ms"]
    fastest = min(times.values())
    regret = {
        "ours": times.get(key(ours.best), float("nan")) / fastest - 1,
        "theirs": times[found["best"]] / fastest - 1,
    }
    seconds = tools.earlier_data("main_job").get("seconds", float("nan"))
    figure = (
        f"triton.autotune {found['autotune_s']:.1f} s, here {seconds:.1f} s; by Triton's own times its choice loses "
    )
    figure += f"{regret['theirs']:.1%}, ours {regret['ours']:.1%}; cuBLAS {found['cublas_ms']:.3f} ms, "
    figure += f"our winner {ours.measured[key(ours.best)] / 1e6:.3f} ms"
    return Finding(None, figure, {**found, "regret": regret, "our_seconds": seconds}, found["relative_error"] < 0.02)


def peer_tokamax(tools):
    """Tokamax tunes its own attention: how long does it take, and how good is what it chooses?"""
    tools.needs_gpu()
    ours = Tuned(tools.earlier("mosaic_jax", "tune.json"))
    site = tools.work / "site"
    for wheel in sorted((tools.gpu / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    found = tools.peer("tokamax_peer.py", "tokamax", site)
    times = {key(one["config"]): one["median_ms"] for one in found["configs"] if one["median_ms"]}
    seconds = tools.earlier_data("mosaic_jax").get("seconds", float("nan"))
    figure = f"tokamax.autotune {found['seconds']:.1f} s for {len(times)} configs, here {seconds:.1f} s"
    if times:
        theirs = min(times, key=times.get)
        regret = {"theirs": ours.measured.get(theirs, float("nan")) / min(ours.measured.values()) - 1}
        regret["ours"] = times.get(key(ours.best), float("nan")) / times[theirs] - 1
        figure += f"; by our times its choice {short(json.loads(theirs))} loses {regret['theirs']:.1%}, "
        figure += f"by its times ours loses {regret['ours']:.1%}"
        found["regret"] = regret
    return Finding(None, figure, found, bool(times))


def parallel(tools):
    """Do several compile jobs save time, and choose the same winner?"""
    runs, seconds = {}, {}
    for jobs in (1, 8):
        document, _ = tools.tune(f"jobs_{jobs}", "few", "--rounds", 8, "--thorough", "--compile-jobs", jobs)
        runs[jobs] = Tuned(document)
        seconds[jobs] = runs[jobs].spent("compile")
    one, eight = runs[1], runs[8]
    works = set(one.measured) == set(eight.measured) and len(one.measured) > 1
    figure = f"compiling {len(one.candidates)} programs: {seconds[1]:.1f} s with 1 job, {seconds[8]:.1f} s with 8"
    same = key(one.best) in eight.ties or key(eight.best) in one.ties
    if not tools.machine.simulated:
        figure += ", the same winner" if same else f", another winner: {short(one.best)}, {short(eight.best)}"
    data = {str(jobs): run.data() for jobs, run in runs.items()}
    return Finding(works, figure, data, same)


# how each candidate of `bad` must end; a write out of bounds may also go unnoticed by the device
EXPECTED = {
    "right": {"measured"},
    "right-too": {"measured"},
    "wrong": {"wrong-output"},
    "out-of-bounds": {"execute", "crash", "device", "wrong-output"},
    "minutes": {"timeout"},
    "100-gigabytes": {"memory", "execute", "compile", "crash"},
    "shared-memory": {"compile"},
}


def bad(tools):
    """Do bad candidates (wrong, out of bounds, minutes long, 100 GB, too much shared memory) cost themselves alone?"""
    memory = ["--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader"]
    before = machine.smi(*memory)
    # 100 GB of host memory would disturb others on a machine that has them
    words = [] if tools.is_gpu() else ["--memory-limit", 4096]
    document, _ = tools.tune("tune", "bad", "--rounds", 6, "--thorough", "--timeout", 12, *words)
    tuned = Tuned(document)
    ends = {
        one["config"]["mode"]: one["failure"]["kind"] if one["status"] == "failed" else one["status"]
        for one in tuned.candidates
    }
    wrong = {mode: end for mode, end in ends.items() if end not in EXPECTED[mode]}
    after = machine.smi(*memory)
    well, _ = tools.ask("afterwards", *selftest(tools, "small", 2))
    median = well["programs"][0]["median_ns"] if well["programs"] else None
    figure = ", ".join(f"{mode}: {end}" for mode, end in ends.items())
    figure += f"; afterwards a program takes {median / 1e3:.1f} µs" if median else "; afterwards nothing runs"
    data = {**tuned.data(), "ends": ends, "unexpected": wrong, "before": before, "after": after}
    works = bool(median) and ends["right"] == "measured" and ends.get("shared-memory", "compile") == "compile"
    return Finding(works, figure, data, not wrong)


def selftest(tools, program, copies, rounds=6):
    words = ["selftest", *([tools.module(program)] if program else []), *tools.timer()]
    return [*words, "--copies", copies, "--rounds", rounds, "--cache", tools.work / "caches" / "selftest"]
