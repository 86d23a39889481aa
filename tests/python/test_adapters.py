"""Kernels of other projects, made tunable by adapters and left as they were."""

import functools
import importlib
import json
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapter_support import BF16, F16, JAX_CALLS, lowered, of_jax, records, spec, splash, without_cuda

import autotune_lowered
from autotune_lowered.adapters import batches, sets
from autotune_lowered.adapters.operation import Operation
from autotune_lowered.adapters.places import Named

pytestmark = pytest.mark.needs_jax("0.8", "the adapted kernels are written for it")

MODULE = '''
"""A kernel of somebody else's."""

import dataclasses

import jax
from jax.experimental import pallas as pl


@dataclasses.dataclass(frozen=True)
class Sizes:
    rows: int
    style: str = "plain"


def scaled(x, factor, *, sizes=None, block=8):
    rows = block if sizes is None else sizes.rows
    if x.shape[0] % rows:
        raise ValueError(f"{rows=} do not divide {x.shape[0]}")

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * factor

    whole = pl.BlockSpec((rows, x.shape[1]), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (x.shape[0] // rows,)
    return pl.pallas_call(kernel, out_shape=shape, grid=grid, in_specs=[whole], out_specs=whole, interpret=True)(x)
'''
MODULE += """

def steered(x, lens, *, block=8):
    return scaled(x, 2.0, block=block) * lens.sum()
"""
X = spec((256, 64), jnp.float32)


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    (tmp_path / "their_kernels.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("their_kernels")
    del sys.modules["their_kernels"]


def adapted(**more):
    given = {"parameters": ["block"], "space": {"block": (8, 32, 100)}} | more
    return autotune_lowered.adapt("their_kernels:scaled", **given)


@pytest.mark.parametrize("name", JAX_CALLS)
def test_kernels_of_jax_are_lowered_for_their_devices(name, tmp_path, monkeypatch):
    target, function, arrays, differing = JAX_CALLS[name]
    (parameter, values), op_id = next(iter(differing.items())), f"{name}@v1"
    operation = next(one for one in sets.operations("jax-pallas") if one.op == name)
    without_cuda(name, monkeypatch)
    # the baseline, with another value at one place
    with autotune_lowered.recording(
        tmp_path / "first", target=target, directions=("forward",), adapters="jax-pallas", candidates={op_id: []}
    ) as first:
        lowered(function, arrays, target)
    (report,) = first.report()
    assert report["op_id"] == op_id and not report.get("not_recorded"), report
    (record,) = records(tmp_path / "first")
    configs = [record["invocation"]["baseline"] | {parameter: value} for value in values]
    with autotune_lowered.recording(
        tmp_path / "both", target=target, directions=("forward",), adapters="jax-pallas", candidates={op_id: configs}
    ) as both:
        module = lowered(function, arrays, target)
    (report,) = both.report()
    # the baseline may be a third one
    assert report["programs"] in (2, 3) and report["exercised"] == [parameter] and not report["not_lowered"], report
    assert not report["values_unknown"], report
    assert f"#{name}.v1:{report['call_key']}" in module.as_text(debug_info=True)
    # nothing is left behind
    held = vars(importlib.import_module(operation.module))[operation.name]
    assert not type(held).__module__.startswith("autotune_lowered")


def test_both_directions_of_a_kernel_carry_the_label(tmp_path, run):
    arrays = (spec((1, 2, 512, 128), BF16),) * 3

    def step(q, k, v):
        return jax.grad(lambda *a: of_jax("tpu.flash_attention").flash_attention(*a).astype(jnp.float32).sum())(q, k, v)

    with autotune_lowered.recording(
        tmp_path / "registry",
        target="tpu:v6e",
        adapters=["jax-pallas"],
        candidates={"jax.tpu.flash_attention@v1": []},
    ) as recorded:
        module = lowered(step, arrays, "tpu:v6e")
    assert {one["direction"] for one in recorded.report()} == {"forward", "forward-vjp"}
    autotune_lowered.dump(module, str(tmp_path / "module.mlir"))
    found = json.loads(run("scan", tmp_path / "module.mlir", "--format", "json"))
    assert "jax.tpu.flash_attention" in json.dumps(found)
    kernels = [line for line in module.as_text().splitlines() if "@tpu_custom_call" in line]
    # forward, and dkv and dq, which the newest JAX computes in one kernel
    assert len(kernels) in (2, 3)
    if jax.__version_info__ >= (0, 10, 1):
        assert all("jax.tpu.flash_attention.v1:" in line for line in kernels)


def test_a_backward_rule_that_calls_the_function_by_its_name_records_nothing(tmp_path):
    arrays = (spec((2, 256, 2, 64), F16),) * 3
    mha = of_jax("gpu.attention")

    def step(*values):
        def loss(*a):
            return mha.mha(*a, segment_ids=None).astype(jnp.float32).sum()

        return jax.grad(loss, argnums=(0, 1, 2))(*values)

    with autotune_lowered.recording(
        tmp_path, target="cuda:h100_sxm", adapters="jax-pallas", candidates={"jax.gpu.mha@v1": []}
    ) as recorded:
        lowered(step, arrays, "cuda:h100_sxm")
    assert {(one["op_id"], one["direction"]) for one in recorded.report()} == {
        ("jax.gpu.mha@v1", "forward"),
        ("jax.gpu.mha@v1", "forward-vjp"),
    }
    assert len({one["call_key"] for one in recorded.report()}) == 1


def test_splash_attention_is_recorded_where_its_kernel_is_an_argument_of_a_shard_map(tmp_path):
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("heads", "rows"))

    def step(q, k, v, **options):
        kernel = splash("mha", heads=4, **options)
        specs = kernel.manual_sharding_spec(NamedSharding(mesh, PartitionSpec("heads", "rows")))
        parts = PartitionSpec("heads", None, None)

        def inner(kernel, q, k, v):
            return kernel(q, k, v)

        mapped = jax.shard_map(inner, mesh=mesh, in_specs=(specs, *(parts,) * 3), out_specs=parts, check_vma=False)
        return mapped(kernel, q, k, v)

    arrays = (spec((4, 1024, 128), BF16),) * 3
    with autotune_lowered.recording(
        tmp_path, target="tpu:v6e", adapters="jax-pallas", candidates={"jax.tpu.splash_mha@v1": []}
    ) as recorded:
        module = lowered(step, arrays, "tpu:v6e")
        lowered(functools.partial(step, head_shards=2), arrays, "tpu:v6e")
    *reports, split = recorded.report()
    assert [one["programs"] for one in reports] == [1, 1], reports
    assert "split over devices" in split["not_recorded"]
    assert f"jax.tpu.splash_mha.v1:{reports[0]['call_key']}" in module.as_text(debug_info=True)


