"""`capture`: a step's inputs as files that numpy alone can read."""

import hashlib
import json
import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="capture needs JAX")
import jax.numpy as jnp
import numpy as np

import autotune_lowered


def step(params, key, unused, ids, *, rate):
    noise = jax.random.normal(key, params["w"].shape, params["w"].dtype)
    return {"w": params["w"] - rate * noise, "f": params["f"] + 1}, ids * 2


def test_arguments_are_written_as_the_program_takes_them(tmp_path):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    params = {"w": jnp.asarray(weights, jnp.bfloat16), "f": jnp.asarray([1.5, -2.0], jnp.float8_e4m3fn)}
    key, ids = jax.random.key(7), jnp.asarray(weights.T).astype(jnp.int32).T
    jitted = jax.jit(step, donate_argnums=0)
    folder = autotune_lowered.capture(jitted, (params, key, 3.0, ids), tmp_path / "inputs", {"rate": 0.5})
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == "autotune-lowered-inputs-v1"
    rows = {row["path"]: row for row in manifest["arguments"]}
    # the argument that the program does not need is missing
    assert [(row["path"], row["spec"], row["donated"]) for row in manifest["arguments"]] == [
        ("params/f", "f8e4m3fn[2]", True),
        ("params/w", "bf16[2,3]", True),
        ("key", "u32[2]", False),
        ("ids", "s32[2,3]", False),
        ("rate", "f32[]", False),
    ]
    arrays = {}
    for row in manifest["arguments"]:
        content = (folder / row["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row["sha256"]
        arrays[row["path"]] = np.load(folder / row["file"], allow_pickle=False)
    # bfloat16 is the upper half of a float32; 1.5 and -2 have the exponents 7 and 8 of 4 bits
    assert arrays["params/w"].dtype == np.uint16
    assert (arrays["params/w"] == (weights.view(np.uint32) >> 16)).all()
    assert arrays["params/f"].tolist() == [0b0_0111_100, 0b1_1000_000]
    assert (arrays["ids"] == weights.astype(np.int32)).all() and not np.isfortran(arrays["ids"])
    assert (arrays["rate"].shape, arrays["rate"].dtype, arrays["rate"]) == ((), np.float32, np.float32(0.5))
    assert arrays["key"].tolist() == [0, 7]
    assert rows["rate"]["file"] == "4.npy"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    # nothing was donated, and no temporary file is left
    assert not params["w"].is_deleted() and os.listdir(tmp_path) == ["inputs"]


def test_what_cannot_be_captured_leaves_nothing(tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "theirs").write_text("x")
    with pytest.raises(OSError):
        autotune_lowered.capture(lambda x: x + 1, (1.0,), taken)
    with pytest.raises(ValueError, match="static arguments"):
        autotune_lowered.capture(jax.jit(lambda x, n: x * n, static_argnums=1), (1.0, 2), tmp_path / "static")
    assert os.listdir(tmp_path) == ["taken"] and os.listdir(taken) == ["theirs"]
