"""Twenty modules, as diverse as users', for the tuning of compiler options.

    python benches/options/modules.py DIR

writes each as `DIR/NAME.mlir`, StableHLO as JAX lowers it for a CPU, without labels. Most take 0.5 to 20 ms on two
cores.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
from jax import lax

f32, bf16, i32, i8 = jnp.float32, jnp.bfloat16, jnp.int32, jnp.int8


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def heads_attend(q, k, v):
    """Causal attention of [heads, length, width]."""
    length = q.shape[1]
    mask = jnp.tril(jnp.ones((length, length), bool))
    scores = jnp.where(mask, jnp.einsum("hqd,hkd->hqk", q, k) / q.shape[-1] ** 0.5, -1e9)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v)


def attention(q, k, v):
    return heads_attend(q, k, v)


def attention_gradient(q, k, v):
    return jax.grad(lambda *args: (heads_attend(*args) ** 2).sum(), argnums=(0, 1, 2))(q, k, v)


def rms_gated_mlp(x, w_gate, w_up, w_down):
    x = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return (jax.nn.silu(x @ w_gate) * (x @ w_up)) @ w_down


def adam_step(params, first, second, x, y):
    def loss(params):
        hidden = jax.nn.gelu(norm(x @ params[0]))
        return ((hidden @ params[1] - y) ** 2).mean()

    value, gradients = jax.value_and_grad(loss)(params)
    first = [0.9 * m + 0.1 * g for m, g in zip(first, gradients, strict=True)]
    second = [0.999 * v * v + 0.001 * g * g for v, g in zip(second, gradients, strict=True)]
    params = [p - 1e-3 * m / (jnp.sqrt(v) + 1e-8) for p, m, v in zip(params, first, second, strict=True)]
    return value, params, first, second


def convolution_net(x, kernels):
    for kernel in kernels:
        x = jax.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    return x.mean((1, 2))


def depthwise_convolution(x, kernel):
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=names, feature_group_count=x.shape[-1])


def lstm(x, w, u):
    def cell(carry, now):
        hidden, memory = carry
        i, f, g, o = jnp.split(now @ w + hidden @ u, 4, -1)
        memory = jax.nn.sigmoid(f) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zero = jnp.zeros((x.shape[1], u.shape[0]))
    return lax.scan(cell, (zero, zero), x)[1]


def state_space(decay, inputs):
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    return lax.associative_scan(combine, (jax.nn.sigmoid(decay), inputs))[1]


def fourier_filter(x):
    spectrum = jnp.fft.rfft2(x)
    keep = jnp.arange(spectrum.shape[-1]) < spectrum.shape[-1] // 4
    return jnp.fft.irfft2(jnp.where(keep, spectrum, 0), s=x.shape[-2:])


def embedding_gradient(table, tokens, target):
    return jax.grad(lambda table: ((table[tokens] - target) ** 2).sum())(table)


def sample_top(logits, noise):
    values, places = lax.top_k(logits, 40)
    chosen = jnp.argmax(values - jnp.log(-jnp.log(jax.nn.sigmoid(noise))), axis=-1)
    return jnp.take_along_axis(places, chosen[:, None], axis=-1), jnp.sort(logits, axis=-1)


def cross_entropy(hidden, vocabulary, labels):
    logits = hidden @ vocabulary
    return (
        jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None] % logits.shape[1], -1)[:, 0]
    ).mean()


def jacobi(grid):
    def sweep(_, u):
        return u.at[1:-1, 1:-1].set((u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) * 0.25)

    return lax.fori_loop(0, 20, sweep, grid)


def quantized_product(x, w, scale):
    product = lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=i32)
    return jnp.clip(jnp.round(product * scale), -128, 127).astype(i8)


def half_mlp(x, a, b):
    return jax.nn.relu(x @ a) @ b


def bodies(position, mass):
    apart = position[:, None] - position[None]
    cubed = ((apart**2).sum(-1) + 1e-3) ** -1.5
    return -(apart * (mass * cubed)[..., None]).sum(1)


def mandelbrot(real, imaginary):
    def step(_, carry):
        x, y, count = carry
        inside = x * x + y * y < 4
        fresh = x * x - y * y + real, 2 * x * y + imaginary
        return jnp.where(inside, fresh[0], x), jnp.where(inside, fresh[1], y), count + inside

    return lax.fori_loop(0, 40, step, (real * 0, imaginary * 0, jnp.zeros(real.shape, i32)))[2]


def clusters(points, centres):
    distances = ((points**2).sum(1)[:, None] - 2 * points @ centres.T) + (centres**2).sum(1)
    nearest = jnp.argmin(distances, axis=1)
    sums = jax.ops.segment_sum(points, nearest, centres.shape[0])
    return sums / jnp.maximum(jnp.bincount(nearest, length=centres.shape[0]), 1)[:, None]


def decode_step(token, keys, values, w, position):
    heads, length, width = keys.shape
    q, k, v = jnp.split((token @ w).reshape(heads, 3 * width), 3, -1)
    place = (0, position % length, 0)
    keys = lax.dynamic_update_slice(keys, k[:, None], place)
    values = lax.dynamic_update_slice(values, v[:, None], place)
    weights = jax.nn.softmax(jnp.einsum("hd,hkd->hk", q, keys) / width**0.5)
    return jnp.einsum("hk,hkd->hd", weights, values), keys, values


def experts(x, router, up, down):
    weights = jax.nn.softmax(x @ router)
    best = jax.nn.one_hot(jnp.argmax(weights, -1), router.shape[1]) * weights
    hidden = jax.nn.relu(jnp.einsum("te,td,edf->etf", best, x, up))
    return jnp.einsum("etf,efd->td", hidden, down)


def layers(x, w):
    """Layers in a loop, which a compiler compiles only once."""

    def layer(x, w):
        return norm(jax.nn.gelu(x @ w) + x), None

    return lax.scan(layer, x, w)[0]


def array(*shape, dtype=f32):
    return jax.ShapeDtypeStruct(shape, dtype)


MODULES = {
    "attention": (attention, [array(8, 256, 64)] * 3),
    "attention_gradient": (attention_gradient, [array(4, 256, 64)] * 3),
    "rms_gated_mlp": (rms_gated_mlp, [array(128, 256), array(256, 704), array(256, 704), array(704, 256)]),
    "adam_step": (adam_step, [[array(256, 512), array(512, 64)]] * 3 + [array(128, 256), array(128, 64)]),
    "convolution_net": (convolution_net, [array(4, 32, 32, 8), [array(3, 3, 8, 32), array(3, 3, 32, 32)]]),
    "depthwise_convolution": (depthwise_convolution, [array(2, 56, 56, 64), array(3, 3, 1, 64)]),
    "lstm": (lstm, [array(64, 16, 64), array(64, 512), array(128, 512)]),
    "state_space": (state_space, [array(1024, 256), array(1024, 256)]),
    "fourier_filter": (fourier_filter, [array(4, 256, 256)]),
    "embedding_gradient": (embedding_gradient, [array(8192, 128), array(2048, dtype=i32), array(2048, 128)]),
    "sample_top": (sample_top, [array(16, 8192), array(16, 40)]),
    "cross_entropy": (cross_entropy, [array(256, 128), array(128, 8192), array(256, dtype=i32)]),
    "jacobi": (jacobi, [array(512, 512)]),
    "quantized_product": (quantized_product, [array(128, 256, dtype=i8), array(256, 256, dtype=i8), array()]),
    "half_mlp": (half_mlp, [array(64, 512, dtype=bf16), array(512, 1024, dtype=bf16), array(1024, 512, dtype=bf16)]),
    "bodies": (bodies, [array(768, 3), array(768)]),
    "mandelbrot": (mandelbrot, [array(256, 256), array(256, 256)]),
    "clusters": (clusters, [array(8192, 16), array(64, 16)]),
    "decode_step": (
        decode_step,
        [array(1024), array(16, 1024, 64), array(16, 1024, 64), array(1024, 3072), array(dtype=i32)],
    ),
    "experts": (experts, [array(128, 128), array(128, 8), array(8, 128, 256), array(8, 256, 128)]),
}


# some 5 ms of run time that compile in 0.1 s, to time a search
SPEED = {"layers": (layers, [array(448, 448), array(4, 448, 448)])}


def lowered(name):
    function, arguments = (MODULES | SPEED)[name]
    return jax.jit(function).lower(*arguments)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        (folder / f"{name}.mlir").write_text(lowered(name).as_text())
