"""The workers of a fleet: where the cluster has capacity for one, which exist, and which nodes are excluded."""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from .device_worker import DeviceWorker

_LOG = logging.getLogger("autotune_lowered")
# seconds between queries of the cluster's nodes
_LOOK_S = 2
_STOP_S = 5
# resources for which Ray has names; all others are custom ones
_NAMED = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


@dataclasses.dataclass
class Member:
    """A worker actor. `node_id` is None if Ray chose the node and the worker has not reported it yet; `placed_at` is
    when it reported that it runs; `is_ready` means that its plan is complete and it belongs to the fleet."""

    number: int
    actor: Any
    node_id: str | None
    since: float
    placed_at: float | None = None
    is_ready: bool = False


class Crew:
    """Starts actors of `DeviceWorker` and ends them; one actor for each share of `resources` that a node has."""

    def __init__(
        self,
        ray: Any,
        resources: Mapping[str, float],
        settings: Mapping[str, Any],
        devices: int | None,
        deaths: int,
        note: Callable[[str], None],
    ):
        """At most `devices` actors; a node where `deaths` actors died at their start is excluded."""
        self._ray = ray
        self._resources = resources
        self._settings = dict(settings)
        self._devices = devices
        self._deaths = deaths
        self._note = note
        self.members: dict[int, Member] = {}
        # by node: its name and the reason
        self.left_out: dict[str, tuple[str, str]] = {}
        self._made = 0
        self._seen: set[str | None] = set()
        self._died_starting: collections.Counter[str] = collections.Counter()
        self._look_at = 0.0

    def look(self, now: float, fill: bool) -> tuple[list[Member], list[Member]]:
        """Compares with the cluster's present nodes, every few seconds: returns the members whose node is gone, and new
        ones: initially, as replacements, and on nodes that joined, unless `fill` is False."""
        if now < self._look_at:
            return [], []
        self._look_at = now + _LOOK_S
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        alive = {None, *(node["NodeID"] for node in nodes)}
        gone = [member for member in self.members.values() if member.node_id not in alive]
        slots = {
            node["NodeID"]: self._slots(node["Resources"]) for node in nodes if node["NodeID"] not in self.left_out
        }
        taken = collections.Counter(member.node_id for member in self.members.values())
        wanted = sum(slots.values()) if self._devices is None else self._devices
        made: list[Member] = []
        while fill and len(self.members) - len(gone) < wanted:
            free = [node for node, count in slots.items() if taken[node] < count]
            if not free:
                break
            # nodes fill up evenly, in one order
            node = min(free, key=lambda node: (taken[node], node))
            taken[node] += 1
            made.append(self._make(node, now))
        if fill and not self.members and not any(slots.values()) and not self.left_out:
            # requests beyond the capacity make an autoscaling cluster grow
            made.append(self._make(None, now))
        return gone, made

    def _slots(self, resources: Mapping[str, float]) -> int:
        needs = {_NAMED.get(name, name): amount for name, amount in self._resources.items() if amount}
        # with a tolerance, because thirds of a device add up to one
        return min((int(resources.get(name, 0) / amount + 1e-6) for name, amount in needs.items()), default=1)

    def _make(self, node_id: str | None, now: float) -> Member:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        named = {name: amount for name, amount in self._resources.items() if name in _NAMED}
        custom = {name: amount for name, amount in self._resources.items() if name not in _NAMED}
        # a worker only starts processes and waits for them, so it needs no core unless requested
        options: dict[str, Any] = {
            "num_cpus": 0,
            "max_restarts": 0,
            "max_task_retries": 0,
            **named,
            "resources": custom,
        }
        if node_id is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)
        actor = self._ray.remote(DeviceWorker).options(**options).remote(self._settings)
        self._made += 1
        member = self.members[self._made] = Member(self._made, actor, node_id, now)
        return member

    def is_ready(self, member: Member) -> None:
        """A member has started and belongs to the fleet."""
        member.is_ready = True
        self._seen.add(member.node_id)

    def is_awaited(self, now: float, limit_s: float) -> bool:
        """Whether a pending member may bring another kind of device: one that runs and is not ready, or one on a node
        without a known device, which has been pending for at most `limit_s`."""
        coming = [member for member in self.members.values() if not member.is_ready]
        return any(
            member.placed_at is not None or (member.node_id not in self._seen and now - member.since < limit_s)
            for member in coming
        )

    def starting(self) -> list[Member]:
        """The members that run and are not ready."""
        return [member for member in self.members.values() if not member.is_ready and member.placed_at is not None]

    def drop(self, member: Member) -> bool:
        """Ends a member, so that it is replaced; returns whether it was one."""
        self._look_at = 0.0
        if self.members.pop(member.number, None) is None:
            return False
        self._kill(member)
        return True

    def died_starting(self, member: Member, reason: str) -> None:
        """A member was lost before it was ready."""
        if member.node_id is not None:
            self._died_starting[member.node_id] += 1
            if self._died_starting[member.node_id] >= self._deaths:
                self.leave_out(member.node_id, f"its workers die as they start: {reason}")

    def leave_out(self, node_id: str | None, reason: str) -> None:
        """No more workers on this node."""
        name = self.node_name(node_id)
        self.left_out[node_id or ""] = (name, reason)
        self._note(f"{name} is left out: {reason}")

    def release(self, is_idle: Callable[[Member], bool]) -> None:
        """Ends every member; the idle ones remove their files first."""
        try:
            stopping = [member.actor.stop.remote() for member in self.members.values() if is_idle(member)]
            if stopping:
                self._ray.wait(stopping, num_returns=len(stopping), timeout=_STOP_S)
        finally:
            for member in self.members.values():
                self._kill(member)
            self.members.clear()

    def _kill(self, member: Member) -> None:
        try:
            self._ray.kill(member.actor, no_restart=True)
        except Exception as error:
            # it or the cluster has already ended; nothing depends on it
            _LOG.debug("worker %d was not killed: %s", member.number, error)

    def why_none(self, limit: str | None) -> str:
        """Why there is no worker: the excluded nodes, else what the cluster lacks."""
        within = "" if limit is None else f" within {limit}"
        if self.left_out:
            # bad input is bad on every node
            nodes: dict[str, list[str]] = {}
            for name, reason in self.left_out.values():
                nodes.setdefault(reason, []).append(name)
            told = [f"{', '.join(sorted(names))}: {reason}" for reason, names in nodes.items()]
            return f"no worker could be started{within}: " + "; ".join(told)
        needs = _amounts({_NAMED.get(name, name): amount for name, amount in self._resources.items()})
        return (
            f"no worker could be started{within}: each needs {needs}; the cluster has {_amounts(self._ray.cluster_resources())}, "
            f"free are {_amounts(self._ray.available_resources())}; start nodes with these resources, or ask for others with "
            "`resources`"
        )

    def node_name(self, node_id: str | None) -> str:
        """A node's address and the beginning of its identifier."""
        if not node_id:
            return "a node"
        addresses = [node["NodeManagerAddress"] for node in self._ray.nodes() if node["NodeID"] == node_id]
        return "/".join([*addresses[:1], node_id[:8]])


def _amounts(resources: Mapping[str, float]) -> str:
    shown = {name: amount for name, amount in resources.items() if not name.startswith("node:")}
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in sorted(shown.items())) + "}"
