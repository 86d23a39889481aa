"""Devices that may be absent, by the names that `autotune-lowered compile --target` takes."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# maximum size of a device's description, which usually has some kilobytes
_MAX_BYTES = 1 << 20

# device kind, compute capability and multiprocessors of each file in `candidates/targets`
_CUDA = {
    "a10": ("NVIDIA A10", "8.6", 72),
    "a100_sxm_40": ("NVIDIA A100-SXM4-40GB", "8.0", 108),
    "a100_sxm_80": ("NVIDIA A100-SXM4-80GB", "8.0", 108),
    "b200": ("NVIDIA B200", "10.0", 148),
    "h100_sxm": ("NVIDIA H100 80GB HBM3", "9.0", 132),
    "h200": ("NVIDIA H200", "9.0", 132),
    "l4": ("NVIDIA L4", "8.9", 58),
    "l40s": ("NVIDIA L40S", "8.9", 142),
    "rtx_4090": ("NVIDIA GeForce RTX 4090", "8.9", 128),
}


@dataclasses.dataclass(frozen=True)
class _Chip:
    """A TPU as libtpu 0.0.42.1 describes it in a topology."""

    kind: str
    smallest: str
    devices: int = 1
    """How many devices a chip is."""
    cores: int = 1
    """How many cores a device has."""


_TPU = {
    "v2": _Chip("TPU v2", "2x2", devices=2),
    "v3": _Chip("TPU v3", "2x2", devices=2),
    "v4": _Chip("TPU v4", "2x2x1", devices=2),
    "v5e": _Chip("TPU v5 lite", "2x2"),
    "v5p": _Chip("TPU v5", "2x2x1", cores=2),
    "v6e": _Chip("TPU v6 lite", "2x2"),
    "tpu7x": _Chip("TPU7x", "2x2x1", devices=2),
}


@dataclasses.dataclass(frozen=True)
class Target:
    """A device to record for, which may be absent."""

    name: str
    """As it was named: `cuda:h100_sxm`, `tpu:v5e`."""
    identity: Mapping[str, Any] = dataclasses.field(hash=False)
    """`platform`, `device_kind` and `hardware`, as on the device itself; only the platform if nothing else is known."""
    cores: int = 0
    """Multiprocessors of a GPU, cores of a TPU's device."""
    axes: Mapping[str, int] = dataclasses.field(default_factory=lambda: {"x": 1}, hash=False)
    """How many devices there are along each side of its topology, and on each chip (`core`) if there are several."""

    @property
    def platform(self) -> str:
        """By the names of lowering: `cuda`, `tpu`."""
        return str(self.identity["platform"])

    @property
    def jax_platform(self) -> str:
        """By the names of JAX's devices: `gpu`, `tpu`."""
        return "gpu" if self.platform in ("cuda", "rocm") else self.platform

    @property
    def device_kind(self) -> str | None:
        """By PJRT's name: `NVIDIA L4`, `TPU v5 lite`; `None` if it is not known."""
        return self.identity.get("device_kind")

    @property
    def devices(self) -> int:
        """How many devices its topology has."""
        return math.prod(self.axes.values())

    @classmethod
    def named(cls, name: str) -> Target:
        """The target of a name. Raises ValueError for an unknown name, and for a file that does not state its GPU."""
        platform, _, device = name.partition(":")
        if platform == "cuda" and device in _CUDA:
            return cls._cuda(name, *_CUDA[device])
        if platform == "cuda" and ("/" in device or device.endswith(".txtpb")):
            return cls._cuda(name, *_read(Path(device)))
        chip, _, shape = device.partition(":")
        if platform == "tpu" and chip in _TPU:
            found = _TPU[chip]
            axes = axes_of(shape if ":" in device else found.smallest)
            if axes is not None:
                identity = {"platform": "tpu", "device_kind": found.kind, "hardware": {}}
                return cls(name, identity, found.cores, axes | ({"core": found.devices} if found.devices > 1 else {}))
        raise ValueError(
            f"`{name}` is no target: name one of {', '.join(names())}, or a GpuTargetConfigProto as `cuda:FILE.txtpb`"
        )

    @classmethod
    def of_platform(cls, platform: str) -> Target:
        """Any device of a platform."""
        return cls(platform, {"platform": platform})

    @classmethod
    def _cuda(cls, name: str, kind: str, capability: str, cores: int) -> Target:
        hardware = {"compute_capability": capability, "sm_count": str(cores)}
        # as the driver names a slice
        _, is_slice, slice_name = kind.partition(" MIG ")
        if is_slice:
            hardware["mig"] = slice_name
        return cls(name, {"platform": "cuda", "device_kind": kind, "hardware": hardware}, cores)


def names() -> list[str]:
    """The names of all targets that come with the package."""
    return [*(f"cuda:{name}" for name in _CUDA), *(f"tpu:{name}" for name in _TPU)]


def axes_of(shape: str) -> dict[str, int] | None:
    """The sides of a topology such as `2x4`; `None` if it is not one."""
    sides = shape.split("x")
    # sides of a length that the program accepts
    if len(sides) > 3 or not all(re.fullmatch("[0-9]{1,5}", side) and 0 < int(side) < 1 << 16 for side in sides):
        return None
    return dict(zip("xyz", map(int, sides), strict=False))


def _read(path: Path) -> tuple[str, str, int]:
    """Device kind, compute capability and multiprocessors of a GpuTargetConfigProto as text."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError("it is not a regular file")
            whole = file.read(_MAX_BYTES + 1)
        if len(whole) > _MAX_BYTES:
            raise OSError(f"it is larger than {_MAX_BYTES} bytes")
        text = re.sub(r"(?m)^\s*#.*$", "", whole.decode())
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: the target cannot be read: {error}; give a GpuTargetConfigProto as text") from error
    kind = re.search(r'\bdevice_description_str\s*:\s*"([^"]*)"', text)
    cores = re.search(r"\bcore_count\s*:\s*(\d+)", text)
    capability = re.search(r"\bcuda_compute_capability\s*:?\s*\{([^}]*)\}", text)
    major, minor = (
        re.search(rf"\b{part}\s*:\s*(\d+)", capability[1] if capability else "") for part in ("major", "minor")
    )
    for found, what in ((kind, "device_description_str"), (cores, "core_count"), (major, "cuda_compute_capability")):
        if found is None:
            raise ValueError(f"{path}: the target has no `{what}`: give a whole GpuTargetConfigProto")
    assert kind and cores and major
    return kind[1], f"{major[1]}.{minor[1] if minor else 0}", int(cores[1])
