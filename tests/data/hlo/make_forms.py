"""Writes `forms.json.zst`: programs with labels, each lowered once and written in every form that a scan reads.

Each program has a scope's label, a payload's, or both, below what JAX does to a function: derivatives, batches, loops, branches,
shards, calls, recomputation. An entry: the program's name, whether a labelled call is of a backward pass (every program under a
derivative), the operands of each forward call where they are plain to see, and the forms.
"""

import base64
import io
import json
import os
import pathlib
import subprocess
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jax.sharding import Mesh, PartitionSpec as P
from jaxlib.mlir.dialects import stablehlo

OUT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "forms.json.zst")
# no folder of the machine that this runs on stands in what is committed
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

SCOPE = "ejkernel_ops#gate_mix.v3:00aa11bb22cc33dd"
PAYLOAD = 'tokamax:{"op":{"__type":"demo.ops.gate.Gate","config":{}},"arguments":{"x":"f32[8,16]","w":"f32[16,4]"}}'


def gate(x, w):
    """It holds no constant, nor does its derivative: the conversion to HLO takes the scope from a constant that is spread."""
    product = x @ w
    return product if jnp.iscomplexobj(product) else jnp.sin(product)


def scoped(x, w):
    with jax.named_scope(SCOPE):
        return gate(x, w)


def paid(x, w):
    with set_xla_metadata(xla_metadata_payload=PAYLOAD):
        return gate(x, w)


X, W, S = jnp.ones((8, 16)), jnp.ones((16, 4)), jnp.ones((16, 16))
PLAIN = [["f32[8,16]", "f32[16,4]"]]
SQUARE = [["f32[8,16]", "f32[16,16]"]]
MESH = Mesh(np.array(jax.devices()), ("x",))


def both(call):
    """What JAX does to a function of two arrays: name, function, arguments, is backward, forward calls."""
    sharded = jax.shard_map(call, mesh=MESH, in_specs=(P("x", None), P()), out_specs=P("x", None))

    def total(f):
        return lambda *args: jnp.sum(jnp.sin(f(*args)))

    def derived(f):
        return jax.grad(total(f), argnums=(0, 1))

    def scanned(x, s):
        return lax.scan(lambda c, _: (call(c, s), c.sum()), x, None, length=3)[0]

    def counted(x, s):
        return lax.fori_loop(0, 5, lambda i, c: call(c, s) + i, x)

    def until(x, s):
        return lax.while_loop(lambda c: c.sum() < 9.0, lambda c: call(c, s), x)

    def chosen(x, w):
        return lax.cond(x[0, 0] > 0, lambda: call(x, w), lambda: x @ w)

    def one_of(x, w):
        return lax.switch(jnp.int32(x[0, 0]), [lambda: x @ w, lambda: call(x, w), lambda: call(x, w) * 2])

    def called(x, w):
        inner = jax.jit(call)
        return inner(x, w) + inner(x + 1, w)

    def mapped(x, w):
        return lax.map(lambda row: call(row[None], w)[0], x)

    def sharded_scan(x, s):
        part = jax.shard_map(scanned, mesh=MESH, in_specs=(P("x", None), P()), out_specs=P("x", None), check_vma=False)
        return part(x, s)

    batches = (jnp.ones((2, 8, 16)), jnp.ones((2, 16, 4)))
    return [
        ("plain", call, (X, W), False, PLAIN),
        ("after_top_k", lambda x, w: call(lax.top_k(x, 16)[0], w), (X, W), False, PLAIN),
        ("after_sort", lambda x, w: call(jnp.sort(x, 0), w), (X, W), False, PLAIN),
        ("after_window", lambda x, w: call(lax.cumsum(x, 0), w), (X, W), False, PLAIN),
        ("after_scatter", lambda x, w: call(x.at[jnp.array([1, 2])].add(1.0), w), (X, W), False, PLAIN),
        ("after_case", lambda x, w, s: call(chosen(x, s), w), (X, W, S), False, None),
        ("complex", call, (X.astype(jnp.complex64), W.astype(jnp.complex64)), False, [["c64[8,16]", "c64[16,4]"]]),
        ("half", call, (X.astype(jnp.bfloat16), W.astype(jnp.bfloat16)), False, [["bf16[8,16]", "bf16[16,4]"]]),
        ("grad", derived(call), (X, W), True, PLAIN),
        ("vmap", jax.vmap(call), batches, False, [["f32[2,8,16]", "f32[2,16,4]"]]),
        ("vmap_grad", jax.vmap(derived(call)), batches, True, [["f32[2,8,16]", "f32[2,16,4]"]]),
        ("jit_twice", called, (X, W), False, None),
        ("grad_jit", derived(jax.jit(call)), (X, W), True, None),
        ("shard_map", sharded, (X, W), False, [["f32[2,16]", "f32[16,4]"]]),
        ("grad_shard_map", derived(sharded), (X, W), True, [["f32[2,16]", "f32[16,4]"]]),
        ("scan", scanned, (X, S), False, SQUARE),
        ("grad_scan", derived(scanned), (X, S), True, SQUARE),
        ("shard_map_scan", sharded_scan, (X, S), False, [["f32[2,16]", "f32[16,16]"]]),
        ("fori", counted, (X, S), False, SQUARE),
        ("while", until, (X, S), False, SQUARE),
        ("cond", chosen, (X, W), False, PLAIN),
        ("grad_cond", derived(chosen), (X, W), True, PLAIN),
        ("switch", one_of, (X, W), False, None),
        ("map", mapped, (X, W), False, None),
        ("remat", derived(jax.checkpoint(call)), (X, W), True, None),
        ("remat_scan", derived(lambda x, s: lax.scan(jax.checkpoint(lambda c, _: (call(c, s), None)), x, None, length=3)[0]), (X, S), True, None),
        ("linearized", lambda x, w: jax.linearize(call, x, w)[1](x, w), (X, W), False, None),
    ]


