"""Which worker has which call, until when, and with which outcome. Pure: no Ray, no clock, no randomness."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple

# calls that are probably already known are leased together, so that a device is started once for all of them
MAX_BATCH = 32


class Call(NamedTuple):
    """A recorded call on one kind of device: `group` identifies that device."""

    group: str
    op_id: str
    call_key: str


@dataclasses.dataclass(frozen=True)
class Lease:
    """Calls that one worker has until `deadline` (seconds of the clock that the caller uses)."""

    number: int
    worker: int
    node: str
    calls: tuple[Call, ...]
    deadline: float


@dataclasses.dataclass
class _State:
    """The state of a call. It is open while it is neither decided nor failed."""

    probably_known: bool
    attempts: int = 0
    # the nodes that had it
    nodes: set[str] = dataclasses.field(default_factory=set)
    workers: set[int] = dataclasses.field(default_factory=set)
    reasons: list[str] = dataclasses.field(default_factory=list)
    lease: Lease | None = None
    decided_by: Lease | None = None
    failed: bool = False

    @property
    def is_open(self) -> bool:
        return self.decided_by is None and not self.failed


@dataclasses.dataclass
class _Worker:
    node: str
    group: str
    lease: Lease | None = None
    overdue_since: float | None = None


class LeaseBook:
    """Leases calls, one lease per worker at a time.

    A lease that ends without a decision, however it ends, costs each of its calls one of `attempts`; the next one goes
    to another node if there is one, else to another worker. A lease beyond its deadline is given to another worker and
    its own result still counts, if it comes first. Of two results of a call the first one counts.
    """

    def __init__(self, lease_s: float, attempts: int):
        self._lease_s = lease_s
        self._attempts = attempts
        self._calls: dict[Call, _State] = {}
        self._workers: dict[int, _Worker] = {}
        self._leases = 0
        # groups without a worker, with the time since when
        self._alone: dict[str, float] = {}

    # workers

    def add_worker(self, worker: int, node: str, group: str) -> None:
        """A worker is ready, and idle."""
        self._workers[worker] = _Worker(node, group)
        self._alone.pop(group, None)

    def remove_worker(self, worker: int, reason: str, now: float) -> None:
        """A worker is gone; its calls must be leased again."""
        gone = self._workers.pop(worker, None)
        if gone is None:
            return
        if gone.lease is not None:
            self._give_back(gone.lease, {call: reason for call in gone.lease.calls})
        if not any(other.group == gone.group for other in self._workers.values()):
            self._alone[gone.group] = now

    def overdue_workers(self, now: float, for_s: float) -> list[int]:
        """Workers whose lease ended `for_s` seconds ago and who have not answered since."""
        return [
            number
            for number, worker in self._workers.items()
            if worker.overdue_since is not None and now - worker.overdue_since >= for_s
        ]

    # calls

    def add_calls(self, calls: Iterable[Call], probably_known: Iterable[Call] = ()) -> None:
        """Calls to decide, in the order of leasing; calls added before are unchanged."""
        known = set(probably_known)
        for call in calls:
            self._calls.setdefault(call, _State(call in known))

    def next_leases(self, now: float) -> list[Lease]:
        """Gives idle workers their next calls, in the workers' order."""
        leases = []
        for number in sorted(self._workers):
            worker = self._workers[number]
            if worker.lease is None and worker.overdue_since is None and (calls := self._choose(number)):
                self._leases += 1
                worker.lease = Lease(self._leases, number, worker.node, calls, now + self._lease_s)
                for call in calls:
                    state = self._calls[call]
                    state.attempts += 1
                    state.nodes.add(worker.node)
                    state.workers.add(number)
                    state.lease = worker.lease
                leases.append(worker.lease)
        return leases

    def _choose(self, worker: int) -> tuple[Call, ...]:
        group = self._workers[worker].group
        waiting = [
            (call, state)
            for call, state in self._calls.items()
            if call.group == group and state.is_open and state.lease is None and self._may_have(worker, state)
        ]
        if not waiting:
            return ()
        first, state = waiting[0]
        if not _goes_in_a_batch(state):
            return (first,)
        together = [call for call, state in waiting if _goes_in_a_batch(state)]
        workers = sum(other.group == group for other in self._workers.values())
        return tuple(together[: min(MAX_BATCH, -(-len(together) // workers))])

    def _may_have(self, worker: int, state: _State) -> bool:
        """A failed call goes to a node that has not tried it, else to a worker that has not, else to any."""
        node = self._workers[worker].node
        if node not in state.nodes:
            return True
        others = [
            (number, other.node)
            for number, other in self._workers.items()
            if other.group == self._workers[worker].group and other.overdue_since is None and number != worker
        ]
        if any(other not in state.nodes for _, other in others):
            return False
        return worker not in state.workers or all(number in state.workers for number, _ in others)

    # the results of leases

    def answer(self, lease: Lease, undecided: Mapping[Call, str], final: Mapping[Call, str]) -> list[Call]:
        """A worker answered and is idle again, late or not.

        `undecided` are calls to be tried again and `final` those that would fail anywhere, with the reasons; all others
        of the lease are decided. Returns the calls that this answer decides first.
        """
        worker = self._workers.get(lease.worker)
        if worker is not None and (worker.lease is None or worker.lease.number == lease.number):
            worker.lease = worker.overdue_since = None
        decided = []
        for call in lease.calls:
            state = self._calls[call]
            if call in undecided or call in final:
                continue
            # a late decision is better than none
            if state.decided_by is None:
                state.decided_by, state.lease, state.failed = lease, None, False
                decided.append(call)
        for call, reason in final.items():
            state = self._calls[call]
            if state.is_open:
                state.failed, state.lease, state.reasons = True, None, [*state.reasons, reason]
        self._give_back(lease, undecided)
        return decided

    def expire(self, now: float) -> list[Lease]:
        """Ends the leases beyond their deadlines, and returns them; their workers get no other until they answer."""
        late = []
        for _, worker in sorted(self._workers.items()):
            if worker.lease is not None and now >= worker.lease.deadline:
                late.append(worker.lease)
                reason = f"no answer from {worker.node} within the lease's {self._lease_s:g} s"
                self._give_back(worker.lease, {call: reason for call in worker.lease.calls})
                worker.lease, worker.overdue_since = None, now
        return late

    def abandon(self, reason: str, group: str | None = None) -> None:
        """Fails every open call, or those of one group."""
        for call, state in self._calls.items():
            if state.is_open and group in (None, call.group):
                state.failed, state.lease = True, None
                state.reasons.append(reason)

    def _give_back(self, lease: Lease, reasons: Mapping[Call, str]) -> None:
        for call, reason in reasons.items():
            state = self._calls[call]
            # calls returned earlier, at the deadline, are not counted again
            if state.lease is not lease:
                continue
            state.lease = None
            state.reasons.append(reason)
            state.failed = state.attempts >= self._attempts

    # questions

    @property
    def is_finished(self) -> bool:
        """Whether no call is open."""
        return not any(state.is_open for state in self._calls.values())

    def next_deadline(self) -> float | None:
        """When the next lease ends."""
        return min((worker.lease.deadline for worker in self._workers.values() if worker.lease), default=None)

    def lonely_groups(self, now: float, for_s: float) -> list[str]:
        """Groups with open calls and, for `for_s` seconds, no worker."""
        wanted = {call.group for call, state in self._calls.items() if state.is_open}
        return sorted(group for group, since in self._alone.items() if group in wanted and now - since >= for_s)

    def attempts(self, call: Call) -> int:
        """How often a call was leased."""
        return self._calls[call].attempts

    def decided_by(self, call: Call) -> Lease | None:
        """The lease that decided a call."""
        return self._calls[call].decided_by

    def why_failed(self, call: Call) -> str | None:
        """Why a call was given up: each attempt's reason once, in order. None if it was not given up."""
        state = self._calls[call]
        return "; ".join(dict.fromkeys(state.reasons)) if state.failed else None


def _goes_in_a_batch(state: _State) -> bool:
    # after a batch failed, each of its calls is leased alone, so that the culprit affects no other
    return state.probably_known and state.attempts == 0
