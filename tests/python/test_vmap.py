"""Calls under `vmap`: recorded, tuned and looked up as the mapped programs that run."""

import json
import os
import pathlib
import sys

import pytest
from record_support import array_bytes, debug_text, record_of, records

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="tunable functions need JAX")
import jax.numpy as jnp
import numpy as np

import autotune_lowered
from autotune_lowered import _native
from autotune_lowered.record.lowering import lower, with_vjp

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tunable"
new_jax = pytest.mark.skipif(
    jax.__version_info__ < (0, 7), reason="this JAX neither tells of a body that is mapped nor keys its traces"
)


@autotune_lowered.tunable(op="rows_matmul", version=1, space={"rows": [2, 4, 8]})
def rows_matmul(x, w, *, rows=4):
    return jax.lax.map(lambda part: jnp.sin(part) @ w, x.reshape(-1, rows, x.shape[1])).reshape(x.shape[0], -1)


def plain(rows):
    """The same function without the decorator."""
    return lambda x, w: rows_matmul.__wrapped__(x, w, rows=rows)


X, W = jnp.linspace(0, 1, 16 * 8).reshape(16, 8), jnp.linspace(-1, 1, 8 * 4).reshape(8, 4)
XS = jnp.stack([X, X + 1, X - 1])
KEY = rows_matmul.tunable.call_key(X, W)


def recorded_of(function, *arguments, folder, directions=("forward",)):
    with autotune_lowered.recording(folder, directions=directions) as recorded:
        lowered = jax.jit(function).lower(*arguments)
    return recorded, debug_text(lowered)


def keys_in(text):
    return [label["call_key"] for label in json.loads(_native.scan(text.encode()))["labels"]]


def specs(record):
    return [argument["spec"] for argument in record["arguments"]]


def digests(record):
    return {candidate["config"]["rows"]: candidate["program"]["semantic_digest"] for candidate in record["candidates"]}


def expected(mapped, *arguments, both=False):
    """The digests of the programs of `mapped(function)` for each config, mapped by JAX itself."""
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in arguments]
    found = {}
    for rows in (2, 4, 8):
        function = mapped(plain(rows))
        if both:
            output = jax.eval_shape(function, *shapes)
            found[rows] = lower(with_vjp(function, shapes), [*shapes, output], "cpu").semantic_digest
        else:
            found[rows] = lower(function, shapes, "cpu").semantic_digest
    return found


def assert_programs(record, mapped, *arguments, both=False):
    # old JAX spells one program in several ways
    if jax.__version_info__ >= (0, 6):
        assert digests(record) == expected(mapped, *arguments, both=both)


def test_a_mapped_call_is_recorded_as_the_program_that_runs(tmp_path):
    def mapped(function):
        return jax.vmap(function, in_axes=(0, None))

    recorded, text = recorded_of(mapped(rows_matmul), XS, W, folder=tmp_path, directions=("forward", "forward-vjp"))
    both = record_of(tmp_path, "rows_matmul@v1", "forward-vjp")
    record = record_of(tmp_path, "rows_matmul@v1", "forward")
    assert record["batch"] == both["batch"] == [{"size": 3, "axes": {"x": 0}}]
    assert specs(record) == ["f32[3,16,8]", "f32[8,4]"] and specs(both) == [*specs(record), "f32[3,16,4]"]
    assert_programs(record, mapped, XS, W)
    assert_programs(both, mapped, XS, W, both=True)
    # a separate key, which is also that of the module's label; the unmapped call is not recorded
    assert record["call_key"].startswith(f"{KEY}~3-")
    assert (
        keys_in(text) == keys_in(jax.jit(mapped(rows_matmul)).lower(XS, W).compile().as_text()) == [record["call_key"]]
    )
    assert [entry["batch"] for entry in recorded.report()] == [record["batch"]] * 2
    # the unmapped call is unchanged
    recorded_of(rows_matmul, X, W, folder=tmp_path / "plain")
    alone = record_of(tmp_path / "plain", "rows_matmul@v1", "forward")
    assert alone["call_key"] == KEY and "batch" not in alone and specs(alone) == ["f32[16,8]", "f32[8,4]"]


