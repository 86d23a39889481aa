"""`action.yml`: its steps run as on a runner, with the built package. Times are simulated by `replay`."""

import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from conftest import ROOT

yaml = pytest.importorskip("yaml")
EXAMPLE = ROOT / "examples/transformer"
# a term of GitHub's expressions: a name, `format('…', term)`, or a literal
TERM = re.compile(r"format\('(?P<text>[^']*)', (?P<argument>[\w.-]+)\)|'(?P<literal>[^']*)'|(?P<name>[\w.-]+)")


class Runner:
    """A job on a runner: its folders, and the files that pass between steps."""

    def __init__(self, folder):
        self.action = yaml.safe_load((ROOT / "action.yml").read_text())
        self.folder = folder
        (folder / "temp").mkdir()
        self.path, self.variables = folder / "path", folder / "variables"
        self.path.touch(), self.variables.touch()

    def take(self, inputs):
        unknown = inputs.keys() - self.action["inputs"].keys()
        assert not unknown, unknown
        values = {name: one.get("default") for name, one in self.action["inputs"].items()} | inputs
        missing = [name for name, one in self.action["inputs"].items() if one.get("required") and not values[name]]
        assert not missing, missing
        self.names = {f"inputs.{name}": value for name, value in values.items()}
        self.names |= {"runner.temp": str(self.folder / "temp"), "github.action_path": str(ROOT)}

    def value(self, expression):
        """The value of terms joined by `||`; a name unknown to GitHub or the action is an error."""
        for part in expression.split("||"):
            term = TERM.fullmatch(part.strip())
            assert term, expression
            if term["text"] is not None:
                value = term["text"].replace("{0}", self.names[term["argument"]])
            else:
                value = self.names[term["name"]] if term["name"] else term["literal"]
            if value:
                return value
        return ""

    def is_wanted(self, step):
        if "if" not in step:
            return True
        left, right = step["if"].split("!=")
        return self.value(left) != self.value(right)

    def step(self, step):
        assert step["shell"] == "bash" and "${{" not in step["run"], step
        added = dict(line.split("=", 1) for line in self.variables.read_text().splitlines())
        own = {
            name: re.sub(r"\$\{\{(.*?)\}\}", lambda found: self.value(found[1]), text)
            for name, text in step["env"].items()
        }
        path = [*reversed(self.path.read_text().splitlines()), "/usr/local/bin", "/usr/bin", "/bin"]
        python = pathlib.Path(sys.executable).resolve().parent
        variables = {
            "HOME": str(self.folder),
            "PATH": os.pathsep.join([*path[:-3], str(python), *path[-3:]]),
            "GITHUB_PATH": str(self.path),
            "GITHUB_ENV": str(self.variables),
            "AUTOTUNE_LOWERED_IGNORE_LOAD": os.environ["AUTOTUNE_LOWERED_IGNORE_LOAD"],
        }
        script = self.folder / "step.sh"
        script.write_text(step["run"])
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.folder,
            env=variables | added | own,
            capture_output=True,
            text=True,
            timeout=300,
        )

    def job(self, inputs, without=()):
        """The result of each step that ran, by name: the first one that fails is the last."""
        self.take(inputs)
        done = {}
        for step in filter(self.is_wanted, self.action["runs"]["steps"]):
            if step["name"] in without:
                continue
            done[step["name"]] = self.step(step)
            if done[step["name"]].returncode:
                break
        return done


def recording():
    """The recording of a simulated device: each candidate is a millisecond faster than the one before it."""
    invocations = []
    for path in sorted(glob.glob(f"{EXAMPLE}/registry/**/*.json", recursive=True)):
        found = json.loads(pathlib.Path(path).read_text()).get("invocation")
        if found is None:
            continue
        times = [10_000_000 - 1_000_000 * place for place in range(len(found["candidates"]))]
        candidates = [
            {
                "config": candidate["config"],
                "epochs": [[ns, ns + 1000]],
                "outputs": [{"spec": "f32[1]", "hex": "0000803f"}],
            }
            for ns, candidate in zip(times, found["candidates"], strict=True)
        ]
        invocations.append(
            {name: found[name] for name in ("op_id", "call_key", "direction")} | {"candidates": candidates}
        )
    identity = {"platform": "cpu", "device_kind": "cpu", "hardware": {"cpu_model": "simulated"}}
    device = {"identity": identity, "environment": {"platform_version": "cpu"}}
    return {"schema": 1, "device": device, "invocations": invocations}


