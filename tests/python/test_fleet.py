"""A fleet on a real Ray cluster: several raylets on this machine, each with its own processes and one simulated device."""

import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from autotune_lowered import fleet
from autotune_lowered.fleet import driver as fleet_driver

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLE = HERE.parent.parent / "examples/transformer"
MODULE, REGISTRY = EXAMPLE / "module.hlo.txt", EXAMPLE / "registry"
DEVICE = {"tuner": 1}
# far longer than a test takes: reached only if something waits that must not
LIMIT_S = 300


class Place:
    """A test's folder: the control folder of its timer, its cache, and how it calls the fleet."""

    def __init__(self, folder, run):
        self.control, self.cache = folder / "control", folder / "cache"
        self.control.mkdir()
        self.timer = f"command:{sys.executable} {HERE / 'fleet_timer.py'} {self.control}"
        self._run = run

    def tune(self, **arguments):
        arguments = {"resources": DEVICE, "rounds": 6, "timeout_s": LIMIT_S, "lease_s": 10 * LIMIT_S} | arguments
        return fleet.tune(MODULE, REGISTRY, cache=self.cache, timer=self.timer, **arguments)

    def logged(self, what):
        """How often each call reached this point of its job."""
        path = self.control / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        words = [line.split() for line in lines]
        return collections.Counter((op_id, key) for said, _, op_id, key in words if said == what)

    def times_measured(self):
        """How often each call of the cache is measured if nothing is measured in vain: by the process that chose, and by
        those that its entry says confirmed it."""
        taken = {
            (entry["op_id"], entry["call_key"]): 1 + entry["provenance"].get("processes", 0) for entry in self.entries()
        }
        return collections.Counter(taken)

    def pipe(self, name):
        """Prepares trouble: a named pipe, and the text read from it."""
        path = self.control / name
        os.mkfifo(path)
        return path

    def processes(self):
        """The timer's processes that still exist; waits for those that were just killed."""
        end = time.monotonic() + LIMIT_S
        while True:
            commands = {}
            for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    commands[path.parent.name] = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            left = {
                process: words for process, words in commands.items() if "fleet_timer.py " + str(self.control) in words
            }
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)

    def entries(self, cache=None):
        """The entries of a cache, without times of day."""
        file = self.control / "entries.json"
        self._run("cache", "export", "--format", "json", file, "--cache", cache or self.cache)
        return without_times(json.loads(file.read_text())["entries"])

    def told(self, pipe, then):
        """Calls `then` with the text that arrives through a pipe; the future is done afterwards."""
        future = concurrent.futures.Future()

        def wait():
            try:
                future.set_result(then(pipe.read_text()))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=wait, daemon=True).start()
        return future

    def first(self, node, pipe, then):
        """Lets the other nodes begin only after this one has reported a call through the pipe, and after `then`."""
        gate = self.pipe(f"gate-{node}")

        def open_gate(said):
            then(said)
            self._open = os.open(gate, os.O_RDWR)

        return self.told(pipe, open_gate)


def without_times(entries):
    for entry in entries:
        assert entry["provenance"].pop("decided_at") > 0
    return entries


@pytest.fixture(scope="module")
def cluster(program):
    pytest.importorskip("ray", reason="a fleet needs Ray: pip install ray")
    from ray.cluster_utils import Cluster

    # raylets pass their environment on to the actors
    inherited = [str(HERE.parent.parent / "python"), os.environ.get("PYTHONPATH", "")]
    changed = {
        "PYTHONPATH": os.pathsep.join(filter(None, inherited)),
        "AUTOTUNE_LOWERED_EXE": program,
        "RAY_DEDUP_LOGS": "0",
    }
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    # a killed node must be noticed soon
    health = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 3}
    size = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "num_cpus": 0, "_system_config": health})
    cluster.size = {"num_cpus": 1, "object_store_memory": 80 << 20}
    try:
        for node in ("a", "b", "c"):
            cluster.add_node(resources=DEVICE, env_vars={"FLEET_NODE": node}, wait=False, **cluster.size)
        cluster.wait_for_nodes(LIMIT_S)
        cluster.connect()
        yield cluster
    finally:
        import ray

        ray.shutdown()
        cluster.shutdown()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture
def place(tmp_path, run, cluster):
    return Place(tmp_path, run)


@contextlib.contextmanager
def nodes(cluster, resources, *environments, **more):
    """Adds nodes for the span of the block."""
    added = []
    try:
        for environment in environments:
            added.append(
                cluster.add_node(resources=resources, env_vars=environment, wait=False, **cluster.size, **more)
            )
        cluster.wait_for_nodes(LIMIT_S)
        yield
    finally:
        for node in added:
            cluster.remove_node(node, allow_graceful=False)


