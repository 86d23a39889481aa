"""Fixtures for the tests of the Python package: the program, a CPU plugin; and whether a test may be skipped.

`AUTOTUNE_LOWERED_TESTS=all` makes each skip a failure, unless its reason contains one of the texts, separated by
commas, in `AUTOTUNE_LOWERED_TESTS_WITHOUT`, which names what the environment lacks on purpose.
"""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# this user's tuned configs must not influence a test
os.environ["AUTOTUNE_LOWERED_CACHE"] = tempfile.mkdtemp(prefix="autotune-lowered-test-cache-")
os.environ["AUTOTUNE_LOWERED_IGNORE_LOAD"] = "1"  # the tests run beside each other
atexit.register(shutil.rmtree, os.environ["AUTOTUNE_LOWERED_CACHE"], ignore_errors=True)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def skip_or_fail(report):
    without = filter(None, os.environ.get("AUTOTUNE_LOWERED_TESTS_WITHOUT", "").split(","))
    if os.environ.get("AUTOTUNE_LOWERED_TESTS") == "all" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if not any(text in reason for text in without):
            report.outcome = "failed"
            report.longrepr = f"AUTOTUNE_LOWERED_TESTS=all, and a prerequisite is missing: {reason}"
    return report


# files that take the longest begin first, so that no process of `-n 2 --no-loadscope-reorder` ends with one alone
LONG = ["test_record_end_to_end", "test_record_recipe", "test_train_steps", "test_gpu_kit", "test_record_ejkernel"]


def pytest_collection_modifyitems(items):
    # a sort keeps the order of equals
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_jax(VERSION, WHY): skipped where JAX is older than `0.8`")


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs_jax"):
        jax = pytest.importorskip("jax")
        version, why = mark.args
        if jax.__version_info__ < tuple(map(int, version.split("."))):
            pytest.skip(f"needs JAX {version}: {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return skip_or_fail((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return skip_or_fail((yield))


def find_program():
    named = os.environ.get("AUTOTUNE_LOWERED_EXE")
    beside = pathlib.Path(sys.executable).parent / "autotune-lowered"
    return named or (str(beside) if beside.exists() else shutil.which("autotune-lowered"))


@pytest.fixture(scope="session")
def program():
    """The `autotune-lowered` program."""
    path = find_program()
    if path is None:
        pytest.skip("no autotune-lowered program: pip install . or set AUTOTUNE_LOWERED_EXE")
    return path


@pytest.fixture(scope="session")
def run(program):
    """Runs the program and returns stdout; fails, with stderr, on an unexpected exit code."""

    def run(*words, expected=0, environment=None):
        done = subprocess.run(
            [program, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=300,
            env=os.environ | (environment or {}),
        )
        assert done.returncode == expected, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def plugin():
    """A PJRT CPU plugin."""
    listed = os.environ.get("AUTOTUNE_LOWERED_TEST_PLUGIN", "").split(":")[0]
    found = (
        [listed]
        if listed
        else [str(path) for path in pathlib.Path(sys.prefix).glob("lib/python*/site-packages/xla_plugins/*/*.so")]
    )
    if not found:
        pytest.skip("no PJRT CPU plugin: pip install xla-cpu-pjrt")
    return found[0]
