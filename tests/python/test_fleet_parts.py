"""The lease book, with tables and random histories; shipments; the cache's side. Nothing here needs Ray."""

import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

from autotune_lowered import fleet
from autotune_lowered.fleet import shipment
from autotune_lowered.fleet.cache_folder import CacheFolder, identity_text
from autotune_lowered.fleet.device_worker import is_final
from autotune_lowered.fleet.leases import MAX_BATCH, Call, LeaseBook

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = HERE.parent.parent / "examples/transformer"
A, B, C = (Call("gpu", "op@v1", key) for key in "abc")
OTHER = Call("cpu", "op@v1", "a")


def book(calls=(A, B, C), workers=(("n1", "gpu"), ("n2", "gpu")), attempts=3, known=()):
    made = LeaseBook(lease_s=10, attempts=attempts)
    made.add_calls(calls, known)
    for number, (node, group) in enumerate(workers):
        made.add_worker(number, node, group)
    return made


def given(leases):
    return [(lease.worker, *lease.calls) for lease in leases]


def test_calls_go_out_in_order_one_a_worker_and_only_to_their_own_device():
    leases = book(calls=(A, OTHER, B, C), workers=(("n1", "gpu"), ("n2", "cpu"), ("n3", "gpu")))
    first = leases.next_leases(0)
    assert given(first) == [(0, A), (1, OTHER), (2, B)]
    assert [lease.deadline for lease in first] == [10, 10, 10]
    assert leases.next_leases(1) == []
    assert leases.answer(first[1], {}, {}) == [OTHER]
    assert leases.next_leases(1) == []
    assert leases.answer(first[2], {}, {}) == [B]
    assert given(leases.next_leases(2)) == [(2, C)]
    assert leases.next_deadline() == 10 and not leases.is_finished


def test_a_failed_attempt_goes_to_another_node_and_the_last_one_counts():
    leases = book(calls=(A,), attempts=3)
    (lease,) = leases.next_leases(0)
    leases.answer(lease, {A: "n1: no"}, {})
    (lease,) = leases.next_leases(1)
    assert lease.node == "n2"
    leases.answer(lease, {A: "n2: no"}, {})
    # every node has had it: any of them may try again
    (lease,) = leases.next_leases(2)
    assert lease.node == "n1"
    leases.answer(lease, {A: "n1: no"}, {})
    assert leases.is_finished and leases.why_failed(A) == "n1: no; n2: no"
    assert leases.attempts(A) == 3


def test_on_one_node_a_failed_attempt_goes_to_another_device():
    leases = book(calls=(A, B), workers=(("n1", "gpu"), ("n1", "gpu")))
    first, second = leases.next_leases(0)
    leases.answer(first, {A: "device 0: no"}, {})
    assert leases.next_leases(1) == [], "the other device has not had it"
    leases.answer(second, {}, {})
    assert given(leases.next_leases(2)) == [(1, A)]


def test_what_would_fail_anywhere_is_not_tried_again():
    leases = book(calls=(A, B))
    first, second = leases.next_leases(0)
    assert leases.answer(first, {}, {A: "bad input"}) == []
    assert leases.why_failed(A) == "bad input" and leases.why_failed(B) is None
    assert leases.answer(second, {}, {}) == [B]
    assert leases.is_finished


@pytest.mark.parametrize("late_comes_first", [True, False])
def test_of_two_results_the_first_one_counts(late_comes_first):
    leases = book(calls=(A,))
    (late,) = leases.next_leases(0)
    assert leases.expire(9.9) == []
    assert leases.expire(10) == [late]
    (second,) = leases.next_leases(10)
    assert second.worker == 1, "the one that is late gets nothing"
    order = (late, second) if late_comes_first else (second, late)
    assert [leases.answer(lease, {}, {}) for lease in order] == [[A], []]
    assert leases.decided_by(A) is order[0] and leases.is_finished
    assert leases.overdue_workers(100, 10) == [], "both have answered"


def test_a_late_failure_is_counted_once_and_a_late_result_mends_a_failure():
    leases = book(calls=(A,), workers=(("n1", "gpu"),), attempts=1)
    (late,) = leases.next_leases(0)
    leases.expire(10)
    assert leases.why_failed(A) == "no answer from n1 within the lease's 10 s"
    assert leases.overdue_workers(19, 10) == [] and leases.overdue_workers(20, 10) == [0]
    assert leases.answer(late, {}, {}) == [A]
    assert leases.why_failed(A) is None and leases.is_finished

    leases = book(calls=(A,), attempts=2)
    (late,) = leases.next_leases(0)
    leases.expire(10)
    (second,) = leases.next_leases(10)
    leases.answer(late, {A: "n1: late and no"}, {})
    assert leases.attempts(A) == 2 and not leases.is_finished
    leases.answer(second, {A: "n2: no"}, {})
    assert leases.why_failed(A) == "no answer from n1 within the lease's 10 s; n2: no"