@pytest.mark.parametrize(
    ("wrap", "x", "w", "batch"),
    [
        (lambda f: jax.vmap(jax.vmap(f, (1, None)), (0, None)), (2, 16, 3, 8), (8, 4), [(2, {"x": 0}), (3, {"x": 1})]),
        # the outer axis is a position in the whole array, the inner one in the rest after it
        (lambda f: jax.vmap(jax.vmap(f, (0, None)), (3, None)), (2, 16, 8, 5), (8, 4), [(5, {"x": 3}), (2, {"x": 0})]),
        (lambda f: jax.vmap(jax.vmap(f, (0, None)), (None, 0)), (3, 16, 8), (2, 8, 4), [(2, {"w": 0}), (3, {"x": 0})]),
    ],
)
def test_nested_maps_are_recorded_from_the_outermost_inwards(tmp_path, wrap, x, w, batch):
    _, text = recorded_of(wrap(rows_matmul), jnp.ones(x), jnp.ones(w), folder=tmp_path)
    record = record_of(tmp_path, "rows_matmul@v1", "forward")
    assert record["batch"] == [{"size": size, "axes": axes} for size, axes in batch]
    assert_programs(record, wrap, jnp.ones(x), jnp.ones(w))
    assert keys_in(text) == [record["call_key"]]
    sizes = "x".join(str(size) for size, _ in batch)
    assert f"~{sizes}-" in record["call_key"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: jax.vmap(jax.grad(lambda x, w: (f(x, w) ** 2).sum()), (0, None)),
        lambda f: jax.grad(lambda x, w: (jax.vmap(f, (0, None))(x, w) ** 2).sum()),
        lambda f: jax.vmap(jax.value_and_grad(lambda x, w: jnp.sin(f(x, w)).sum(), argnums=1), (0, None)),
        lambda f: jax.jit(jax.vmap(f, (0, None))),
    ],
)
def test_derivatives_around_and_inside_of_a_map_are_one_variant(tmp_path, wrap):
    before = jax.jit(wrap(rows_matmul))(XS, W)
    with jax.checking_leaks(), autotune_lowered.recording(tmp_path):
        during = jax.jit(wrap(rows_matmul))(XS, W)
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(during), strict=True):
        assert np.array_equal(one, other)
    assert {record["direction"] for record in records(tmp_path)} == {"forward", "forward-vjp"}
    assert [record["batch"] for record in records(tmp_path)] == [[{"size": 3, "axes": {"x": 0}}]] * 2


@new_jax
@pytest.mark.parametrize(
    "body",
    [
        jax.jit,
        jax.checkpoint,
        lambda f: lambda x, w: jax.lax.scan(lambda x, _: (x, f(x, w)), x, None, length=2)[1],
        lambda f: lambda x, w: jax.lax.cond(w.sum() > 0, f, lambda x, w: x @ w, x, w),
        lambda f: jax.grad(lambda x, w: jax.lax.scan(lambda x, _: (x, f(x, W).sum()), x, None, length=2)[1].sum()),
    ],
)
def test_a_body_that_is_mapped_as_a_whole_is_heard_of(tmp_path, body):
    """The call itself sees no axis, so its label and its look-up are those of the unmapped call."""
    function = jax.vmap(body(rows_matmul), (0, None))
    before = jax.jit(function)(XS, W)
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        lowered = jax.jit(function).lower(XS, W)
    record = record_of(tmp_path, "rows_matmul@v1", "forward")
    assert record["batch"] == [{"size": 3, "axes": {"x": 0}}]
    assert_programs(record, lambda f: jax.vmap(f, (0, None)), XS, W)
    assert keys_in(debug_text(lowered)) == [KEY]
    # the listener changes no bit of the result, and lowers to nothing
    assert np.array_equal(lowered.compile()(XS, W), before)
    assert "listen" not in lowered.as_text()


