"""Best configs handed back as rows of the tables that projects read."""

import importlib
import json
import os
import runpy
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
        settings=lambda call, config: {"THEIR_BLOCK": str(config["block"])},
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
    assert written.settings.keys() == {"THEIR_BLOCK"}
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
    assert names == {f"tpu_inference/kernels/{one}/tuned_block_sizes.py" for one in ("quantized_matmul", "megablox")}
    shipped = of_tpu_inference("quantized_matmul.tuned_block_sizes").TUNED_BLOCK_SIZES_RAW
    path = tmp_path / "checkout/tpu_inference/kernels/quantized_matmul/tuned_block_sizes.py"
    found = runpy.run_path(str(path), run_name="tpu_inference.written")["TUNED_BLOCK_SIZES_RAW"]
    key = (6, 256, 1024, 1024, "int8", "int8")
    assert found == shipped | {key: (256, 1024, 512)} and found != shipped and len(shipped) > 100
