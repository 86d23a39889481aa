"""What NVIDIA's driver (NVML) says of the processes that use a GPU: this one, and another one that comes and goes.

    python counters.py OUT.json

Each phase lists, every 50 ms, the processes with memory on the GPU and their use of its multiprocessors since the last
time. Phases: `before` this process has a client, with a `client` that idles, with its `own` work, `beside` another that
computes while this idles, with `both`, and `after`, in which the other has a client and idles.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

PHASE_S, STEP_S = 1.2, 0.05


class Driver:
    """The first GPU as NVML sees it."""

    def __init__(self):
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        self.device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.last = 0

    def asked(self, function, *words):
        """What a function returns, or its error in words."""
        try:
            return getattr(self.nvml, function)(self.device, *words)
        except self.nvml.NVMLError as error:
            return str(error)

    def sample(self):
        began = time.perf_counter()
        processes = self.asked("nvmlDeviceGetComputeRunningProcesses")
        listed_us = (time.perf_counter() - began) * 1e6
        began = time.perf_counter()
        used = self.asked("nvmlDeviceGetProcessUtilization", self.last)
        used_us = (time.perf_counter() - began) * 1e6
        rates = self.asked("nvmlDeviceGetUtilizationRates")
        found = {"at_us": time.time_ns() // 1000, "listed_us": round(listed_us), "used_us": round(used_us)}
        found["processes"] = processes if isinstance(processes, str) else [one.pid for one in processes]
        if isinstance(used, str):
            found["used"] = used
        else:
            self.last = max([self.last, *(one.timeStamp for one in used)])
            found["used"] = [[one.pid, one.timeStamp, one.smUtil, one.memUtil] for one in used]
        found["gpu"] = rates if isinstance(rates, str) else rates.gpu
        return found


def phase(driver, work=None):
    """Samples of a phase, while this process does something; and how long each turn of that took."""
    samples, turns, ends = [], [], time.monotonic() + PHASE_S
    next_at = time.monotonic()
    while time.monotonic() < ends:
        if time.monotonic() >= next_at:
            samples.append(driver.sample())
            next_at += STEP_S
        if work is None:
            time.sleep(STEP_S / 5)
        else:
            began = time.perf_counter()
            work()
            turns.append(round((time.perf_counter() - began) * 1e3, 3))
    return {"samples": samples, "turns_ms": turns}


def main():
    out = pathlib.Path(sys.argv[1])
    driver = Driver()
    found = {"own_pid": os.getpid(), "phases": {"before": phase(driver)}}
    phases = found["phases"]
    import jax
    import jax.numpy as jnp

    x = jnp.ones((2048, 2048), jnp.bfloat16)
    product = jax.jit(lambda x: (x @ x) * 1e-3)
    product(x).block_until_ready()
    phases["client"] = phase(driver)

    def work():
        product(x).block_until_ready()

    phases["own"] = phase(driver, work)
    script = pathlib.Path(__file__).with_name("neighbour.py")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, script], **pipes) as other:
        found["other_pid"] = other.pid
        found["other_said"] = other.stdout.readline().strip()
        phases["beside"] = phase(driver)
        phases["both"] = phase(driver, work)
        other.stdin.write("idle\n")
        other.stdin.flush()
        phases["after"] = phase(driver, work)
        other.kill()
    out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