def test_a_linear_call_can_be_transposed_while_it_is_recorded(tmp_path):
    @autotune_lowered.tunable(op="weighted", version=1, space={"rows": [1, 2]})
    def weighted(x, w, *, rows=1):
        return x @ w

    def transposed(w, y):
        return jax.linear_transpose(lambda x: weighted(x, w), X)(y)

    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        (found,) = jax.jit(transposed)(W, jnp.ones((16, 4)))
    assert np.allclose(found, jnp.ones((16, 4)) @ W.T)
    assert len(records(tmp_path)) == 1


@new_jax
def test_a_body_that_runs_mapped_and_unmapped_is_recorded_twice(tmp_path):
    body = jax.jit(lambda x, w: rows_matmul(x, w))
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        body(X, W)
        jax.vmap(jax.vmap(body, (0, None)), (0, None))(XS[None], W)
    found = {record["call_key"]: record.get("batch") for record in records(tmp_path)}
    assert found.pop(KEY) is None
    assert list(found.values()) == [[{"size": 1, "axes": {"x": 0}}, {"size": 3, "axes": {"x": 0}}]]


@new_jax
def test_a_call_that_the_map_around_its_body_leaves_alone_is_noted(tmp_path):
    body = jax.jit(lambda x, w: x + rows_matmul(X, w).sum())
    recorded, _ = recorded_of(jax.vmap(body, (0, None)), XS, W, folder=tmp_path)
    record = record_of(tmp_path, "rows_matmul@v1", "forward")
    assert record["call_key"] == KEY and "batch" not in record
    assert ["was not seen to map it" in note for note in recorded.report()[0]["notes"]] == [True]
    # not if the same call also occurs unmapped
    both, _ = recorded_of(
        lambda x, w: (rows_matmul(X, w), jax.vmap(body, (0, None))(x, w)), XS, W, folder=tmp_path / "both"
    )
    assert both.report()[0]["notes"] == []


def test_a_collective_over_the_mapped_axis_is_recorded(tmp_path):
    @autotune_lowered.tunable(op="mean_free", version=1, space={"scale": [1.0, 2.0]})
    def mean_free(x, *, scale=1.0):
        return scale * (x - jax.lax.pmean(x, "calls"))

    recorded, _ = recorded_of(jax.vmap(mean_free, axis_name="calls"), XS, folder=tmp_path)
    record = record_of(tmp_path, "mean_free@v1", "forward")
    assert all("program" in candidate for candidate in record["candidates"]), recorded.report()
    assert record["batch"] == [{"size": 3, "axes": {"x": 0}}]


def test_the_values_of_an_eager_map_are_all_captured(tmp_path):
    @autotune_lowered.tunable(op="take", version=1, space={"mode": ["clip", "wrap"]})
    def take(x, at, *, mode="clip"):
        return jnp.take(x, at, axis=0, mode=mode)

    at = jnp.array([[3, 1], [2, 2], [0, 1]], jnp.int32)
    with autotune_lowered.recording(tmp_path, directions=("forward",)):
        jax.vmap(take, (None, 0))(X, at)
    record = record_of(tmp_path, "take@v1", "forward")
    (argument,) = [argument for argument in record["arguments"] if argument["name"] == "at"]
    assert argument["spec"] == "s32[3,2]"
    assert array_bytes(tmp_path, argument["fill"]) == np.asarray(at).tobytes()


