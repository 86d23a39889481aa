"""`examples/gpu/accept`, rehearsed on a CPU, and with a SIMULATED program that answers as one on a GPU would."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ACCEPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpu" / "accept"
DONE = {"result": "works", "text": "no false win", "seconds": 9.0, "data": {}}

# a program for a GPU: two configs, one profile of them
SIMULATED = """
import json, pathlib, sys
words = sys.argv[1:]
said = pathlib.Path(sys.argv[0]).with_name("said")
with said.open("a") as file:
    print(json.dumps(words), file=file)
config = lambda size, ns: {"config": {"block": size}, "status": "measured", "median_ns": ns}
device = {"identity": {"platform": "cuda", "device_kind": "SIMULATED"}}
clocks = {"sm_mhz": 1980, "max_sm_mhz": 1980, "memory_mhz": 2619, "max_memory_mhz": 2619}
if words[0] == "device":
    answer = {"plugins": [{"devices": [device], "clocks": clocks}]}
elif words[0] == "profile":
    answer = {"devices": [{"executions": EXECUTIONS}], "operations": ["add"], "notes": []}
elif words[0] == "measure":
    answer = {"median_ns": 20 if "cold" in words else 10}
elif words[0] == "selftest":
    programs = [{"false_wins": {"at_default": 0, "decisions": 28}, "resolution": 0.01}]
    answer = {"source": "device-profile", "metric": "span", "programs": programs}
else:
    if "--keep-profiles" in words:
        folder = pathlib.Path(words[words.index("--keep-profiles") + 1])
        folder.mkdir(parents=True)
        (folder / "round.xplane.pb").write_bytes(b"synthetic")
    host = 5 if "elapsed" in words else 0
    spent = {"compile_ns": 7, "compile_candidates_ns": 0}
    operation = {"candidates": [config(64, 10 + host), config(128, 20 + host)], "reason": "", "spent": spent}
    answer = {"operations": [operation], "source": "device-profile", "metric": "span", "launch": "eager"}
print(json.dumps(answer))
"""


def accept(results, *words, scratch, program):
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, ACCEPT, results, "--program", program, *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=os.environ | {"TMPDIR": str(scratch)}
    )
    assert list(scratch.iterdir()) == [], "what it works with goes away"
    rows = {line[11:].split(None, 1)[0]: line[:9].strip() for line in done.stdout.splitlines()}
    return done, rows


def test_a_cpu_is_no_gpu_and_nothing_is_done_twice(program, plugin, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    kept = results / "accept.json"
    # slow steps were done before, and the text comes from a file: it must not control a terminal
    kept.write_text(json.dumps({"same_against_same": DONE | {"text": "\x1b[2Jno false win"}}))
    done, rows = accept(results, "--plugin", plugin, scratch=tmp_path / "scratch", program=program)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    works = [name for name, result in rows.items() if result == "works"]
    assert (works, rows["same_against_same"]) == (["carried", "fingerprint", "same_against_same"], "works")
    assert "the device is no GPU: cpu" in done.stdout
    assert "no `--compiled STORE`" in done.stdout
    before = json.loads(kept.read_text())
    again, _ = accept(results, "--plugin", plugin, scratch=tmp_path / "scratch", program=program)
    after = json.loads(kept.read_text())
    assert [after[name] for name in works] == [before[name] for name in works]
    assert again.returncode == 0
    assert sum(file.stat().st_size for file in results.rglob("*")) < 16 << 20


@pytest.mark.parametrize("damaged", [b"{", b"[1]", b'{"fingerprint": 7}', b'{"../x": {"result": "works"}}', b"\xff"])
def test_a_damaged_file_of_results_is_set_aside(damaged, tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    (results / "accept.json").write_bytes(damaged)
    done, rows = accept(results, scratch=tmp_path / "scratch", program=tmp_path / "none")
    assert done.returncode == 1
    assert rows["carried"] == "does not"
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "every step is tried again" in done.stderr
    assert (results / "accept.damaged").read_bytes() == damaged


@pytest.mark.parametrize(("executions", "found"), [(2, "works"), (1, "does not")])
def test_a_simulated_gpu_passes_and_a_profile_without_some_launches_does_not(executions, found, tmp_path):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\n" + SIMULATED.replace("EXECUTIONS", str(executions)))
    program.chmod(0o755)
    store, key = tmp_path / "store", tmp_path / "key.pub"
    store.mkdir()
    # anyone who can change the store may put a key into it
    (store / "key.pub").write_text("theirs")
    words = ["--compiled", store, "--verify-key", key]
    done, rows = accept(tmp_path / "results", *words, scratch=tmp_path / "scratch", program=program)
    others = {name: result for name, result in rows.items() if name not in ("eager", "replay")}
    assert set(others.values()) == {"works"}, done.stdout
    assert (rows["eager"], rows["replay"]) == (found, found)
    calls = [json.loads(line) for line in (tmp_path / "said").read_text().splitlines()]
    keys = {call[call.index("--verify-key") + 1] for call in calls if "--verify-key" in call}
    assert keys == {str(key)}
    assert (tmp_path / "results" / "eager.xplane.pb").read_bytes() == b"synthetic"
