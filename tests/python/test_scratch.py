"""Temporary folders of a process, and those of killed processes."""

import os
import pathlib
import subprocess
import sys

import pytest

from autotune_lowered import _scratch

MARK = ".autotune-lowered-scratch"


@pytest.fixture
def base(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def orphan(base, name):
    """The folder of a killed process: marked, filled, not locked."""
    path = base / f"autotune-lowered-run-{name}"
    (path / "sub/folder").mkdir(parents=True)
    (path / "sub/folder/file").write_text("bytes")
    (path / MARK).touch()
    path.chmod(0o700)
    return path


def test_a_folder_lasts_as_long_as_its_block(base):
    with _scratch.scratch_folder() as folder:
        assert folder.parent == base
        assert folder.stat().st_mode & 0o777 == 0o700
        assert names(folder) == [MARK]
        (folder / "file").write_text("x")
    assert names(base) == []


def test_only_what_killed_processes_left_is_swept(base, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "theirs").write_text("theirs")
    (outside / MARK).touch()
    left = orphan(base, "left")
    (left / "sub/link").symlink_to(outside)
    orphan(base, "shared").chmod(0o770)
    (base / "autotune-lowered-run-link").symlink_to(outside)
    (base / "autotune-lowered-run-notes").mkdir()
    (base / "autotune-lowered-run-notes/note").write_text("mine")
    orphan(base, "other").rename(base / "other")
    script = "from autotune_lowered import _scratch; print(_scratch.Scratch().path, flush=True); input()"
    environment = os.environ | {"TMPDIR": str(base)}
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    held = pathlib.Path(holder.stdout.readline().strip())
    assert held.parent == base
    stay = ["autotune-lowered-run-link", "autotune-lowered-run-notes", "autotune-lowered-run-shared", "other"]
    _scratch.sweep(base)
    assert names(base) == sorted([*stay, held.name])
    assert names(outside) == [MARK, "theirs"]
    holder.kill()
    holder.communicate()
    with _scratch.scratch_folder() as folder:
        assert names(base) == sorted([*stay, folder.name])
    assert (base / "autotune-lowered-run-notes/note").read_text() == "mine"
