"""Makes `loop.hlo.pb`: eight products of 64 × 64 matrices in a loop, as XLA optimized it (JAX 0.10.2, CPU)."""

import pathlib

import jax
import jax.numpy as jnp


def steps(x, y):
    return jax.lax.fori_loop(0, 8, lambda _, z: jnp.sin(z @ y), x)


square = jax.ShapeDtypeStruct((64, 64), "float32")
compiled = jax.jit(steps).lower(square, square).compile()
program = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
pathlib.Path(__file__).with_name("loop.hlo.pb").write_bytes(program)
print(compiled.as_text())