def test_masks_have_the_same_name_in_every_process():
    from autotune_lowered.adapters.splash import Made, identity_of

    masks = of_jax("tpu.splash_attention.splash_attention_mask")
    shape = (256, 256)
    different = [
        masks.MultiHeadMask([masks.CausalMask(shape)] * 2),
        masks.MultiHeadMask([masks.CausalMask(shape, offset=1)] * 2),
        masks.MultiHeadMask([masks.LocalMask(shape, (64, 0), 0)] * 2),
        masks.MultiHeadMask([masks.LocalMask(shape, (32, 0), 0)] * 2),
        masks.MultiHeadMask([masks.CausalMask(shape) & masks.LocalMask(shape, (64, 0), 0)] * 2),
        masks.MultiHeadMask([masks.CausalMask(shape), masks.FullMask(shape)]),
        np.ones((2, *shape), bool),
        np.tril(np.ones((2, *shape), bool)),
    ]
    names = [json.dumps(identity_of(Made(print, object, mask, {"head_shards": 1}))) for mask in different]
    assert len(set(names)) == len(different) and not any(" at 0x" in name for name in names)
    again = masks.MultiHeadMask([masks.CausalMask(shape)] * 2)
    assert json.dumps(identity_of(Made(print, object, again, {"head_shards": 1}))) == names[0]
    with pytest.raises(TypeError, match="nothing identifies it"):
        identity_of(Made(print, object, jnp.ones((2, *shape)), {}))


def test_functions_are_put_back_also_after_an_error(theirs, tmp_path):
    original = theirs.scaled
    operation = Operation("their.scaled", "their_kernels:scaled", Named(("block",)), {"block": (8, 32)})
    with pytest.raises(ZeroDivisionError):
        with autotune_lowered.recording(tmp_path / "a", adapters=[operation]):
            with autotune_lowered.recording(tmp_path / "b", adapters=[operation]):
                assert theirs.scaled is not original
            assert theirs.scaled is not original, "the outer one still needs it"
            raise ZeroDivisionError
    assert theirs.scaled is original


