"""A two-layer transformer and the tunable operations in it."""

import functools
import hashlib
import json
import os

os.environ.setdefault("EJKERNEL_OPS_STAMP", "hash")
os.environ.setdefault("EJKERNEL_OPS_RECORD", "1")
# a missing config must not start ejkernel's own tuner
os.environ.setdefault("EJKERNEL_AUTOTUNE_POLICY", "heuristics")

import jax
import jax.numpy as jnp
from ejkernel.modules.operations.flash_attention import flash_attention
from jax import lax

LAYERS, TOKENS, WIDTH, HEADS, HIDDEN, VOCABULARY = 2, 512, 256, 4, 1024, 4096

# the operations that are tuned here besides ejkernel's: op_id, implementation, the config in use without tuning
OPERATIONS = {}
# calls met while tracing: (op_id, call_key) -> (specs, static arguments)
CALLS = {}


def operation(name, version, **baseline):
    """Makes a function `f(*arrays, config, **static)` a tunable operation: each call is stamped and recorded."""

    def decorate(function):
        OPERATIONS[f"{name}@v{version}"] = function, baseline

        @functools.wraps(function)
        def call(*arrays, **static):
            specs = [f"{array.dtype.name}{list(array.shape)}" for array in arrays]
            text = json.dumps({"arrays": specs, "static": static}, sort_keys=True, separators=(",", ":"))
            key = hashlib.sha256(text.encode()).hexdigest()[:16]
            shapes = tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)
            CALLS[f"{name}@v{version}", key] = shapes, static
            # a point instead of `@`: HLO cuts names at the first `@`
            with jax.named_scope(f"ejkernel_ops#{name}.v{version}:{key}"):
                return function(*arrays, config=baseline, **static)

        return call

    return decorate


@operation("blocked_matmul", 1, block_m=64, block_n=64, block_k=64)
def blocked_matmul(x, w, *, config):
    """`x @ w` in blocks: a loop over tiles of the result, and inside it a loop over the contracted dimension."""
    (rows, depth), columns = x.shape, w.shape[1]
    m, n, k = (min(config[name], size) for name, size in zip(("block_m", "block_n", "block_k"), (rows, columns, depth)))

    def tile(index):
        row, column = index // (columns // n) * m, index % (columns // n) * n
        block = lambda i: lax.dynamic_slice(x, (row, i * k), (m, k)) @ lax.dynamic_slice(w, (i * k, column), (k, n))
        add = lambda total, i: (total + block(i), None)
        return lax.scan(add, jnp.zeros((m, n), x.dtype), jnp.arange(depth // k))[0]

    tiles = lax.map(tile, jnp.arange(rows // m * (columns // n)))
    return tiles.reshape(rows // m, columns // n, m, n).swapaxes(1, 2).reshape(rows, columns)


@operation("chunked_cross_entropy", 1, token_chunk=32, vocabulary_chunk=512)
def chunked_cross_entropy(x, w, targets, *, config):
    """Mean cross entropy of `softmax(x @ w)` without all logits at once: chunks of tokens, and of the vocabulary."""
    tokens, vocabulary = min(config["token_chunk"], x.shape[0]), min(config["vocabulary_chunk"], w.shape[1])
    chunks = w.reshape(w.shape[0], -1, vocabulary).transpose(1, 0, 2)

    def of_tokens(part):
        rows, wanted = part

        def add(carry, chunk):
            (maximum, total, hit), (columns, first) = carry, chunk
            logits = rows @ columns
            larger = jnp.maximum(maximum, logits.max(-1))
            total = total * jnp.exp(maximum - larger) + jnp.exp(logits - larger[:, None]).sum(-1)
            local = wanted - first
            mine = (local >= 0) & (local < vocabulary)
            at = jnp.take_along_axis(logits, jnp.clip(local, 0, vocabulary - 1)[:, None], 1)[:, 0]
            return (larger, total, jnp.where(mine, at, hit)), None

        start = (jnp.full(tokens, -1e30, x.dtype), jnp.zeros(tokens, x.dtype), jnp.zeros(tokens, x.dtype))
        firsts = jnp.arange(chunks.shape[0], dtype=wanted.dtype) * vocabulary
        (maximum, total, hit), _ = lax.scan(add, start, (chunks, firsts))
        return (maximum + jnp.log(total) - hit).sum()

    parts = x.reshape(-1, tokens, x.shape[1]), targets.reshape(-1, tokens)
    return lax.map(of_tokens, parts).sum() / x.shape[0]


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def layer(weights, x):
    y = rms_norm(x, weights["norm1"])
    q, k, v = jnp.split(blocked_matmul(y, weights["qkv"]).reshape(1, TOKENS, 3 * HEADS, WIDTH // HEADS), 3, 2)
    attended = flash_attention(q, k, v, causal=True, platform="xla").reshape(TOKENS, WIDTH)
    x = x + attended @ weights["out"]
    y = blocked_matmul(rms_norm(x, weights["norm2"]), weights["up"])
    return x + jax.nn.gelu(y) @ weights["down"]


def loss(weights, tokens, targets):
    x = weights["embedding"][tokens]
    for part in weights["layers"]:
        x = layer(part, x)
    return chunked_cross_entropy(x, weights["head"], targets)


def train_step(weights, tokens, targets):
    value, gradient = jax.value_and_grad(loss)(weights, tokens, targets)
    return value, jax.tree.map(lambda w, g: w - 1e-2 * g, weights, gradient)


def weight_specs():
    spec = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    part = {"norm1": spec(WIDTH), "qkv": spec(WIDTH, 3 * WIDTH), "out": spec(WIDTH, WIDTH)}
    part |= {"norm2": spec(WIDTH), "up": spec(WIDTH, HIDDEN), "down": spec(HIDDEN, WIDTH)}
    return {"embedding": spec(VOCABULARY, WIDTH), "head": spec(WIDTH, VOCABULARY), "layers": [part] * LAYERS}


def token_specs():
    return jax.ShapeDtypeStruct((TOKENS,), jnp.int32)
