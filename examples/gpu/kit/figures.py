"""The figures of a run for docs/benchmarks.md, each in one row."""

from .results import NOT_TRIED
from .tuned import short


def rows(steps):
    """Pairs of what was measured and its value, of the steps that have one."""
    found = []
    for step, label, value in FIGURES:
        if steps.get(step, {}).get("result", NOT_TRIED) == NOT_TRIED:
            continue
        try:
            found.append((label, value(steps[step]["data"])))
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
            # the step did not get so far
            continue
    return found


def seconds(data):
    return f"{data['seconds']:.1f} s"


def winner(data):
    low, high = data["speed_up_interval"]["low"], data["speed_up_interval"]["high"]
    return f"{short(data['best'])}, {data['speed_up']:.2f} times ({low:.2f} to {high:.2f})"


def compiling(data):
    one, eight = (data[jobs]["time_breakdown"]["compile_ns"] / 1e9 for jobs in ("1", "8"))
    return f"{one:.1f} s with 1 job, {eight:.1f} s with 8: {one / eight:.1f} times as fast"


def median_ratio(data):
    ratios = sorted(data["ratios"].values())
    return f"{ratios[len(ratios) // 2]:.3f} (median of {len(ratios)}, {ratios[0]:.3f} to {ratios[-1]:.3f})"


def false_wins(data):
    low, high = data["interval"]
    return (
        f"{data['false']} of {data['decisions']} decisions ({low:.2%} to {high:.2%}), {data['trials']} disjoint pairs"
    )


def floor(data):
    floors = {one["program"]: one["resolution"] for one in data["document"]["programs"]}
    return ", ".join(f"{name} {value:.2%}" for name, value in floors.items())


def both(data):
    return ", ".join(f"{state} {value / 1e3:.2f} µs" for state, value in data["medians_ns"].items())


def fresh_runs(data):
    gains = ", ".join(f"{run['speed_up'] or 1:.3f}" for run in data["runs"])
    return f"{gains}; {min(data['seconds']):.1f} to {max(data['seconds']):.1f} s"


def between_processes(data):
    found = {one["program"]: one["between_processes"] for one in data["document"]["programs"]}
    return ", ".join(f"{name} {spread['deviation']:.1%}" for name, spread in found.items())


def beside(data):
    alone, shared = (value / 1e3 for value in data["medians_ns"])
    return f"{alone:.1f} µs alone, {shared:.1f} µs beside it; tuned in {data['seconds']:.1f} s as {data['load']}"


PRODUCT = "matrix product 4096³, bf16"
FIGURES = [
    (
        "jax_alone",
        "8192³ matrix product of XLA's, bf16",
        lambda data: f"{data['jax']['ceiling']['found']['tflops']:.0f} TFLOP/s",
    ),
    ("main_job", f"{PRODUCT}: 16 configs compiled and raced", seconds),
    ("main_job", f"{PRODUCT}: winner over the baseline", winner),
    ("confirm", "the same by JAX's profiler (CUPTI)", lambda data: f"{data['speed_up']['cupti']:.2f} times"),
    ("confirm", "the same by the host clock in JAX", lambda data: f"{data['speed_up']['host']:.2f} times"),
    ("peer_triton", f"{PRODUCT}: `triton.autotune`, the same configs", lambda data: f"{data['autotune_s']:.1f} s"),
    ("peer_triton", "regret of its choice by Triton's own times", lambda data: f"{data['regret']['theirs']:.1%}"),
    ("peer_triton", "regret of ours by Triton's own times", lambda data: f"{data['regret']['ours']:.1%}"),
    ("peer_triton", f"{PRODUCT}: cuBLAS", lambda data: f"{data['cublas_ms']:.3f} ms"),
    ("mosaic_pjrt", "attention of Tokamax's (Mosaic GPU), 17 configs from a store", seconds),
    ("mosaic_jax", "the same, compiled and timed by JAX", seconds),
    ("peer_tokamax", "the same by `tokamax.autotune`", seconds),
    ("peer_tokamax", "regret of its choice by our times", lambda data: f"{data['regret']['theirs']:.1%}"),
    ("peer_tokamax", "regret of ours by its times", lambda data: f"{data['regret']['ours']:.1%}"),
    ("store", "time of an executable from elsewhere over one compiled here", median_ratio),
    ("parallel", "8 programs compiled", compiling),
    ("same_against_same", "false wins at the default minimum improvement", false_wins),
    ("same_against_same", "noise floor", floor),
    ("same_against_same", "standard deviation between processes", between_processes),
    ("fresh", "matrix product 1024³, 8 configs: gain in four fresh runs", fresh_runs),
    ("neighbour", "a step beside a process that computes on the GPU", beside),
    ("caches", "one pass over 8 MB, warm and cold second-level cache", both),
    (
        "warm_up",
        "libraries read for the first time",
        lambda data: f"{data['bytes'] / 1e9:.1f} GB in {data['seconds']:.1f} s",
    ),
]