def special():
    """Programs in which the label itself stands around a loop, a branch or another label."""

    @jax.custom_vjp
    def own(x, w):
        return scoped(x, w)

    own.defvjp(lambda x, w: (scoped(x, w), (x, w)), lambda saved, g: (g @ saved[1].T, saved[0].T @ g))

    def around_scan(x, s):
        with jax.named_scope(SCOPE):
            return lax.scan(lambda c, _: (jnp.sin(c @ s), None), x, None, length=3)[0]

    def around_cond(x, w):
        with jax.named_scope(SCOPE):
            return lax.cond(x[0, 0] > 0, lambda: gate(x, w), lambda: x @ w)

    def nested(x, w):
        with jax.named_scope("ejkernel_ops#outer.v1:1111111111111111"):
            return scoped(x, w) * 2

    def two_carriers(x, w):
        with jax.named_scope(SCOPE), set_xla_metadata(xla_metadata_payload=PAYLOAD):
            return gate(x, w)

    def two_labels(x, w):
        return scoped(x, w) + paid(x, w)

    grad_own = jax.grad(lambda x, w: jnp.sin(own(x, w)).sum(), argnums=(0, 1))
    return [
        ("custom_vjp", grad_own, (X, W), False, PLAIN),
        ("around_scan", around_scan, (X, S), False, None),
        ("around_cond", around_cond, (X, W), False, None),
        ("nested", nested, (X, W), False, None),
        ("two_carriers", two_carriers, (X, W), False, None),
        ("two_labels", two_labels, (X, W), False, None),
        ("two_labels_grad", jax.grad(lambda x, w: jnp.sin(two_labels(x, w)).sum(), argnums=(0, 1)), (X, W), True, None),
    ]


def forms(lowered):
    module = lowered.compiler_ir()
    print_as = lambda **how: module.operation.get_asm(enable_debug_info=True, **how).encode()
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    hlo = lowered.compiler_ir("hlo")
    return {
        "text": print_as(),
        "generic text": print_as(print_generic_op_form=True),
        "text with pretty locations": print_as(pretty_debug_info=True),
        "text in local scopes": print_as(use_local_scope=True),
        "bytecode": bytecode.getvalue(),
        "portable bytecode": stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True),
        "HLO text": hlo.as_hlo_module().to_string().encode(),
        "HloModuleProto": hlo.as_serialized_hlo_module_proto(),
    }


def shown(bytes):
    """Text as it is, bytes in Base64."""
    return bytes.decode() if b"\0" not in bytes else {"base64": base64.b64encode(bytes).decode()}


def main():
    programs = [("scoped " + name, *rest) for name, *rest in both(scoped)]
    programs += [("paid " + name, *rest) for name, *rest in both(paid)]
    programs += special()
    lines = []
    for name, function, arguments, backward, forward in programs:
        written = {form: shown(bytes) for form, bytes in forms(jax.jit(function).lower(*arguments)).items()}
        lines.append(json.dumps({"name": name, "jax": jax.__version__, "backward": backward, "forward": forward, "forms": written}))
    text = ("[" + ",\n".join(lines) + "]\n").encode()
    OUT.write_bytes(subprocess.run(["zstd", "-19", "-q", "-c"], input=text, stdout=subprocess.PIPE, check=True).stdout)
    print(len(programs), "programs", len(text), "bytes", OUT.stat().st_size, "packed")


if __name__ == "__main__":
    main()
