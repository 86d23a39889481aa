"""Look-ups from Python: tiers, reasons, pins, damage, ranks."""

import json
import logging
import os
import pathlib
import socket
import subprocess
import sys
import warnings

import pytest

import autotune_lowered
from autotune_lowered import _native
from autotune_lowered.cache import Cache, CacheError, Device, SnapshotMismatch, current_cache

HERE = pathlib.Path(__file__).resolve().parent
FLASH = "flash_attention@v2"
DEVICE = Device("cpu", "cpu", {"ejkernel_platform_version": "cpu"})


@pytest.fixture
def folder(tmp_path, run):
    """A published cache folder with the entries of an ejkernel cache."""
    source = HERE.parent / "data/ejkernel/external"
    run("cache", "import", "--format", "ejkernel", source, "--cache", tmp_path / "cache")
    return tmp_path / "cache"


def test_a_published_config_is_found(folder):
    cache = Cache.open(folder)
    stored = json.loads((HERE.parent / "data/ejkernel/external/flash-attn.json").read_text())
    ((name, config),) = stored.items()
    key = name.rsplit("|", 1)[1]
    entry = cache.get(DEVICE, FLASH, key)
    assert entry.config == config
    assert (entry.tier, entry.direction, entry.provenance) == ("snapshot", "forward", None)
    assert cache.get(DEVICE, FLASH, key) is entry
    entry.config.clear()
    assert entry.config == config, "what a caller does to its dictionary is the caller's"
    assert len(cache) == 2 and len(cache.digest) == 64 and cache.mapped
    assert {found.op_id for found in cache if found.tier == "snapshot"} == {FLASH, "attention@v0"}
    assert Cache.open(_native.snapshot_of(folder)).get(DEVICE, FLASH, key) == entry
    read = Cache.open(folder, mapped=False)
    assert not read.mapped and read.get(DEVICE, FLASH, key) == entry


def test_what_is_published_later_is_seen_when_refreshed(tmp_path, run):
    empty = Cache.open(tmp_path)
    assert empty.digest is None and empty.get(DEVICE, "a@v1", "k") is None
    found = []
    for block in (1, 2):
        identity = {"platform": "cpu", "device_kind": "cpu", "hardware": {"ejkernel_platform_version": "cpu"}}
        row = {"device": identity, "op_id": "a@v1", "call_key": "k", "config": {"block": block}}
        rows = tmp_path / f"{block}.jsonl"
        rows.write_text(json.dumps(row))
        run("cache", "import", "--format", "json", rows, "--cache", tmp_path)
        found.append((found or [empty])[-1].refreshed())
    assert [cache.get(DEVICE, "a@v1", "k").config["block"] for cache in found] == [1, 2]
    assert empty.get(DEVICE, "a@v1", "k") is None, "an open cache stays what it is"
    pinned = Cache.open(tmp_path, pin=found[1].digest)
    assert pinned.refreshed().digest == found[1].digest
    run("cache", "rm", "a@v1", "--cache", tmp_path)
    assert found[1].refreshed().get(DEVICE, "a@v1", "k") is None
    with pytest.raises(SnapshotMismatch):
        pinned.refreshed()


def test_a_miss_has_its_reason(folder, tmp_path):
    cache = Cache.open(folder)
    assert cache.get(DEVICE, FLASH, "0" * 16) is None
    assert "another call key" in cache.explain(DEVICE, FLASH, "0" * 16)
    assert "nothing is cached for `no_op@v1`" in cache.explain(DEVICE, "no_op@v1", "k")
    key = next(entry.call_key for entry in cache if entry.op_id == FLASH and entry.tier == "snapshot")
    other = Device("cpu", "cpu", {"cores": "2"})
    assert cache.get(other, FLASH, key) is None
    assert "not for this device" in cache.explain(other, FLASH, key)
    wider = cache.get(other, FLASH, key, match="kind")
    assert wider.flags[0][0] == "other-device"
    assert "only" in cache.explain(DEVICE, FLASH, key, direction="forward-vjp")
    with pytest.raises(ValueError, match="not a direction"):
        cache.get(DEVICE, FLASH, key, direction="backward")
    with pytest.raises(ValueError, match="not a match mode"):
        cache.get(DEVICE, FLASH, key, match="some")
    empty = Cache.open(tmp_path / "nothing")
    assert empty.digest is None and "nothing was published" in empty.explain(DEVICE, FLASH, "k")


def test_an_overlay_goes_before_everything(folder):
    cache = Cache.open(folder)
    with autotune_lowered.overlay({(FLASH, "0" * 16): {"platform": "xla"}}):
        entry = cache.get(DEVICE, FLASH, "0" * 16)
        assert (entry.tier, entry.config) == ("overlay", {"platform": "xla"})
        assert "from the overlay tier" in cache.explain(DEVICE, FLASH, "0" * 16)
    assert cache.get(DEVICE, FLASH, "0" * 16) is None


