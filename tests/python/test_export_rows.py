"""Best configs handed back as rows of the tables that projects read."""

import dataclasses
import importlib
import importlib.util
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapter_support import SERVING_CALLS, lowered, of_tpu_inference, project, spec

import autotune_lowered
from autotune_lowered.adapters.operation import Operation
from autotune_lowered.adapters.places import Named
from autotune_lowered.adapters.tables import SourceTable

pytestmark = pytest.mark.needs_jax("0.8", "the `jax` worker measures")

KERNELS = '''
"""Kernels of somebody else's."""

from jax.experimental import pallas as pl
import jax
from their_project import table


def scaled(x, factor, *, block=None):
    rows = table.block_of(x.shape, x.dtype.name) if block is None else block

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * factor

    whole = pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (x.shape[0] // rows,)
    return pl.pallas_call(kernel, out_shape=shape, grid=grid, in_specs=[whole], out_specs=whole, interpret=True)(x)
'''
TABLE = '''"""Blocks by shape – with more than ASCII."""

BLOCKS: dict = {
    # keep-sorted start
    (128, 64, 'float32'): (16,),  # by hand
    (512, 64, 'float32'): (
        2 * 16,
    ),
    # keep-sorted end
}


def block_of(shape, dtype):
    return BLOCKS.get((*shape, dtype), (8,))[0]
'''


def row(call, config, device):
    assert device["platform"] == "cpu"
    return (*call["x"].shape, call["x"].dtype.name), (config["block"],)


def operation(**more):
    table = SourceTable(
        "their_project.table",
        "BLOCKS",
        row,
        more.pop("look_up", lambda members, call: (members["block_of"](call["x"].shape, call["x"].dtype.name),)),
    )
    return Operation(
        "their.scaled",
        "their_project.kernels:scaled",
        Named(("block",)),
        {"block": (8, 32, 64)},
        baseline=lambda call: {
            "block": importlib.import_module("their_project.table").block_of(call["x"].shape, "float32")
        },
        table=table,
        settings=more.pop("settings", lambda call, config: {f"BLOCK_{call['x'].shape[0]}": str(config["block"])}),
        **more,
    )


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of somebody's project."""
    folder = tmp_path / "checkout" / "their_project"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "table.py").write_text(TABLE)
    monkeypatch.syspath_prepend(folder.parent)
    yield folder
    forget()


def forget():
    for name in [name for name in sys.modules if name.partition(".")[0] == "their_project"]:
        del sys.modules[name]
    importlib.invalidate_caches()


def entry(op_id, key, config, device=None, **provenance):
    how = {
        "job": "0" * 64,
        "timer": "jax",
        "source": "host-wall",
        "metric": "elapsed",
        "environment": {"platform_version": "cpu", "plugin": "jaxlib 0"},
        "baseline": config,
        "baseline_ns": 200.0,
        "best_ns": 100.0,
        "ratio": 0.5,
        "interval": {"low": 0.4, "high": 0.6, "confidence": 0.95},
        "rounds": 20,
        "measured": 2,
        "failed": 0,
        "tie_set": [config],
        "tool": "autotune-lowered 0",
        "decided_at": 1795837699,
    }
    identity = device or {"platform": "cpu", "device_kind": "cpu", "hardware": {}}
    found = {"device": identity, "op_id": op_id, "call_key": key, "direction": "forward", "config": config}
    return found | ({} if provenance.get("by_hand") else {"provenance": how | provenance})


def cached(tmp_path, run, *entries):
    path = tmp_path / "entries.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in entries))
    run("cache", "import", "--format", "jsonl", path, "--cache", tmp_path / "cache")
    return tmp_path / "cache"


def recorded(tmp_path, one, *rows):
    """Keys of recorded calls of so many rows."""
    kernels = importlib.import_module("their_project.kernels")
    with autotune_lowered.recording(
        tmp_path / "registry", platforms=("cpu",), directions=("forward",), adapters=one
    ) as recorder:
        for count in rows:
            jax.jit(lambda x: kernels.scaled(x, 2.0)).lower(spec((count, 64), jnp.float32))
    return [report["call_key"] for report in recorder.report()]


