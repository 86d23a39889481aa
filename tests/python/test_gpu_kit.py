"""`examples/gpu`: what holds its results together, with SIMULATED programs in place of a GPU's, and `collect`."""

import gzip
import hashlib
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "examples" / "gpu"
XPLANE = ROOT / "tests" / "data" / "xplane"


@pytest.fixture(scope="module")
def kit():
    """The kit's modules, by name."""
    sys.path.insert(0, str(GPU))
    try:
        names = ("archive", "figures", "noise", "plan", "process", "promises", "results", "session", "tools", "xspace")
        yield types.SimpleNamespace(**{name: importlib.import_module(f"kit.{name}") for name in names})
    finally:
        sys.path.remove(str(GPU))


# the archive


def listed(content):
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def files(folder, **contents):
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [(f"step/{name}", folder / name) for name in contents]


def test_the_archive_grows_in_parts_that_tar_unpacks(kit, monkeypatch, tmp_path):
    monkeypatch.setattr(kit.archive, "PART_BYTES", 1000)
    archive = kit.archive.Archive(tmp_path, 0)
    noise = os.urandom(1500)
    known = archive.add(files(tmp_path / "one", old=b"old", noise=noise))
    assert known == {"step/old": listed(b"old"), "step/noise": listed(noise)}
    first = (tmp_path / "results.tar.gz.0").read_bytes()
    archive.add(files(tmp_path / "two", old=b"new", last=b"last"))
    assert (tmp_path / "results.tar.gz.0").read_bytes() == first, "what is written stays"
    assert [path.stat().st_size for path in archive.parts()][:-1] == [1000] * (len(archive.parts()) - 1)
    out = tmp_path / "out"
    out.mkdir()
    subprocess.run(f"cat results.tar.gz.* | tar xz -C {out}", shell=True, cwd=tmp_path, check=True)
    assert {path.name: path.read_bytes() for path in (out / "step").iterdir()} == {
        "old": b"new",
        "noise": noise,
        "last": b"last",
    }


def test_an_addition_that_was_killed_is_cut_off(kit, tmp_path):
    archive = kit.archive.Archive(tmp_path, 0)
    known = archive.add(files(tmp_path / "one", kept=b"kept"))
    length = archive.length
    archive.add(files(tmp_path / "two", lost=os.urandom(4000)))
    os.truncate(tmp_path / "results.tar.gz.0", length + 1234)
    again = kit.archive.Archive(tmp_path, length)
    again.cut()
    assert (tmp_path / "results.tar.gz.0").stat().st_size == length
    known |= again.add(files(tmp_path / "three", more=b"more"))
    assert again.extract(known, tmp_path / "out") == {"step/kept", "step/more"}


def test_what_has_no_room_is_left_out(kit, monkeypatch, tmp_path):
    monkeypatch.setattr(kit.archive, "PART_BYTES", 1000)
    archive = kit.archive.Archive(tmp_path, 0)
    archive.add(files(tmp_path / "one", small=b"small"))
    before = archive.length
    with pytest.raises(kit.archive.Full):
        archive.add(files(tmp_path / "two", large=os.urandom(7000)))
    assert archive.length == before
    assert len(archive.parts()) == 1


def hostile(folder, entries):
    """An archive with these entries, each a name, a type and a content."""
    with gzip.open(folder / "results.tar.gz.0", "wb") as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(entry, io.BytesIO(content))


def test_an_archive_is_not_believed(kit, tmp_path):
    good = b"good"
    names = ["../evil", "/tmp/evil", "step/../../evil", "step/a/b/c", ".hidden/file", "step/link", "step/other"]
    hostile(
        tmp_path,
        [
            *((name, tarfile.REGTYPE, good) for name in names[:5]),
            ("step/link", tarfile.SYMTYPE, b""),
            ("step/hard", tarfile.LNKTYPE, b""),
            ("step/device", tarfile.CHRTYPE, b""),
            ("step/changed", tarfile.REGTYPE, b"evil"),
            ("step/longer", tarfile.REGTYPE, b"good" * 100),
            ("step/unlisted", tarfile.REGTYPE, good),
            ("step/good", tarfile.REGTYPE, good),
        ],
    )
    archive = kit.archive.Archive(tmp_path, 1 << 20)
    known = {name: listed(good) for name in [*names, "step/hard", "step/device", "step/changed", "step/longer"]}
    out = tmp_path / "out" / "inner"
    assert archive.extract(known | {"step/good": listed(good)}, out) == {"step/good"}
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [out / "step" / "good"]


