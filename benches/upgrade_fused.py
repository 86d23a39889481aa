"""Functions for `upgrade.py --planted`: most are slower if XLA does not fuse their operations.

With the word `times`, it prints how long each takes here, in nanoseconds, as JSON: what `upgrade` says is compared with
that.
"""

import json
import sys
import time

import jax
import jax.numpy as jnp

import autotune_lowered

SHAPE, RUNS = (1024, 2048), 30


def chain(x):
    for _ in range(12):
        x = x * 1.0001 + 0.1
    return x


def activation(x):
    return jnp.tanh(x) * 0.5 + jnp.maximum(x, 0) * x - x * x * 0.1


def rotary(x):
    one, other = jnp.split(x, 2, axis=-1)
    angle = jnp.arange(one.shape[-1]) * 1e-3
    return jnp.concatenate([one * jnp.cos(angle) - other * jnp.sin(angle), one * jnp.sin(angle) + other], axis=-1)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def product(x):
    return x[:, :1024] @ x[:1024, :1024]


FUNCTIONS = (chain, activation, rotary, norm, softmax, product)


def recorded(function):
    """One config alone: only the compiler differs."""
    declared = autotune_lowered.tunable(op=function.__name__, version=1, space={"only": [0]})
    return declared(lambda x, *, only=0: function(x))


def with_vjp(function):
    """As it is recorded: the result's cotangent is an argument."""

    def both(x, cotangent):
        y, pull = jax.vjp(function, x)
        return y, pull(cotangent)

    return both


def times(function, *x):
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*x))
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter_ns()
        jax.block_until_ready(compiled(*x))
        taken.append(time.perf_counter_ns() - begin)
    return min(taken)


def main():
    x = jnp.ones(SHAPE)
    if sys.argv[1:] != ["times"]:
        functions = [recorded(function) for function in FUNCTIONS]
        jax.jit(lambda x: [function(x) for function in functions]).lower(x)
        return
    taken = {}
    for function in FUNCTIONS:
        taken[f"{function.__name__} (forward)"] = times(function, x)
        taken[f"{function.__name__} (forward-vjp)"] = times(
            with_vjp(function), x, jnp.ones(jax.eval_shape(function, x).shape)
        )
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
