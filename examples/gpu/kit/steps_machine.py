"""What machine this is: facts, libraries in memory, the device, and JAX without any part of this program."""

import glob
import hashlib
import os
import pathlib
import platform
import time

from . import machine
from .tools import Finding

# what says something about the machine, and holds no secret
TOLD = ("CUDA", "NVIDIA", "XLA_", "JAX_", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PATH")
LIBRARIES = ("nvidia/*/lib/*.so*", "nvidia/*/*/lib/*.so*", "jax_cuda*_plugin/*.so", "jaxlib/*.so")
SPACES = ("eager", "default", "buffers", "loaded")
LAUNCHES = 3


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def facts(tools):
    """Which driver, CUDA, JAX and plugin are here? Is the plugin that for which the store was made?"""
    found = tools.machine
    said = machine.smi()
    (tools.folder / "nvidia-smi.txt").write_text(said + "\n\n" + machine.smi("-q")[:100_000] + "\n")
    versions = sorted(
        pathlib.Path(path).name[: -len(".dist-info")]
        for pattern in ("jax*", "nvidia*", "torch-*", "triton-*", "flax-*", "numpy-*")
        for path in (glob.glob(f"{found.site}/{pattern}.dist-info") if found.site else [])
    )
    digest = sha256(found.plugin) if found.plugin else None
    store = tools.manifest.get("plugin_sha256")
    data = {
        "python": found.python,
        "plugin": found.plugin,
        "plugin_sha256": digest,
        "as_prepared": digest is not None and digest == store,
        "cuda_home": found.cuda_home,
        "versions": versions,
        "driver": machine.driver_version(),
        "devices": sorted(glob.glob("/dev/nvidia*")),
        "cores": os.cpu_count(),
        "memory": pathlib.Path("/proc/meminfo").read_text().splitlines()[:3],
        "kernel": platform.release(),
        "libc": platform.libc_ver(),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(TOLD)},
        "prepared": tools.manifest,
    }
    fits = "as prepared" if data["as_prepared"] else "not the one of the store"
    figure = f"{data['cores']} cores, driver {machine.driver() or 'unknown'}, CUDA in {found.cuda_home}; "
    figure += f"plugin {found.plugin} ({fits})" if found.plugin else "no plugin was found: name one with --plugin"
    return Finding(bool(found.plugin), figure, data)


def warm_up(tools):
    """How long does it take to read the libraries once? Later steps find them in memory."""
    paths = [tools.program, tools.plugin()]
    if tools.machine.site:
        paths += [path for pattern in LIBRARIES for path in glob.glob(f"{tools.machine.site}/{pattern}")]
    began, size = time.monotonic(), 0
    # the largest are read last, because a limit of time may end this
    for path in sorted({os.path.realpath(path) for path in paths}, key=os.path.getsize):
        with open(path, "rb", buffering=0) as file:
            while block := file.read(16 << 20):
                size += len(block)
                if tools.left() < 1:
                    return Finding(True, f"{size / 1e9:.1f} GB, and then the time was up", {"bytes": size})
    seconds = time.monotonic() - began
    figure = f"{len(paths)} libraries, {size / 1e9:.1f} GB in {seconds:.1f} s"
    return Finding(True, figure, {"bytes": size, "seconds": seconds})


def device(tools):
    """Does the plugin start? Is the device's fingerprint that of a target of the store?"""
    if isinstance(tools.device, str):
        return Finding(False, tools.device, {})
    target = tools.manifest_target()
    figure = tools.identity_text()
    figure += f", as `{target}` says" if target else ", which is no target of the store"
    data = {"document": tools.device, "target": target}
    return Finding(bool(tools.identity["device_kind"]) and (target is not None or not tools.is_gpu()), figure, data)


def clocks(tools):
    """Does the driver (NVML) say how fast the GPU may run, and did somebody set its clocks?"""
    tools.needs_gpu()
    plugin = tools.device["plugins"][0]
    found, notes = plugin.get("clocks"), plugin.get("notes", [])
    query = "name,clocks.sm,clocks.mem,clocks.max.sm,clocks.applications.graphics,clocks_throttle_reasons.active"
    data = {"clocks": found, "notes": notes, "nvidia_smi": machine.smi(f"--query-gpu={query}", "--format=csv,noheader")}
    if found is None:
        return Finding(False, "; ".join(notes) or "no clocks, and no reason", data)
    sm, memory = (f"{found[name]} of {found['max_' + name]} MHz" for name in ("sm_mhz", "memory_mhz"))
    return Finding(True, f"may run at {sm}, memory at {memory}", data)


def jax_alone(tools):
    """What does JAX say by itself? Does this program find every launch in its four XSpaces?"""
    tools.needs_gpu()
    found = tools.peer("jax_alone.py", "jax_alone", tools.folder, LAUNCHES)
    spaces, wrong = {}, []
    for name in SPACES:
        file = tools.folder / f"{name}.xplane.pb.gz"
        if not file.is_file():
            wrong.append(f"{name}: {found.get(name, {}).get('error', 'no XSpace')}")
            continue
        spaces[name] = executions(tools, file)
        if spaces[name]["executions"] != LAUNCHES:
            wrong.append(f"{name}: {spaces[name]['executions']} of {LAUNCHES} launches found")
    peak = found.get("ceiling", {}).get("found", {}).get("tflops")
    figure = f"{len(spaces) - len([w for w in wrong if 'launches' in w])} of {len(SPACES)} XSpaces read"
    figure += f", {peak:.0f} TFLOP/s" if peak else ", no ceiling measured"
    data = {"jax": found, "spaces": spaces}
    return Finding(not wrong, "; ".join([figure, *wrong]), data)


def executions(tools, file):
    """How many executions this program finds in an XSpace, and the names of its operations."""
    summary, _ = tools.ask(f"summary-{file.name.split('.')[0]}", "profile", "summary", file, "--top", 20, limit=30)
    left_out = sum(part["executions"] for part in summary.get("skipped", {}).values())
    return {
        "executions": sum(one["executions"] for one in summary["devices"]) + left_out,
        "layouts": sorted({one["layout"] for one in summary["devices"]}),
        "operations": [one["operation"] for one in summary["operations"]],
        "notes": summary["notes"],
        "findings": summary["findings"],
    }
