"""Ten pairs of programs that compute the same in two ways, one of which is faster.

Each takes 0.1 to 10 ms on two cores. The slower one takes 1.1 to 3.5 times as long.
"""

import jax
import jax.numpy as jnp
from jax import lax
from modules import array


def attend(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / q.shape[-1] ** 0.5
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def attend_blocks(q, k, v):
    """64 queries at a time."""
    heads, length, width = q.shape
    blocks = q.reshape(heads, length // 64, 64, width).transpose(1, 0, 2, 3)
    attended = lax.map(lambda block: attend(block, k, v), blocks)
    return attended.transpose(1, 0, 2, 3).reshape(q.shape)


def recurrence(decay, x, unroll=1):
    def step(state, inputs):
        state = inputs[0] * state + inputs[1]
        return state, state

    return lax.scan(step, jnp.zeros_like(x[0]), (jax.nn.sigmoid(decay), x), unroll=unroll)[1]


def recurrence_unrolled(decay, x):
    return recurrence(decay, x, unroll=16)


def recurrence_in_parallel(decay, x):
    def combine(first, second):
        return first[0] * second[0], second[0] * first[1] + second[1]

    return lax.associative_scan(combine, (jax.nn.sigmoid(decay), x))[1]


def product(a, b):
    return a @ b


def product_by_rows(a, b):
    """64 rows at a time."""
    return lax.map(lambda rows: rows @ b, a.reshape(-1, 64, a.shape[1])).reshape(a.shape[0], b.shape[1])


def gather(table, rows):
    return table[rows]


def gather_by_product(table, rows):
    return jax.nn.one_hot(rows, table.shape[0]) @ table


def convolve(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def convolve_by_shifts(x, kernel):
    """A product for each of the kernel's places."""
    rows, columns = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    places = [(i, j) for i in range(3) for j in range(3)]
    return sum(padded[:, i : i + rows, j : j + columns] @ kernel[i, j] for i, j in places)


def standardize(x):
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


def standardize_columns(x):
    """The same over an array that is transposed first."""
    turned = lax.optimization_barrier(x.T)
    return ((turned - turned.mean(0)) / turned.std(0)).T


def running_sum(x):
    return jnp.cumsum(x, -1)


def running_sum_by_product(x):
    return x @ jnp.triu(jnp.ones((x.shape[1], x.shape[1])))


def distances(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def distances_by_product(x, y):
    return (x * x).sum(-1)[:, None] - 2 * x @ y.T + (y * y).sum(-1)


def soften(x):
    return jax.nn.softmax(x)


def soften_by_logarithm(x):
    return jnp.exp(x - jax.nn.logsumexp(x, -1, keepdims=True))


# each pair with the arguments of both
PAIRS = {
    "attention": (attend, attend_blocks, [array(8, 512, 64)] * 3),
    "recurrence-unrolled": (recurrence, recurrence_unrolled, [array(512, 256)] * 2),
    "recurrence-parallel": (recurrence, recurrence_in_parallel, [array(512, 256)] * 2),
    "product": (product, product_by_rows, [array(512, 512)] * 2),
    "gather": (gather, gather_by_product, [array(64, 128), array(1024, dtype=jnp.int32)]),
    "convolution": (convolve, convolve_by_shifts, [array(2, 32, 32, 32), array(3, 3, 32, 32)]),
    "standardize": (standardize, standardize_columns, [array(512, 512)]),
    "running-sum": (running_sum, running_sum_by_product, [array(256, 512)]),
    "distances": (distances, distances_by_product, [array(512, 32), array(256, 32)]),
    "softmax": (soften, soften_by_logarithm, [array(512, 1024)]),
}
