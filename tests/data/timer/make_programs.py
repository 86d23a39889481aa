"""Makes the programs of this folder again: StableHLO text as JAX lowers it. Run with JAX on CPU."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from pathlib import Path

# locations without the folder that this file happened to lie in
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
jax.config.update("jax_traceback_in_locations_limit", 1)

here = Path(__file__).parent
f32 = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)


def keep(name, function, *arguments, **options):
    text = jax.jit(function, **options).lower(*arguments).as_text()
    (here / f"{name}.mlir").write_text(text)


keep("matmul", lambda a, b: a @ b, f32(64, 64), f32(64, 64))
keep("add", lambda a, b: a + b, f32(4), f32(4))
keep("endless", lambda x: jax.lax.while_loop(lambda s: s[0] >= 0, lambda s: (s[0] * 0, s[1] + 1.0), (jnp.int32(1), x))[1], f32(4))
keep("donated", lambda state, x: (state + x, x * 2.0), f32(4), f32(4), donate_argnums=(0,))
keep("control", lambda n, x: jax.lax.fori_loop(0, n, lambda i, s: s * 2.0, x), jax.ShapeDtypeStruct((), jnp.int32), f32(3))
keep("types", lambda a, b, c, d: (a, b + 1, c, ~d), jax.ShapeDtypeStruct((2, 3), jnp.bfloat16), jax.ShapeDtypeStruct((2,), jnp.int8), jax.ShapeDtypeStruct((3,), jnp.int4), jax.ShapeDtypeStruct((2,), jnp.bool_))
keep("transposed", lambda a: a.T, f32(2, 3))
keep("nan", lambda x: jnp.log(-jnp.abs(x) - 1.0), f32(4))
# 4 GiB that must be there before they can be sorted
keep("hungry", lambda x: jnp.sort(jax.lax.iota(jnp.float32, 1 << 30) * x[0])[:4], f32(1024))
keep("idle", lambda x: x + 1.0, f32(1024))

# the other two forms of `add`
add = jax.jit(lambda a, b: a + b)
portable = jax.export.export(add)(f32(4), f32(4)).mlir_module_serialized
(here / "add.mlirbc").write_bytes(portable)
module = add.lower(f32(4), f32(4)).compiler_ir("hlo")
(here / "add.hlo.pb").write_bytes(module.as_serialized_hlo_module_proto())

# one function of two partitions, each with half of the dimension that is added up: its outputs stay in parts, or are
# whole on both devices, and it is written down for Shardy and for the partitioner before it; it may destroy `x`
mesh = jax.sharding.Mesh(jax.devices()[:2], ("x",))
over = lambda *axes: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
arguments = f32(64, 128), f32(128, 32), f32(32)


def partitioned(*outputs):
    inputs = over(None, "x"), over("x", None), over()
    function = lambda x, w, b: (x @ w + b, x * 2.0)
    return jax.jit(function, in_shardings=inputs, out_shardings=outputs, donate_argnums=(0,))


parts = partitioned(over("x", None), over(None, "x"))
(here / "sharded2.mlirbc").write_bytes(jax.export.export(parts)(*arguments).mlir_module_serialized)
(here / "sharded2.mlir").write_text(parts.lower(*arguments).as_text())
(here / "sharded2_whole.mlir").write_text(partitioned(over(), over()).lower(*arguments).as_text())
jax.config.update("jax_use_shardy_partitioner", False)
jax.clear_caches()
(here / "sharded2_gspmd.mlir").write_text(parts.lower(*arguments).as_text())

# eight partitions, for both partitioners: parts along two dimensions in the mesh's order and in the other one, arrays that
# several devices or all of them have copies of, and a function that is written for one device; it may destroy `x`
mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
P = jax.sharding.PartitionSpec


def on_one(x):
    # each device adds the number of its part
    return x + (2 * jax.lax.axis_index("x") + jax.lax.axis_index("y")).astype(jnp.float32)


def eight(x, y, z, s):
    numbered = jax.shard_map(on_one, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))(x)
    return numbered, (x + y) * s, y.sum(axis=0), z * 2.0, s + 1.0


for name, is_shardy in (("sharded8", True), ("sharded8_gspmd", False)):
    jax.config.update("jax_use_shardy_partitioner", is_shardy)
    jax.clear_caches()
    inputs = over("x", "y"), over("y", "x"), over(None, "y", None), over()
    outputs = over("x", "y"), over("y"), over("x"), over(None, ("y", "x"), None), over()
    program = jax.jit(eight, in_shardings=inputs, out_shardings=outputs, donate_argnums=(0,))
    (here / f"{name}.mlir").write_text(program.lower(f32(8, 4), f32(8, 4), f32(3, 8, 2), f32()).as_text())

# two partitions that are written for one device: each goes round as often as its part of `n` says; and an output that is
# said to be the same on both, and is not
mesh = jax.sharding.Mesh(jax.devices()[:2], ("x",))


def rounds(n, x):
    return jax.lax.fori_loop(0, n[0], lambda i, s: s * 0.5 + 1.0, x)


jax.config.update("jax_use_shardy_partitioner", True)
jax.clear_caches()
program = jax.jit(jax.shard_map(rounds, mesh=mesh, in_specs=(P("x"), P("x")), out_specs=P("x")))
(here / "sharded2_control.mlir").write_text(program.lower(jax.ShapeDtypeStruct((2,), jnp.int32), f32(8)).as_text())
apart = lambda x: x + jax.lax.axis_index("x").astype(jnp.float32)
program = jax.jit(jax.shard_map(apart, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))
(here / "sharded2_apart.mlir").write_text(program.lower(f32(4)).as_text())