def test_a_bomb_ends_early(kit, monkeypatch, tmp_path):
    monkeypatch.setattr(kit.archive, "MOST_UNPACKED", 1 << 20)
    zeros = bytes(64 << 20)
    hostile(tmp_path, [("step/bomb", tarfile.REGTYPE, zeros), ("step/after", tarfile.REGTYPE, b"after")])
    archive = kit.archive.Archive(tmp_path, 1 << 20)
    assert archive.extract({"step/after": listed(b"after")}, tmp_path / "out") == set()


# processes and steps


def test_a_process_that_hangs_is_ended_with_its_children(kit, tmp_path):
    script = f"sleep 600 & echo $! >{tmp_path}/child; echo begun; trap '' TERM; sleep 600"
    done = kit.process.run(["bash", "-c", script], tmp_path / "hang", ".out", 1, dict(os.environ), tmp_path)
    assert done.timed_out
    assert done.stdout.read_text() == "begun\n"
    child = int((tmp_path / "child").read_text())
    for _ in range(50):
        if not pathlib.Path(f"/proc/{child}").exists() or " Z " in pathlib.Path(f"/proc/{child}/stat").read_text():
            return
        time.sleep(0.1)
    pytest.fail("its child still runs")


def steps_of(kit, **functions):
    return [kit.plan.Step(function, seconds) for function, seconds in functions.values()]


class Clock:
    """What `session` asks of the tools."""

    def __init__(self, folder, seconds=100.0, simulated=False):
        self.ends, self.folder = time.monotonic() + seconds, folder
        self.machine = types.SimpleNamespace(simulated=simulated)

    def begin(self, step, limit):
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()


def named(name, function):
    function.__name__, function.__doc__ = name, "A question?"
    return function


def test_no_step_stops_another(kit, tmp_path):
    def broken(tools):
        raise KeyError("operations")

    def hangs(tools):
        raise kit.tools.TimeUp("it was ended after 30 s")

    def talks(tools):
        (tools.folder / "log.out").write_bytes(b"x" * (2 << 20))
        return kit.tools.Finding(True, "\x1b[2Jcleared\nand more", {"figure": 1})

    functions = {"facts": broken, "device": hangs, "measure": talks, "clocks": lambda tools: 1 / 0}
    steps = [kit.plan.Step(named(name, function), 30) for name, function in functions.items()]
    results = kit.results.Results(tmp_path / "results", kit.plan.NAMES)
    lines = []
    kit.session.run(steps, set(), Clock(tmp_path / "work"), results, lines.append)
    found = {name: step["result"] for name, step in results.steps.items()}
    assert found == {"facts": "does not", "device": "does not", "measure": "works", "clocks": "does not"}
    assert "KeyError" in lines[0]
    assert "ended after 30 s" in lines[1]
    text = (tmp_path / "results" / "summary.txt").read_text()
    assert "\x1b" not in text + "".join(lines)
    assert len(text.splitlines()) == len(lines) == 4
    # a log keeps its ends
    results.restore(tmp_path / "out")
    log = (tmp_path / "out" / "measure" / "log.out").read_bytes()
    assert len(log) < (1 << 20)
    assert b"bytes are left out" in log