def test_a_cache_for_cold_caches_flags_what_was_measured_warm(tmp_path, run):
    measured = {
        "job": "0f" * 32, "timer": "pjrt", "source": "host-wall", "metric": "elapsed", "cache_state": "cold",
        "environment": {"platform_version": "cpu"}, "baseline": {}, "baseline_ns": 2.0, "best_ns": 1.0, "ratio": 0.5,
        "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95}, "rounds": 20, "measured": 2, "failed": 0,
        "tool": "a test", "decided_at": 7,
    }  # fmt: skip
    entry = {"device": "cpu:cpu", "op_id": "op@v1", "call_key": "k", "config": {"b": 1}, "provenance": measured}
    (tmp_path / "one.jsonl").write_text(json.dumps(entry) + "\n")
    run("cache", "import", "--format", "jsonl", tmp_path / "one.jsonl", "--cache", tmp_path / "cache")

    def flags(**options):
        cache = Cache.open(tmp_path / "cache", **options)
        return [cache.get(DEVICE, "op@v1", "k", match="any").flags for cache in (cache, cache.refreshed())]

    assert all("caches `cold` there, `warm` here" in str(found) for found in flags())
    assert all("caches" not in str(found) for found in flags(cache_state="cold"))
    with pytest.raises(ValueError, match="`icy` is no state of caches: `warm` or `cold`"):
        flags(cache_state="icy")


def test_what_replayed_samples_decided_is_found_by_those_who_ask_for_it(tmp_path, run):
    decided = {
        "job": "0f" * 32, "timer": "replay:x", "source": "replay", "environment": {}, "baseline": {}, "baseline_ns": 2.0,
        "best_ns": 1.0, "ratio": 0.5, "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95}, "rounds": 20,
        "measured": 2, "failed": 0, "tool": "a test", "decided_at": 7,
    }  # fmt: skip
    entry = {"device": "cpu:cpu", "op_id": "op@v1", "call_key": "k", "config": {"b": 1}, "provenance": decided}
    (tmp_path / "one.jsonl").write_text(json.dumps(entry) + "\n")
    run("cache", "import", "--format", "jsonl", tmp_path / "one.jsonl", "--cache", tmp_path / "cache")
    cache = Cache.open(tmp_path / "cache")
    assert cache.get(DEVICE, "op@v1", "k", match="any") is None
    assert "decided by replayed samples" in cache.explain(DEVICE, "op@v1", "k", match="any")
    cache = Cache.open(tmp_path / "cache", replayed=True)
    assert [cache.get(DEVICE, "op@v1", "k", match="any").config for cache in (cache, cache.refreshed())] == [
        {"b": 1}
    ] * 2


def test_many_processes_read_while_one_writes(folder, run):
    """Readers open and look up until they have seen the writer's last entry, all without an error."""
    script = """
import sys
import warnings
from autotune_lowered.cache import Cache, Device
device, seen = Device("cpu", "cpu", {"cores": "1"}), 0
while True:
    cache = Cache.open(sys.argv[1])
    found = {int(entry.call_key) for entry in cache if entry.op_id == "writer@v1"}
    assert len(found) >= seen, "an entry is gone"
    seen = len(found)
    assert all(cache.get(device, "writer@v1", str(n)).config == {"n": n} for n in found)
    if cache.get(device, "writer@v1", "11") is not None:
        break
print("done")
"""
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    device = {"platform": "cpu", "device_kind": "cpu", "hardware": {"cores": "1"}}
    try:
        for number in range(12):
            row = {"device": device, "op_id": "writer@v1", "call_key": str(number), "config": {"n": number}}
            (folder / "row.jsonl").write_text(json.dumps(row))
            run("cache", "import", "--format", "json", folder / "row.jsonl", "--cache", folder)
        said = [reader.communicate(timeout=120) for reader in readers]
    finally:
        for reader in readers:
            reader.kill()
    assert [out.strip() for out, _ in said] == ["done"] * 6, said


def test_shipped_configs_are_the_last_tier(tmp_path):
    cache = Cache.open(tmp_path)
    seed = next(iter(cache))
    assert seed.tier == "shipped"
    device = Device.from_fingerprint({"identity": seed.device})
    assert cache.get(device, seed.op_id, seed.call_key, seed.direction) == seed


def test_what_is_damaged_or_another_is_refused(folder):
    path = _native.snapshot_of(folder)
    digest = Cache.open(folder).digest
    assert Cache.open(folder, pin=digest).digest == digest
    with pytest.raises(SnapshotMismatch, match="is pinned"):
        Cache.open(folder, pin="0" * 64)
    bytes_ = bytearray(path.read_bytes())
    bytes_[16] ^= 1
    path.unlink()
    path.write_bytes(bytes_)
    with pytest.raises(CacheError, match="publish it again"):
        Cache.open(folder)
    with pytest.raises(CacheError, match="there is no such file"):
        Cache.open(folder / "another.snapshot")


