"""A skip is a failure if CI promised the missing prerequisite."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = str(pathlib.Path(__file__).resolve().parent)
IN_A_TEST = "import pytest\ndef test(): pytest.skip('no widget')\n"
OF_A_FILE = "import pytest\npytest.importorskip('widget_that_is_not', reason='no widget')\ndef test(): pass\n"


@pytest.mark.parametrize("source", [IN_A_TEST, OF_A_FILE])
@pytest.mark.parametrize(
    "variables, is_good",
    [
        ({}, True),
        ({"AUTOTUNE_LOWERED_TESTS": "all"}, False),
        ({"AUTOTUNE_LOWERED_TESTS": "all", "AUTOTUNE_LOWERED_TESTS_WITHOUT": "gadget"}, False),
        ({"AUTOTUNE_LOWERED_TESTS": "all", "AUTOTUNE_LOWERED_TESTS_WITHOUT": "gadget,widget"}, True),
    ],
)
def test_a_planted_lack(tmp_path, source, variables, is_good):
    (tmp_path / "test_planted.py").write_text(source + "def test_other(): pass\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_LOWERED_TESTS")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:cacheprovider", "test_planted.py"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": HERE} | variables,
        capture_output=True,
        text=True,
    )
    # a completely skipped file leaves nothing to run, for which pytest has another exit code
    assert (done.returncode in (0, 5)) == is_good, done.stdout
    assert ("a prerequisite is missing" in done.stdout) == (not is_good), done.stdout