def test_rows_are_obeyed_by_the_unmodified_caller_and_the_rest_of_the_file_stays(checkout, tmp_path, run):
    one = operation()
    keys = recorded(tmp_path, one, 128, 256, 512)
    entries = [entry("their.scaled@v1", key, {"block": block}) for key, block in zip(keys, (64, 32, 64), strict=True)]
    cache = cached(tmp_path, run, *entries)
    written = autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cache, out=checkout.parent)
    assert written.files == [checkout / "table.py"] and not written.skipped and len(written.rows) == 3
    assert written.settings == {"BLOCK_128": "64", "BLOCK_256": "32", "BLOCK_512": "64"}
    expected = TABLE.replace("(16,),  # by hand", "(64,),  # by hand").replace("(\n        2 * 16,\n    )", "(64,)")
    expected = expected.replace("    # keep-sorted end", "    (256, 64, 'float32'): (32,),\n    # keep-sorted end")
    assert (checkout / "table.py").read_text() == expected
    assert sorted(path.name for path in checkout.iterdir() if path.name != "__pycache__") == [
        "__init__.py",
        "kernels.py",
        "table.py",
    ]
    forget()
    kernels = importlib.import_module("their_project.kernels")
    for rows, blocks in ((128, 2), (256, 8), (512, 8), (1024, 128)):
        x = np.ones((rows, 64), np.float32)
        assert f"grid=({blocks},)" in str(jax.make_jaxpr(lambda x: kernels.scaled(x, 2.0))(x)), rows
    table = written.markdown().splitlines()
    assert len(table) == 5 and "| 0.500 | 0.400 to 0.600 | jaxlib 0 |" in table[2], table
    # again changes nothing
    autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cache, out=checkout.parent)
    assert (checkout / "table.py").read_text() == expected


def rounded(call):
    return -(-call["x"].shape[0] // 128) * 128


def bucketed():
    """An operation whose table has one row for each 128 rows of its argument."""

    def sizes(call):
        most = rounded(call)
        return [{"x": spec((rows, 64), jnp.float32)} for rows in sorted({most - 120, most} - {call["x"].shape[0]})]

    def look_up(members, call):
        return members["BLOCKS"].get((rounded(call), 64, "float32"), (8,))

    one = operation(look_up=look_up, borders=sizes)
    return dataclasses.replace(
        one,
        table=dataclasses.replace(
            one.table, row=lambda call, config, _: ((rounded(call), 64, "float32"), (config["block"],))
        ),
    )


def test_a_row_of_a_bucket_is_measured_at_both_ends_of_it(checkout, tmp_path, run):
    one = bucketed()
    # the end of a bucket that is called itself belongs to the first call's row
    recorded(tmp_path, one, 200, 256)
    calls = [
        json.loads(path.read_text())["invocation"] for path in (tmp_path / "registry").glob("invocations/*/*.json")
    ]
    keys = {int(call["arguments"][0]["spec"][4:].split(",")[0]): call["call_key"] for call in calls}
    assert keys.keys() == {136, 200, 256}
    (main,) = [call for call in calls if call["call_key"] == keys[200]]
    assert main["static_arguments"]["borders"] == [keys[136], keys[256]]
    assert all("borders" not in call["static_arguments"] for call in calls if call is not main)

    # the ends are tuned with the call, although the module does not have them
    kernels = importlib.import_module("their_project.kernels")
    with autotune_lowered.adapt(
        "their_project.kernels:scaled", parameters=["block"], op="their.scaled", baseline=one.baseline
    ):
        module = jax.jit(lambda x: kernels.scaled(x, 2.0)).lower(spec((200, 64), jnp.float32))
    autotune_lowered.dump(module, str(tmp_path / "module.mlir"))
    words = ["--registry", tmp_path / "registry", "--timer", f"jax:{sys.executable}", "--dry-run", "--format", "json"]
    planned = json.loads(run(tmp_path / "module.mlir", *words))["operations"]
    assert {call["call_key"]: call["occurrences"] > 0 for call in planned} == {
        keys[200]: True,
        keys[136]: False,
        keys[256]: False,
    }
    assert "at the border of the bucket of their.scaled@v1" in planned[1]["how"]

    def exported(*known):
        entries = [entry("their.scaled@v1", keys[rows], {"block": block}) for rows, block in known]
        cache = cached(tmp_path, run, *entries)
        return autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cache, out=checkout.parent)

    missing = exported((200, 64), (256, 64))
    assert [one["row"] for one in missing.rows] == ["(256, 64, 'float32'): (64,)"]
    ((name, reason),) = missing.skipped
    assert name.endswith(keys[200]) and f"nothing is known at the border their.scaled@v1:{keys[136]}" in reason
    ((_, reason),) = exported((136, 32)).skipped
    assert f"at the border their.scaled@v1:{keys[136]} the best config is {{'block': 32}}" in reason
    assert not exported((136, 64)).skipped