@pytest.mark.parametrize("body", [pytest.param(jax.jit, marks=new_jax), lambda f: f])
def test_the_arrays_of_a_traced_map_are_told_of_as_wholes(tmp_path, body):
    @autotune_lowered.tunable(op="scaled", version=1, space={"mode": ["clip", "wrap"]})
    def scaled(x, at, scale, heat, shared, *, mode="clip"):
        return jnp.take(x, at, axis=0, mode=mode) * scale / heat + shared.sum()

    ids = jnp.array([5, 7], jnp.int32)
    at = jnp.array([[3, 1], [2, 2], [0, 1]], jnp.int32)
    xs, scales, heats = jnp.stack([X, X + 1, X + 2]), jnp.array([0.25, 0.5, 0.75]), jnp.full(3, 0.5)
    function = jax.vmap(body(lambda *arrays: scaled(*arrays, ids)))
    with autotune_lowered.recording(tmp_path, directions=("forward",), capture_values=True) as recorded:
        jax.block_until_ready(jax.jit(function)(xs, at, scales, heats))
    (entry,) = recorded.report()
    assert (entry["batch"][0]["size"], entry["values_unknown"]) == (3, {})
    record = record_of(tmp_path, "scaled@v1", "forward")
    fills = {argument["name"]: argument["fill"] for argument in record["arguments"]}
    assert array_bytes(tmp_path, fills.pop("at")) == at.tobytes()
    assert array_bytes(tmp_path, fills.pop("shared")) == ids.tobytes()
    assert fills == {
        "x": {"kind": "uniform", "low": 0.0, "high": 3.0},
        "scale": {"kind": "uniform", "low": 0.25, "high": 0.75},
        # a number for each call, equal for all of them
        "heat": {"kind": "constant", "value": 0.5},
    }


def test_overlays_are_asked_for_the_batch_then_for_the_call():
    seen = []

    @autotune_lowered.tunable(op="watched", version=1, space={"rows": [1, 2, 3, 4]})
    def watched(x, *, rows=1):
        seen.append(rows)
        return x

    key, inside = watched.tunable.call_key(X), []
    jax.vmap(lambda x: inside.append(watched.tunable.call_key(x)) or x)(XS)
    (mapped,) = inside
    assert mapped.startswith(f"{key}~3-")

    def runs(configs):
        seen.clear()
        with autotune_lowered.overlay({("watched@v1", key): {"rows": rows} for key, rows in configs.items()}):
            watched(X)
            jax.vmap(watched)(XS)
        return tuple(seen)

    assert runs({key: 2, mapped: 3}) == (2, 3)
    assert runs({key: 2}) == (2, 2)
    assert runs({mapped: 3}) == (3, 3)
    # another size: the unmapped call first, then the variant with the most calls
    assert runs({f"{key}~4-00000000": 3, f"{key}~8x2-00000000": 4}) == (4, 4)


@autotune_lowered.tunable(op="rarely", version=1, space={"how": ["always", "asked"]})
def rarely(x, *, how="always"):
    """Sorted rows. Alone, a branch that is not taken costs nothing; under `vmap`, both are computed."""

    def sort(times):
        return lambda x: jax.lax.fori_loop(0, times, lambda _, y: jnp.sort(y, axis=-1), x)

    if how == "always":
        return sort(64)(x)
    return jax.lax.cond(x[0, 0] > 1e9, sort(2048), sort(1), x)


@new_jax
def test_the_batch_has_another_winner_and_is_looked_up_with_it(program, tmp_path, monkeypatch, caplog):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", str(program))
    import tuning

    def step(x, xs):
        return rarely(x), jax.vmap(rarely)(xs)

    x = jnp.linspace(0, 1, 64 * 8).reshape(64, 8)
    xs = jnp.stack([x] * 4)
    best = tuning.best_configs(step, (x, xs), tmp_path)
    key = rarely.tunable.call_key(x)
    (mapped,) = [found for _, found in best if found != key]
    assert best == {("rarely@v1", key): {"how": "asked"}, ("rarely@v1", mapped): {"how": "always"}}

    cache, here = autotune_lowered.Cache.open(tmp_path / "cache"), autotune_lowered.device()
    entry = cache.get(here, "rarely@v1", mapped)
    assert (entry.config, entry.flags) == ({"how": "always"}, ())
    assert entry.provenance["batch"] == [{"size": 4, "axes": {"x": 0}}]
    assert "batch" not in cache.get(here, "rarely@v1", key).provenance
    eight = f"{key}~8-00000000"
    assert cache.get(here, "rarely@v1", eight).flags == (
        ("other-batch", "measured unmapped, asked for under `vmap` of 8"),
    )
    autotune_lowered.use_cache(cache)
    try:
        text = jax.jit(jax.vmap(rarely)).lower(xs).as_text()
        assert "2048" not in text and "dense<64>" in text
        assert "other batch" not in caplog.text
        # an untuned batch uses the single call's config, with a message
        assert "2048" in jax.jit(jax.vmap(rarely)).lower(jnp.stack([x] * 2)).as_text()
        assert "other batch" in caplog.text
    finally:
        autotune_lowered.use_cache(tmp_path / "nothing")