@pytest.fixture(scope="module")
def wheel():
    found = os.environ.get("AUTOTUNE_LOWERED_TEST_WHEEL")
    if not found:
        pytest.skip("no wheel: set AUTOTUNE_LOWERED_TEST_WHEEL")
    return found


def test_the_action_installs_asks_for_coverage_and_gates(tmp_path, run, wheel):
    times, tuned = tmp_path / "times.json", tmp_path / "tuned.json"
    times.write_text(json.dumps(recording()))
    module = EXAMPLE / "module.hlo.txt"
    # what replayed samples decide would answer for no device that is named otherwise
    worker = EXAMPLE.parents[1] / "tests/data/timer/recorded_worker.py"
    timer = f"command:exec {sys.executable} {worker} {times}"
    run(module, "--timer", timer, "--cache", tmp_path / "tuned")
    run("cache", "export", "--format", "json", tuned, "--cache", tmp_path / "tuned")
    inputs = {
        "module": str(module),
        "tuned": str(tuned),
        "package": wheel,
        "timer": timer,
    }

    runner = Runner(tmp_path)
    done = runner.job(inputs)
    assert [*done] == ["Install", "Import", "Coverage", "Check"], done
    assert done["Check"].returncode == 0, done["Check"].stderr
    assert "stale" not in done["Coverage"].stdout, done["Coverage"].stdout
    junit = xml.etree.ElementTree.parse(tmp_path / "check.xml")
    assert len(junit.findall(".//testcase")) == 4 and not junit.findall(".//failure") and not junit.findall(".//error")
    # without requested packages, the job's own environment stays active
    assert runner.variables.read_text() == ""

    # the winners had the least time: the last ones
    slower = recording()
    for invocation in slower["invocations"]:
        invocation["candidates"][-1]["epochs"] = [[20_000_000]]
    times.write_text(json.dumps(slower))
    done = runner.job(inputs | {"cache": str(tmp_path / "other"), "junit": "slower.xml"}, without=["Install"])
    assert [*done] == ["Import", "Coverage", "Check"]
    assert done["Check"].returncode == 7, done["Check"].stderr
    assert f"::error file={module},line=" in done["Check"].stderr
    assert len(xml.etree.ElementTree.parse(tmp_path / "slower.xml").findall(".//failure")) == 4

    # one call of four has no config
    entries = json.loads(tuned.read_text())
    entries["entries"].pop()
    tuned.write_text(json.dumps(entries))
    few = inputs | {"cache": str(tmp_path / "few")}
    done = runner.job(few, without=["Install"])
    assert [*done] == ["Import", "Coverage"]
    assert done["Coverage"].returncode == 1 and "3 of 4 calls" in done["Coverage"].stdout, done["Coverage"].stderr
    done = runner.job(few | {"require": "75%", "coverage-arguments": "--for simulated"}, without=["Install", "Check"])
    assert done["Coverage"].returncode == 0, done["Coverage"].stderr