# dies when it comes to a step of the writing
WRITER = """
import os, signal, sys, autotune_lowered
sys.path.insert(0, {here!r})
from test_export_rows import operation

os.{step} = lambda *given, **more: os.kill(os.getpid(), signal.SIGKILL)
autotune_lowered.export_rows(operation(), registry={registry!r}, cache={cache!r}, out={out!r})
"""


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_writer_that_is_killed_leaves_the_table_as_it_was(step, checkout, tmp_path, run):
    one = operation()
    (key,) = recorded(tmp_path, one, 128)
    cache = cached(tmp_path, run, entry("their.scaled@v1", key, {"block": 32}))
    paths = {"registry": str(tmp_path / "registry"), "cache": str(cache), "out": str(checkout.parent)}
    script = WRITER.format(step=step, here=str(pathlib.Path(__file__).parent), **paths)
    path = os.pathsep.join([str(checkout.parent), *sys.path])
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | {"PYTHONPATH": path}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (checkout / "table.py").read_text() == TABLE
    # what it left is in nobody's way
    autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cache, out=checkout.parent)
    assert "(128, 64, 'float32'): (32,),  # by hand" in (checkout / "table.py").read_text()


def test_what_is_not_proven_is_not_written(checkout, tmp_path, run):
    one = operation()
    keys = recorded(tmp_path, one, 128, 256)
    cache = cached(
        tmp_path,
        run,
        entry("their.scaled@v1", keys[0], {"block": 64}, by_hand=True),
        entry("their.scaled@v1", keys[1], {"block": 64}, load="contended"),
        entry("their.scaled@v1", "0" * 16, {"block": 64}),
    )
    written = autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cache, out=checkout.parent)
    assert (written.files, written.rows, written.settings) == ([], [], {})
    assert {reason for _, reason in written.skipped} == {
        "it was not measured here",
        "it was measured beside other processes",
        "no call of this key is recorded in the registry",
    }
    assert (checkout / "table.py").read_text() == TABLE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("BLOCKS", "SIZES"), "has no dictionary `BLOCKS`: its project changed"),
        (
            lambda text: text.replace(".get((*shape, dtype), (8,))[0]", ".get(None, (8,))[0]"),
            "gives (8,), and not (64,)",
        ),
    ],
)
def test_a_table_that_is_not_as_expected_stays_as_it_is(checkout, tmp_path, run, change, words):
    one = operation()
    (key,) = recorded(tmp_path, one, 128)
    cache = cached(tmp_path, run, entry("their.scaled@v1", key, {"block": 64}))
    changed = change(TABLE)
    (checkout / "table.py").write_text(changed)
    with pytest.raises(ValueError) as caught:
        autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cache, out=checkout.parent)
    assert words in str(caught.value) and "\n" not in str(caught.value)
    assert (checkout / "table.py").read_text() == changed
    assert not list(checkout.glob(".table-*"))


def test_what_is_no_file_is_neither_read_nor_replaced(checkout, tmp_path, run):
    one = operation()
    (key,) = recorded(tmp_path, one, 128)
    cache = cached(tmp_path, run, entry("their.scaled@v1", key, {"block": 64}))

    def export():
        autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cache, out=checkout.parent)

    (record,) = (tmp_path / "registry").glob("invocations/*/*.json")
    os.mkfifo(record.with_name("fifo.json"))
    record.with_name("endless.json").symlink_to("/dev/zero")
    export()
    changed = (checkout / "table.py").read_text()
    assert changed != TABLE
    for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path)):
        (checkout / "table.py").unlink()
        make(checkout / "table.py")
        with pytest.raises(ValueError, match="is not a regular file"):
            export()
        assert not (checkout / "table.py").is_file()
    with pytest.raises(ValueError, match="is no registry: name the folder"):
        autotune_lowered.export_rows(one, registry=tmp_path / "nowhere", cache=cache)


