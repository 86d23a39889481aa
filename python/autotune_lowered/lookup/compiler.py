"""Whether a measured program was compiled by this process's compiler, which tuned compiler options require."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from typing import Any

Environment = dict[str, Any]

# libtpu, runtime and compiler in one file, states its change number
_BUILD = re.compile(r"\bcl/\d+")
# prefix of the version of a client that JAX reaches through a plugin's file
_OF_A_FILE = "PJRT C API"


def why_another(there: Environment, here: Environment) -> str | None:
    """Why programs of `there` are compiled by another compiler than `here`; `None` if they are not.

    The compiler is the same if name and digest are equal, if both are the same build of libtpu, or if this process
    has loaded the very file.
    """
    if named(there) and named(there) == named(here):
        return None
    builds = [_BUILD.findall(one.get("platform_version") or "") for one in (there, here)]
    if builds[0] and builds[0] == builds[1]:
        return None
    plugin, digest = there.get("plugin"), there.get("plugin_digest")
    if plugin and digest and (here.get("platform_version") or "").startswith(_OF_A_FILE):
        if digest == here.get("plugin_digest") or digest in map(_digest_of, _loaded(plugin)):
            return None
    said = f"measured with {named(there) or 'an unknown compiler'}, here is {named(here)}"
    return f"{said}; tune the module again, with `--timer jax`, which compiles as this process does"


def named(environment: Environment) -> str:
    """In the form of the program's `Environment::compiler`, with the whole digest."""
    return " ".join(filter(None, [environment.get("plugin"), environment.get("plugin_digest")]))


def _loaded(name: str, maps: str = "/proc/self/maps") -> list[str]:
    """Files of this name that the process has loaded, if the system reports them."""
    try:
        with open(maps, errors="surrogateescape") as file:
            # address, permissions, offset, device, inode, and the path
            columns = [line.rstrip("\n").split(None, 5) for line in file]
    except OSError:
        return []
    paths = {line[5] for line in columns if len(line) == 6}
    return sorted(path for path in paths if os.path.basename(path) == name)


@functools.cache
def _digest_of(path: str) -> str | None:
    """SHA-256 of a file; a vendor's plugin has half a gigabyte, and a process reads it once."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