def test_a_lost_workers_call_is_leased_again():
    leases = book(calls=(A, B))
    first, second = leases.next_leases(0)
    leases.remove_worker(0, "lost", 1)
    leases.remove_worker(0, "told twice", 1)
    assert leases.next_leases(1) == []
    leases.answer(second, {}, {})
    assert given(leases.next_leases(2)) == [(1, A)]
    assert leases.attempts(A) == 2
    assert leases.lonely_groups(99, 5) == []
    leases.remove_worker(1, "lost", 100)
    assert leases.lonely_groups(104, 5) == [] and leases.lonely_groups(105, 5) == ["gpu"]
    leases.abandon("nobody is left", "gpu")
    assert leases.why_failed(A) == "lost; nobody is left" and leases.decided_by(B) is second
    assert leases.lonely_groups(105, 5) == [], "nothing is open any more"


def test_what_is_probably_known_goes_out_together_and_after_a_failure_alone():
    many = [Call("gpu", "op@v1", f"k{n:02}") for n in range(6)]
    leases = book(calls=[A, *many], known=many)
    alone, batch = leases.next_leases(0)
    assert alone.calls == (A,) and batch.calls == tuple(many[:3])
    assert leases.answer(alone, {}, {}) == [A]
    (rest,) = leases.next_leases(1)
    assert rest.calls == tuple(many[3:5])
    assert leases.answer(batch, {many[0]: "n2: no"}, {}) == many[1:3]
    assert leases.next_leases(2)[0].calls == (many[5],), "n2 had the first one"
    assert leases.answer(rest, {}, {}) == many[3:5]
    assert leases.next_leases(3)[0].calls == (many[0],)
    crowd = [Call("gpu", "op@v1", str(n)) for n in range(1000)]
    assert len(book(calls=crowd, known=crowd).next_leases(0)[0].calls) == MAX_BATCH


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_every_call_ends_and_is_decided_once(seed):
    chance = random.Random(seed)
    attempts = chance.randint(1, 4)
    calls = [Call(chance.choice("xy"), "op@v1", str(n)) for n in range(chance.randint(1, 12))]
    leases = LeaseBook(lease_s=10, attempts=attempts)
    leases.add_calls(calls, chance.sample(calls, len(calls) // 2))
    alive, flying, decided, issued, now = {}, [], [], {call: 0 for call in calls}, 0.0
    for step in range(1000):
        now += chance.choice([0, 1, 5, 12])
        if not alive or chance.random() < 0.1:
            alive[step] = chance.choice("xy")
            leases.add_worker(step, f"n{chance.randint(0, 3)}", alive[step])
        leases.expire(now)
        active = [lease for lease in flying if now < lease.deadline and lease.worker in alive]
        for lease in leases.next_leases(now):
            assert alive[lease.worker] == lease.calls[0].group and lease.deadline == now + 10
            assert lease.worker not in [other.worker for other in flying], "it has not answered yet"
            for call in lease.calls:
                assert not [other for other in active if call in other.calls and call not in decided]
                issued[call] += 1
            flying.append(lease)
        if flying and chance.random() < 0.7:
            lease = flying.pop(chance.randrange(len(flying)))
            fate = chance.random()
            if fate < 0.3:
                leases.remove_worker(lease.worker, "lost", now)
                del alive[lease.worker]
            else:
                failed = {call: "no" for call in lease.calls if chance.random() < 0.3}
                decided += leases.answer(lease, failed, {})
        if leases.is_finished:
            break
    assert leases.is_finished, "not ended after 1000 steps"
    assert len(decided) == len(set(decided))
    for call in calls:
        assert (leases.decided_by(call) is not None) == (call in decided) == (leases.why_failed(call) is None)
        assert issued[call] == leases.attempts(call) <= attempts


def row(status, kind=None, of_baseline=None):
    candidates = [{"config": {"block": 1}, "failure": {"kind": of_baseline}}] if of_baseline else []
    candidates.append({"config": {"block": 2}, "failure": {"kind": "crash"}})
    failure = {"failure": {"kind": kind}} if kind else {}
    return {"status": status, "baseline": {"config": {"block": 1}}, "candidates": candidates} | failure


@pytest.mark.parametrize(
    ("ended", "final"),
    [
        (row("tuned"), True),
        (row("values-unknown"), True),
        (row("interrupted"), False),
        (row("failed", "device"), False),
        (row("failed", "compile"), True),
        (row("failed", None, "crash"), False),
        (row("failed", None, "wrong-output"), True),
        (row("failed"), True),
    ],
)
def test_only_what_may_go_well_elsewhere_is_tried_again(ended, final):
    assert is_final(ended) is final


def test_what_is_shipped_arrives_whole_or_not_at_all(tmp_path):
    source = tmp_path / "registry/deep"
    source.mkdir(parents=True)
    (source / "x.bin").write_bytes(bytes(range(256)))
    (source / ".tmp-half").write_text("half-written")
    module = tmp_path / "module.hlo"
    module.write_text("HloModule m")
    parts = {"module/module.hlo": module, "registry": tmp_path / "registry"}
    packed = shipment.pack(parts, 1 << 20)
    (source / "x.bin").touch()
    assert shipment.pack(parts, 1 << 20) == packed, "equal contents are equal bytes"
    there = tmp_path / "there"
    shipment.unpack(packed, shipment.digest(packed), there)
    files = {str(path.relative_to(there)): path.read_bytes() for path in there.rglob("*") if path.is_file()}
    assert files == {"module/module.hlo": b"HloModule m", "registry/deep/x.bin": bytes(range(256))}
    with pytest.raises(shipment.ShipmentError, match="are not those sent"):
        shipment.unpack(packed[:-1], shipment.digest(packed), tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(shipment.ShipmentError, match="`shared=True`"):
        shipment.pack(parts, 255)
    with pytest.raises(shipment.ShipmentError, match="is not there"):
        shipment.pack({"registry": tmp_path / "none"}, 1 << 20)


def entry(decided_at, block, key="k"):
    device = {"platform": "cpu", "device_kind": "simulated", "hardware": {}}
    config = {"block": block}
    provenance = {
        "job": "0" * 64,
        "timer": "t",
        "source": "host-wall",
        "metric": "elapsed",
        "environment": {"platform_version": "1"},
        "baseline": {"block": 1},
        "baseline_ns": 2.0,
        "best_ns": 1.0,
        "ratio": 0.5,
        "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95},
        "rounds": 6,
        "measured": 2,
        "failed": 0,
        "tie_set": [],
        "tool": "test",
        "decided_at": decided_at,
    }
    return {
        "device": device,
        "op_id": "op@v1",
        "call_key": key,
        "direction": "forward",
        "config": config,
        "provenance": provenance,
    }


def exported(run, cache, folder):
    run("cache", "export", "--format", "json", folder / "entries.json", "--cache", cache)
    return [(one["call_key"], one["config"]) for one in json.loads((folder / "entries.json").read_text())["entries"]]


def test_decisions_wait_for_a_cache_that_another_process_has(tmp_path, program, run):
    cache, control = tmp_path / "cache", tmp_path / "control"
    control.mkdir()
    pipe = control / "block-here"
    os.mkfifo(pipe)
    timer = f"command:{sys.executable} {HERE / 'fleet_timer.py'} {control}"
    words = [
        program,
        EXAMPLE / "module.hlo.txt",
        "--registry",
        EXAMPLE / "registry",
        "--cache",
        cache,
        "--timer",
        timer,
    ]
    folder = CacheFolder(cache)
    holder = subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        assert pipe.read_text() == "here"
        assert "waited for the cache" in folder.commit([entry(1, 2)])
        with pytest.raises(fleet.FleetError, match="cannot be written to: the cache .* is in use by process"):
            CacheFolder(cache)
        with pytest.raises(
            fleet.FleetError, match="1 decisions are not in the cache .*: decisions waited for the cache"
        ):
            folder.flush(0)
    finally:
        holder.kill()
        holder.wait()
    folder.flush(60)
    assert exported(run, cache, tmp_path) == [("k", {"block": 2})]
    assert CacheFolder(cache).of_call(identity_text(entry(1, 2)["device"]), "op@v1", "k") == [entry(1, 2)]


def test_a_later_decision_in_the_cache_stands_and_that_is_said(tmp_path, run):
    cache = tmp_path / "cache"
    early = CacheFolder(cache)
    assert CacheFolder(cache).commit([entry(9, 4)]) is None
    said = early.commit([entry(5, 2), entry(5, 2, "other")])
    assert said.startswith("1 of 2 decisions were left out") and "clock" in said
    assert exported(run, cache, tmp_path) == [("k", {"block": 4}), ("other", {"block": 2})]


def test_what_cannot_be_done_is_said_before_a_cluster_is_asked(tmp_path, monkeypatch):
    for wrong in (
        {"lease_s": 0},
        {"attempts": 0},
        {"timeout_s": -1},
        {"devices": 0},
        {"start_timeout_s": float("nan")},
    ):
        with pytest.raises(ValueError, match="must be positive"):
            fleet.tune("m", "r", cache=tmp_path, **wrong)
    with pytest.raises(ValueError, match="what one worker holds"):
        fleet.tune("m", "r", cache=tmp_path, resources={})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fleet.FleetError, match=r"a fleet needs Ray: pip install 'autotune-lowered\[ray\]'"):
        fleet.tune("m", "r", cache=tmp_path)


def test_the_package_imports_without_ray():
    code = "import autotune_lowered, sys; autotune_lowered.fleet.tune; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
