"""What the documents say of GPUs, and which step shows it."""

import typing

from .results import DOES_NOT, WORKS
from .steps_machine import LAUNCHES


def works(step):
    return {WORKS: True, DOES_NOT: False}.get(step["result"])


def by_profile(step):
    """Whether the device's profile timed it."""
    return step["data"]["source"] == "device-profile"


def loads_everything(step):
    data = step["data"]
    return data["compiled_here_s"] == 0 and bool(data["ratios"])


def knows_registers(step):
    return 0 < step["data"]["known"] == step["data"]["compiled"]


def costs_one_candidate(step):
    """Whether the right candidates were measured although others crash, hang and take too much memory."""
    ends = step["data"]["ends"]
    return ends["right"] == ends["right-too"] == "measured" and works(step)


def rejects_wrong(step):
    return step["data"]["ends"]["wrong"] == "wrong-output"


def separates_launches(step):
    """Whether every launch of JAX's own was found."""
    return all(one["executions"] == LAUNCHES for one in step["data"]["spaces"].values())


def is_rare(step):
    return step["data"]["false"] <= 0.01 * step["data"]["decisions"]


class Promise(typing.NamedTuple):
    page: str
    words: str
    """As they stand in the page."""
    step: str
    holds: typing.Callable = works
    computed: bool = False
    """Whether it follows from computed values, of which a SIMULATED device has none."""

    def shown(self, steps):
        """What the results say of it: whether it holds, or None if its step did not get so far."""
        try:
            return self.holds(steps[self.step])
        except (LookupError, TypeError, AttributeError):
            return None

    def verdict(self, steps, simulated):
        """The same in words."""
        shown = self.shown(steps)
        if shown is None or simulated and self.computed:
            return "not shown"
        return "holds" if shown else "contradicted"


PROMISES = [
    Promise(
        "README.md", "A crash, a hang or runaway memory costs one candidate", "bad", costs_one_candidate, computed=True
    ),
    Promise(
        "README.md",
        "A candidate whose outputs differ from the baseline's is rejected",
        "bad",
        rejects_wrong,
        computed=True,
    ),
    Promise("README.md", "ran on an H100", "main_job", by_profile, computed=True),
    Promise("README.md", "by the PJRT plugin of the active environment's JAX on a GPU", "device"),
    Promise("docs/targets.md", "A target has the identity of the device that it stands for", "device"),
    Promise("docs/targets.md", "registers per thread, at most 255", "store", knows_registers),
    Promise("docs/targets.md", "an executable is loaded instead of compiled", "store", loads_everything),
    Promise("docs/profiles.md", "its kernels and copies, on all streams", "measure"),
    Promise("docs/profiles.md", "a new one begins when the first kernel comes again", "jax_alone", separates_launches),
    Promise("docs/profiles.md", "with the same `correlation_id` are of one launch", "jax_alone", separates_launches),
    Promise("docs/profiles.md", "has the profiler extension, as the CUDA plugins do", "main_job", by_profile),
    Promise("docs/profiles.md", "`--per-kernel` lists each by name, in launch order", "kernels"),
    Promise("docs/profiles.md", "Every launch of that round is found", "main_job", by_profile),
    Promise("docs/decisions.md", "asks NVIDIA's driver (NVML) for the application clocks", "clocks"),
    Promise("docs/decisions.md", "launched on a GPU: as command buffers (`replay`)", "replay"),
    Promise("docs/decisions.md", "or one by one (`eager`)", "eager"),
    Promise("docs/decisions.md", "with the host's part (`elapsed`) or the device's alone (`span`, `busy`)", "host"),
    Promise(
        "docs/decisions.md",
        "it races identical copies of a program, so every difference is noise",
        "same_against_same",
        is_rare,
        computed=True,
    ),
    Promise("docs/compare.md", "by how much, and whether that is more than noise", "compare"),
    Promise("docs/options.md", "`--budget` limits the whole search", "options"),
    Promise(
        "docs/worker-protocol.md",
        "a program writes 256 MiB there, twice the largest second-level cache of any GPU",
        "caches",
        computed=True,
    ),
    Promise("docs/recording.md", "Tokamax chooses its Mosaic GPU kernels for an H100", "mosaic_pjrt"),
]