def test_names_that_others_imported_are_replaced_and_put_back(theirs, tmp_path):
    namespace = sys.modules[__name__]
    namespace.borrowed = theirs.scaled
    try:
        with adapted():
            assert namespace.borrowed is theirs.scaled and type(theirs.scaled).__name__ == "Hook"
            assert theirs.scaled.__name__ == "scaled"
        assert type(namespace.borrowed).__name__ == "function"
    finally:
        del namespace.borrowed


def test_a_refused_config_costs_itself_alone(theirs, tmp_path):
    with adapted(), autotune_lowered.recording(tmp_path, platforms=("cpu",), directions=("forward",)) as recorded:
        jax.jit(lambda x: theirs.scaled(x, 2.0)).lower(X)
    (report,) = recorded.report()
    assert report["programs"] == 2 and report["not_lowered"] == {"ValueError: rows=100 do not divide 256": 1}


def test_a_projects_own_rule_refuses_before_anything_is_lowered(theirs, tmp_path):
    lowered_with = []

    def refuse(call, config):
        assert call["x"].shape == (256, 64) and call["factor"] == 2.0
        lowered_with.append(config["block"])
        return "no more than 32" if config["block"] > 32 else None

    with adapted(refuse=refuse), autotune_lowered.recording(tmp_path, platforms=("cpu",)) as recorded:
        jax.jit(lambda x: theirs.scaled(x, 2.0)).lower(X)
    assert recorded.report()[0]["not_lowered"] == {"no more than 32": 1} and 100 in lowered_with


def test_fields_of_an_object_are_tuned_and_the_others_stay(theirs, tmp_path):
    with (
        adapted(parameters={"sizes": ("rows",)}, space={"rows": (16, 64)}),
        autotune_lowered.recording(tmp_path, platforms=("cpu",), directions=("forward",)) as recorded,
    ):
        jax.jit(lambda x: theirs.scaled(x, 2.0, sizes=theirs.Sizes(8, "bold"))).lower(X)
        jax.jit(lambda x: theirs.scaled(x, 2.0)).lower(X)
    reports = recorded.report()
    assert [one.get("programs") for one in reports] == [3, None]
    assert "what the project would choose is not known" in reports[1]["not_recorded"]


def test_tuned_and_obeyed_by_the_unmodified_caller(theirs, tmp_path, run):
    with (
        adapted(space={"block": (8, 256)}),
        autotune_lowered.recording(tmp_path / "registry", platforms=("cpu",), directions=("forward",)),
    ):
        module = jax.jit(lambda x: theirs.scaled(x, 2.0)).lower(X)
    autotune_lowered.dump(module, str(tmp_path / "module.mlir"))
    words = ["--registry", tmp_path / "registry", "--cache", tmp_path / "cache", "--format", "json"]
    tuned = json.loads(run(tmp_path / "module.mlir", *words, "--timer", f"jax:{sys.executable}"))
    (operation,) = tuned["operations"]
    assert operation["op_id"] == "their_kernels.scaled@v1"
    assert {one["config"]["block"] for one in operation["candidates"]} == {8, 256}
    # a known winner, by hand: what was measured depends on the machine
    key = operation["call_key"]

    def grid(x):
        return str(jax.make_jaxpr(lambda x: theirs.scaled(x, 2.0))(x))

    x = np.ones((256, 64), np.float32)
    with adapted(), autotune_lowered.overlay({("their_kernels.scaled@v1", key): {"block": 256}}):
        assert "grid=(1,)" in grid(x)
    assert "grid=(32,)" in grid(x)
    for other in ({"rows": 256}, {"block": "256"}, {"block": [256]}, {"block": 256, "rows": 1}):
        with adapted(), autotune_lowered.overlay({("their_kernels.scaled@v1", key): other}):
            assert "grid=(32,)" in grid(x), "a config of another version is not used"


STEERING = {
    name: lambda call, value=value: {"lens": np.full(4, value, np.int32)} for name, value in (("short", 1), ("long", 9))
}


