"""Programs with LAPACK's custom calls, to which JAX lowers linear algebra on a CPU: recorded, tuned, compared."""

from __future__ import annotations

import json
import sys

import pytest
from record_support import records

jax = pytest.importorskip("jax", reason="recording needs JAX")

import jax.numpy as jnp

import autotune_lowered

pytestmark = pytest.mark.needs_jax("0.8", "the `jax` worker measures")

ROUTINES = {
    "triangular_solve": lambda a, b: jax.scipy.linalg.solve_triangular(a + 8 * jnp.eye(16), b, lower=True),
    "cholesky": lambda a, b: jnp.linalg.cholesky(a @ a.T + jnp.eye(16)),
    "qr": lambda a, b: jnp.abs(jnp.linalg.qr(a)[1]),
    "svd": lambda a, b: jnp.linalg.svd(a, compute_uv=False),
    "eigh": lambda a, b: jnp.linalg.eigvalsh(a + a.T),
    "solve": lambda a, b: jnp.linalg.solve(a @ a.T + jnp.eye(16), b),
}
# the routine of LAPACK that each of them runs first, in single precision
FIRST_CALL = {
    "triangular_solve": "lapack_strsm_ffi",
    "cholesky": "lapack_spotrf_ffi",
    "qr": "lapack_sgeqrf_ffi",
    "svd": "lapack_sgesdd_ffi",
    "eigh": "lapack_ssyevd_ffi",
    "solve": "lapack_sgetrf_ffi",
}


def tunable_of(name, routine):
    @autotune_lowered.tunable(op=name, version=1, space={"swapped": [False, True]})
    def run(a, b, *, swapped=False):
        found = routine(a, b)
        return found + a.sum() - a.sum() if swapped else found

    return run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The module of all routines, and a registry with them."""
    folder = tmp_path_factory.mktemp("lapack")
    functions = [tunable_of(name, routine) for name, routine in ROUTINES.items()]
    square, right = jax.ShapeDtypeStruct((16, 16), jnp.float32), jax.ShapeDtypeStruct((16, 4), jnp.float32)
    with autotune_lowered.recording(folder / "registry", directions=("forward",), platforms=("cpu",)) as recording:
        lowered = jax.jit(lambda a, b: [function(a, b) for function in functions]).lower(square, right)
    (folder / "module.mlir").write_text(lowered.as_text(debug_info=True))
    return folder, recording.report()


@pytest.mark.parametrize("name", ROUTINES)
def test_the_programs_are_portable_and_name_their_calls(recorded, name):
    folder, report = recorded
    (entry,) = [entry for entry in report if entry["op_id"] == f"{name}@v1"]
    assert (entry["programs"], entry["not_lowered"]) == (2, {})
    (record,) = [record for record in records(folder / "registry") if record["op_id"] == f"{name}@v1"]
    for candidate in record["candidates"]:
        assert candidate["program"]["format"] == "stablehlo-portable"
        assert FIRST_CALL[name] in candidate["program"]["custom_calls"]


def tuned(run, recorded, tmp_path, name, *timer, expected):
    folder, report = recorded
    (key,) = {entry["call_key"] for entry in report if entry["op_id"] == f"{name}@v1"}
    words = [
        folder / "module.mlir",
        "--registry",
        folder / "registry",
        "--cache",
        tmp_path,
        "--rounds",
        "6",
        "--min-improvement",
        "0.9",
    ]
    done = run(*words, "--only", f"{name}@v1:{key}", "--format", "json", *timer, expected=expected)
    (operation,) = json.loads(done)["operations"]
    return operation


@pytest.mark.parametrize("name", ROUTINES)
def test_jax_runs_them_and_their_outputs_agree(run, recorded, tmp_path, name):
    operation = tuned(run, recorded, tmp_path, name, "--timer", f"jax:{sys.executable}", expected=0)
    assert operation["status"] == "baseline-kept", operation["reason"]
    assert [row["status"] for row in operation["candidates"]] == ["measured", "measured"]


@pytest.mark.parametrize("name", ROUTINES)
def test_a_plugin_without_lapack_says_which_timer_has_it(run, recorded, tmp_path, plugin, name):
    operation = tuned(run, recorded, tmp_path, name, "--timer", "pjrt", "--plugin", plugin, expected=1)
    assert (operation["status"], operation["failure"]["kind"]) == ("failed", "custom-call")
    assert f"`{FIRST_CALL[name]}`: time with `--timer jax`" in operation["reason"]