def statuses(result):
    return [operation.status for operation in result.operations]


def test_three_nodes_find_what_one_machine_finds(place, run, tmp_path):
    result = place.tune()
    assert place.logged("end") == place.logged("begin") == place.times_measured()
    assert len(result.operations) == 4 and result.is_complete, result
    assert {operation.attempts for operation in result.operations} == {1}
    assert {operation.status for operation in result.operations} <= {"tuned", "baseline-kept"}

    # the same by the program alone, in a separate cache
    alone = tmp_path / "alone"
    words = ["--registry", REGISTRY, "--cache", alone, "--timer", place.timer, "--rounds", 6, "--format", "json"]
    rows = json.loads(run(MODULE, *words))["operations"]
    assert [(row["call_key"], row["status"], row["best"]["config"], row["best"]["median_ns"]) for row in rows] == [
        (one.call_key, one.status, one.best, one.best_ns) for one in result.operations
    ]
    ours, theirs = place.entries(), place.entries(alone)
    for mine, other in zip(ours, theirs, strict=True):
        # a worker measures one call, and learns nothing of others about how much processes differ
        wide, narrow = (one["provenance"].pop("interval", None) for one in (mine, other))
        assert (wide is None) == (narrow is None)
        assert wide is None or wide["low"] <= narrow["low"] <= narrow["high"] <= wide["high"]
    assert ours == theirs
    assert without_times(sorted(result.entries, key=json.dumps)) == sorted(place.entries(), key=json.dumps)

    measured = place.logged("begin")
    again = place.tune(shared=True)
    assert statuses(again) == ["cached"] * 4
    assert [one.best for one in again.operations] == [one.best for one in result.operations]
    assert place.logged("begin") == measured
    table = str(again).splitlines()
    assert table[0].split() == ["operation", "best", "speed-up", "node", "attempts", "status"] and len(table) == 5


def test_a_node_that_dies_in_the_middle_costs_nothing(place, cluster):
    doomed = cluster.add_node(resources=DEVICE, env_vars={"FLEET_NODE": "doomed"}, wait=False, **cluster.size)
    cluster.wait_for_nodes(LIMIT_S)

    def kill(_):
        cluster.remove_node(doomed, allow_graceful=False)

    killed = place.first("doomed", place.pipe("block-doomed"), kill)
    result = place.tune()
    assert killed.done(), "the others went on before"
    killed.result()
    assert result.is_complete, result
    assert sorted(one.attempts for one in result.operations) == [1, 1, 1, 2]
    assert [note for note in result.notes if "was lost: " in note] != [], result.notes
    assert place.logged("end") == place.times_measured() and len(place.logged("end")) == 4
    assert not place.processes(), "the program and its worker go with the node"


def test_a_call_that_hangs_everywhere_fails_and_the_others_do_not(place):
    place.pipe("block-chunked_cross_entropy@v1")
    # long enough for the calls that do not hang, even on a busy machine
    result = place.tune(lease_s=15, attempts=2)
    ended = {operation.op_id.partition("@")[0]: operation for operation in result.operations}
    hung = ended.pop("chunked_cross_entropy")
    assert (hung.status, hung.attempts, hung.best) == ("failed", 2, None)
    first, second = hung.reason.split("; ")
    assert first.partition(": ")[0] != second.partition(": ")[0], "the second attempt is another node's"
    assert first.endswith("it ran longer than the lease's 15 s and was ended")
    assert all(operation.is_decided for operation in ended.values())
    assert hung.reason in str(result)
    assert len(result.entries) == 3


def test_a_worker_that_stops_answering_is_replaced(place, monkeypatch):
    monkeypatch.setattr(fleet_driver, "ANSWER_S", 0.5)
    (place.control / "freeze-b").touch()
    frozen = []
    stopped = place.first("b", place.pipe("frozen"), frozen.append)
    try:
        result = place.tune(lease_s=15)
        assert stopped.done(), "the others went on before"
    finally:
        for process in frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGCONT)
    assert result.is_complete, result
    assert any("did not answer in time" in note for note in result.notes), result.notes
    assert sorted(one.attempts for one in result.operations) == [1, 1, 1, 2]


def test_what_the_cluster_lacks_is_said_in_time(place):
    begun = time.monotonic()
    with pytest.raises(fleet.FleetError) as error:
        place.tune(resources={"num_gpus": 1}, start_timeout_s=2)
    # the default limit is 120 s
    assert time.monotonic() - begun < 100
    assert str(error.value).startswith(
        "no worker could be started within 2 s: each needs {GPU: 1}; the cluster has {CPU: 3"
    )
    assert "tuner: 3" in str(error.value)


