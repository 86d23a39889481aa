"""What is on this machine: the Python with JAX, the plugin, CUDA, and whether the GPU is a simulation."""

from __future__ import annotations

import dataclasses
import glob
import os
import pathlib
import re
import shutil
import subprocess

# prints where a Python keeps its packages; it imports none of them
SITES = "import sysconfig; print(sysconfig.get_path('purelib')); print(sysconfig.get_path('platlib'))"
# where images of machines with GPUs keep an environment with JAX
ENVIRONMENTS = ("/opt/*/bin/python3", "/opt/*/.venv/bin/python3", "/opt/*/venv/bin/python3", "/venv/bin/python3")
PLUGINS = "jax_plugins/xla_cuda*/xla_cuda_plugin.so"
# a simulation says so in its libcuda and in its driver's version, and whoever starts it may say so too
IN_DRIVER, IN_VERSION, VARIABLE = b"SIMULATED GPU", "SIMULATED", "SIMULATED_GPU"
VERSION = pathlib.Path("/proc/driver/nvidia/version")


@dataclasses.dataclass
class Machine:
    python: str | None
    """A Python with JAX."""
    site: str | None
    """Its folder of packages."""
    plugin: str | None
    """The PJRT plugin."""
    cuda_home: str | None
    simulated: bool


def look(python=None, plugin=None):
    """Finds what was not named."""
    pythons = [python] if python else found_pythons()
    for candidate in pythons:
        site = site_with(candidate, "jax/__init__.py")
        if site:
            python = candidate
            break
    else:
        site = None
    if plugin is None and site:
        # the newest CUDA's, as JAX itself would choose
        plugin = max(glob.glob(f"{site}/{PLUGINS}"), default=None)
    return Machine(python, site, plugin, cuda_home(), is_simulated())


def found_pythons():
    named = [f"{os.environ[name]}/bin/python3" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)]
    found = [shutil.which("python3"), *(path for pattern in ENVIRONMENTS for path in sorted(glob.glob(pattern)))]
    return [path for path in [*named, *found] if path and os.access(path, os.X_OK)]


def site_with(python, file):
    """The folder of packages of a Python that holds a file."""
    try:
        done = subprocess.run([python, "-c", SITES], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    extra = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return next(
        (site for site in [*extra, *done.stdout.split()] if site and (pathlib.Path(site) / file).exists()), None
    )


def cuda_home():
    """CUDA's folder, in which XLA finds `ptxas` and `libdevice`."""
    named = os.environ.get("CUDA_HOME")
    nvcc = shutil.which("nvcc") or max(glob.glob("/usr/local/cuda*/bin/nvcc"), default=None)
    return named or (str(pathlib.Path(nvcc).resolve().parent.parent) if nvcc else None)


def is_simulated():
    named = bool(os.environ.get(VARIABLE)) or IN_VERSION in driver_version()
    return named or any(IN_DRIVER in path.read_bytes() for path in drivers())


def drivers():
    """The driver's library, if the environment says where it is: on a real machine the loader knows."""
    folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    paths = [pathlib.Path(folder) / "libcuda.so.1" for folder in folders]
    return [path for path in paths if path.is_file()][:1]


def driver_version():
    """What the kernel says of NVIDIA's driver; empty without one."""
    try:
        return VERSION.read_text(errors="replace")[:2000]
    except OSError:
        return ""


def smi(*words):
    """The output of nvidia-smi, or why there is none."""
    try:
        done = subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi: {error}"
    return done.stdout.strip() or done.stderr.strip()


def driver():
    """The version of NVIDIA's driver, or None."""
    found = re.search(r"\b\d+\.\d+[.\d]*", driver_version())
    return found[0] if found else None