def test_a_url_is_pulled_first(folder, monkeypatch):
    for url in ["s3://bucket/x", "https://ann:p4ss@host/x?sig=s3cret"]:
        with pytest.raises(CacheError, match="cache pull") as refused:
            Cache.open(url)
        assert not any(secret in str(refused.value) for secret in ["ann", "p4ss", "s3cret"])
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", "s3://bucket/y")
    with pytest.raises(CacheError, match="`s3://bucket/y` is a URL"):
        Cache.open()
    assert Cache.open(folder).digest


def test_the_variable_names_the_cache(folder, tmp_path, monkeypatch):
    snapshot = tmp_path / "best.snapshot"
    snapshot.write_bytes(_native.snapshot_of(folder).read_bytes())
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", str(folder))
    assert Cache.open().path == folder
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", str(snapshot))
    assert Cache.open().path == snapshot
    assert Cache.open().digest == Cache.open(folder).digest
    # an empty variable counts as unset
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.open().path == tmp_path / "autotune-lowered"


def test_a_variable_that_names_no_folder_is_told_about(tmp_path, monkeypatch):
    nowhere = tmp_path / "nowhere"
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", str(nowhere))
    with pytest.warns(UserWarning, match=f"names `{nowhere}`, which does not exist"):
        assert current_cache().digest is None
    nowhere.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert current_cache().digest is None
    monkeypatch.setenv("AUTOTUNE_LOWERED_CACHE", str(tmp_path / "missing.snapshot"))
    for opened in [current_cache, Cache.open]:
        with pytest.raises(
            CacheError, match=r"missing.snapshot`: there is no such file; .*`autotune-lowered cache snap"
        ):
            opened()


def test_an_open_cache_never_changes(folder, run):
    cache = Cache.open(folder)
    key = next(entry.call_key for entry in cache if entry.op_id == FLASH and entry.tier == "snapshot")
    run("cache", "rm", FLASH, "--cache", folder)
    assert cache.get(DEVICE, FLASH, key) is not None
    assert Cache.open(folder).get(DEVICE, FLASH, key) is None
    assert Cache.open(folder).digest != cache.digest


def test_the_package_imports_without_jax():
    code = "import autotune_lowered.cache, sys; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
    assert autotune_lowered.__version__ == _native.__version__


# as in tests/cache/trust.rs: a window's title, a bell, a C1 escape, marks that turn the direction of text, a line of its own
HOSTILE = "x\x1b]0;y\x07\x9b2J\u202ez\u2066\nFORGED"


def test_what_others_wrote_steers_no_terminal(tmp_path, caplog, run):
    def is_harmless(text):
        assert "u{202e}" in text and "FORGED" in text
        assert not any(letter in text for letter in "\x1b\x07\x9b\u202e\u2066\n"), ascii(text)

    identity = {"platform": "cpu", "device_kind": "cpu", "hardware": {"ejkernel_platform_version": "cpu"}}
    row = {"device": identity, "op_id": HOSTILE, "call_key": HOSTILE, "config": {"block": 1}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    run("cache", "import", "--format", "json", tmp_path / "rows.jsonl", "--cache", tmp_path / "cache")
    cache = Cache.open(tmp_path / "cache")
    is_harmless(repr(cache.get(DEVICE, HOSTILE, HOSTILE)))
    is_harmless(cache.explain(DEVICE, HOSTILE, HOSTILE))
    is_harmless(cache.explain(DEVICE, HOSTILE, "another"))
    with pytest.raises(CacheError) as missing:
        Cache.open(tmp_path / f"{HOSTILE}.snapshot")
    is_harmless(str(missing.value))
    with caplog.at_level("WARNING", "autotune_lowered"):
        logging.getLogger("autotune_lowered").warning("`%s` is left out: %d", HOSTILE, 7)
    is_harmless(caplog.records[-1].getMessage())
    assert caplog.records[-1].getMessage().endswith("is left out: 7")


RANK = """
import sys
import warnings
import jax
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
from autotune_lowered.cache import Cache, Device
try:
    print("found", Cache.open(sys.argv[3]).get(Device("cpu", "cpu"), "op@v1", "k"))
except RuntimeError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("same", [True, False])
def test_ranks_with_two_snapshots_are_an_error(folder, tmp_path, same):
    pytest.importorskip("jax")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folders = [folder, folder if same else tmp_path / "other"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, address, str(rank), str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank, path in enumerate(folders)
    ]
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert said[0].strip() == "found None"
    if same:
        assert said[1].strip() == "found None"
    else:
        assert said[1].startswith("SnapshotMismatch process 1 has the snapshot none, process 0 has "), said


def test_an_import_has_no_jitted_function_traced_again():
    pytest.importorskip("jax")
    code = """
import jax
traces = []
function = jax.jit(lambda x: traces.append(x) or x + 1)
function(1.0)
import autotune_lowered.cache
function(1.0)
print(len(traces))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "1"
