"""The process that has imported JAX and forks workers: their pipes, ends and limits, and the tunings that use it."""

import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys
import types

import pytest
from conftest import ROOT

from autotune_lowered import worker as jax_worker
from autotune_lowered.autotuning import warm

pytestmark = pytest.mark.needs_jax("0.8", "the `jax` worker measures")

killed_workers = types.SimpleNamespace(**runpy.run_path(str(ROOT / "benches/killed_workers.py")))
is_gone = killed_workers.is_gone
WORKER = [sys.executable, "-u", jax_worker.__file__]


def line(method, **params):
    return json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n"


class Forking:
    """A template, as the tuner starts it."""

    def __init__(self, folder, **environment):
        self.path = str(folder / "socket")
        self.process = subprocess.Popen(
            [*WORKER, "0"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        )
        self.process.stdin.write(line("template", socket=self.path))
        self.process.stdin.flush()
        self.answer = json.loads(self.process.stdout.readline())["result"]

    def connected(self):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.path)
        connection.settimeout(60)
        return connection

    def end(self):
        self.process.kill()
        self.process.wait()


class Forked:
    """A worker of it."""

    def __init__(self, template, words=("0",)):
        self.connection = template.connected()
        (from_tuner, self.requests), (answers, to_tuner) = os.pipe(), os.pipe()
        words = json.dumps([*WORKER, *words]).encode() + b"\n"
        socket.send_fds(self.connection, [words], [from_tuner, to_tuner, 2])
        os.close(from_tuner)
        os.close(to_tuner)
        self.answers = os.fdopen(answers, "rb")
        self.pid = int(self.connection.recv(100))

    def ask(self, method, **params):
        os.write(self.requests, line(method, **params))
        return json.loads(self.answers.readline())["result"]

    def code(self):
        """Its exit code; `None` if nobody tells it."""
        told = self.connection.recv(100)
        assert is_gone(self.pid)
        return int(told) if told else None

    def close(self):
        os.close(self.requests)


@pytest.fixture
def template(tmp_path):
    started = Forking(tmp_path)
    assert started.answer == {"forks": True}
    yield started
    started.end()


def reserved(pid):
    """Where the memory that nobody may use begins, which moves a worker's own."""
    rows = [row.split() for row in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]
    sizes = {row[0]: int(row[0].split("-")[1], 16) - int(row[0].split("-")[0], 16) for row in rows if row[1] == "---p"}
    return max(sizes, key=sizes.__getitem__)


def test_workers_are_forked_with_pipes_and_a_layout_of_their_own(template):
    workers = [Forked(template, ["0"]), Forked(template)]
    for worker in workers:
        hello = worker.ask("hello", protocol=1)
        assert hello["worker"].startswith("jax ") and hello["process"] == template.process.pid
        assert os.getpgid(worker.pid) == worker.pid
    assert workers[0].pid != workers[1].pid and reserved(workers[0].pid) != reserved(workers[1].pid)
    assert workers[0].ask("shutdown") == {} and workers[0].code() == 0
    # the other one is still there
    assert workers[1].ask("hello", protocol=1)["protocol"] == 1
    os.kill(workers[1].pid, signal.SIGSEGV)
    assert workers[1].code() == -signal.SIGSEGV
    # the end of its requests is a worker's end
    third = Forked(template)
    third.close()
    assert third.code() == 0


def test_a_connection_that_ends_ends_its_worker(template):
    closed, said = Forked(template), Forked(template)
    closed.ask("hello", protocol=1)
    closed.connection.close()
    assert is_gone(closed.pid)
    said.connection.sendall(b"x")
    assert said.code() == -signal.SIGKILL


CHILDREN = """
import os, signal, socket, subprocess, sys
from autotune_lowered.worker import Template

template = Template(socket.socket())
one, other = subprocess.Popen(["true"]), subprocess.Popen(["sleep", "60"], start_new_session=True)
mine, told = socket.socketpair()
template.connections[other.pid] = mine
os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
template.reap()
other.terminate()
os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
template.reap()
print(told.recv(100), template.connections)
"""


def test_the_end_of_a_child_that_is_no_worker_is_not_the_end():
    done = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"b'{-signal.SIGTERM}\\n' {{}}\n", "")


@pytest.mark.parametrize("ending", ["killed", "stdin"])
def test_workers_end_with_their_template(template, ending):
    workers = [Forked(template) for _ in range(3)]
    workers[0].ask("hello", protocol=1)
    if ending == "killed":
        template.process.kill()
    else:
        template.process.stdin.close()
    assert [worker.code() for worker in workers] == [None] * 3
    assert template.process.wait(10) == (-signal.SIGKILL if ending == "killed" else 0)


