"""`tunable`: labels, keys, the config in force, and traces that follow it."""

import asyncio
import contextvars
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import types

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="tunable functions need JAX")
import jax.numpy as jnp
from record_support import debug_text

import autotune_lowered
from autotune_lowered import _native
from autotune_lowered.lookup import in_force, trace_key
from autotune_lowered.lookup.best import best_config
from autotune_lowered.record import recorder as recorder_room
from autotune_lowered.tunables.call_key import describe

HERE = pathlib.Path(__file__).resolve()
EXAMPLES = HERE.parents[2] / "examples" / "tunable"
X = jax.ShapeDtypeStruct((16, 8), jnp.float32)
W = jax.ShapeDtypeStruct((8, 4), jnp.float32)
keyed_traces = pytest.mark.skipif(
    not hasattr(jax, "make_user_context"), reason="this JAX cannot keep traces of several threads apart"
)


def make(**changes):
    options = {"op": "rows_matmul", "version": 3, "space": {"rows": [2, 4, 8, 16]}} | changes

    @autotune_lowered.tunable(**options)
    def rows_matmul(x, w, *, causal=False, rows=4):
        made.traces.append(rows)
        return jax.lax.map(lambda part: part @ w, x.reshape(-1, rows, x.shape[1])).reshape(x.shape[0], -1)

    made = rows_matmul
    made.traces = []
    return made


def arrays():
    return jnp.arange(128.0).reshape(16, 8) / 128, jnp.arange(32.0).reshape(8, 4)


def rows_in(lowered):
    """The block sizes that a lowered `rows_matmul` of (16, 8) has, read from its text."""
    text = lowered.as_text()
    return [rows for rows in (2, 4, 8, 16) if f"tensor<{16 // rows}x{rows}x8xf32>" in text]


def labels_of(text):
    return [
        (label["op_id"], label["call_key"], label["evidence"])
        for label in json.loads(_native.scan(text.encode()))["labels"]
    ]