def test_a_call_is_measured_with_both_of_its_distributions(theirs, tmp_path, run):
    lens = spec((4,), jnp.int32)
    given = {"parameters": ["block"], "space": {"block": (8, 256)}, "steering": STEERING}
    with (
        autotune_lowered.adapt("their_kernels:steered", **given),
        autotune_lowered.recording(tmp_path / "registry", platforms=("cpu",), directions=("forward",)),
    ):
        module = jax.jit(lambda x, lens: theirs.steered(x, lens)).lower(X, lens)
        # a call whose own values are known gets them first, and both distributions besides
        theirs.steered(jnp.ones((128, 64)), jnp.arange(4, dtype=jnp.int32))
    calls = {one["invocation"]["distribution"]: one["invocation"] for one in records(tmp_path / "registry")}
    traced, eager = calls["short"], calls["as called"]
    named = {"short": 1, "long": 9}
    assert [one["name"] for one in traced["other_distributions"]] == ["long"]
    assert [one["name"] for one in eager["other_distributions"]] == [*named]
    for other in (*traced["other_distributions"], *eager["other_distributions"]):
        held = np.frombuffer((tmp_path / "registry" / other["fills"]["lens"]["path"]).read_bytes(), np.int32)
        assert held.tolist() == [named[other["name"]]] * 4
    autotune_lowered.dump(module, str(tmp_path / "module.mlir"))
    words = ["--registry", tmp_path / "registry", "--cache", tmp_path / "cache", "--format", "json"]
    words += ["--min-improvement", "0.99", "--timer", f"jax:{sys.executable}"]
    (operation,) = json.loads(run(tmp_path / "module.mlir", *words))["operations"]
    (other,) = operation["distributions"]
    # whether it differs depends on the machine
    assert other["name"] == "long" and other["best"]["config"]["block"] in (8, 256), operation
    run("registry", "verify", tmp_path / "registry")


def test_wrong_values_and_borders_of_an_adapter_are_told_and_the_call_runs(theirs, tmp_path, caplog):
    def fails(call):
        raise ZeroDivisionError("no groups\x1b[31m")

    lens = spec((4,), jnp.int32)
    for number, (steering, borders, words) in enumerate(
        [
            (
                {"bad": fails, "good": STEERING["long"]},
                None,
                "there are no values of `bad`: ZeroDivisionError: no groups",
            ),
            (lambda call: {"lens": [1, 2]}, None, "the values of `usual` for `lens` have the shape (2,)"),
            (STEERING, lambda call: [{"other": X}], "the borders of its bucket are not recorded: ValueError: `other`"),
        ]
    ):
        folder = tmp_path / str(number)
        given = {"parameters": ["block"], "space": {"block": (8, 256)}, "steering": steering, "borders": borders}
        with (
            autotune_lowered.adapt("their_kernels:steered", **given),
            autotune_lowered.recording(folder, platforms=("cpu",), directions=("forward",)) as recorder,
        ):
            jax.jit(lambda x, lens: theirs.steered(x, lens)).lower(X, lens)
        said = str(recorder.report()) + caplog.text
        assert words in said and "\x1b" not in said, said
    (first,) = records(tmp_path / "0")
    assert "other_distributions" not in first["invocation"], "the one that is left is the call's"