def test_a_step_that_is_not_reached_is_tried_again(kit, tmp_path):
    calls = []

    def slow(tools):
        calls.append("slow")
        raise kit.tools.TimeUp("no time was left")

    steps = [kit.plan.Step(named("measure", slow), 60)]
    results = kit.results.Results(tmp_path / "results", kit.plan.NAMES)
    kit.session.run(steps, set(), Clock(tmp_path / "work", seconds=1), results, lambda line: None)
    assert calls == []
    assert results.steps["measure"]["result"] == "not tried"
    assert "the time is up" in results.steps["measure"]["figure"]
    # cut short by the end of the run, and not by its own limit
    kit.session.run(steps, set(), Clock(tmp_path / "work", seconds=30), results, lambda line: None)
    assert (calls, results.steps["measure"]["result"]) == (["slow"], "not tried")
    kit.session.run(steps, set(), Clock(tmp_path / "work"), results, lambda line: None)
    assert results.steps["measure"]["result"] == "does not"
    kit.session.run(steps, set(), Clock(tmp_path / "work"), results, lambda line: None)
    assert len(calls) == 2, "what is known is not done again"
    kit.session.run(steps, {"measure"}, Clock(tmp_path / "work"), results, lambda line: None)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("works", "computed", "real", "simulated"),
    [
        (True, None, "works", "works"),
        (True, False, "does not", "works"),
        (False, True, "does not", "does not"),
        (None, True, "works", "not tried"),
        (None, False, "does not", "not tried"),
    ],
)
def test_a_simulated_device_shows_nothing_that_is_computed(works, computed, real, simulated, kit):
    found = kit.tools.Finding(works, "figure", {}, computed)
    assert kit.session.judged(found, simulated=False)[0] == real
    result, figure, _ = kit.session.judged(found, simulated=True)
    assert result == simulated
    assert ("needs computed values" in figure) == (works is None)


# the results


def test_results_go_on_where_they_ended(kit, tmp_path):
    work = tmp_path / "work"
    files(work, **{"tune.json": b"{}"})
    results = kit.results.Results(tmp_path / "results", kit.plan.NAMES)
    results.keep("main_job", {"result": "works", "figure": "fast", "seconds": 1.0, "data": {"best": 1}}, work)
    again = kit.results.Results(tmp_path / "results", kit.plan.NAMES)
    assert again.damage is None
    assert again.is_done("main_job")
    assert again.steps["main_job"]["data"] == {"best": 1}
    assert again.restore(tmp_path / "out") == {"main_job/tune.json"}
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert names == {"accept.json", "summary.txt", "results.tar.gz.0"}


def test_files_are_bounded(kit, tmp_path):
    work = tmp_path / "work"
    files(work, kept=b"kept", huge=bytes((8 << 20) + 1))
    (work / "a" / "b").mkdir(parents=True)
    (work / "a" / "b" / "deep").write_text("deep")
    (work / "a" / "flat").write_text("flat")
    (work / "link").symlink_to("/etc/passwd")
    found, left_out = kit.results.files_of(work)
    assert [name for name, _ in found] == ["a/flat", "kept"]
    assert set(left_out) == {"a/b/deep", "huge"}


STEP = {"result": "works", "figure": "", "seconds": 1, "data": {}, "files": {}}


@pytest.mark.parametrize(
    "damaged",
    [
        b"{",
        b"[1]",
        b"\xff",
        b'{"schema": 2}',
        json.dumps({"schema": 1, "archive_bytes": -1, "machine": {}, "steps": {}}).encode(),
        json.dumps({"schema": 1, "archive_bytes": 0, "machine": {}, "steps": {"../x": STEP}}).encode(),
        json.dumps(
            {"schema": 1, "archive_bytes": 0, "machine": {}, "steps": {"facts": STEP | {"result": "\x1b"}}}
        ).encode(),
        json.dumps(
            {
                "schema": 1,
                "archive_bytes": 0,
                "machine": {},
                "steps": {"facts": STEP | {"files": {"facts/../../x": listed(b"")}}},
            }
        ).encode(),
    ],
)
def test_a_damaged_file_of_results_is_set_aside(damaged, kit, tmp_path):
    (tmp_path / "accept.json").write_bytes(damaged)
    results = kit.results.Results(tmp_path, kit.plan.NAMES)
    assert results.steps == {}
    assert "every step is tried again" in results.damage
    assert (tmp_path / "accept.damaged").read_bytes() == damaged


# whole runs, with a program that answers as one on a GPU would

