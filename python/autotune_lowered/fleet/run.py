"""A run of a fleet, from the user's request to the result."""

from __future__ import annotations

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from .._program import ProgramError
from .cache_folder import CacheFolder
from .device_worker import versions
from .driver import Driver, Order
from .leases import Call
from .result import FleetError, FleetOperation, FleetResult
from .shipment import ShipmentError, digest, pack

_VERSION_S = 60
# seconds, because another process may hold the cache while it writes
_FLUSH_S = 60


def tune(
    module: str | os.PathLike[str],
    registry: str | os.PathLike[str],
    *,
    cache: str | os.PathLike[str],
    resources: Mapping[str, float] | None = None,
    timer: str = "jax",
    rounds: int | None = None,
    match: str = "exact",
    only: Sequence[str] = (),
    force: bool = False,
    options: Sequence[str] = (),
    devices: int | None = None,
    lease_s: float = 1800,
    attempts: int = 3,
    start_timeout_s: float = 120,
    timeout_s: float = 6 * 3600,
    address: str | None = None,
    shared: bool = False,
    max_ship_bytes: int = 1 << 30,
) -> FleetResult:
    """Tunes every operation of a module once for each kind of device of a Ray cluster.

    Each worker actor holds `resources` (default `{"num_gpus": 1}`; `num_cpus`, `num_gpus` and `memory` are Ray's, other
    names are custom resources), so there are as many workers as the cluster has room for, at most `devices`. The
    module's calls are leased to the workers, tuned by the program there, and committed to `cache`, here, one by one.
    What is in the cache survives if this process is killed, and the next run does not measure it again.

    Args:
        module: the lowered module, a file or an XLA dump folder.
        registry: folder of recorded invocations.
        cache: cache folder on this machine; no other process may tune into it meanwhile.
        timer: the program's `--timer`; `jax` runs in the workers' own Python.
        rounds, match, only, force: the program's options of these names.
        options: more arguments of the program, such as `["--plugin", "/path/on/each/node"]`.
        lease_s: seconds that one call may take, including compilation; then its processes are ended.
        attempts: leases of one call before it is given up, each on another node if there is one.
        start_timeout_s: longest wait for Ray to run a worker if none is running, and then for its plan.
        timeout_s: limit of the whole run.
        address: of the cluster, unless Ray is connected already: `RAY_ADDRESS` or the one on this machine if None.
        shared: use module and registry by path, because every node has them. Otherwise they are shipped, up to
            `max_ship_bytes`, and their SHA-256 is compared on arrival.

    Returns the result, even if some operations failed: see `FleetResult.is_complete`.

    Raises:
        FleetError: no Ray, no cluster, no worker in `start_timeout_s` (with what the cluster lacks), an unusable cache or
            input. Decisions made so far are in the cache, and in the error's `result`.
        ValueError: a limit that is not positive.
        KeyboardInterrupt: after the workers were ended; decisions made so far are in the cache.
    """
    limits = {"lease_s": lease_s, "attempts": attempts, "start_timeout_s": start_timeout_s, "timeout_s": timeout_s}
    limits |= {} if devices is None else {"devices": devices}
    for name, value in limits.items():
        if not value > 0:
            raise ValueError(f"`{name}` must be positive, not {value!r}")
    resources = {"num_gpus": 1} if resources is None else dict(resources)
    if not any(amount > 0 for amount in resources.values()):
        raise ValueError("`resources` must name what one worker holds, such as {'num_gpus': 1}")
    ray = _import_ray()
    words = [*_words("--rounds", rounds), "--match", match, *(word for name in only for word in ("--only", name))]
    words += [*(["--force"] if force else []), *options]
    try:
        shipment, settings, content = _goods(pathlib.Path(module), pathlib.Path(registry), shared, max_ship_bytes)
        folder = CacheFolder(pathlib.Path(cache))
        ours = versions(_VERSION_S)
    except (ShipmentError, ProgramError) as error:
        raise FleetError(str(error)) from None
    order = Order(
        resources=resources,
        settings=settings | {"timer": timer, "options": words},
        shipment=shipment,
        digest=content,
        versions=ours,
        lease_s=lease_s,
        attempts=attempts,
        timeout_s=timeout_s,
        start_timeout_s=start_timeout_s,
        devices=devices,
        force=force,
    )
    connected_here = _connect(ray, address)
    driver = None
    try:
        driver = Driver(ray, order, folder)
        driver.run()
        folder.flush(_FLUSH_S)
    except (FleetError, ProgramError) as error:
        failed = FleetError(str(error))
        failed.result = None if driver is None else _result(driver, folder)
        raise failed from None
    finally:
        if connected_here:
            ray.shutdown()
    return _result(driver, folder)


def _words(name: str, value: object) -> list[str]:
    return [] if value is None else [name, str(value)]


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise FleetError("a fleet needs Ray: pip install 'autotune-lowered[ray]'") from None
    return ray


def _connect(ray: Any, address: str | None) -> bool:
    """Connects to the cluster; returns whether it was done here."""
    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        what_next = "start one with `ray start --head`, or name its address"
        raise FleetError(f"no Ray cluster at `{address}`: {said}; {what_next}") from None
    return True


def _goods(
    module: pathlib.Path, registry: pathlib.Path, shared: bool, max_bytes: int
) -> tuple[bytes | None, dict[str, Any], str]:
    """The shipment, its location on a node, and the digest to compare there."""
    for path in (module, registry):
        if not path.exists():
            raise ShipmentError(f"`{path}` is not there")
    if shared:
        content = digest(module.read_bytes()) if module.is_file() else ""
        return None, {"module": str(module.absolute()), "registry": str(registry.absolute())}, content
    there = f"module/{module.name}"
    packed = pack({there: module, "registry": registry}, max_bytes)
    return packed, {"module": there, "registry": "registry"}, digest(packed)


def _result(driver: Driver, folder: CacheFolder) -> FleetResult:
    operations, entries, missed = [], [], []
    notes = list(driver.notes)
    for group, device in sorted(driver.devices.items()):
        missed += [label | {"device": device.name} for label in device.plan["missed"]]
        notes += [note for note in device.plan["notes"] if note not in notes]
        for planned in device.plan["operations"]:
            key = (planned["op_id"], planned["call_key"], planned["direction"])
            row = device.rows.get(key)
            call = Call(group, *key[:2])
            is_leased = planned["status"] == "planned"
            if row is None:
                row = planned | {
                    "status": "failed",
                    "reason": driver.book.why_failed(call) or "the run ended before it",
                }
            best = row.get("best") or {}
            operation = FleetOperation(
                *key,
                device=device.name,
                status=row["status"],
                best=best.get("config"),
                best_ns=best.get("median_ns"),
                speed_up=row.get("speed_up"),
                node=row.get("node"),
                attempts=driver.book.attempts(call) if is_leased else 0,
                reason=row["reason"],
            )
            operations.append(operation)
            entry = folder.entry(group, *key)
            if operation.is_decided and entry is not None:
                entries.append(entry)
    return FleetResult(operations, entries, missed, notes)