def test_a_row_holds_numbers_and_text_alone():
    table = SourceTable("their_project.table", "BLOCKS", row)
    for value in (object(), 1.5, [1], True):
        with pytest.raises(ValueError, match="only whole numbers and text are written"):
            table.with_rows(TABLE, {(1, "x"): (value,)})
    hostile = "x'), __import__('os').system('true'), ('"
    text = table.with_rows(TABLE, {(hostile,): (1,)})
    namespace = {}
    exec(text, namespace)
    assert namespace["BLOCKS"][hostile,] == (1,)


def test_tables_of_tpu_inference_answer_with_the_new_rows(tmp_path, run):
    project("tpu_inference")
    device = {"platform": "tpu", "device_kind": "TPU v6 lite", "hardware": {}}
    configs = {
        "tpu_inference.quantized_matmul": {"batch_block_size": 256, "in_block_size": 512, "out_block_size": 1024},
        "tpu_inference.gmm": {"tm": 256, "tk": 512, "tn": 256},
        "tpu_inference.fused_moe": {
            **{"bt": 32, "bf": 512, "bd1": 1024, "bd2": 2048},
            **{"btc": 32, "bfc": 512, "bd1c": 1024, "bd2c": 1024},
        },
        "tpu_inference.rpa_v3": {
            **{"d_bq": 1, "d_bkv": 1024, "d_bq_c": 1, "d_bkv_c": 256},
            **{"m_bq": 64, "m_bkv": 512, "m_bq_c": 64, "m_bkv_c": 512},
        },
    }
    entries = []
    for name, config in configs.items():
        function, arrays = SERVING_CALLS[name][2:]
        with autotune_lowered.recording(
            tmp_path / "registry",
            target="tpu:v6e",
            directions=("forward",),
            adapters="tpu-inference",
            candidates={f"{name}@v1": []},
        ) as recorder:
            lowered(function, arrays(), "tpu:v6e")
        entries.append(entry(f"{name}@v1", recorder.report()[0]["call_key"], config, device))
    cache = cached(tmp_path, run, *entries)
    written = autotune_lowered.export_rows(
        "tpu-inference", registry=tmp_path / "registry", cache=cache, out=tmp_path / "checkout"
    )
    assert not written.skipped, written.skipped
    assert written.settings == {
        "RPA_V3_DECODE_BLOCK_SIZES": "1,1024,1,256",
        "RPA_V3_MIXED_BLOCK_SIZES": "64,512,64,512",
    }
    names = {str(path.relative_to(tmp_path / "checkout")) for path in written.files}
    assert names == {
        f"tpu_inference/kernels/{one}/tuned_block_sizes.py" for one in ("quantized_matmul", "megablox", "fused_moe/v1")
    }
    shipped = of_tpu_inference("quantized_matmul.tuned_block_sizes").TUNED_BLOCK_SIZES_RAW
    path = tmp_path / "checkout/tpu_inference/kernels/quantized_matmul/tuned_block_sizes.py"
    found = runpy.run_path(str(path), run_name="tpu_inference.written")["TUNED_BLOCK_SIZES_RAW"]
    key = (6, 256, 1024, 1024, "int8", "int8")
    assert found == shipped | {key: (256, 1024, 512)} and found != shipped and len(shipped) > 100


NESTED = """SIZES = {
    "TPU v6": {
        (128, "x"): (1, 2),  # by hand
    },
    "TPU v5": {(8, "x"): (3, 4)},
    "odd": make(),
}
"""


def test_rows_go_below_the_keys_around_them(tmp_path):
    table = SourceTable("their_project.table", "SIZES", row, outer=1)
    rows = {
        ("TPU v6", 128, "x"): (16, 32),
        ("TPU v6", 256, "x"): (5, 6),
        ("TPU v9", 1, "y"): (7, 8),
        ("TPU v9", 2, "y"): (9, 9),
    }
    text = table.with_rows(NESTED, rows)
    assert text == (
        'SIZES = {\n    "TPU v6": {\n        (128, "x"): (16, 32),  # by hand\n        (256, \'x\'): (5, 6),\n    },\n'
        '    "TPU v5": {(8, "x"): (3, 4)},\n    "odd": make(),\n'
        "    'TPU v9': {\n        (1, 'y'): (7, 8),\n        (2, 'y'): (9, 9),\n    },\n}\n"
    )
    path = tmp_path / "table.py"
    path.write_text("def make():\n    return {}\n\n\n" + text)
    table.prove(path.read_text(), rows, path, [])
    with pytest.raises(ValueError, match="has no dictionary at 'odd' of `SIZES`"):
        table.with_rows(NESTED, {("odd", 1, "y"): (7, 8)})