PROGRAM = """#!{python}
import json, os, sys, time
words = sys.argv[1:]
with open(os.environ["SAID"], "a") as file:
    print(json.dumps(words), file=file)
if os.environ.get("HANG") == words[0]:
    print("begun", file=sys.stderr, flush=True)
    time.sleep(600)
device = {{"identity": {{"platform": "cuda", "device_kind": "SIMULATED", "hardware": {{}}}}}}
clocks = {{"sm_mhz": 1980, "max_sm_mhz": 1980, "memory_mhz": 2619, "max_memory_mhz": 2619}}
if words[0] == "device":
    answer = {{"plugins": [{{"devices": [device], "clocks": clocks}}]}}
elif words[0] == "measure" and os.environ.get("REFUSED"):
    sys.exit("autotune-lowered: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES \\x1b[2J")
elif words[0] == "measure":
    samples = [{{"kernels_ns": 9, "span_ns": 12, "busy_ns": 9, "gaps_ns": 3}}]
    median = 20 if "cold" in words else 10
    answer = {{"source": "device-profile", "kernels": 2, "median_ns": median, "samples": samples}}
elif words[0] == "selftest":
    wins = {{"at_default": 0, "decisions": 240}}
    programs = [{{"program": "add", "copies": 16, "false_wins": wins, "resolution": 0.01, "median_ns": 7000}}]
    answer = {{"source": "host-wall" if "elapsed" in words else "device-profile", "programs": programs}}
print(json.dumps(answer))
"""


@pytest.fixture
def prepared(tmp_path):
    """A folder as `prepare` fills it, with a SIMULATED program."""
    gpu = tmp_path / "gpu"
    gpu.mkdir()
    shutil.copy(GPU / "accept", gpu)
    for name in ("kit", "peers"):
        shutil.copytree(GPU / name, gpu / name)
    targets = {"cuda:simulated": {"identity": {"platform": "cuda", "device_kind": "SIMULATED", "hardware": {}}}}
    (gpu / "manifest.json").write_text(
        json.dumps({"targets": targets, "plugin_sha256": hashlib.sha256(b"").hexdigest()})
    )
    program = gpu / "autotune-lowered"
    # without its mode, as if it had been lost on the way
    program.write_text(PROGRAM.format(python=sys.executable))
    (gpu / "plugin.so").write_bytes(b"")
    return gpu


def command(gpu, *words):
    options = ["--plugin", str(gpu / "plugin.so"), "--python", sys.executable]
    return [sys.executable, str(gpu / "accept"), *words, *options]


def environment(tmp_path, **more):
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("OUT", "SIMULATED_GPU")}
    # JAX's own step would take minutes on a CPU, and says nothing here
    no_jax = tmp_path / "no-jax"
    no_jax.mkdir(exist_ok=True)
    (no_jax / "jax.py").write_text("raise ImportError('no JAX here')\n")
    own = {"TMPDIR": scratch, "OUT": tmp_path / "out", "SAID": tmp_path / "said", "PYTHONPATH": no_jax}
    return kept | {name: str(value) for name, value in own.items()} | more


def accept(gpu, tmp_path, *words, **more):
    words = command(gpu, *words)
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment(tmp_path, **more))
    assert list((tmp_path / "scratch").iterdir()) == [], "what it works with goes away"
    rows = {line[11:].split(None, 1)[0]: line[:9].strip() for line in done.stdout.splitlines()}
    return done, rows


def test_a_run_works_through_its_steps_and_goes_on(prepared, tmp_path):
    done, rows = accept(prepared, tmp_path, "facts", "device", "clocks", "measure", "same_against_same", "caches")
    assert set(rows.values()) == {"works"}, done.stdout + done.stderr
    assert done.returncode == 0
    document = json.loads((tmp_path / "out" / "accept.json").read_text())
    assert document["steps"]["device"]["data"]["target"] == "cuda:simulated"
    assert document["steps"]["facts"]["data"]["as_prepared"]
    low, high = document["steps"]["same_against_same"]["data"]["interval"]
    assert low == 0
    # the closed form for none of n: 1 - (alpha / 2)^(1 / n)
    assert high == pytest.approx(1 - 0.025 ** (1 / 240), rel=1e-6)
    before = len((tmp_path / "said").read_text().splitlines())
    again, rows = accept(prepared, tmp_path, "first")
    assert rows["measure"] == "works"
    assert "done before" in again.stdout
    # the module of the main job is not there: its step fails, and no other
    assert rows["main_job"] == "does not"
    asked = [json.loads(line)[0] for line in (tmp_path / "said").read_text().splitlines()[before:]]
    assert "measure" not in asked
    assert again.returncode == 1