def test_threads_keep_their_own_calls(theirs, tmp_path):
    found = {}

    def work(rows):
        found[rows] = jax.jit(lambda x: theirs.scaled(x, 2.0)).lower(spec((rows, 64), jnp.float32)).as_text()

    with adapted(), autotune_lowered.recording(tmp_path, platforms=("cpu",), directions=("forward",)) as recorded:
        threads = [threading.Thread(target=work, args=(rows,)) for rows in (64, 128, 256, 512)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert len(found) == 4 and len({one["call_key"] for one in recorded.report()}) == 4


@pytest.mark.parametrize(
    ("function", "parameters", "words"),
    [
        ("their_kernels:scaled", ["blocks"], "`their_kernels:scaled` has no argument `blocks`"),
        ("their_kernels:gone", ["block"], "`their_kernels:gone` is not there"),
    ],
)
def test_another_version_of_a_project_is_named_and_left_alone(theirs, tmp_path, caplog, function, parameters, words):
    original = theirs.scaled
    with autotune_lowered.adapt(function, parameters=parameters):
        assert theirs.scaled is original
    assert words in caplog.text and "their_kernels" in caplog.text
    operation = Operation("their.scaled", function, Named(tuple(parameters)), {})
    with autotune_lowered.recording(tmp_path, adapters=[operation]) as recorded:
        pass
    assert words in recorded.report()[0]["not_recorded"]


def test_what_names_nothing_is_an_error_in_one_line(tmp_path):
    for make, words in (
        (lambda: autotune_lowered.recording(tmp_path, adapters="jax"), "there are no adapters called `jax`"),
        (lambda: autotune_lowered.adapt("no_function", parameters=["a"]), "names no function"),
        (lambda: autotune_lowered.adapt("a.b:c"), "name the `parameters`"),
        (lambda: autotune_lowered.adapt("a.b:c", parameters=["x"], space={"y": (1,)}), "has no parameter `y`"),
        (lambda: autotune_lowered.adapt("a.b:c", parameters=["x"], op="a b"), "is no name of an operation"),
        (lambda: autotune_lowered.adapt("a.b:c", parameters=["x"], space={"x": range(5000)}), "more than 4096"),
        (lambda: autotune_lowered.adapt("a.b:c", parameters=["x"], fills={"y": {"kind": "?"}}), "there is no kind"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            make()
        assert "\n" not in str(caught.value)


def test_sets_of_other_packages_are_found(theirs, monkeypatch, tmp_path):
    operation = Operation("their.scaled", "their_kernels:scaled", Named(("block",)), {"block": (8, 32)})

    class Entry:
        name = "theirs"

        def load(self):
            return lambda: [operation]

    monkeypatch.setattr(sets.importlib.metadata, "entry_points", lambda group: [Entry()])
    with autotune_lowered.recording(tmp_path, platforms=("cpu",), directions=("forward",), adapters="theirs") as found:
        jax.jit(lambda x: theirs.scaled(x, 2.0)).lower(X)
    assert [one["op_id"] for one in found.report()] == ["their.scaled@v1"]


def test_an_unmodified_program_is_recorded_with_adapters(tmp_path):
    (tmp_path / "serve.py").write_text(
        "import jax\n"
        "from jax.experimental.pallas.ops.gpu.softmax import softmax\n"
        "x = jax.ShapeDtypeStruct((8, 1024), 'float32')\n"
        "jax.jit(softmax).trace(x).lower(lowering_platforms=('cuda',))\n"
    )

    def record(adapters):
        words = ["record", "--registry", tmp_path / "registry", "--target", "cuda:h100_sxm", "--adapters", adapters]
        command = [sys.executable, "-m", "autotune_lowered", *map(str, words), str(tmp_path / "serve.py")]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    done = record("jax-pallas,maxtext")
    assert done.returncode == 0, done.stderr
    assert {one["invocation"]["op_id"] for one in records(tmp_path / "registry")} == {"jax.gpu.softmax@v1"}
    wrong = record("jax\x1b[31m")
    assert wrong.returncode == 2 and "there are no adapters called" in wrong.stderr and "\x1b" not in wrong.stderr
    (tmp_path / "registry").rename(tmp_path / "whole")
    (tmp_path / "registry").write_text("in the way")
    unwritable = record("jax-pallas")
    assert unwritable.returncode == 2 and "record: error: `" in unwritable.stderr.splitlines()[-1], unwritable.stderr


def test_batches_are_valid():
    for total, groups in ((1024, 8), (7, 3), (5, 8)):
        sizes = batches.even_groups(total, groups)
        assert sizes.sum() == total and sizes.max() - sizes.min() <= 1 and sizes.dtype == np.int32
        zipf = batches.zipf_groups(total, groups)
        assert zipf.sum() == total and (np.diff(zipf) <= 0).all() and zipf.min() >= 0 and zipf.dtype == np.int32
    for tokens, each, count in ((128, 8, 32), (4, 2, 8), (16, 3, 3)):
        chosen = batches.experts(batches.zipf_groups, tokens, each, count)
        assert chosen.shape == (tokens, each) and all(len(set(row)) == each for row in chosen.tolist())
    for make, decoding in ((batches.mixed, 4), (batches.decode, 8)):
        batch = make(8, 8 * 16, 64, 100, 32)
        queries = np.diff(batch["cu_q_lens"])
        assert (queries == 1).sum() == decoding and batch["distribution"].tolist() == [decoding, decoding, 8]
        assert (batch["kv_lens"] >= queries).all() and batch["kv_lens"].max() <= 16 * 32
    assert set(batches.lengths(8, 512)) <= set(range(128, 513))
    pages = batches.pages(300, 256)
    assert len(pages) == 300 and set(pages) == set(range(256))
    for sequences, tokens, decoded in ((16, 256, 8), (16, 16, 8), (4, 3, 2), (1, 1, 1)):
        starts = batches.starts_of_queries(sequences, tokens, decoded)
        assert starts[0] == 0 and starts[-1] <= tokens and len(starts) == sequences + 1 and (np.diff(starts) >= 0).all()
        assert (np.diff(starts)[: min(decoded, tokens)] == 1).all()