def test_a_row_in_one_line_stays_valid():
    table = SourceTable("their_project.table", "SIZES", row, outer=1)
    text = table.with_rows(NESTED, {("TPU v5", 16, "x"): (5, 6)})
    namespace = {"make": dict}
    exec(text, namespace)
    assert namespace["SIZES"]["TPU v5"] == {(8, "x"): (3, 4), (16, "x"): (5, 6)}


def test_keys_of_maxtexts_configuration(tmp_path, run):
    project("maxtext")
    from adapter_support import SERVING_CALLS

    name = "maxtext.splash_mha"
    function, arrays = SERVING_CALLS[name][2:]
    with autotune_lowered.recording(
        tmp_path / "registry",
        target="tpu:v6e",
        directions=("forward",),
        adapters="maxtext",
        candidates={f"{name}@v1": []},
    ) as recorder:
        lowered(function, arrays(), "tpu:v6e")
    key = recorder.report()[0]["call_key"]
    device = {"platform": "tpu", "device_kind": "TPU v6 lite", "hardware": {}}
    config = {"block_q": 256, "block_kv": 512, "block_kv_compute": 256, "block_q_dkv": None}
    cache = cached(tmp_path, run, entry(f"{name}@v1", key, config, device))
    written = autotune_lowered.export_rows("maxtext", registry=tmp_path / "registry", cache=cache)
    assert written.yml_text() == "sa_block_kv: 512\nsa_block_kv_compute: 256\nsa_block_q: 256\n"
    keys = (pathlib.Path(importlib.import_module("maxtext").__path__[0]) / "configs/base.yml").read_text()
    assert all(f"\n{name}: " in keys for name in written.yml), "MaxText has these keys"


def test_settings_that_two_calls_need_otherwise_are_told(checkout, tmp_path, run):
    one = operation(settings=lambda call, config: {"THEIR_BLOCK": str(config["block"])})
    keys = recorded(tmp_path, one, 128, 256)
    entries = [entry("their.scaled@v1", key, {"block": block}) for key, block in zip(keys, (64, 32), strict=True)]
    written = autotune_lowered.export_rows(one, registry=tmp_path / "registry", cache=cached(tmp_path, run, *entries))
    ((name, reason),) = written.skipped
    assert name.startswith("their.scaled@v1:") and "for another call" in reason and "it holds for all" in reason
    assert len(written.rows) == 2 and written.settings["THEIR_BLOCK"] in ("64", "32")


TEMPLATE = {
    "schema": 1,
    "operation": "their.scaled@v1",
    "file": "N={x.shape[1]},device_name={underscored(device['device_kind'])},dtype={x.dtype}.json",
    "key": "{next_power_of_two(x.shape[0] - 28)}",
    "value": {
        "BLOCK_SIZE_M": "{config.block}",
        "as_text": "b{config.block}",
        "twice": ["{2 * config.block}", 1.5, None],
    },
}


def template(tmp_path, **changed):
    path = tmp_path / "template.json"
    path.write_text(json.dumps(TEMPLATE | changed))
    return path


