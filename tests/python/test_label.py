"""Labels in the payload of XLA's metadata: whole where the scope is cut, and none where nothing is traced."""

import os
import re

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax", reason="labels are those of traced calls")
if jax.__version_info__ < (0, 8):
    pytest.skip("this JAX carries no payload", allow_module_level=True)
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.xla_metadata import set_xla_metadata

import autotune_lowered
from autotune_lowered._label import labelled

AT = "ejkernel_ops#norm@v2:0123456789abcdef"
X = jnp.ones((4, 8))


def payloads(text):
    """The payloads in StableHLO or HLO text, as frontend attributes or as metadata."""
    return set(re.findall(r'(?:xla_metadata_payload ?= ?|metadata_payload=)"([^"]*)"', text))


def stamped(x, text=AT):
    with labelled(text, [x]):
        return jnp.tanh(x) * 2


def both(function, *arguments):
    lowered = jax.jit(function).lower(*arguments)
    return payloads(lowered.as_text()), payloads(lowered.compile().as_text())


@pytest.mark.parametrize(
    "function",
    [
        stamped,
        jax.grad(lambda x: stamped(x).sum()),
        jax.vmap(jax.grad(lambda x: stamped(x).sum())),
        jax.grad(lambda x: jax.checkpoint(stamped)(x).sum()),
        lambda x: jax.jit(stamped)(x) + jnp.cumsum(x, axis=0),
        lambda x: jax.lax.scan(lambda carry, _: (stamped(carry), None), x, None, length=3)[0],
        lambda x: stamped(x, AT.replace("norm", "n" * 100)).sum(),
    ],
)
def test_the_whole_label_is_in_every_form(function):
    lowered, compiled = both(function, X)
    (label,) = lowered
    assert label.endswith("@v2:0123456789abcdef")
    assert compiled == {label}


def test_backward_rules_have_it_too():
    @jax.custom_vjp
    def doubled(x):
        return x * 2

    doubled.defvjp(lambda x: (doubled(x), x), lambda x, d: (jnp.sin(d) * 2,))

    def step(x):
        with labelled(AT, [x]):
            return doubled(x).sum()

    text = jax.jit(jax.grad(step)).lower(X).as_text()
    (line,) = [line for line in text.splitlines() if "stablehlo.sine" in line]
    assert payloads(line) == {AT}


def test_it_stands_on_the_custom_call_itself_under_vmap():
    def kernel(x_ref, out_ref):
        out_ref[...] = x_ref[...] * 2

    def call(x):
        with labelled(AT, [x]):
            return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    spec = jax.ShapeDtypeStruct((3, 8, 128), jnp.float32)
    text = jax.jit(jax.vmap(call)).trace(spec).lower(lowering_platforms=("tpu",)).as_text()
    (line,) = [line for line in text.splitlines() if "@tpu_custom_call" in line]
    assert payloads(line) == {AT}


def test_labels_of_calls_in_calls_are_joined_with_what_others_set():
    def nested(x):
        with set_xla_metadata(xla_metadata_payload="tokamax:{}"), labelled("outer.v1:0", [x]):
            # a rule of the same call, traced where its label is in force
            with labelled("outer.v1:0", [x]):
                return stamped(jnp.sin(x), "inner.v1:1")

    lowered, compiled = both(nested, X)
    assert lowered == {"tokamax:{}/outer.v1:0", "tokamax:{}/outer.v1:0/inner.v1:1"} and compiled <= lowered


def test_older_versions_spell_in_lower_case_and_have_no_label_that_this_would_change():
    lowered, _ = both(lambda x: stamped(x, "ejkernel_ops#Norm.v1:0"), X)
    assert lowered == ({"ejkernel_ops#Norm.v1:0"} if jax.__version_info__ >= (0, 10, 1) else set())


def test_what_runs_at_once_is_not_compiled_for_each_label():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    steps = [stamped, jax.vmap(stamped), jax.grad(lambda x: stamped(x).sum())]
    for step in steps:
        step(X)
    before = len(compiled)
    assert before > 0
    for step in steps:
        stamped(X, "another.v1:0")
        step(X)
    assert len(compiled) == before


def test_a_tunable_call_has_its_label_in_the_payload():
    @autotune_lowered.tunable(op="norm", version=2, space={"rows": [2, 4]})
    def norm(x, *, rows=2):
        return x * rows

    lowered, compiled = both(norm, X)
    assert lowered == compiled == {f"ejkernel_ops#norm.v2:{norm.tunable.call_key(X)}"}


def test_a_program_has_one_digest_with_and_without_labels():
    from autotune_lowered import _native

    def step(x, label):
        with label("a.v1:0", x):
            # older versions number functions that they then do not write
            if jax.__version_info__ >= (0, 10, 2):
                x = jax.nn.gelu(x) + jax.lax.cumsum(x) + jnp.linalg.qr(x)[0]
                x = jax.lax.cond(x[0, 0] > 0, jnp.sort, lambda x: x * 2, x)
            x = jax.lax.scan(lambda carry, _: (jnp.tanh(carry), carry.sum()), x, None, length=3)[0]
        with label('b/"c"}\\é.v1:0', x):
            return (x[jnp.array([1, 2, 3, 0])] * 2).sum()

    def scoped(text, x):
        return jax.named_scope(text)

    def of(label):
        lowered = jax.jit(jax.grad(lambda x: step(x, label))).lower(jnp.ones((4, 4)))
        proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        return [_native.semantic_digest(form) for form in (lowered.as_text().encode(), proto)]

    carried = of(lambda text, x: labelled(text, [x]))
    assert carried == of(scoped)
