"""A small transformer, its training step, and the two operations in it that are tuned."""

import jax
import jax.numpy as jnp
from jax import lax

import autotune_lowered

LAYERS, TOKENS, WIDTH, HEADS, HIDDEN = 2, 128, 64, 4, 256


@autotune_lowered.tunable(
    op="tutorial_matmul",
    version=1,
    space={"rows": [8, 32, 128], "columns": [32, 128]},
    constraints=[
        lambda config, arrays: arrays["x"].shape[0] % config["rows"] == 0,
        lambda config, arrays: arrays["w"].shape[1] % config["columns"] == 0,
    ],
    fills={"w": {"kind": "normal", "scale": 0.0625}},
)
def blocked_matmul(x, w, *, rows=8, columns=32):
    """`x @ w` in blocks of the result; `x` is `[tokens, depth]`, `w` is `[depth, width]`."""
    across = w.shape[1] // columns

    def block(index):
        left = lax.dynamic_slice_in_dim(x, index // across * rows, rows, 0)
        return left @ lax.dynamic_slice_in_dim(w, index % across * columns, columns, 1)

    blocks = lax.map(block, jnp.arange(x.shape[0] // rows * across))
    return blocks.reshape(-1, across, rows, columns).swapaxes(1, 2).reshape(x.shape[0], w.shape[1])


@autotune_lowered.tunable(
    op="tutorial_attention",
    version=1,
    space={"queries": [8, 32, 128]},
    constraints=[lambda config, arrays: arrays["q"].shape[1] % config["queries"] == 0],
)
def attention(q, k, v, *, queries=8):
    """Causal attention in blocks of queries; each argument is `[heads, tokens, size]`."""
    tokens, scale = q.shape[1], q.shape[2] ** -0.5

    def block(index):
        wanted = lax.dynamic_slice_in_dim(q, index * queries, queries, 1)
        scores = jnp.einsum("hqd,hkd->hqk", wanted, k) * scale
        is_past = jnp.arange(tokens) <= (index * queries + jnp.arange(queries))[:, None]
        return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(is_past, scores, -1e30)), v)

    return lax.map(block, jnp.arange(tokens // queries)).swapaxes(0, 1).reshape(q.shape)


def normalized(x):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def layer(weights, x):
    by_head = (normalized(x) @ weights["qkv"]).reshape(TOKENS, 3, HEADS, WIDTH // HEADS)
    attended = attention(*by_head.transpose(1, 2, 0, 3)).swapaxes(0, 1).reshape(TOKENS, WIDTH)
    x = x + attended @ weights["out"]
    return x + jax.nn.gelu(blocked_matmul(normalized(x), weights["up"])) @ weights["down"]


def loss(weights, x, target):
    for part in weights:
        x = layer(part, x)
    return jnp.mean((x - target) ** 2)


def train_step(weights, x, target):
    """Returns the loss, and the weights after a step of gradient descent."""
    value, gradient = jax.value_and_grad(loss)(weights, x, target)
    return value, jax.tree.map(lambda w, g: w - 1e-2 * g, weights, gradient)


def arguments():
    """Random weights, embedded tokens, and a target."""
    keys = iter(jax.random.split(jax.random.key(0), 4 * LAYERS + 2))

    def normal(*shape):
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5

    def weights():
        return {
            "qkv": normal(WIDTH, 3 * WIDTH),
            "out": normal(WIDTH, WIDTH),
            "up": normal(WIDTH, HIDDEN),
            "down": normal(HIDDEN, WIDTH),
        }

    return [weights() for _ in range(LAYERS)], normal(TOKENS, WIDTH), normal(TOKENS, WIDTH)
