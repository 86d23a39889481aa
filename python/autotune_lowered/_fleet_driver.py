"""The fleet's driver: starts worker actors, leases calls to them, commits what comes back, and waits for nothing for ever."""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any

from ._fleet_cache import CacheFolder, identity_text
from ._fleet_result import FleetError
from ._fleet_worker import DeviceWorker, is_final
from ._leases import Call, Lease, LeaseBook

_LOG = logging.getLogger("autotune_lowered")
# what a worker may take beyond its lease to end the program and to answer
ANSWER_S = 15
# how often the cluster is asked for its nodes
_LOOK_S = 2
# longest wait without looking at the clock
_TICK_S = 1
# a result that is ready is fetched from its node
_FETCH_S = 60
_STOP_S = 5
# resources that Ray knows by name; all others are custom ones
_NAMED = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


@dataclasses.dataclass(frozen=True)
class Order:
    """What is to be done, and within which limits."""

    resources: Mapping[str, float]
    settings: Mapping[str, Any]
    shipment: bytes | None
    digest: str
    versions: Mapping[str, str]
    lease_s: float
    attempts: int
    timeout_s: float
    start_timeout_s: float
    devices: int | None
    force: bool


@dataclasses.dataclass
class _Member:
    number: int
    actor: Any
    # None where Ray chose the node and the worker has not said yet
    node_id: str | None
    since: float
    is_ready: bool = False


@dataclasses.dataclass
class _Device:
    """A kind of device: the plan of the first worker on it, and what was decided."""

    name: str
    plan: dict[str, Any]
    rows: dict[tuple[str, str, str], dict[str, Any]] = dataclasses.field(default_factory=dict)