def key_by_hand(arrays, static):
    text = json.dumps({"arrays": arrays, "static": static}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# printf '{"arrays":{"w":"f32[8,4]","x":"f32[16,8]"},"static":{"causal":false}}' | sha256sum
KEY = "5de78bd3aae98e9d"


def test_the_label_is_exact_in_stablehlo_and_in_hlo():
    lowered = jax.jit(make()).lower(X, W)
    expected = [("rows_matmul@v3", KEY, "exact")]
    assert labels_of(debug_text(lowered)) == expected
    assert labels_of(lowered.compile().as_text()) == expected


def test_the_label_stands_under_grad_vmap_scan_and_checkpoint():
    function = make()
    x, w = arrays()
    lowered = jax.jit(jax.grad(lambda x, w: (function(x, w) ** 2).sum())).lower(x, w)
    (label,) = json.loads(_native.scan(debug_text(lowered).encode()))["labels"]
    assert (label["call_key"], label["backward"]) == (KEY, True)
    batched = jax.jit(jax.vmap(function, in_axes=(0, None))).lower(jnp.stack([x, x, x]), w)
    ((op_id, key, evidence),) = labels_of(debug_text(batched))
    assert (op_id, key.partition("~3-")[0], evidence) == ("rows_matmul@v3", KEY, "exact")
    scanned = jax.jit(lambda x, w: jax.lax.scan(lambda c, _: (c, function(x, w)), 0, None, length=2)[1])
    assert labels_of(debug_text(scanned.lower(x, w))) == [("rows_matmul@v3", KEY, "exact")]
    assert jnp.allclose(scanned(x, w)[1], x @ w)
    again = jax.jit(jax.grad(lambda x, w: jax.checkpoint(function)(x, w).sum())).lower(x, w)
    assert labels_of(debug_text(again)) == [("rows_matmul@v3", KEY, "exact")]


def test_results_are_those_of_the_function():
    x, w = arrays()
    function = make()
    assert jnp.allclose(function(x, w), x @ w)
    assert jnp.allclose(function(w=w, x=x), x @ w)
    gradient = jax.grad(lambda x: function(x, w).sum())(x)
    assert jnp.allclose(gradient, jnp.broadcast_to(w.sum(1), x.shape))


def test_how_a_call_is_written_does_not_change_its_key():
    key = make().tunable.call_key
    x, w = arrays()
    assert key(X, W) == key(w=W, x=X) == key(X, W, causal=False) == key(x, w) == KEY
    assert key(X, W, causal=True) == key_by_hand({"x": "f32[16,8]", "w": "f32[8,4]"}, {"causal": True})
    half = jax.ShapeDtypeStruct(X.shape, jnp.bfloat16)
    assert key(half, W) == key_by_hand({"x": "bf16[16,8]", "w": "f32[8,4]"}, {"causal": False})


def test_pytrees_are_named_by_place():
    @autotune_lowered.tunable(
        op="tree", version=1, space={"n": [1, 2]}, fills={"x": {"kind": "constant", "value": 1.0}}
    )
    def tree(x, *rest, mask=None, n=1, **more):
        return x["a"] * n + rest[0]

    one = jax.ShapeDtypeStruct((3,), jnp.int32)
    call = tree.tunable.call({"a": one, "b": (one, 7)}, one, other=[one])
    assert list(call.arrays) == ["x['a']", "x['b'][0]", "rest[0]", "more['other'][0]"]
    assert call.static == {"x['b'][1]": 7, "mask": None}
    assert list(tree.tunable.fills_of(call.arrays)) == ["x['a']", "x['b'][0]"]
    assert tree({"a": jnp.ones(2), "b": (jnp.ones(1), 7)}, jnp.ones(2)).tolist() == [2.0, 2.0]


SCRIPT = """
import functools, jax, sys
import jax.numpy as jnp
import autotune_lowered

def scale(x): return x * 2

@autotune_lowered.tunable(op="f", version=1, space={"n": [1, 2]}, static_argnames=["options"])
def f(x, act, options, *, n=1): return act(x) * n

bias = 3
def make(bias): return lambda x: x + bias
spec = jax.ShapeDtypeStruct((2,), jnp.float32)
key = f.tunable.call_key
for act in (scale, jax.nn.relu, make(1), make(2), functools.partial(scale), jnp.tanh):
    print(key(spec, act, {"b": {3, 1, 2}, "a": (jnp.float32, 1.0, float("inf"))}))
"""


def test_keys_are_the_same_in_every_process_and_folder(tmp_path):
    seen = []
    for folder, seed in (("one", "1"), ("two", "2")):
        (tmp_path / folder).mkdir()
        script = tmp_path / folder / "model.py"
        script.write_text(SCRIPT)
        environment = os.environ | {"PYTHONHASHSEED": seed}
        seen.append(
            subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True).stdout
        )
    path = f"{tmp_path}/one:{os.environ.get('PYTHONPATH', '')}"
    imported = subprocess.run(
        [sys.executable, "-c", "import model"], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert seen[0] == seen[1] == imported
    assert len(set(seen[0].split())) == 6, "each callable has its own key"


def test_a_function_jitted_outside_is_traced_again_inside_an_overlay_and_back():
    function = make()
    jitted = jax.jit(lambda x, w: function(x, w) + 1)
    x, w = arrays()
    expected = x @ w + 1
    assert jnp.allclose(jitted(x, w), expected) and rows_in(jitted.lower(x, w)) == [4]
    with autotune_lowered.overlay({("rows_matmul@v3", KEY): {"rows": 8}}):
        assert jnp.allclose(jitted(x, w), expected) and rows_in(jitted.lower(x, w)) == [8]
        with autotune_lowered.overlay({("rows_matmul@v3", KEY): {"rows": 2}}):
            assert jnp.allclose(jitted(x, w), expected) and rows_in(jitted.lower(x, w)) == [2]
        with autotune_lowered.overlay({("another@v1", KEY): {"rows": 2}}):
            assert rows_in(jitted.lower(x, w)) == [8], "an inner overlay that says nothing lets the outer one through"
        assert rows_in(jitted.lower(x, w)) == [8]
    assert jnp.allclose(jitted(x, w), expected) and rows_in(jitted.lower(x, w)) == [4]


def test_nothing_is_chosen_once_jitted():
    function = make()
    jitted = jax.jit(function)
    x, w = arrays()
    for _ in range(3):
        jitted(x, w)
    assert len(set(function.traces)) == 1 and len(function.traces) == 1


@keyed_traces
def test_a_state_that_returns_finds_its_traces():
    function = make()
    jitted = jax.jit(function)
    x, w = arrays()
    for _ in range(3):
        jitted(x, w)
        with autotune_lowered.overlay({("rows_matmul@v3", KEY): {"rows": 8}}):
            jitted(x, w)
    assert function.traces == [4, 8]


def test_the_trace_of_a_scan_follows_too():
    function = make()
    jitted = jax.jit(lambda x, w: jax.lax.scan(lambda c, _: (c, function(x, w)), 0, None, length=2)[1])
    x, w = arrays()
    jitted(x, w)
    with autotune_lowered.overlay({("rows_matmul@v3", KEY): {"rows": 8}}):
        assert rows_in(jitted.lower(x, w)) == [8]
    assert rows_in(jitted.lower(x, w)) == [4]


@pytest.fixture(autouse=True)
def nothing_cached():
    """Each test begins with nothing in force, without this machine's cache."""
    in_force.set_lookup(None)


@pytest.fixture
def lookup():
    yield in_force.set_lookup
    in_force.set_lookup(None)


def test_a_call_is_named_by_a_pair():
    for key in (f"rows_matmul@v3:{KEY}", ("rows_matmul@v3",), ("rows_matmul@v3", 7)):
        with pytest.raises(TypeError, match="names no call"), autotune_lowered.overlay({key: {"rows": 8}}):
            pass


def test_a_look_up_below_the_overlays(lookup):
    function = make()
    jitted = jax.jit(function)
    x, w = arrays()
    assert (rows_in(jitted.lower(x, w)), in_force.generation()) == ([4], 0)
    lookup(lambda op_id, key: {"rows": 16} if (op_id, key) == ("rows_matmul@v3", KEY) else None, version="one")
    first = in_force.generation()
    assert rows_in(jitted.lower(x, w)) == [16] and first != 0
    with autotune_lowered.overlay({("rows_matmul@v3", KEY): {"rows": 2}}):
        assert rows_in(jitted.lower(x, w)) == [2]
        lookup(lambda op_id, key: {"rows": 8}, version="two")
        assert rows_in(jitted.lower(x, w)) == [2]
    assert rows_in(jitted.lower(x, w)) == [8] and in_force.generation() != first
    lookup(None)
    assert (rows_in(jitted.lower(x, w)), in_force.generation()) == ([4], 0)


def test_a_look_up_counts_for_other_threads(lookup):
    jitted = jax.jit(make())
    x, w = arrays()
    jitted(x, w)
    lookup(lambda op_id, key: {"rows": 16})
    found = []
    thread = threading.Thread(target=lambda: found.append(rows_in(jitted.lower(x, w))))
    thread.start()
    thread.join()
    assert found == [[16]]


def test_what_best_config_gives_is_the_callers_own():
    with autotune_lowered.overlay({("a@v1", "k"): {"n": 1}}):
        best_config("a@v1", "k")["n"] = 2
        assert best_config("a@v1", "k") == {"n": 1}
        assert best_config("a@v1", "other") is None
    assert best_config("a@v1", "k") is None


def test_equal_states_have_equal_generations():
    def inside(*configs):
        if not configs:
            return in_force.generation()
        with autotune_lowered.overlay(configs[0]):
            return inside(*configs[1:])

    one, two = {("a@v1", "k"): {"n": 1}}, {("a@v1", "k"): {"n": 2}}
    assert inside() == 0
    assert inside(one) == inside(dict(one)) != inside(two)
    assert len({inside(one), inside(two), inside(one, two), inside(two, one)}) == 4


@keyed_traces
def test_threads_have_overlays_of_their_own():
    function = make()
    jitted = jax.jit(function)
    x, w = arrays()
    jitted(x, w)
    barrier, found = threading.Barrier(3, timeout=60), {}

    def work(rows):
        with autotune_lowered.overlay({("rows_matmul@v3", KEY): {"rows": rows}}):
            barrier.wait()
            found[rows] = rows_in(jitted.lower(x, w))
            barrier.wait()

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (2, 8)]
    for thread in threads:
        thread.start()
    barrier.wait()
    found[4] = rows_in(jitted.lower(x, w))
    barrier.wait()
    for thread in threads:
        thread.join()
    assert found == {2: [2], 4: [4], 8: [8]}


