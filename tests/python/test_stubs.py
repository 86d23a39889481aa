"""The package's surface: complete stubs, names that resolve, and the modules that an import may load."""

import ast
import pathlib
import subprocess
import sys

import pytest

import autotune_lowered
from autotune_lowered import _native

PACKAGE = pathlib.Path(autotune_lowered.__file__).parent


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_of_the_native_part_is_complete():
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    declared = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    constants = {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}
    assert public(constants | set(declared)) == public(dir(_native))
    for name, node in declared.items():
        if isinstance(node, ast.ClassDef):
            members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            assert public(members) == public(dir(getattr(_native, name))), name


def test_the_stub_of_the_native_part_says_what_mypy_finds_there(tmp_path):
    pytest.importorskip("mypy", reason="mypy compares the stub with the module")
    # the stub imports nothing of the package, whose own imports take mypy half a minute
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nfollow_imports = skip\nignore_missing_imports = True\n")
    words = [sys.executable, "-m", "mypy.stubtest", "autotune_lowered._native", "--mypy-config-file", str(config)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_public_names_resolve_and_are_said():
    assert (PACKAGE / "py.typed").exists()
    for name in autotune_lowered.__all__:
        assert getattr(autotune_lowered, name) is not None
        assert name in dir(autotune_lowered)
    assert callable(autotune_lowered.tunable) and callable(autotune_lowered.dump)
    # the seed documents' name, and the plain one
    assert autotune_lowered.tune is autotune_lowered.autotune_lowered


def test_an_import_loads_neither_jax_nor_numpy():
    script = "import autotune_lowered, sys; print(sorted({'jax', 'jaxlib', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_name_that_is_not_there_is_an_attribute_error():
    try:
        _ = autotune_lowered.nothing
    except AttributeError as error:
        assert "nothing" in str(error)
    else:
        raise AssertionError("found")
