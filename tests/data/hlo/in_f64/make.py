"""Functions that JAX lowers in `f32` and, by its own x64 mode, in `f64`: `NAME.f32.mlir` and `NAME.f64.mlir`."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np


def steps(x):
    """A scan: its counter is `i32` in one text and `i64` in the other."""
    half = x.dtype.type(0.5)
    return jax.lax.scan(lambda carry, row: (carry * half + row, carry), x[0], x)


def parts(x, y, z, rows):
    table = jnp.asarray(np.arange(120).reshape(12, 10) * 0.25 - 15, x.dtype)
    total = jnp.sum(jnp.tanh(x[rows]), axis=0)
    dot = jnp.dot(y, total)
    bounded = jnp.where(jnp.isinf(dot), x.dtype.type(np.nan), jnp.maximum(dot, x.dtype.type(-np.inf)))
    turned = jnp.fft.fft(z * jnp.asarray(0.5 + 1.5j, z.dtype))
    return bounded, table + total[0], turned, jax.lax.argmax(dot, 0, np.int32), jnp.sort(dot)


def arguments(real, compound):
    x = np.zeros((8, 4), real)
    return x, np.zeros((3, 4), real), np.zeros(8, compound), np.zeros(2, np.int32)


here = pathlib.Path(__file__).parent
for is_wide, real, compound in [(False, np.float32, np.complex64), (True, np.float64, np.complex128)]:
    with jax.enable_x64(is_wide):
        name = np.dtype(real).name.replace("float", "f")
        (here / f"steps.{name}.mlir").write_text(jax.jit(steps).lower(np.zeros((5, 3), real)).as_text())
        (here / f"parts.{name}.mlir").write_text(jax.jit(parts).lower(*arguments(real, compound)).as_text())