@pytest.mark.skipif(hasattr(jax, "make_user_context"), reason="this JAX keeps the traces of threads apart")
def test_an_old_jax_refuses_overlays_of_two_threads(caplog):
    errors = []

    def work():
        try:
            with autotune_lowered.overlay({("a@v1", "k"): {}}):
                pass
        except RuntimeError as error:
            errors.append(str(error))

    with autotune_lowered.overlay({("b@v1", "k"): {}}):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1 and "another thread has an overlay open" in errors[0]


def test_an_overlay_carried_into_another_thread_is_an_error():
    function = make()
    x, w = arrays()
    errors = []

    def work():
        try:
            jax.jit(function)(x, w)
        except RuntimeError as error:
            errors.append(str(error))

    with autotune_lowered.overlay({("rows_matmul@v3", KEY): {"rows": 8}}):
        inside = contextvars.copy_context()
        if hasattr(jax, "make_user_context"):
            thread = threading.Thread(target=inside.run, args=(work,))
        else:
            thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(errors) == 1 and "enter overlays in the thread that calls the function" in errors[0]


def test_an_overlay_across_an_await_is_an_error():
    seen = []

    async def holds():
        with autotune_lowered.overlay({("a@v1", "k"): {"n": 1}}):
            await asyncio.sleep(0)

    async def keeps_to_itself():
        with autotune_lowered.overlay({("a@v1", "k"): {"n": 1}}):
            seen.append(best_config("a@v1", "k"))
        await asyncio.sleep(0)

    asyncio.run(keeps_to_itself())
    assert seen == [{"n": 1}]
    with pytest.raises(RuntimeError, match="held across an await"):
        asyncio.run(holds())
    assert in_force.generation() == 0 and not trace_key._of_this_thread()