class Driver:
    """One run on a cluster that Ray is connected to. Afterwards `book`, `devices` and `notes` tell what came of it."""

    def __init__(self, ray: Any, order: Order, cache: CacheFolder):
        self._ray = ray
        self._order = order
        self._cache = cache
        self.book = LeaseBook(order.lease_s + ANSWER_S, order.attempts)
        self.devices: dict[str, _Device] = {}
        self.notes: list[str] = []
        self._members: dict[int, _Member] = {}
        self._made = 0
        # calls in flight, oldest first: the member, and the lease unless it is starting
        self._flying: dict[Any, tuple[_Member, Lease | None]] = {}
        self._seen_nodes: set[str] = set()
        self._shut_out: dict[str, str] = {}
        self._died_starting: collections.Counter[str] = collections.Counter()
        self._look_at = 0.0
        self._shipment = None if order.shipment is None else ray.put(order.shipment)

    def run(self) -> None:
        """Works until every call is decided or given up; the actors are gone when it returns or raises."""
        try:
            self._work(time.monotonic())
        finally:
            self._release()

    def _work(self, begun: float) -> None:
        end = begun + self._order.timeout_s
        while True:
            now = time.monotonic()
            if now >= end:
                self.book.abandon(f"not decided within the run's {self._order.timeout_s:g} s")
                if not self.devices:
                    raise FleetError(self._why_none(f"the run's {self._order.timeout_s:g} s"))
                return
            self._look(now)
            self._check_starts(now, begun)
            self._check_leases(now)
            if self.devices and self.book.is_finished and not self._awaited(now):
                return
            for lease in self.book.next_leases(now):
                self._send(lease)
            self._wait(min(end, self.book.next_deadline() or end) - now)

    # workers

    def _look(self, now: float) -> None:
        """Starts workers where the cluster has room: at first, for those that died, and on nodes that joined."""
        if now < self._look_at or (self.devices and self.book.is_finished):
            return
        self._look_at = now + _LOOK_S
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        alive = {None, *(node["NodeID"] for node in nodes)}
        for member in [member for member in self._members.values() if member.node_id not in alive]:
            self._lose(member, "its node is gone", now)
        slots = {node["NodeID"]: self._slots(node["Resources"]) for node in nodes if node["NodeID"] not in self._shut_out}
        taken = collections.Counter(member.node_id for member in self._members.values())
        wanted = sum(slots.values()) if self._order.devices is None else self._order.devices
        while len(self._members) < wanted:
            free = [node for node, count in slots.items() if taken[node] < count]
            if not free:
                break
            # nodes fill up evenly, in one order
            node = min(free, key=lambda node: (taken[node], node))
            taken[node] += 1
            self._start(node, now)
        if not self._members and not any(slots.values()) and not self._shut_out:
            # what asks for more than there is makes a cluster grow, where it can
            self._start(None, now)

    def _slots(self, resources: Mapping[str, float]) -> int:
        needs = {_NAMED.get(name, name): amount for name, amount in self._order.resources.items() if amount}
        # a tolerance, since thirds of a device add up to one
        return min((int(resources.get(name, 0) / amount + 1e-6) for name, amount in needs.items()), default=1)

    def _start(self, node_id: str | None, now: float) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        named = {name: amount for name, amount in self._order.resources.items() if name in _NAMED}
        custom = {name: amount for name, amount in self._order.resources.items() if name not in _NAMED}
        # a worker starts processes and waits for them: it needs no core of its own unless that was asked for
        options: dict[str, Any] = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0, **named, "resources": custom}
        if node_id is not None:
            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)
        actor = self._ray.remote(DeviceWorker).options(**options).remote(dict(self._order.settings))
        self._made += 1
        member = _Member(self._made, actor, node_id, now)
        self._members[member.number] = member
        # a worker that hangs says so itself before it counts as missing
        ref = actor.start.remote(self._shipment, self._order.digest, self._order.start_timeout_s * 0.8)
        self._flying[ref] = (member, None)

    def _check_starts(self, now: float, begun: float) -> None:
        if self.devices:
            return
        # nobody is left who could come
        if self._shut_out and not self._members:
            raise FleetError(self._why_none(None))
        if now - begun >= self._order.start_timeout_s:
            raise FleetError(self._why_none(f"{self._order.start_timeout_s:g} s"))

    def _why_none(self, limit: str | None) -> str:
        needs = ", ".join(f"{_NAMED.get(name, name)}: {amount:g}" for name, amount in self._order.resources.items())
        within = "" if limit is None else f" within {limit}"
        if self._shut_out:
            refused = "; ".join(self._shut_out.values())
            return f"no worker could be started{within}: {refused}"
        return (
            f"no worker could be started{within}: each needs {{{needs}}}; the cluster has {_amounts(self._ray.cluster_resources())}, "
            f"free are {_amounts(self._ray.available_resources())}; start nodes with these resources, or ask for others with `resources`"
        )

    def _awaited(self, now: float) -> bool:
        """Whether a worker is starting that may show another kind of device."""
        return any(
            not member.is_ready
            and member.node_id not in self._seen_nodes
            and now - member.since < self._order.start_timeout_s
            for member in self._members.values()
        )

    def _check_leases(self, now: float) -> None:
        for lease in self.book.expire(now):
            self._note(f"{lease.node} did not answer in time; {_names(lease)} may go to another worker")
        for number in self.book.overdue_workers(now, self._order.lease_s):
            self._lose(self._members[number], "it stopped answering", now)
        for group in self.book.lonely_groups(now, self._order.start_timeout_s):
            self.book.abandon(f"no worker on {self.devices[group].name} is left", group)

    def _lose(self, member: _Member, reason: str, now: float) -> None:
        """A worker is gone, or is to go: what it had is leased again, and its place may be filled."""
        if self._members.pop(member.number, None) is None:
            return
        self._kill(member)
        self._flying = {ref: call for ref, call in self._flying.items() if call[0] is not member}
        if member.is_ready:
            node = self._node_name(member.node_id)
            self._note(f"a worker on {node} was lost: {reason}")
            self.book.remove_worker(member.number, f"the worker on {node} was lost: {reason}", now)
        elif member.node_id is not None:
            self._died_starting[member.node_id] += 1
            if self._died_starting[member.node_id] >= self._order.attempts:
                self._refuse(member.node_id, f"its workers die as they start: {reason}")
        self._look_at = 0.0

    def _refuse(self, node_id: str, reason: str) -> None:
        self._shut_out[node_id] = f"{self._node_name(node_id)} is left out: {reason}"
        self._note(self._shut_out[node_id])
        self._look_at = 0.0

    def _kill(self, member: _Member) -> None:
        try:
            self._ray.kill(member.actor, no_restart=True)
        except Exception as error:
            # it is gone already, or the cluster is; nothing of ours depends on it
            _LOG.debug("worker %d was not killed: %s", member.number, error)

    def _release(self) -> None:
        idle = [member for member in self._members.values() if not any(call[0] is member for call in self._flying.values())]
        try:
            stopping = [member.actor.stop.remote() for member in idle]
            if stopping:
                self._ray.wait(stopping, num_returns=len(stopping), timeout=_STOP_S)
        finally:
            for member in self._members.values():
                self._kill(member)
            self._members.clear()
            self._flying.clear()

    # calls

    def _send(self, lease: Lease) -> None:
        member = self._members[lease.worker]
        known = [entry for call in lease.calls for entry in self._cache.of_call(*call)]
        calls = [(call.op_id, call.call_key) for call in lease.calls]
        _LOG.info("%s goes to %s", _names(lease), lease.node)
        self._flying[member.actor.tune.remote(calls, known, self._order.lease_s)] = (member, lease)

    def _wait(self, limit_s: float) -> None:
        limit_s = max(0.0, min(limit_s, _TICK_S))
        flying = list(self._flying)
        if not flying:
            time.sleep(limit_s)
            return
        self._ray.wait(flying, num_returns=1, timeout=limit_s)
        ready = set(self._ray.wait(flying, num_returns=len(flying), timeout=0)[0])
        # of results that came together the one that was asked for first counts
        for ref in flying:
            if ref in ready and ref in self._flying:
                self._take(ref)

    def _take(self, ref: Any) -> None:
        member, lease = self._flying.pop(ref)
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref, timeout=_FETCH_S)
        except errors.RayTaskError as error:
            reason = f"{type(error.cause).__name__}: {error.cause}" if getattr(error, "cause", None) else _line(error)
            if lease is None:
                self._members.pop(member.number)
                self._kill(member)
                self._refuse(member.node_id or "", reason)
            else:
                self._answered(lease, {"rows": [], "entries": [], "failure": reason, "retry": True})
        except errors.RayError as error:
            # the actor, its node or its result is lost
            self._lose(member, _line(error), time.monotonic())
        else:
            if lease is None:
                self._started(member, answer)
            else:
                self._answered(lease, answer)

    def _started(self, member: _Member, answer: dict[str, Any]) -> None:
        member.node_id = answer["node_id"]
        self._seen_nodes.add(member.node_id)
        reason = self._objection(answer)
        if reason is not None:
            self._members.pop(member.number)
            self._kill(member)
            self._refuse(member.node_id, reason)
            return
        member.is_ready = True
        plan = answer["plan"]
        group = identity_text(plan["device"]["identity"])
        if group not in self.devices:
            self._plan(group, plan)
        self.book.add_worker(member.number, self._node_name(member.node_id), group)

    def _objection(self, answer: dict[str, Any]) -> str | None:
        """Why a worker cannot be one of the fleet."""
        for what, ours in self._order.versions.items():
            theirs = answer["versions"][what]
            if theirs != ours:
                return f"its {what} is `{theirs}`, here it is `{ours}`; install the same"
        if "plan" not in answer:
            return answer["failure"]
        fingerprint = answer["plan"]["device"]
        device = self.devices.get(identity_text(fingerprint["identity"]))
        if device is not None and (theirs := fingerprint["environment"]) != (ours := device.plan["device"]["environment"]):
            # the cache keeps one result a device: each would take the other's for out of date
            differing = sorted(name for name in theirs.keys() | ours.keys() if theirs.get(name) != ours.get(name))
            return f"the software around its device differs from the other workers' in {', '.join(differing)}"
        return None

    def _plan(self, group: str, plan: dict[str, Any]) -> None:
        identity = plan["device"]["identity"]
        hardware = ", ".join(f"{name}={value}" for name, value in identity.get("hardware", {}).items())
        name = f"{identity['platform']}:{identity['device_kind']}" + (f" ({hardware})" if hardware else "")
        device = self.devices[group] = _Device(name, plan)
        calls: dict[Call, bool] = {}
        for row in plan["operations"]:
            if row["status"] != "planned":
                device.rows[_row_key(row)] = row
                continue
            call = Call(group, row["op_id"], row["call_key"])
            entry = self._cache.entry(*call, row["direction"])
            calls[call] = calls.get(call, True) and not self._order.force and _is_of(entry, plan)
        self.book.add_calls(calls, [call for call, known in calls.items() if known])

    def _answered(self, lease: Lease, answer: dict[str, Any]) -> None:
        """Takes a worker's answer: what it decides first is committed at once."""
        rows = {(row["op_id"], row["call_key"], row["direction"]): row for row in answer["rows"]}
        entries: dict[tuple[str, str, str], dict[str, Any]] = {_row_key(entry): entry for entry in answer["entries"]}
        failure = answer.get("failure")
        undecided, final = {}, {}
        for call in lease.calls:
            for planned in self._planned(call):
                key = _row_key(planned)
                entry = entries.get(key)
                if key not in rows and entry is not None and entry != self._cache.entry(*call, planned["direction"]):
                    rows[key] = _from_entry(planned, entry)
                row = rows.get(key)
                if row is not None and is_final(row):
                    continue
                reason = row["reason"] if row is not None else failure or "the program's result lacks it"
                may_go_well = row is not None or answer.get("retry", True)
                (undecided if may_go_well else final)[call] = f"{lease.node}: {reason}"
        decided = self.book.answer(lease, undecided, final)
        for call in decided:
            for planned in self._planned(call):
                row = rows[_row_key(planned)]
                self.devices[call.group].rows[_row_key(planned)] = row | {"node": lease.node}
        # a call's other direction may have failed: what is decided is kept
        open_still = {call for call in undecided if self.book.decided_by(call) is None}
        mine = {(call.op_id, call.call_key) for call in {*decided, *open_still}}
        told = self._cache.commit([entry for key, entry in entries.items() if key[:2] in mine])
        if told is not None:
            self._note(f"{lease.node}: {told}")

    def _planned(self, call: Call) -> list[dict[str, Any]]:
        rows = self.devices[call.group].plan["operations"]
        return [row for row in rows if _row_key(row)[:2] == (call.op_id, call.call_key) and row["status"] == "planned"]

    # words

    def _node_name(self, node_id: str | None) -> str:
        for node in self._ray.nodes():
            if node["NodeID"] == node_id:
                return f"{node['NodeManagerAddress']}/{node_id[:8]}"
        return "a node" if not node_id else node_id[:8]

    def _note(self, note: str) -> None:
        _LOG.warning("%s", note)
        if note not in self.notes:
            self.notes.append(note)


