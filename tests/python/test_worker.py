"""The `jax` worker over its pipes: what is compiled ahead is what `load` gives."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

jax = pytest.importorskip("jax")

if jax.__version_info__ < (0, 8):
    pytest.skip("profiles of this JAX hold no executions on CPU", allow_module_level=True)

DATA = pathlib.Path(__file__).resolve().parent.parent / "data/timer"


class Worker:
    def __init__(self):
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "autotune_lowered.worker"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.id = 0

    def ask(self, method, **params):
        self.id += 1
        self.process.stdin.write(json.dumps({"id": self.id, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self.id
        return answer.get("result"), (answer.get("error") or {}).get("kind")


@pytest.fixture
def worker():
    started = Worker()
    yield started
    started.process.kill()
    started.process.wait()


def begun(worker, folder):
    hello, _ = worker.ask("hello", protocol=1)
    assert "compile-ahead" in hello["capabilities"]
    specs = [line for line in (DATA / "add.mlir").read_text().splitlines() if "@main" in line]
    assert "tensor<4xf32>" in specs[0]
    count = specs[0].split("->")[0].count("tensor<4xf32>")
    inputs = []
    for number in range(count):
        path = folder / f"{number}.bin"
        path.write_bytes(bytes(16))
        inputs.append({"name": f"x{number}", "spec": "f32[4]", "path": str(path), "donated": False})
    begin = {"op_id": "add@v1", "call_key": "k", "direction": "forward", "inputs": inputs, "scratch": str(folder)}
    assert worker.ask("begin", **begin) == ({}, None)


def load_of(candidate, path):
    return {
        "candidate": candidate,
        "config": {"n": candidate},
        "program": {"format": "stablehlo-text", "path": str(path)},
    }


def test_candidates_are_compiled_ahead_and_each_failure_is_its_own(worker, tmp_path):
    begun(worker, tmp_path)
    broken, slow = tmp_path / "broken.mlir", tmp_path / "unused.mlir"
    broken.write_text("module { nonsense }")
    slow.write_text((DATA / "add.mlir").read_text())
    asked = [load_of(0, DATA / "add.mlir"), load_of(1, broken), load_of(2, DATA / "add.mlir"), load_of(3, slow)]
    for load in asked:
        assert worker.ask("compile-ahead", **load) == ({}, None)
    # another request than the one that was compiled is compiled anew
    changed = asked[2] | {"config": {"n": 7}}
    for load, expected in ((asked[0], None), (asked[1], "compile"), (changed, None)):
        result, error = worker.ask("load", **load)
        assert error == expected
        assert (result is None) == (expected is not None)
        if result is not None:
            assert result["compile_ns"] > 0 and set(result["signature"]["parameters"]) == {"f32[4]"}
    # number 3 was never loaded: it is no candidate, and does not disturb the round
    launches = [{"candidate": 0, "runs": 2}, {"candidate": 2, "runs": 1}]
    round_, error = worker.ask("measure-round", launches=launches, folder=str(tmp_path))
    assert error is None and pathlib.Path(round_["profile"]).stat().st_size > 0
    assert worker.ask("measure-round", launches=[{"candidate": 3, "runs": 1}], folder=str(tmp_path))[1] == "protocol"
    assert worker.ask("end") == ({}, None)
    assert worker.ask("compile-ahead", **asked[0]) == ({}, None)
    assert worker.ask("shutdown") == ({}, None)
    assert worker.process.wait(60) == 0