def test_what_is_wrong_everywhere_is_said_once(place):
    three = r"^no worker could be started: (\S+, ){2}\S+: "
    with pytest.raises(
        fleet.FleetError,
        match=three + "no operation to tune has the name nope@v1; `registry ls` lists those that are recorded$",
    ):
        place.tune(only=["nope@v1"])
    begun = time.monotonic()
    timer, place.timer = place.timer, "command:sleep 1000"
    with pytest.raises(fleet.FleetError, match=three + "no plan within 15 s: "):
        place.tune(start_timeout_s=15)
    assert time.monotonic() - begun < 100
    with pytest.raises(fleet.FleetError, match="the cache `/proc/none` cannot be written to"):
        fleet.tune(MODULE, REGISTRY, cache="/proc/none", resources=DEVICE, timer=timer)


def test_another_version_is_refused_by_name(place, cluster, program, tmp_path):
    other = tmp_path / "other-version"
    other.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo autotune-lowered 9.9.9 && exit\nexec {program} "$@"\n')
    other.chmod(0o755)
    with nodes(cluster, {"odd": 1}, {"AUTOTUNE_LOWERED_EXE": str(other)}):
        refusal = r"could be started: \S+: its program is `autotune-lowered 9\.9\.9`, here it is `autotune-lowered \d"
        with pytest.raises(fleet.FleetError, match=refusal):
            place.tune(resources={"odd": 1}, start_timeout_s=60)


def test_each_kind_of_device_is_tuned_and_other_software_is_refused(place, cluster):
    kinds = [{"FLEET_KIND": "one"}, {"FLEET_KIND": "two"}, {"FLEET_KIND": "two", "FLEET_SOFTWARE": "2"}]
    with nodes(cluster, {"mixed": 1}, *kinds):
        result = place.tune(resources={"mixed": 1})
    devices = [operation.device for operation in result.operations]
    assert devices == ["cpu:one"] * 4 + ["cpu:two"] * 4 and result.is_complete, result
    (refused,) = (note for note in result.notes if "is left out" in note)
    assert "differs from the other workers' in platform_version" in refused
    assert str(result).splitlines()[0].split()[:2] == ["operation", "device"]
    assert len(place.entries()) == 8


def test_each_worker_has_a_gpu_of_its_own(place, cluster):
    shown = "CUDA_VISIBLE_DEVICES,XLA_PYTHON_CLIENT_PREALLOCATE"
    # the first worker must not finish before the second has arrived
    (place.control / "together").write_text("2")
    # resources that Ray believes in; no GPU is needed
    with nodes(cluster, {}, {"FLEET_SHOWS": shown}, num_gpus=2):
        result = place.tune(resources={"num_gpus": 1}, only=["flash_attention@v2"])
    assert [operation.device for operation in result.operations] == [
        f"cpu:simulated (CUDA_VISIBLE_DEVICES={gpu}, XLA_PYTHON_CLIENT_PREALLOCATE=false)" for gpu in "01"
    ]
    assert result.is_complete, result


# processes that a shell starts in the background ignore Ctrl-C, and so do their children
DRIVER = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from autotune_lowered import fleet
module, registry, cache, timer = sys.argv[1:]
fleet.tune(module, registry, cache=cache, timer=timer, resources={"tuner": 1}, rounds=6, devices=1)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_an_ended_driver_loses_what_was_in_flight_and_no_more(place, cluster, sent):
    pipe = place.pipe("block-flash_attention@v2")
    words = [sys.executable, "-c", DRIVER, str(MODULE), str(REGISTRY), str(place.cache), place.timer]
    driver = subprocess.Popen(
        words, env=os.environ | {"RAY_ADDRESS": cluster.address}, stderr=subprocess.PIPE, text=True
    )
    place.told(pipe, lambda _: driver.send_signal(sent))
    said = driver.communicate(timeout=LIMIT_S)[1]
    assert driver.returncode == -sent and ("KeyboardInterrupt" in said) == (sent == signal.SIGINT), said
    before = place.logged("end")
    assert 1 <= len(before) < 4, "it was to be ended in the middle"
    pipe.unlink()
    result = place.tune()
    assert result.is_complete, result
    assert statuses(result).count("cached") == len(before)
    assert place.logged("end") == place.times_measured() and len(place.logged("end")) == 4
    assert not place.processes()


def test_real_kernels_on_jax(place):
    pytest.importorskip("jax", reason="needs JAX")
    result = fleet.tune(
        MODULE,
        REGISTRY,
        cache=place.cache,
        resources=DEVICE,
        rounds=6,
        only=["chunked_cross_entropy@v1"],
        devices=1,
        timeout_s=LIMIT_S,
    )
    (operation,) = result.operations
    assert operation.is_decided and operation.best_ns > 0, result
    (entry,) = result.entries
    assert (entry["provenance"]["timer"], entry["provenance"]["source"]) == ("jax", "host-wall")