def _row_key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["op_id"], row["call_key"], row["direction"]


def _is_of(entry: Mapping[str, Any] | None, plan: Mapping[str, Any]) -> bool:
    """Whether an entry was measured under the plan's conditions. The program decides; this says which calls to ask it
    about together."""
    provenance = (entry or {}).get("provenance")
    if provenance is None:
        return False
    conditions = {name: plan[name] for name in ("timer", "source", "metric")}
    ours = conditions | {"environment": plan["device"]["environment"]}
    return all(provenance.get(name) == value for name, value in ours.items())


def _from_entry(planned: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The row of an operation whose decision was written before its run was ended."""
    provenance = entry["provenance"]
    return dict(planned) | {
        "status": "baseline-kept" if entry["config"] == provenance["baseline"] else "tuned",
        "reason": "decided before its run was ended",
        "best": {"config": entry["config"], "median_ns": provenance["best_ns"]},
        "speed_up": 1 / provenance["ratio"] if provenance["ratio"] else None,
    }


def _names(lease: Lease) -> str:
    first = f"{lease.calls[0].op_id}:{lease.calls[0].call_key}"
    return first if len(lease.calls) == 1 else f"{first} with {len(lease.calls) - 1} more"


def _amounts(resources: Mapping[str, float]) -> str:
    shown = {name: amount for name, amount in resources.items() if not name.startswith("node:")}
    return "{" + ", ".join(f"{name}: {amount:g}" for name, amount in sorted(shown.items())) + "}"


def _line(error: BaseException) -> str:
    """An error of Ray's in one line: the first lines tell, the rest is how to look further."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
