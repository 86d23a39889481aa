"""Makes the programs of this folder again: StableHLO text as JAX lowers it. Run with JAX on CPU."""

import jax
import jax.numpy as jnp
from pathlib import Path

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
keep("huge", lambda x: jnp.sum(jnp.broadcast_to(x[:, None, None, None], (4, 2048, 1024, 1024)) * 1.5, axis=0)[0, 0], f32(4))