def stub(path):
    """A program that notes its arguments, a line of JSON for each call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noted = path.parent.parent / "noted"
    note = f"import json, sys; open({str(noted)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')"
    path.write_text(f"#!{sys.executable}\n{note}\n")
    path.chmod(0o755)
    return noted


def noted(runner, inputs):
    """The arguments that each step gives its last program, where only stubs are installed."""
    installed = stub(runner.folder / "temp/autotune-lowered/bin/python")
    following = stub(runner.folder / "temp/autotune-lowered-next/bin/python")
    program = stub(runner.folder / "stubs/bin/autotune-lowered")
    stub(runner.folder / "stubs/bin/python3")
    runner.path.write_text(f"{runner.folder}/stubs/bin\n")
    done = runner.job({"module": "step.mlir"} | inputs)
    assert all(step.returncode == 0 for step in done.values()), done
    calls = [json.loads(line) for path in (installed, program) for line in path.read_text().splitlines()]
    steps = dict(zip(done, [call for call in calls if "venv" not in call], strict=True))
    return steps | ({"Next": json.loads(following.read_text())} if following.exists() else {})


@pytest.mark.parametrize("separator", [" ", "\n", "\n\n  ", "\t"])
def test_lists_are_taken_whole(tmp_path, separator):
    inputs = {
        "with-packages": separator.join(["jax", "xla-cpu-pjrt==0.0.1"]) + "\n",
        "coverage-arguments": separator.join(["--match", "kind", "--json"]) + "\n",
        "check-arguments": separator.join(["--rounds", "20", "--op", "*"]) + "\n",
        "package": "a wheel.whl",
        "next-packages": separator.join(["jax==0.12.0", "flax"]) + "\n",
        "upgrade-arguments": separator.join(["--only", "op@v1"]) + "\n",
    }
    calls = noted(Runner(tmp_path), inputs)
    assert calls["Install"][-4:] == ["--", "a wheel.whl", "jax", "xla-cpu-pjrt==0.0.1"]
    assert calls["Coverage"][-5:] == ["--match", "kind", "--json", "--", "step.mlir"]
    assert calls["Check"][-6:] == ["--rounds", "20", "--op", "*", "--", "step.mlir"]
    assert calls["Next"][-3:] == ["--", "jax==0.12.0", "flax"]
    temp = tmp_path / "temp"
    environments = [f"--old={temp}/autotune-lowered", f"--new={temp}/autotune-lowered-next"]
    assert calls["Upgrade"][:3] == ["upgrade", *environments]
    assert calls["Upgrade"][-4:] == ["--only", "op@v1", "--", "step.mlir"]


def test_the_next_release_needs_an_environment_to_compare_with(tmp_path):
    runner = Runner(tmp_path)
    program = stub(tmp_path / "stubs/bin/autotune-lowered")
    stub(tmp_path / "temp/autotune-lowered/bin/python"), stub(tmp_path / "stubs/bin/python3")
    runner.path.write_text(f"{tmp_path}/stubs/bin\n")
    done = runner.job({"module": "step.mlir", "next-packages": "jax"})
    assert done["Upgrade"].returncode == 2 and "name it in with-packages" in done["Upgrade"].stderr
    assert "upgrade" not in program.read_text()


def test_the_timer_is_left_out_only_where_a_device_is_named(tmp_path):
    runner = Runner(tmp_path)
    for arguments, expected in [
        ("", True), ("--json", True), ("--format=x", True), ("--for simulated", False), ("--json\n--for=simulated", False)
    ]:  # fmt: skip
        for path in tmp_path.glob("*/noted"):
            path.unlink()
        (tmp_path / "temp/autotune-lowered/noted").unlink(missing_ok=True)
        calls = noted(runner, {"timer": "pjrt", "coverage-arguments": arguments})
        assert ("--timer=pjrt" in calls["Coverage"]) == expected, arguments
        assert "--timer=pjrt" in calls["Check"]


def test_no_input_becomes_an_option(tmp_path):
    inputs = [
        "module", "registry", "tuned", "cache", "require", "timer", "junit", "package", "with-packages", "next-packages",
        "upgrade-junit",
    ]  # fmt: skip
    hostile = {name: f"--config={name}" for name in inputs}
    runner = Runner(tmp_path)
    # those of more arguments are options by what they are
    assert (
        hostile.keys() | {"coverage-arguments", "check-arguments", "upgrade-arguments"}
        == runner.action["inputs"].keys()
    )
    calls = noted(runner, hostile)
    assert [*calls] == ["Install", "Import", "Coverage", "Check", "Upgrade", "Next"]
    for name, words in calls.items():
        options = words[: words.index("--")]
        assert not [word for word in options if word.startswith("--config")], (name, options)


def test_workflows_run_what_there_is():
    manifests = [path.read_text() for form in ("*", "*/*") for path in ROOT.glob(f"{form}/Cargo.toml")]
    packages = {re.search(r'^name = "(.+)"', text, re.M).group(1) for text in manifests}
    found = []
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text())
        for job in workflow["jobs"].values():
            # what is not built here is not published
            assert set(job.get("needs", "").split()) <= workflow["jobs"].keys()
            for step in job["steps"]:
                for line in step.get("run", "").splitlines():
                    words = line.split()
                    scripts = [word for word in words if re.fullmatch(r"(release|\.ci)/\w+", word)]
                    assert all(os.access(ROOT / script, os.X_OK) for script in scripts), line
                    excluded = {word for before, word in zip(words, words[1:], strict=False) if before == "--exclude"}
                    assert excluded <= packages, line
                    found += scripts
    assert {".ci/run", "release/build", "release/try"} <= set(found)
    # the tag must be the version that is built
    version = ROOT / "python/autotune_lowered/_version.py"
    release = (ROOT / ".github/workflows/release.yml").read_text()
    command = re.search(r"\$\((python -c '.+')\)", release).group(1)
    told = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert f'__version__ = "{told}"' in version.read_text()