def test_a_template_writes_a_json_table_with_a_file_for_each_device(checkout, tmp_path, run):
    one = operation()
    keys = recorded(tmp_path, one, 128, 256)
    device = {"platform": "cpu", "device_kind": "Their Device 9", "hardware": {}}
    entries = [entry("their.scaled@v1", key, {"block": 64}, device) for key in keys]
    out = tmp_path / "configs"
    out.mkdir()
    path = out / "N=64,device_name=Their_Device_9,dtype=float32.json"
    path.write_text('{"1": {"BLOCK_SIZE_M": 16}, "128": {"old": true}}')
    given = dict(registry=tmp_path / "registry", cache=cached(tmp_path, run, *entries), out=out)
    written = autotune_lowered.export_rows([], templates=[template(tmp_path)], **given)
    assert written.files == [path] and not written.skipped
    new = {"BLOCK_SIZE_M": 64, "as_text": "b64", "twice": [128, 1.5, None]}
    assert json.loads(path.read_text()) == {"1": {"BLOCK_SIZE_M": 16}, "128": new, "256": new}
    assert sorted(path.name for path in out.iterdir()) == [path.name], "nothing else is left"
    assert "| 0.500 | 0.400 to 0.600 |" in written.markdown()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"file": "../{x.dtype}.json"}, "is no plain name of a file"),
        ({"file": ".{x.dtype}"}, "is no plain name of a file"),
        ({"file": "{config.block}/a.json"}, "is no plain name of a file"),
        ({"key": "{x.__class__}"}, "there is no `.__class__`"),
        ({"key": "{().__class__}"}, "something else than names"),
        ({"key": "{open('/etc/passwd')}"}, "there is no `open`"),
        ({"key": "{[y for y in x.shape]}"}, "something else than names"),
        ({"key": "{9 ** 9 ** 9}"}, "something else than names"),
        ({"key": "{" + " * ".join(["99999999999"] * 20) + "}"}, "too large"),
        ({"key": "{" + "1+" * 400 + "1}"}, "it is too long"),
        ({"key": "{x.shape[9]}"}, "out of range"),
        ({"key": "{x.shape[0] // 0}"}, "zero"),
        ({"key": "{config}"}, "is no number and no text"),
        ({"key": "{missing.shape}"}, "there is no `missing`"),
        ({"key": "{x.shape[}"}, "x.shape["),
    ],
)
def test_a_template_runs_no_code_and_names_no_place(checkout, tmp_path, run, changed, words):
    one = operation()
    (key,) = recorded(tmp_path, one, 128)
    cache = cached(tmp_path, run, entry("their.scaled@v1", key, {"block": 64}))
    out = tmp_path / "configs"
    path = template(tmp_path, **changed)
    written = autotune_lowered.export_rows([], templates=[path], registry=tmp_path / "registry", cache=cache, out=out)
    ((_, reason),) = written.skipped
    assert words in reason and "\n" not in reason and not written.rows, reason
    assert not out.exists()


def test_what_is_no_template_is_told(tmp_path):
    from autotune_lowered.adapters.templates import FileTable

    for text in ("[]", "{", json.dumps(TEMPLATE | {"more": 1}), json.dumps(TEMPLATE | {"schema": 2})):
        path = tmp_path / "template.json"
        path.write_text(text)
        with pytest.raises(ValueError, match="is no template"):
            FileTable.read(path)
    path.write_text(json.dumps(TEMPLATE | {"key": 5}))
    with pytest.raises(ValueError, match="are texts"):
        FileTable.read(path)


def sglang(is_later):
    """Skips a test of another version of sglang-jax."""
    project("sgl_jax")
    if (importlib.util.find_spec("sgl_jax.srt.kernels") is not None) != is_later:
        wanted = "later than 0.0.2" if is_later else "0.0.2"
        pytest.skip(f"the sglang_jax that AUTOTUNE_LOWERED_TEST_PROJECTS names is not {wanted}")


LATER_TABLES = ("ragged_paged_attention", "fused_moe", "gmm_v1", "quantized_matmul")


@pytest.mark.parametrize("name", LATER_TABLES)
def test_the_look_ups_of_later_versions_of_sglang_jax_give_the_new_rows(name, tmp_path, run):
    sglang(is_later=True)
    blocks = {"bt": 32, "bf": 512, "bd1": 1024, "bd2": 2048, "bts": 32, "btc": 32, "bfc": 256, "bd1c": 1024}
    config = {
        "ragged_paged_attention": {"num_kv_pages_per_block": 8, "num_queries_per_block": 16},
        "fused_moe": blocks | {"bd2c": 1024, "bse": 512},
        "gmm_v1": {"tm": 256, "tk": 512, "tn": 256},
        "quantized_matmul": {"batch_block_size": 256, "out_block_size": 512, "in_block_size": 1024},
    }[name]
    adapters, _, function, arrays = SERVING_CALLS[f"sglang_jax.{name}"]
    with autotune_lowered.recording(
        tmp_path / "registry",
        target="tpu:v6e",
        directions=("forward",),
        adapters=adapters,
        candidates={f"sglang_jax.{name}@v1": []},
    ) as recorder:
        lowered(function, arrays(), "tpu:v6e")
    device = {"platform": "tpu", "device_kind": "TPU v6 lite", "hardware": {}}
    # calls at the borders of a bucket are recorded as well, and have no row of their own
    keys = {one["call_key"] for one in recorder.report()}
    entries = [entry(f"sglang_jax.{name}@v1", key, config, device) for key in sorted(keys)]
    written = autotune_lowered.export_rows(
        adapters, registry=tmp_path / "registry", cache=cached(tmp_path, run, *entries), out=tmp_path / "checkout"
    )
    # the project's own look-up gave these values, or nothing would be written
    assert not written.skipped and len(written.files) == len(written.rows) == 1, written
    row = written.rows[0]["row"]
    assert str(tuple(config.values())) in row and ("TPU v6e" in row) == (
        name in ("ragged_paged_attention", "fused_moe")
    )