def test_who_asks_wrongly_gets_nothing_and_the_next_one_a_worker(template):
    for words, streams in [
        (b"no json\n", [0, 1, 2]),
        (b"17\n", [0, 1, 2]),
        (b"[]\n", [0, 1]),
        (b"[]\n", []),
        (b"", []),
    ]:
        connection = template.connected()
        if words:
            socket.send_fds(connection, [words], streams)
        else:
            connection.close()
            continue
        assert connection.recv(100) == b"0\n", words
    # one that does not wait for its worker might have started another one with its pipes
    connection = template.connected()
    os.kill(template.process.pid, signal.SIGSTOP)
    read, write = os.pipe()
    socket.send_fds(connection, [json.dumps([*WORKER, "0"]).encode()], [read, write, 2])
    connection.close()
    os.kill(template.process.pid, signal.SIGCONT)
    assert Forked(template).ask("hello", protocol=1)["protocol"] == 1
    os.close(write)
    assert os.read(read, 1) == b"", "nobody has the pipe"


@pytest.mark.parametrize(("platforms", "forks"), [("cpu", True), ("tpu", False), ("cuda,cpu", False)])
def test_workers_of_other_devices_are_started(tmp_path, platforms, forks):
    started = Forking(tmp_path, JAX_PLATFORMS=platforms)
    try:
        assert started.answer == {"forks": forks}
    finally:
        started.end()


def test_a_template_that_cannot_listen_is_a_worker(tmp_path):
    started = Forking(tmp_path / ("long" * 30))
    try:
        assert started.answer == {"forks": False}
        started.process.stdin.write(line("hello", protocol=1))
        started.process.stdin.flush()
        assert "process" not in json.loads(started.process.stdout.readline())["result"]
    finally:
        started.end()


class Supervised:
    """A worker under the program's supervisor."""

    def __init__(self, program, path, *options):
        words = [program, "worker", "exec", "--template", path, "--grace-ms", "100", *options, "--", *WORKER, "0"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe)

    def hello(self):
        self.process.stdin.write(line("hello", protocol=1))
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())["result"]

    def end(self):
        self.process.kill()
        self.process.communicate()


def children(pid):
    return [int(one) for one in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_supervisor_watches_a_forked_worker_like_a_started_one(template, program):
    parent = template.process.pid
    for end, code in [
        (lambda one, pid: os.kill(pid, signal.SIGSEGV), 128 + signal.SIGSEGV),
        (lambda one, pid: os.kill(pid, signal.SIGKILL), 128 + signal.SIGKILL),
        (lambda one, pid: one.process.stdin.close(), 0),
        (lambda one, pid: one.process.kill(), -signal.SIGKILL),
        # one that does not read sees no end of its requests
        (lambda one, pid: (os.kill(pid, signal.SIGSTOP), one.process.stdin.close()), 128 + signal.SIGKILL),
    ]:
        one = Supervised(program, template.path)
        assert one.hello()["process"] == parent
        (pid,) = children(parent)
        assert pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"
        end(one, pid)
        assert one.process.wait(20) == code
        assert is_gone(pid)
    one = Supervised(program, template.path, "--memory-bytes", str(50 << 20))
    assert one.process.wait(20) == 120
    assert b"50 allowed" in one.process.stderr.read().replace(str(50 << 20).encode(), b"50")


def test_where_nobody_forks_a_supervisor_starts_the_worker(template, program, tmp_path):
    template.end()
    for path in (template.path, str(tmp_path / "absent"), str(tmp_path)):
        one = Supervised(program, path)
        try:
            assert "process" not in one.hello(), path
        finally:
            one.end()


@pytest.mark.parametrize(
    ("answer", "starts"),
    [(b"0\n", True), (b"", False), (b"17", False), (b"no number\n", False), (b"0" * 20 + b"\n", False)],
)
def test_a_worker_is_started_only_where_no_other_one_can_have_its_pipes(program, tmp_path, answer, starts):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        listening.settimeout(60)
        one = Supervised(program, path)
        connection, _ = listening.accept()
        command, streams, _, _ = socket.recv_fds(connection, 1 << 16, 8)
        assert json.loads(command) == [*WORKER, "0"] and len(streams) == 3
        for stream in streams:
            os.close(stream)
        connection.sendall(answer)
        connection.close()
    try:
        if starts:
            assert "process" not in one.hello()
        else:
            assert one.process.wait(20) == 128 + signal.SIGKILL
            assert b"no worker was forked: the template has ended" in one.process.stderr.read()
    finally:
        one.end()


def test_a_supervisor_that_waits_for_a_fork_ends_with_its_tuner(template, program):
    os.kill(template.process.pid, signal.SIGSTOP)
    one = Supervised(program, template.path)
    one.process.stdin.close()
    assert one.process.wait(20) == 128 + signal.SIGKILL
    os.kill(template.process.pid, signal.SIGCONT)
    # its pipes were on their way until now
    assert b"the tuner is gone" in one.process.stderr.read()
    assert Forked(template).ask("hello", protocol=1)["protocol"] == 1
    assert len(children(template.process.pid)) == 1, "none for who is gone"


SCRIPT = """
import logging, os, signal, sys
import jax, jax.numpy as jnp
import autotune_lowered
from autotune_lowered.autotuning import warm

def repeated(x, *, times=400):
    return jax.lax.fori_loop(0, times, lambda i, y: jnp.tanh(x) + 0 * y, jnp.tanh(x))

class AtTheWinner(logging.Handler):
    def emit(self, record):
        if "provisional:" in record.getMessage() and "kills" in sys.argv:
            sys.argv.remove("kills")
            os.kill(warm._warm._process.pid, signal.SIGKILL)

log = logging.getLogger("autotune_lowered")
log.setLevel(logging.INFO)
log.addHandler(AtTheWinner())
x = jnp.linspace(-1, 1, 1 << 16).reshape(256, 256)
for name in "ab":
    fast = autotune_lowered.autotune(repeated, {"times": [1, 400, 900]}, op=name)
    fast(x).block_until_ready()
    (row,) = fast.result.operations
    print(warm._warm._process.pid, row["status"], row["best"]["config"], len(row["confirmation"]["processes"]), flush=True)
if "waits" in sys.argv:
    sys.stdin.read()
"""


def tuned_twice(folder, *words):
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "AUTOTUNE_LOWERED_CACHE": str(folder / "cache")}
    pipe = subprocess.PIPE
    (folder / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, folder / "script.py", *words], stdin=pipe, stdout=pipe, text=True, env=environment
    )
    return process, [process.stdout.readline().split(" ", 1) for _ in range(2)]