def test_results_of_a_simulated_gpu_are_named_so(prepared, tmp_path):
    done, rows = accept(prepared, tmp_path, "device", "same_against_same", SIMULATED_GPU="1")
    assert rows == {"device": "works", "same_against_same": "not tried"}
    assert all("SIMULATED" in line for line in done.stdout.splitlines())
    assert "needs computed values" in done.stdout


def test_a_refused_profiler_falls_back_to_the_host_clock(prepared, tmp_path):
    done, rows = accept(prepared, tmp_path, "measure", REFUSED="1")
    assert rows == {"measure": "does not"}
    assert "by the host clock 7.0 µs" in done.stdout
    assert "INSUFFICIENT_PRIVILEGES" in done.stdout
    assert "\x1b" not in done.stdout


def is_of(cmdline, folder):
    """Whether a process was started from a folder."""
    try:
        return str(folder / "scratch").encode() in cmdline.read_bytes()
    except OSError:
        return False


def test_a_kill_loses_the_step_in_progress_alone(prepared, tmp_path):
    words = command(prepared, "device", "clocks", "measure")
    log = tmp_path / "log"
    with log.open("wb") as out:
        running = subprocess.Popen(words, stdout=out, env=environment(tmp_path, HANG="measure"), start_new_session=True)
    try:
        for _ in range(300):
            if "clocks" in log.read_text() and '"measure"' in (tmp_path / "said").read_text():
                break
            time.sleep(0.1)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    said = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines()]
    assert said[-1][0] == "measure"
    for _ in range(50):
        if not [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if is_of(path, tmp_path)]:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the hanging program still runs")
    shutil.rmtree(tmp_path / "scratch")
    document = json.loads((tmp_path / "out" / "accept.json").read_text())
    assert set(document["steps"]) == {"device", "clocks"}
    # as if the kill had come while an addition was written
    with (tmp_path / "out" / "results.tar.gz.0").open("ab") as part:
        part.write(b"half an addition")
    _, rows = accept(prepared, tmp_path, "first")
    assert (rows["clocks"], rows["measure"]) == ("works", "works")
    unpacked = subprocess.run(
        f"cat {tmp_path}/out/results.tar.gz.* | tar tz", shell=True, capture_output=True, text=True
    )
    assert "measure/measure.json" in unpacked.stdout
    assert unpacked.stderr == ""