def test_the_look_up_of_sglang_jax_gives_the_new_rows(tmp_path):
    """Its attention is for an older JAX, so the call is made here."""
    sglang(is_later=False)
    from autotune_lowered.adapters import export, sglang_jax

    (one,) = [operation for operation in sglang_jax.OPERATIONS if operation.op == "sglang_jax.rpa"]
    call = {
        "queries": spec((256, 8, 128), jnp.bfloat16),
        "keys": spec((256, 2, 128), jnp.bfloat16),
        "kv_cache_fused": spec((64, 128, 4, 128), jnp.bfloat16),
        "kv_lens": spec((8,), jnp.int32),
        "page_indices": spec((64,), jnp.int32),
    }
    with export._on("TPU v6 lite"):
        key, value = one.table.row(call, {"num_kv_pages_per_block": 8, "num_queries_per_block": 16}, {})
        with pytest.raises(ValueError, match="takes at most 8 pages and 256 queries"):
            one.table.row(call, {"num_kv_pages_per_block": 16, "num_queries_per_block": 16}, {})
    path = export._write(tmp_path, one.table, {key: value}, [(call, value)], "TPU v6 lite")
    before = one.table.source(tmp_path / "nowhere").splitlines()
    (added,) = [line for line in path.read_text().splitlines() if line not in before]
    assert added.strip() == "('TPU v6', 'bfloat16', 'bfloat16', 8, 2, 128, 128, 256): (8, 16),"
    with pytest.raises(ValueError, match=r"gives \(8, 16\), and not \(4, 16\)"):
        export._write(tmp_path, one.table, {key: value}, [(call, (4, 16))], "TPU v6 lite")


def test_rows_of_the_projects_table_are_tried_first(checkout, tmp_path):
    (checkout / "table.py").write_text(TABLE.replace("    # keep-sorted end", "    (64, 64, 'float32'): (16,),"))
    (key,) = recorded(tmp_path, operation(), 256)
    (record,) = (tmp_path / "registry").glob("invocations/*/*.json")
    call = json.loads(record.read_text())["invocation"]
    # 16 stands there twice, and what the project would choose for this call is 8
    assert call["static_arguments"]["starts"] == [{"block": 16}, {"block": 32}]
    configs = [one["config"]["block"] for one in call["candidates"]]
    assert configs == [8, 16, 32, 64] and call["baseline"] == {"block": 8}


@pytest.mark.parametrize(
    "text", ["BLOCKS = None\n", "raise OSError('no')\n", "BLOCKS = {1: 'x', 2: (1, 2), 3: (1.5,)}\n"]
)
def test_a_table_that_cannot_be_read_names_no_start(checkout, text):
    (checkout / "table.py").write_text(text)
    assert operation().starts() == []


def test_start_configs_of_the_real_tables(tmp_path):
    project("tpu_inference")
    project("sgl_jax")
    from autotune_lowered.adapters import sglang_jax, tpu_inference

    found = {one.op: one.starts() for one in (*tpu_inference.OPERATIONS, *sglang_jax.OPERATIONS) if one.table}
    # of the two versions of sglang-jax one is here
    assert {name for name, starts in found.items() if starts} in (
        {f"tpu_inference.{name}" for name in ("quantized_matmul", "gmm", "fused_moe")} | theirs
        for theirs in ({"sglang_jax.rpa"}, {f"sglang_jax.{name}" for name in LATER_TABLES})
    )
    assert all(len(starts) in (0, 4) for starts in found.values())
    assert all(set(one) == {"tm", "tk", "tn"} for one in found["tpu_inference.gmm"])