def test_an_error_inside_an_overlay_leaves_nothing_behind():
    with pytest.raises(KeyError), autotune_lowered.overlay({("a@v1", "k"): {"n": 1}}):
        raise KeyError
    assert in_force.generation() == 0 and not trace_key._of_this_thread()


def test_a_callers_own_parameters_are_obeyed_without_a_label():
    lowered = jax.jit(lambda x, w: make()(x, w, rows=16)).lower(X, W)
    assert rows_in(lowered) == [16]
    assert labels_of(debug_text(lowered)) == []


def test_a_config_that_does_not_fit_is_not_used(caplog):
    function = make()
    for config in ({"rows": "8"}, {"columns": 8}, {"rows": True}):
        with autotune_lowered.overlay({("rows_matmul@v3", KEY): config}):
            assert rows_in(jax.jit(function).lower(X, W)) == [4]
            jax.jit(function).lower(X, W)
    assert [record.message for record in caplog.records if "does not take" in record.message] == [
        f"the config in force for rows_matmul@v3:{KEY} has `{name}` = {value}, which `rows_matmul` does not take; "
        "the default is used: tune this version again"
        for name, value in (("rows", "'8'"), ("columns", "8"), ("rows", "True"))
    ]


def test_a_static_argument_without_a_spelling_runs_and_is_said_once(caplog):
    function = make()
    x, w = arrays()
    for _ in range(2):
        assert jnp.allclose(function(x, w, causal=object()), x @ w)
    said = "argument `causal` of `rows_matmul`: `object` has no spelling that is the same in every process"
    assert [record.message for record in caplog.records] == [
        f"{said}; say what identifies it, as in `static_key={{'causal': lambda causal: …}}`; "
        "such calls run with the default and are not tuned"
    ]


def test_a_static_argument_that_holds_itself_runs(caplog):
    endless = []
    endless.append(endless)
    x, w = arrays()
    function = make(static_argnames="causal")
    assert jnp.allclose(function(x, w, causal=endless), x @ w)
    assert "holds itself" in caplog.text


def test_configs_begin_with_the_default_and_obey_constraints():
    made = make(
        space={"rows": [2, 4, 8, 64]},
        candidates=[{"rows": 8}, {"rows": 1}],
        constraints=[lambda config: config["rows"] > 1, lambda config, arrays: arrays["x"].shape[0] >= config["rows"]],
    )
    assert made.tunable.space.configs({"x": X}) == [{"rows": 4}, {"rows": 8}, {"rows": 2}]