@pytest.mark.parametrize("kind", ["endless", "fifo", "folder", "deep"])
def test_a_document_that_is_none_is_one_line(kind, tmp_path):
    kept = tmp_path / "accept.json"
    if kind == "endless":
        kept.symlink_to("/dev/zero")
    elif kind == "fifo":
        os.mkfifo(kept)
    elif kind == "folder":
        kept.mkdir()
    else:
        kept.write_text("[" * 1_000_000)
    words = [sys.executable, GPU / "collect", tmp_path, "--fixtures", tmp_path / "fixtures"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "name the folder" in done.stderr


def test_results_that_cannot_be_kept_are_one_line(prepared, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / "results.tar.gz.0")
    for more in (["--results", str(tmp_path / "file" / "below")], []):
        done, _ = accept(prepared, tmp_path, "facts", *more)
        assert done.returncode == 1 and done.stdout == ""
        assert len(done.stderr.splitlines()) == 1 and "--results" in done.stderr
    done, _ = accept(prepared, tmp_path, "facts", "--seconds", "-3")
    assert done.returncode == 2 and "above 0" in done.stderr


def test_a_step_that_hangs_is_ended_by_its_limit(prepared, tmp_path):
    plan = prepared / "kit" / "plan.py"
    plan.write_text(plan.read_text().replace("Step(on_programs.measure, 45)", "Step(on_programs.measure, 6)"))
    done, rows = accept(prepared, tmp_path, "measure", "clocks", HANG="measure")
    assert rows == {"clocks": "works", "measure": "does not"}
    assert "was ended after" in done.stdout


def test_nothing_prepared_and_unknown_steps_are_one_line(prepared, tmp_path):
    done = subprocess.run(command(prepared, "frist"), capture_output=True, text=True, env=environment(tmp_path))
    assert done.returncode == 2
    assert "no step is called `frist`" in done.stderr
    (prepared / "manifest.json").unlink()
    done = subprocess.run(command(prepared, "first"), capture_output=True, text=True, env=environment(tmp_path))
    assert done.returncode == 1
    assert "nothing is prepared" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_cpu_is_no_gpu(program, plugin, prepared, tmp_path):
    words = ["device", "clocks", "store", "--program", program, "--plugin", plugin]
    done = subprocess.run(
        [sys.executable, str(prepared / "accept"), *words],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(tmp_path),
    )
    rows = {line[11:].split(None, 1)[0]: line[:9].strip() for line in done.stdout.splitlines()}
    assert rows == {"device": "works", "clocks": "not tried", "store": "not tried"}, done.stderr
    assert "it needs a GPU, and this is `cpu`" in done.stdout


# XSpaces


def summary(run, file):
    document = json.loads(run("profile", "summary", file, "--format", "json"))
    names = ("executions", "layout", "plane", "modules_ns", "wall_ns", "idle_inside_ns")
    devices = [{name: one[name] for name in names} for one in document["devices"]]
    return devices, document["modules"], document["operations"]


@pytest.mark.parametrize("name", sorted(path.name for path in XPLANE.rglob("*.xplane.pb*")))
def test_trimming_keeps_what_ran(name, run, kit, tmp_path):
    (source,) = XPLANE.rglob(name)
    trimmed = kit.xspace.trimmed(source.read_bytes())
    small = tmp_path / "small.xplane.pb"
    small.write_bytes(trimmed)
    assert len(trimmed) <= len(kit.xspace.decompressed(source.read_bytes()))
    assert summary(run, small) == summary(run, source)
    assert kit.xspace.trimmed(trimmed) == trimmed


def plane(kit, name, events, stat=b"correlation_id"):
    """A plane with one line of so many events, each with its own metadata and a stat."""
    message, number = kit.xspace.message, kit.xspace.number
    varint = lambda field, value: number(field << 3) + number(value)
    out = message(2, name) + message(5, varint(1, 1) + message(2, varint(1, 1) + message(2, stat)))
    line = b""
    for index in range(1, events + 1):
        line += message(4, varint(1, index) + varint(2, index * 100) + varint(3, 50) + message(4, varint(1, 1)))
        entry = varint(1, index) + message(2, b"event %d" % index)
        # the last event of a host refers to the one before, packed as protobuf packs it
        entry += message(6, number(index - 1)) if index == events else b""
        out += message(4, varint(1, index) + message(2, entry))
    return message(1, out + message(3, line))


def test_lines_of_the_host_are_shortened_and_those_of_a_device_are_not(kit):
    device, host = plane(kit, b"/device:GPU:0", 300), plane(kit, b"/host:CPU", 1000)
    hosts = kit.xspace.message(4, b"a-name-of-a-host")
    trimmed = kit.xspace.trimmed(device + host + hosts)
    assert trimmed.startswith(device)
    assert b"event 200" in trimmed[len(device) :]
    assert b"event 201" not in trimmed[len(device) :], "no event refers to it any more"
    assert b"a-name-of-a-host" not in trimmed
    # without a device, programs ran on the host
    assert kit.xspace.trimmed(host + hosts) == host


def test_metadata_that_other_metadata_names_is_kept(kit):
    few = plane(kit, b"/host:other", 3)
    assert kit.xspace.trimmed(plane(kit, b"/device:GPU:0", 1) + few).endswith(few)


def test_kernels_in_command_buffers_are_counted(kit):
    one_by_one = plane(kit, b"/device:GPU:0", 3)
    in_graphs = plane(kit, b"/device:GPU:1", 5, stat=b"cuda_graph_id")
    assert kit.xspace.launched_in_graphs(one_by_one + in_graphs + plane(kit, b"/host:CPU", 7)) == (8, 5)


def test_what_is_no_xspace_is_refused(kit):
    deep = gzip.compress(bytes(65 << 20))
    for data in (
        b"",
        b"\xff" * 20,
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x1f\x8bbroken",
        deep,
        plane(kit, b"/device:GPU:0", 20_001),
    ):
        with pytest.raises(kit.xspace.Unreadable):
            kit.xspace.trimmed(data)


# collect


def results_of(kit, folder, simulated):
    """Results with an XSpace that a CPU gave, as if it came from a GPU."""
    results = kit.results.Results(folder, kit.plan.NAMES)
    results.document["machine"] = {"simulated": simulated}
    identity = {"device_kind": "NVIDIA H100 80GB HBM3", "hardware": {"compute_capability": "9.0"}}
    found = {
        "facts": {"driver": "NVRM version: 580.95.05 \x1b[2J", "versions": ["jax-0.11.2", "jax_cuda13_pjrt-0.11.2"]},
        "device": {"document": {"plugins": [{"devices": [{"identity": identity}]}]}, "target": "cuda:h100_sxm"},
        "jax_alone": {"jax": {"ceiling": {"found": {"tflops": 700.4}}}, "spaces": {"eager": {"executions": 3}}},
        "same_against_same": {"false": 3, "decisions": 300, "trials": 30, "interval": [0.002, 0.029]},
    }
    for name, data in found.items():
        work = folder.parent / "work" / name
        work.mkdir(parents=True)
        if name == "jax_alone":
            shutil.copy(XPLANE / "autotune6x5.xplane.pb.gz", work / "eager.xplane.pb.gz")
            (work / "default.xplane.pb.gz").write_bytes(b"no profile")
        result = "does not" if name == "facts" else "works"
        results.keep(name, {"result": result, "figure": f"{name} | \x1b", "seconds": 1.0, "data": data}, work)


def collect(program, *words):
    return subprocess.run(
        [sys.executable, str(GPU / "collect"), *map(str, words), "--program", program],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_results_become_fixtures_a_table_and_a_list(kit, program, run, tmp_path):
    results_of(kit, tmp_path / "results", simulated=False)
    page = tmp_path / "benchmarks.md"
    page.write_text(
        "# Benchmarks\n\n## On a GPU: NVIDIA H100 80GB HBM3\n\nold\n\n## On a GPU: another\n\nstays\n\n## Others\n\nkept\n"
    )
    fixtures = tmp_path / "fixtures"
    done = collect(program, tmp_path / "results", "--fixtures", fixtures, "--benchmarks", page)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    file = fixtures / "h100_sxm_layers_eager.xplane.pb.gz"
    assert {path.name for path in fixtures.iterdir()} == {"README.md", file.name}
    assert summary(run, file) == summary(run, XPLANE / "autotune6x5.xplane.pb.gz")
    assert "jax_alone/default.xplane.pb.gz is no fixture" in done.stderr
    readme = (fixtures / "README.md").read_text()
    assert re.search(
        rf"`{file.name}` \| four layers .* driver 580.95.05, jax-0.11.2, jax_cuda13_pjrt-0.11.2, 20", readme
    )
    assert "| 8192³ matrix product of XLA's, bf16 | 700 TFLOP/s |" in page.read_text()
    assert "3 of 300 decisions (0.20% to 2.90%)" in page.read_text()
    assert "old" not in page.read_text()
    assert page.read_text().endswith("## On a GPU: another\n\nstays\n\n## Others\n\nkept\n")
    lines = done.stdout.splitlines()
    assert [line for line in lines if "a new one begins when the first kernel comes again" in line and "holds" in line]
    assert [line for line in lines if "A target has the identity" in line and "holds" in line]
    assert [line for line in lines if "Every launch of that round is found" in line and "not shown" in line]
    # a second run changes nothing
    again = collect(program, tmp_path / "results", "--fixtures", fixtures, "--benchmarks", page)
    assert again.returncode == 0
    assert (fixtures / "README.md").read_text() == readme


def test_notes_of_any_kind_break_no_table(kit, program, tmp_path):
    results_of(kit, tmp_path / "results", simulated=False)
    kept = tmp_path / "results" / "accept.json"
    document = json.loads(kept.read_text())
    steps = document["steps"]
    identity = steps["device"]["data"]["document"]["plugins"][0]["devices"][0]["identity"]
    identity["device_kind"] = "GPU |\n# a title \x1b[2J"
    steps["facts"] |= {"at": "yesterday", "data": {"driver": ["580.1"], "versions": {"jax-1.2\n": 7}}}
    steps["jax_alone"]["data"] = {"jax": {"ceiling": {"found": {"tflops": "7 |\n"}}}, "spaces": "none"}
    steps["same_against_same"]["data"] = []
    steps["bad"] = STEP | {"data": {"ends": ["right"]}}
    for damaged in (steps, steps | {"same_against_same": STEP | {"data": {"decisions": "\n| many"}}}):
        kept.write_text(json.dumps(document | {"steps": damaged}))
        done = collect(program, tmp_path / "results", "--fixtures", tmp_path / "fixtures")
        if damaged is steps:
            assert "no results of this kit" in done.stderr, "notes are an object"
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr + (tmp_path / "fixtures" / "README.md").read_text()
    tables = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {3, 5}
    assert "# a title" not in done.stdout.splitlines()


def test_of_two_runs_the_later_one_that_tried_counts(kit, program, tmp_path):
    results_of(kit, tmp_path / "first", simulated=False)
    later = kit.results.Results(tmp_path / "rest", kit.plan.NAMES)
    found = {"false": 0, "decisions": 500, "trials": 50, "interval": [0.0, 0.0074]}
    steps = {"same_against_same": ("works", found), "device": ("not tried", {}), "jax_alone": ("not tried", {})}
    for name, (result, data) in steps.items():
        files(tmp_path / name, log=b"later")
        later.keep(name, {"result": result, "figure": "later", "seconds": 1.0, "data": data}, tmp_path / name)
    done = collect(program, tmp_path / "first", tmp_path / "rest", "--fixtures", tmp_path / "fixtures")
    assert done.returncode == 0, done.stderr
    assert "0 of 500 decisions" in done.stdout
    assert (tmp_path / "fixtures" / "h100_sxm_layers_eager.xplane.pb.gz").exists()


def test_simulated_results_are_no_fixtures_of_a_gpu(kit, program, tmp_path):
    results_of(kit, tmp_path / "results", simulated=True)
    done = collect(program, tmp_path / "results")
    assert done.returncode == 1
    assert "SIMULATED results are no fixtures" in done.stderr
    done = collect(program, tmp_path / "results", "--fixtures", tmp_path / "f", "--benchmarks", tmp_path / "page.md")
    assert done.returncode == 1
    assert not (tmp_path / "f").exists()
    done = collect(program, tmp_path / "results", "--fixtures", tmp_path / "f")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "f" / "SIMULATED_h100_sxm_layers_eager.xplane.pb.gz").exists()
    assert "SIMULATED" in (tmp_path / "f" / "README.md").read_text().splitlines()[0]
    assert "on SIMULATED NVIDIA H100" in done.stdout


def test_a_folder_without_results_is_one_line(program, tmp_path):
    done = collect(program, tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "accept.json" in done.stderr


# what is written down


def test_the_documents_still_say_what_is_quoted(kit):
    pages = {one.page: " ".join((ROOT / one.page).read_text().split()) for one in kit.promises.PROMISES}
    wrong = [(one.page, one.words) for one in kit.promises.PROMISES if one.words not in pages[one.page]]
    assert wrong == [], "quote them in kit/promises.py as they stand now"
    assert {one.step for one in kit.promises.PROMISES} <= set(kit.plan.NAMES)


def test_the_table_of_steps_is_current(kit):
    text = (GPU / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", text, re.MULTILINE)
    assert rows == [(step.name, str(step.seconds), step.question) for step in kit.plan.STEPS]


@pytest.mark.parametrize(
    ("count", "trials", "low", "high"),
    [(0, 300, 0.0, 0.01222097), (3, 300, 0.00206701, 0.02894451), (5, 5, 0.4781762, 1.0)],
)
def test_the_interval_is_clopper_and_pearsons(count, trials, low, high, kit):
    # by scipy.stats.binomtest(count, trials).proportion_ci(method="exact")
    assert kit.noise.interval(count, trials) == pytest.approx((low, high), abs=1e-7)