def test_ejkernels_call_under_vmap_is_tuned_as_it_runs(program, tmp_path, monkeypatch):
    pytest.importorskip("ejkernel", reason="it records ejkernel's attention")
    from ejkernel.modules import flash_attention

    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("AUTOTUNE_LOWERED_EXE", str(program))

    def attention(q):
        return flash_attention(q, q, q, causal=True)

    q = jnp.linspace(-1, 1, 256 * 2 * 32, dtype=jnp.float32).reshape(1, 256, 2, 32)
    qs = jnp.stack([q] * 4, axis=1)
    with autotune_lowered.recording(tmp_path / "registry", directions=("forward",)) as recorded:
        lowered = jax.jit(jax.vmap(attention, in_axes=1)).lower(qs)
    record = record_of(tmp_path / "registry", "flash_attention@v2", "forward")
    own, _, _ = record["call_key"].partition("~4-")
    # ejkernel's own label: its key ignores `vmap`
    assert keys_in(debug_text(lowered)) == [own] and len(own) == 16
    assert record["batch"] == [{"size": 4, "axes": {"key": 1, "query": 1, "value": 1}}]
    assert specs(record) == ["f32[1,4,256,2,32]"] * 3
    assert "vmap" in recorded.report()[0]["notes"][0]
    shape = jax.ShapeDtypeStruct(qs.shape, qs.dtype)
    baseline = lower(
        jax.vmap(lambda q, k, v: flash_attention(q, k, v, causal=True), in_axes=1), [shape] * 3, "cpu"
    ).semantic_digest
    (program_of_baseline,) = [c["program"] for c in record["candidates"] if c["config"] == record["baseline"]]
    assert program_of_baseline["semantic_digest"] == baseline

    module = autotune_lowered.dump(lowered, tmp_path / "module.mlir")
    words = [module, "--registry", tmp_path / "registry", "--cache", tmp_path / "cache", "--format", "json"]
    # nothing gains that much: the decision does not hang on how busy the machine is
    words += ["--timer", f"jax:{sys.executable}", "--rounds", "6", "--min-improvement", "0.9"]
    from autotune_lowered import _program

    done = _program.run([str(word) for word in words], 500)
    assert done.code == 0, done.stderr
    (operation,) = json.loads(done.stdout)["operations"]
    assert (operation["call_key"], operation["batch"]) == (record["call_key"], record["batch"])
    assert operation["status"] == "baseline-kept" and "flags" not in operation
    # under ejkernel's key the same config, with a flag; under the variant's key without
    cache, here = autotune_lowered.Cache.open(tmp_path / "cache"), autotune_lowered.device()
    assert cache.get(here, "flash_attention@v2", record["call_key"]).flags == ()
    entry = cache.get(here, "flash_attention@v2", own)
    assert entry.config == operation["best"]["config"]
    assert entry.flags == (("other-batch", "measured under `vmap` of 4, asked for unmapped"),)
    # it is exported under ejkernel's own key, with a message
    exported = _program.run(
        ["cache", "export", "--format", "ejkernel", str(tmp_path / "ej"), "--cache", str(tmp_path / "cache")], 60
    )
    assert exported.code == 0 and "other-batch" in exported.stderr, exported.stderr
    (name,) = json.loads((tmp_path / "ej" / "flash-attn.json").read_text())
    assert name.endswith(f"|flash_attention@v2|{own}")
