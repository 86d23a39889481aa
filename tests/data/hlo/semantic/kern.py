import jax, jax.numpy as jnp
def inner(x):
    return jnp.tanh(x) * 2.0
def make(scope, k=2.0, flip=False):
    def f(q, w, i):
        with jax.named_scope(scope):
            def body(c, t):
                return c + jax.jit(inner)(t) * k, jnp.sum(t)
            y, s = jax.lax.scan(body, jnp.zeros_like(q[0]), q)
            z = jnp.take(w, i, axis=0)
            r = jax.lax.cond(s[0] > 0, lambda a: a + 1, lambda a: a - 1, y @ w if not flip else w.T @ y.T)
            return r, jnp.sort(z, axis=-1), jnp.where(z > 0, z, 0).astype(jnp.bfloat16)
    return f
