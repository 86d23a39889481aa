"""The fleet's driver: starts worker actors, leases calls to them, commits their results, and never waits forever."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Mapping
from typing import Any, Literal

from .cache_folder import CacheFolder, identity_text
from .crew import Crew, Member
from .device_worker import is_final
from .leases import Call, Lease, LeaseBook
from .result import FleetError

_LOG = logging.getLogger("autotune_lowered")
# seconds beyond its lease that a worker may take to end the program and to answer
ANSWER_S = 15
# longest wait before the clock is checked
_TICK_S = 1
# maximum time to fetch a finished result from its node
_FETCH_S = 60


@dataclasses.dataclass(frozen=True)
class Order:
    """The work and its limits."""

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
class _Device:
    """A kind of device: the plan of the first worker on it, and the decisions."""

    name: str
    plan: dict[str, Any]
    rows: dict[tuple[str, str, str], dict[str, Any]] = dataclasses.field(default_factory=dict)


class Driver:
    """One run on a cluster that Ray is connected to. Afterwards `book`, `devices` and `notes` hold the outcome."""

    def __init__(self, ray: Any, order: Order, cache: CacheFolder):
        self._ray = ray
        self._order = order
        self._cache = cache
        self.book = LeaseBook(order.lease_s + ANSWER_S, order.attempts)
        self.devices: dict[str, _Device] = {}
        self.notes: list[str] = []
        self._crew = Crew(ray, order.resources, order.settings, order.devices, order.attempts, self._note)
        # calls in flight, oldest first: the member, and its lease or its stage of joining the fleet
        self._flying: dict[Any, tuple[Member, Lease | Literal["placing", "starting"]]] = {}
        self._shipment = None if order.shipment is None else ray.put(order.shipment)

    def run(self) -> None:
        """Works until every call is decided or given up; the actors are gone when it returns or raises."""
        try:
            self._work(time.monotonic())
        finally:
            busy = {member.number for member, _ in self._flying.values()}
            self._crew.release(lambda member: member.number not in busy)

    def _work(self, begun: float) -> None:
        end = begun + self._order.timeout_s
        while True:
            now = time.monotonic()
            if now >= end:
                self.book.abandon(f"not decided within the run's {self._order.timeout_s:g} s")
                if not self.devices:
                    raise FleetError(self._crew.why_none(f"the run's {self._order.timeout_s:g} s"))
                return
            self._check_workers(now, begun)
            self._check_leases(now)
            if self.devices and self.book.is_finished and not self._crew.is_awaited(now, self._order.start_timeout_s):
                return
            for lease in self.book.next_leases(now):
                self._send(lease)
            self._wait(min(end, self.book.next_deadline() or end) - now)

    def _check_workers(self, now: float, begun: float) -> None:
        work_is_left = not (self.devices and self.book.is_finished)
        gone, made = self._crew.look(now, fill=work_is_left)
        for member in gone:
            self._lose(member, "its node is gone", now)
        limit_s = self._order.start_timeout_s
        for member in made:
            self._flying[member.actor.where.remote()] = (member, "placing")
            self._flying[member.actor.start.remote(self._shipment, self._order.digest, limit_s)] = (member, "starting")
        for member in self._crew.starting():
            # the worker ends a hanging program at the limit; this covers workers that cannot even report that
            if member.placed_at is not None and now - member.placed_at >= limit_s + ANSWER_S:
                self._refuse(member, f"no answer within {limit_s + ANSWER_S:g} s of its start")
        if self.devices or self._crew.starting():
            return
        if self._crew.left_out and not self._crew.members:
            # no more workers can arrive
            raise FleetError(self._crew.why_none(None))
        if now - begun >= limit_s:
            raise FleetError(self._crew.why_none(f"{limit_s:g} s"))

    def _check_leases(self, now: float) -> None:
        for lease in self.book.expire(now):
            self._note(f"{lease.node} did not answer in time; {_names(lease)} may go to another worker")
        for number in self.book.overdue_workers(now, self._order.lease_s):
            self._lose(self._crew.members[number], "it stopped answering", now)
        alone = [] if self._crew.starting() else self.book.lonely_groups(now, self._order.start_timeout_s)
        for group in alone:
            self.book.abandon(f"no worker on {self.devices[group].name} is left", group)

    def _lose(self, member: Member, reason: str, now: float) -> None:
        """A worker is gone, or must end: its calls are leased again, and it may be replaced."""
        if not self._crew.drop(member):
            return
        self._forget(member)
        if member.is_ready:
            line = f"a worker on {self._crew.node_name(member.node_id)} was lost: {reason}"
            self._note(line)
            self.book.remove_worker(member.number, line, now)
        else:
            self._crew.died_starting(member, reason)

    def _refuse(self, member: Member, reason: str) -> None:
        self._crew.drop(member)
        self._forget(member)
        self._crew.leave_out(member.node_id, reason)

    def _forget(self, member: Member) -> None:
        self._flying = {ref: call for ref, call in self._flying.items() if call[0] is not member}

    # calls

    def _send(self, lease: Lease) -> None:
        member = self._crew.members[lease.worker]
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
        # among simultaneous results, the one requested first counts
        for ref in flying:
            if ref in ready and ref in self._flying:
                self._take(ref)

    def _take(self, ref: Any) -> None:
        member, what = self._flying.pop(ref)
        errors = self._ray.exceptions
        try:
            answer = self._ray.get(ref, timeout=_FETCH_S)
        except errors.RayTaskError as error:
            reason = f"{type(error.cause).__name__}: {error.cause}" if getattr(error, "cause", None) else _line(error)
            if isinstance(what, Lease):
                self._answered(what, {"rows": [], "entries": [], "failure": reason, "retry": True})
            else:
                self._refuse(member, reason)
        except errors.RayError as error:
            # the actor, its node or its result is lost
            self._lose(member, _line(error), time.monotonic())
        else:
            if isinstance(what, Lease):
                self._answered(what, answer)
            elif what == "placing":
                member.node_id, member.placed_at = answer, time.monotonic()
            else:
                self._started(member, answer)

    def _started(self, member: Member, answer: dict[str, Any]) -> None:
        reason = self._objection(answer)
        if reason is not None:
            self._refuse(member, reason)
            return
        self._crew.is_ready(member)
        plan = answer["plan"]
        group = identity_text(plan["device"]["identity"])
        if group not in self.devices:
            self._plan(group, plan)
        self.book.add_worker(member.number, self._crew.node_name(member.node_id), group)

    def _objection(self, answer: dict[str, Any]) -> str | None:
        """Why a worker cannot join the fleet."""
        for what, ours in self._order.versions.items():
            theirs = answer["versions"][what]
            if theirs != ours:
                return f"its {what} is `{theirs}`, here it is `{ours}`; install the same"
        if "plan" not in answer:
            return str(answer["failure"])
        fingerprint = answer["plan"]["device"]
        device = self.devices.get(identity_text(fingerprint["identity"]))
        if device is None:
            return None
        here, there = device.plan["device"]["environment"], fingerprint["environment"]
        differing = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
        # the cache keeps one result per device, and each software would consider the other's outdated
        said = f"the software around its device differs from the other workers' in {', '.join(differing)}"
        return said if differing else None

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
        undecided: dict[Call, str] = {}
        final: dict[Call, str] = {}
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
        # a call's other direction may have failed, but its decisions are kept
        open_still = {call for call in undecided if self.book.decided_by(call) is None}
        mine = {(call.op_id, call.call_key) for call in {*decided, *open_still}}
        told = self._cache.commit([entry for key, entry in entries.items() if key[:2] in mine])
        if told is not None:
            self._note(f"{lease.node}: {told}")

    def _planned(self, call: Call) -> list[dict[str, Any]]:
        rows = self.devices[call.group].plan["operations"]
        return [row for row in rows if _row_key(row)[:2] == (call.op_id, call.call_key) and row["status"] == "planned"]

    def _note(self, note: str) -> None:
        _LOG.warning("%s", note)
        if note not in self.notes:
            self.notes.append(note)


def _row_key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["op_id"], row["call_key"], row["direction"]


def _is_of(entry: Mapping[str, Any] | None, plan: Mapping[str, Any]) -> bool:
    """Whether an entry was measured under the plan's conditions. The program decides; this only selects the calls
    to ask it about together."""
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


def _line(error: BaseException) -> str:
    """A Ray error in one line: its first lines state the cause, the rest how to investigate."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"
