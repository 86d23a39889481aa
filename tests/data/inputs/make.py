"""Lowers a step with a tree of arguments: its text says what each is called and which are donated."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Adam(NamedTuple):
    mu: dict
    nu: dict
    count: jax.Array


@partial(jax.jit, donate_argnums=(0, 1))
def step(params, opt, batch, table):
    ids = batch["ids"]

    def loss(p):
        e = jnp.take(table, ids, axis=0)
        h = p["w"] @ e[0] + p["b"][batch["pos"]]
        return jnp.sum(h**2)

    value, grads = jax.value_and_grad(loss)(params)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, opt.mu, grads)
    nu = jax.tree.map(lambda v, g: 0.9 * v + 0.1 * g * g, opt.nu, grads)
    new = jax.tree.map(lambda p, m, v: p - m / (jnp.sqrt(v) + 1e-8), params, mu, nu)
    return {"loss": value, "params": new, "opt": Adam(mu, nu, opt.count + 1)}


if __name__ == "__main__":
    spec = jax.ShapeDtypeStruct
    params = {"w": spec((4, 8), jnp.float32), "b": spec((4,), jnp.float32)}
    opt = Adam(params, params, spec((), jnp.int32))
    batch = {"ids": spec((5,), jnp.int32), "pos": spec((), jnp.int32)}
    lowered = step.lower(params, opt, batch, spec((100, 8), jnp.float32))
    with open("step.mlir", "w") as file:
        file.write(lowered.as_text(debug_info=True))
    with open("step.hlo.pb", "wb") as file:
        file.write(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
