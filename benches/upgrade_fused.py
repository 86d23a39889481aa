"""Functions for `upgrade.py --planted`: each but `product` is slower if XLA does not fuse its operations."""

import jax
import jax.numpy as jnp

import autotune_lowered


def recorded(function):
    """One config alone: only the compiler differs."""
    return autotune_lowered.tunable(op=function.__name__, version=1, space={"only": [0]})(function)


@recorded
def chain(x, *, only=0):
    for _ in range(12):
        x = x * 1.0001 + 0.1
    return x


@recorded
def activation(x, *, only=0):
    return jnp.tanh(x) * 0.5 + jnp.maximum(x, 0) * x - x * x * 0.1


@recorded
def norm(x, *, only=0):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


@recorded
def softmax(x, *, only=0):
    return jax.nn.softmax(x, axis=-1)


@recorded
def product(x, *, only=0):
    return x[:, :1024] @ x[:1024, :1024]


def step(x):
    return [function(x) for function in (chain, activation, norm, softmax, product)]


jax.jit(step).lower(jnp.ones((1024, 2048)))
