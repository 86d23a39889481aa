"""Causal attention by chunks with a running softmax: 36 configs.

The best config has middle chunks: small chunks are many, and large ones compute masked elements.
"""

import itertools

import jax
import jax.numpy as jnp
from jax import lax

OP = "chunked_attention"
# positions of queries and of keys, and the width of a head
CASES = {"attention": (2048, 32)}


def configs(shape):
    """Chunks of queries and of keys from 32 positions to all of them."""
    length, _ = shape
    chunks = [32, 64, 128, 256, 512, length]
    return [{"chunk_q": q, "chunk_k": k} for q, k in itertools.product(chunks, chunks)]


def baseline(shape):
    """The choice of a heuristic without measurements: square chunks of a small middle size."""
    return {"chunk_q": 64, "chunk_k": 64}


def function(config):
    """`softmax(q @ k.T / sqrt(width)) @ v` without later keys: a loop over chunks of queries, and in it one over
    keys."""
    rows, columns = config["chunk_q"], config["chunk_k"]

    def attention(q, k, v):
        length, width = q.shape

        def of_queries(start):
            queries = lax.dynamic_slice(q, (start, 0), (rows, width)) * width**-0.5

            def add(chunk, state):
                most, total, output = state
                keys, values = (lax.dynamic_slice(all_of, (chunk * columns, 0), (columns, width)) for all_of in (k, v))
                is_later = chunk * columns + jnp.arange(columns) > start + jnp.arange(rows)[:, None]
                scores = jnp.where(is_later, -jnp.inf, queries @ keys.T)
                new_most = jnp.maximum(most, scores.max(-1))
                weights, kept = jnp.exp(scores - new_most[:, None]), jnp.exp(most - new_most)
                return new_most, total * kept + weights.sum(-1), output * kept[:, None] + weights @ values

            none_yet = jnp.full(rows, -jnp.inf), jnp.zeros(rows), jnp.zeros((rows, width))
            _, total, output = lax.fori_loop(0, (start + rows - 1) // columns + 1, add, none_yet)
            return output / total[:, None]

        return lax.map(of_queries, jnp.arange(0, length, rows)).reshape(length, width)

    return attention


def specs(shape):
    """The arguments by name."""
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name in ("q", "k", "v")}


def scales(shape):
    """The arguments' standard deviations: the softmax selects few positions, so that their mean stays near one."""
    return {"q": 3.0, "k": 1.0, "v": 1.0}