@pytest.mark.usefixtures("program")
def test_one_template_serves_all_tunings_of_a_process_and_ends_with_it(tmp_path):
    for number, end in enumerate([lambda one: one.stdin.close(), lambda one: one.kill()]):
        folder = tmp_path / str(number)
        folder.mkdir()
        process, ((first, one), (second, other)) = tuned_twice(folder, "waits")
        assert first == second and all(said.startswith("tuned {'times': 1}") for said in (one, other))
        assert not children(int(first)), "none is left when a tuning is over"
        end(process)
        process.wait(20)
        assert is_gone(int(first))


@pytest.mark.usefixtures("program")
def test_a_template_that_is_killed_is_replaced(tmp_path):
    process, ((first, one), (second, other)) = tuned_twice(tmp_path, "kills")
    process.communicate()
    assert process.returncode == 0
    # while the first function is tuned, the rest of its workers are started
    assert one.startswith("tuned {'times': 1}") and other.startswith("tuned {'times': 1}")
    assert first != second


def test_another_environment_has_another_template(monkeypatch):
    own = warm.warm_variables()
    assert own == warm.warm_variables()
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    other = warm.warm_variables()
    assert other.keys() == own.keys() and other != own
    assert not os.path.exists(own[warm.TEMPLATE]), "the first one has ended"
    warm.end()
    assert not os.path.exists(other[warm.TEMPLATE])


def test_only_a_cpu_has_one(monkeypatch):
    jax = pytest.importorskip("jax")
    monkeypatch.setattr(jax, "devices", lambda: [type("Device", (), {"platform": "gpu"})])
    assert warm.warm_variables() == {}


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """A module with one call to tune, and its registry."""
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("module")
    killed_workers.recorded(folder)
    return folder


@pytest.mark.parametrize("when", ["programs ready", "fresh process 1"])
@pytest.mark.parametrize(
    "victim", ["worker", "forking process", "supervisor of a worker", "supervisor of the forking process"]
)
def test_whoever_is_killed_costs_no_decision(module, program, tmp_path, victim, when):
    words = [program, "--no-config", module / "module.mlir", "--registry", module / "registry"]
    words += ["--cache", tmp_path / "cache", "--timer", f"jax:{sys.executable}", "--format", "json"]
    pipe = subprocess.PIPE
    run = subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    said = []
    for text in run.stderr:
        said.append(text)
        if when in text:
            break
    seen = killed_workers.family(run.pid)
    victims = [pid for pid in seen if killed_workers.role(pid, seen) == victim]
    assert victims, seen
    os.kill(victims[0], signal.SIGKILL)
    answer, rest = run.communicate(timeout=120)
    assert run.returncode == 0, "".join(said) + rest
    (operation,) = json.loads(answer)["operations"]
    assert (operation["status"], operation["best"]["config"]) == ("tuned", {"times": 1}), operation
    assert len(operation["confirmation"]["processes"]) >= 3
    assert all(map(is_gone, seen))