def test_lists_of_a_config_reach_the_function_as_tuples():
    shapes = []

    @autotune_lowered.tunable(op="f", version=1, candidates=[{"block": (8, 4)}])
    def f(x, *, block=(1, 1)):
        shapes.append(block)
        return x

    x = jnp.ones(2)
    with autotune_lowered.overlay({("f@v1", f.tunable.call_key(x)): {"block": [8, 4]}}):
        f(x)
    assert shapes == [(8, 4)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": "a@b"}, "no name of an operation"),
        ({"op": "a.v2"}, "no name of an operation"),
        ({"version": "1"}, "whole number"),
        ({"space": {}}, "nothing to tune"),
        ({"space": {"x": [1]}}, "must have it after `\\*`"),
        ({"space": {"nothing": [1]}}, "must have it after `\\*`"),
        ({"space": {"rows": []}}, "no values"),
        ({"space": {"rows": [object()]}}, "give numbers"),
        ({"space": {"rows": [float("nan")]}}, "JSON cannot hold"),
        ({"space": {"rows": range(300_000)}}, "more than 262144"),
        ({"constraints": ["rows > 1"]}, "not callable"),
        ({"static_argnames": ["cause"]}, "no parameter `cause`"),
    ],
)
def test_a_declaration_that_cannot_be_tuned_is_refused(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make(**changes)


def test_too_many_configs_and_broken_constraints_are_said():
    with pytest.raises(ValueError, match="more than 4096 configs"):
        make(space={"rows": range(1, 5000)}).tunable.space.configs({})
    with pytest.raises(ValueError, match=r'failed on \{"rows":2\}'):
        make(constraints=[lambda config: config["row"]]).tunable.space.configs({})


@pytest.fixture
def recorded(monkeypatch):
    """A stand-in for the recorder that keeps the calls."""
    calls = []
    recorder = types.SimpleNamespace(
        wants=lambda op_id, key: all(key != call["call_key"] for call in calls),
        watch=lambda *_: None,
        listen=lambda op_id, key, arrays: arrays,
        record=lambda call: calls.append(vars(call)),
    )
    monkeypatch.setattr(recorder_room, "_STACK", [recorder])
    return calls


def test_a_call_is_recorded_once_and_holds_no_tracer(recorded):
    function = make(fills={"w": {"kind": "normal", "scale": 0.5}})
    x, w = arrays()
    jitted = jax.jit(lambda x, w: function(x, w) + function(x, w))
    with jax.checking_leaks():
        jitted(x, w)
    (call,) = recorded
    assert (call["op_id"], call["call_key"], call["static"]) == ("rows_matmul@v3", KEY, {"causal": False})
    assert call["arrays"] == {"x": X, "w": W} and call["values"] == {}
    assert call["baseline"] == {"rows": 4}
    assert call["configs"]("cpu") == [{"rows": 4}, {"rows": 2}, {"rows": 8}, {"rows": 16}]
    assert call["fills"] == {"w": {"kind": "normal", "scale": 0.5}}
    lowered = jax.jit(call["build"]({"rows": 16})).lower(X, W)
    assert rows_in(lowered) == [16] and labels_of(debug_text(lowered)) == []
    assert jnp.allclose(call["build"]({"rows": 2})(x, w), x @ w)
    assert len(recorded) == 1


def test_an_eager_call_hands_over_its_values(recorded):
    x, w = arrays()
    make()(x, w)
    assert recorded[0]["values"]["x"] is x


def test_tunables_inside_a_candidate_are_not_recorded(recorded):
    inner = make(op="inner")

    @autotune_lowered.tunable(op="outer", version=1, space={"n": [1, 2]})
    def outer(x, w, *, n=1):
        return inner(x, w) * n

    x, w = arrays()
    outer(x, w)
    assert [call["op_id"] for call in recorded] == ["outer@v1", "inner@v3"]
    recorded[1]["call_key"] = "forgotten"
    recorded[0]["build"]({"n": 2})(x, w)
    assert len(recorded) == 2


def test_keys_hold_the_shapes_of_one_device_under_shard_map(tmp_path):
    script = """
import jax, json, numpy as np, jax.numpy as jnp, sys
import autotune_lowered
from jax.sharding import Mesh, PartitionSpec as P
shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map
seen = []

@autotune_lowered.tunable(op="f", version=1, space={"n": [1, 2]})
def f(x, *, n=1):
    return x * n

mesh = Mesh(np.array(jax.devices()), ("d",))
sharded = jax.jit(shard_map(f, mesh=mesh, in_specs=(P("d"),), out_specs=P("d")))
lowered = sharded.lower(jax.ShapeDtypeStruct((8, 3), jnp.float32))
autotune_lowered.dump(lowered, sys.argv[1])
print(f.tunable.call_key(jax.ShapeDtypeStruct((4, 3), jnp.float32)))
"""
    module = tmp_path / "module.mlir"
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    command = [sys.executable, "-c", script, module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (label,) = json.loads(module.with_name("module.mlir.labels.json").read_text())["labels"]
    assert label["call_key"] == done.stdout.strip() == key_by_hand({"x": "f32[4,3]"}, {})


class Layer:
    def __init__(self, heads):
        self.heads, self.weight = heads, jnp.full((4,), 2.0)

    @autotune_lowered.tunable(op="scaled", version=1, space={"n": [1, 2]}, static_key={"self": lambda self: self.heads})
    def scaled(self, x, *, n=1):
        return jax.lax.map(lambda part: part * self.weight * self.heads, x.reshape(-1, n, 4)).reshape(x.shape)

    @autotune_lowered.tunable(op="nameless", version=1, space={"n": [1, 2]})
    def nameless(self, x, *, n=1):
        return x * self.heads

    @autotune_lowered.tunable(op="broken", version=1, space={"n": [1, 2]}, static_key={"self": lambda self: self.gone})
    def broken(self, x, *, n=1):
        return x


def report_of(folder, function, *arguments):
    with autotune_lowered.recording(folder, directions=("forward",)) as recorded:
        jax.jit(function).lower(*arguments)
    return recorded.report()


def test_a_method_is_known_by_what_its_key_says(tmp_path):
    x = jnp.arange(8.0).reshape(2, 4)
    key = Layer.scaled.tunable.call_key
    assert key(Layer(3), x) == key(Layer(3), x) == key_by_hand({"x": "f32[2,4]"}, {"self": 3}) != key(Layer(4), x)
    assert jnp.allclose(Layer(3).scaled(x), x * 6)
    (entry,) = report_of(tmp_path, Layer(3).scaled, x)
    assert (entry["call_key"], entry["programs"]) == (key(Layer(3), x), 2)


def test_what_a_method_lacks_is_said_in_the_decorators_terms(tmp_path, caplog):
    x = jnp.ones((2, 4))
    (entry,) = report_of(tmp_path / "nameless", Layer(3).nameless, x)
    assert "argument `self` of `nameless`" in entry["not_recorded"]
    assert "static_key={'self': lambda self: …}" in entry["not_recorded"]
    (entry,) = report_of(tmp_path / "broken", Layer(3).broken, x)
    assert "`static_key` of argument `self` of `broken` raised AttributeError" in entry["not_recorded"]

    def with_traced_weight(x, weight):
        layer = Layer(3)
        layer.weight = weight
        return layer.scaled(x)

    (entry,) = report_of(tmp_path / "traced", with_traced_weight, x, jnp.ones(4))
    assert "argument `self` of `scaled` holds or closes over traced values" in entry["not_recorded"]
    assert sum("scaled" in record.message for record in caplog.records) == 1


def test_traced_values_that_are_closed_over_are_said(tmp_path):
    @autotune_lowered.tunable(op="applied", version=1, space={"n": [1, 2]})
    def applied(x, function, *, n=1):
        return function(x) * n

    x = jnp.ones((2, 4))
    (entry,) = report_of(tmp_path / "argument", lambda x, y: applied(x, lambda z: z + y), x, x)
    assert "argument `function` of `applied` holds or closes over traced values" in entry["not_recorded"]

    def step(x, y):
        @autotune_lowered.tunable(op="inner", version=1, space={"n": [1, 2]})
        def inner(x, *, n=1):
            return x @ y.T * n

        return inner(x)

    (entry,) = report_of(tmp_path / "function", step, x, x)
    assert "`inner` closes over traced values: pass them as arguments" in entry["not_recorded"]


def test_meshes_and_partitions_are_spelled_by_their_axes():
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh([[jax.devices()[0]]], ("rows", "columns"))
    spec = PartitionSpec("rows", None)
    spelled = {"mesh": [["rows", 1], ["columns", 1]]}
    partition = {"partition": ["rows", None]}
    assert describe(mesh) == spelled and describe(spec) == partition
    assert describe(NamedSharding(mesh, spec)) == {"sharding": [spelled, partition]}


@pytest.mark.parametrize(
    ("fills", "kind", "message"),
    [
        ({"x": {"kind": "gaussian", "scale": 1.0}}, ValueError, "no kind 'gaussian': take one of normal, uniform"),
        ({"x": {"kind": "normal"}}, ValueError, "the kind `normal` has `scale`, not none"),
        ({"x": {"kind": "uniform", "low": 0, "hi": 1}}, ValueError, "has `high`, `low`, not `hi`, `low`"),
        ({"x": {"kind": "normal", "scale": "1"}}, ValueError, "`scale` of the kind `normal` is '1'"),
        ({"x": 1.0}, ValueError, "1.0 is no fill: give a `kind`"),
        ({"z[0]": {"kind": "permutation"}}, TypeError, "has no parameter `z`"),
    ],
)
def test_a_wrong_fill_is_refused_where_it_is_declared(fills, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make(fills=fills)


def test_a_tolerance_is_recorded_with_the_call(tmp_path):
    record_support = pytest.importorskip("record_support")
    for tolerance in (None, 0.02):
        folder = tmp_path / str(tolerance)
        with autotune_lowered.recording(folder, directions=("forward",)):
            make(tolerance=tolerance)(*arrays())
        record = record_support.record_of(folder, "rows_matmul@v3", "forward")
        assert record.get("tolerance") == tolerance
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="give a number from 0 to 1"):
            make(tolerance=wrong)


@autotune_lowered.tunable(op="dropped", version=1, space={"n": [1, 2]})
def dropped(x, keys, *, n=1):
    """Rows that are kept or dropped, `n` at a time."""
    kept = jax.vmap(lambda key: jax.random.bernoulli(key))(keys)
    parts = x.reshape(-1, n, x.shape[1]), kept.reshape(-1, n, 1)
    return jax.lax.map(lambda part: jnp.where(part[1], part[0], 0), parts).reshape(x.shape)


@pytest.mark.parametrize(("implementation", "words"), [("threefry2x32", 2), ("rbg", 4)])
def test_random_keys_are_recorded_as_their_integers(tmp_path, implementation, words):
    record_support = pytest.importorskip("record_support")
    keys, x = jax.random.split(jax.random.key(7, impl=implementation), 4), jnp.ones((4, 8))
    with autotune_lowered.recording(tmp_path / "eager", directions=("forward",)):
        dropped(x, keys)
    record = record_support.record_of(tmp_path / "eager", "dropped@v1", "forward")
    assert record["arguments"][1]["spec"] == f"u32[4,{words}]"
    held = record_support.array_bytes(tmp_path / "eager", record["arguments"][1]["fill"])
    assert held == bytes(jax.random.key_data(keys))
    (entry,) = report_of(tmp_path / "traced", dropped, x, keys)
    assert entry["programs"] == 2 and entry["values_unknown"] == {}
    fill = record_support.record_of(tmp_path / "traced", "dropped@v1", "forward")["arguments"][1]["fill"]
    assert fill == {"kind": "integer-range", "low": 0, "high": 2**32 - 1}


@pytest.mark.parametrize("hide", [lambda f: f, jax.jit])
def test_mapped_random_keys_are_whole(tmp_path, hide):
    record_support = pytest.importorskip("record_support")
    keys, x = jax.random.split(jax.random.key(7), (4, 3)), jnp.ones((4, 8))
    if hide is jax.jit and jax.__version_info__ < (0, 7):
        pytest.skip("this JAX does not tell of a body that is mapped")
    mapped = jax.vmap(hide(dropped), in_axes=(None, 1))
    (entry,) = report_of(tmp_path / "traced", mapped, x, keys)
    assert (entry["programs"], entry["batch"]) == (2, [{"size": 3, "axes": {"keys": 1}}])
    assert (
        record_support.record_of(tmp_path / "traced", "dropped@v1", "forward")["arguments"][1]["spec"] == "u32[4,3,2]"
    )
    if hide is not jax.jit:
        with autotune_lowered.recording(tmp_path / "eager", directions=("forward",)):
            mapped(x, keys)
        fill = record_support.record_of(tmp_path / "eager", "dropped@v1", "forward")["arguments"][1]["fill"]
        assert record_support.array_bytes(tmp_path / "eager", fill) == bytes(jax.random.key_data(keys))


def test_the_axis_of_a_hidden_vmap_is_said_to_be_none_of_a_mesh(tmp_path):
    @autotune_lowered.tunable(op="centred", version=1, space={"n": [1, 2]})
    def centred(x, *, n=1):
        return x - jax.lax.pmean(x, "rows")

    (entry,) = report_of(tmp_path, jax.vmap(jax.jit(centred), axis_name="rows"), jnp.ones((4, 8)))
    assert "it talks over the axis `rows`" in entry["not_recorded"]


MESHED = """
import jax, json, numpy as np, jax.numpy as jnp, sys, pathlib
import autotune_lowered
from jax.sharding import Mesh, PartitionSpec as P
folder = pathlib.Path(sys.argv[1])

def rounds(x, n):
    # one of them does the same work hundreds of times over
    part = lambda part: jax.lax.fori_loop(0, 512 // n, lambda _, y: jnp.sort(y, axis=-1), part)
    return jax.lax.map(part, x.reshape(-1, n, x.shape[1])).reshape(x.shape)

@autotune_lowered.tunable(op="summed", version=1, space={"n": [2, 16]})
def summed(x, *, n=2):
    return jax.lax.psum(rounds(x, n), "rows") + jax.lax.axis_index("columns")

@autotune_lowered.tunable(op="meshed", version=1, space={"n": [2, 16]})
def meshed(x, mesh, *, n=2):
    inner = lambda x: jax.lax.psum(rounds(x, n), "rows")
    return jax.shard_map(inner, mesh=mesh, in_specs=P("rows"), out_specs=P(), check_vma=False)(x)

@autotune_lowered.tunable(op="batched", version=1, space={"n": [2, 16]})
def batched(x, order, *, n=2):
    return jax.lax.psum(rounds(x, n)[order], "rows")

mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("rows", "columns"))
order = jnp.arange(16, dtype=jnp.int32)[::-1]
mapped = jax.vmap(lambda x: batched(x, order), in_axes=1)
many = jax.shard_map(mapped, mesh=mesh, in_specs=P("rows", None, "columns"), out_specs=P(None, None, "columns"))
sharded = jax.shard_map(summed, mesh=mesh, in_specs=P("rows", "columns"), out_specs=P(None, "columns"))
step = lambda x: sharded(x).sum() + meshed(x, mesh).sum() + many(jnp.stack([x, x, x], axis=1)).sum()
with autotune_lowered.recording(folder / "registry", directions=("forward",)) as recorded:
    lowered = jax.jit(step).lower(jnp.ones((32, 16)))
autotune_lowered.dump(lowered, folder / "module.mlir")
print(json.dumps(recorded.report()))
"""


def test_collectives_are_recorded_and_tuned_on_the_whole_mesh(program, tmp_path):
    record_support = pytest.importorskip("record_support")
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}

    def run(*command, expected=0):
        done = subprocess.run(
            [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == expected, done.stderr
        return json.loads(done.stdout)

    report = run(sys.executable, "-c", MESHED, tmp_path)
    assert {entry["op_id"]: entry["programs"] for entry in report} == {
        "summed@v1": 2,
        "meshed@v1": 2,
        "batched@v1": 2,
    }
    recorded = {record["op_id"]: record for record in record_support.records(tmp_path / "registry")}
    specs = {op_id: record["arguments"][0]["spec"] for op_id, record in recorded.items()}
    # a part of f32[16,8] for each of four devices; the whole array, which the function itself splits; three such parts
    # each
    assert specs == {"summed@v1": "f32[4,16,8]", "meshed@v1": "f32[32,16]", "batched@v1": "f32[4,16,3,8]"}
    assert recorded["batched@v1"]["batch"] == [{"size": 3, "axes": {"x": 1}}]
    # known, and equal on each device
    order = recorded["batched@v1"]["arguments"][1]
    held = jnp.array(memoryview(record_support.array_bytes(tmp_path / "registry", order["fill"])).cast("i"))
    assert order["spec"] == "s32[4,16]" and (held.reshape(4, 16) == jnp.arange(16)[::-1]).all()
    options = ["--registry", tmp_path / "registry", "--cache", tmp_path / "cache", "--format", "json"]
    command = [record_support.program(), tmp_path / "module.mlir", *options, "--timer", f"jax:{sys.executable}"]
    result = run(*command)
    best = {one["op_id"]: (one["status"], one["best"]["config"]) for one in result["operations"]}
    assert best == dict.fromkeys(("summed@v1", "meshed@v1", "batched@v1"), ("tuned", {"n": 16}))


def test_the_package_loads_without_jax():
    script = """
import sys
sys.modules["jax"] = None
import autotune_lowered
assert not [name for name in sys.modules if name.split(".")[0] in ("jaxlib", "numpy", "ejkernel")]
assert "tunable" in dir(autotune_lowered)

@autotune_lowered.tunable(op="f", version=1, space={"n": [1, 2]})
def f(x, *, n=1):
    return x

with autotune_lowered.overlay({("f@v1", "k"): {"n": 2}}):
    pass
def profile():
    with autotune_lowered.profiling.profile_context("x"):
        pass

for call in (lambda: f(1), lambda: autotune_lowered.dump(1, "x"), profile):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{feature} JAX: pip install 'autotune-lowered[jax]'"
        for feature in ("tunable functions need", "dump needs", "profiling needs")
    ]


@pytest.fixture
def program(monkeypatch):
    if not hasattr(jax, "make_user_context"):
        pytest.skip("this JAX does not trace again for a recording what it has traced before")
    beside = pathlib.Path(sys.executable).with_name("autotune-lowered")
    if "AUTOTUNE_LOWERED_EXE" not in os.environ and not beside.exists() and shutil.which("autotune-lowered") is None:
        pytest.skip("the program is not here: set AUTOTUNE_LOWERED_EXE")
    monkeypatch.syspath_prepend(EXAMPLES)


def test_what_is_recorded_under_jit_is_tuned_and_runs_tuned(program, tmp_path):
    import tuning

    @autotune_lowered.tunable(op="uneven", version=1, space={"rows": [2, 16]})
    def uneven(x, *, rows=2):
        # one of them repeats the same work hundreds of times, so that the winner is certain
        def sort(part):
            return jax.lax.fori_loop(0, 512 // rows, lambda _, y: jnp.sort(y, axis=-1), part)

        return jax.lax.map(sort, x.reshape(-1, rows, x.shape[1])).reshape(x.shape)

    def step(x):
        return uneven(x) * 2

    x = jnp.ones((16, 8))
    jitted = jax.jit(step)
    jitted(x)
    best = tuning.best_configs(step, (x,), tmp_path)
    assert best == {("uneven@v1", uneven.tunable.call_key(x)): {"rows": 16}}
    assert rows_in(jitted.lower(x)) == [2]
    with autotune_lowered.overlay(best):
        assert rows_in(jitted.lower(x)) == [16]
    assert rows_in(jitted.lower(x)) == [2]


@pytest.mark.parametrize(
    ("example", "said"), [("blocked_matmul", "largest difference: 0.0"), ("pallas_add", "equal: True")]
)
def test_the_examples_run(program, example, said):
    command = [sys.executable, EXAMPLES / f"{example}.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == said, done.stdout
    assert " -> " in done.stdout


def test_a_declaration_without_a_name_says_what_to_write():
    for wrong in (lambda: autotune_lowered.tunable(lambda x: x), autotune_lowered.tunable):
        with pytest.raises(TypeError, match="needs a name and a version: `@autotune_lowered.tunable"):
            wrong()
