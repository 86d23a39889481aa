"""The programs that the kit tunes and measures, and their recorder.

    JAX_PLATFORMS=cpu python programs.py OUT cuda:h100_sxm cuda:h200

writes `OUT/cuda` for these targets and `OUT/cpu` for a rehearsal on a CPU. Both hold the same names:

    product     a matrix product with configs to choose from: the main job
    few         a small product with few configs, for what must only be shown once
    step        a step of six kernels around that product, with three configs
    bad         two right candidates, and others that misbehave
    attention   Tokamax's attention for these GPUs (cuda alone)
    step_old.mlir, step_new.mlir   such a step around the large product, with its baseline and with a good config
    small.mlir   the same around the small product
    stream.mlir  one pass over 8 MB, which fit into second-level caches

It needs jax, this package and for `attention` Tokamax, but no GPU. The functions are also imported by what checks the
results on the machine itself, where this package is not installed.
"""

import logging
import os
import pathlib
import sys
import tempfile

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

SHAPES = {"cuda": (4096, 1024), "cpu": (768, 384)}
DTYPES = {"cuda": jnp.bfloat16, "cpu": jnp.float32}
ATTENTION = (1, 4096, 16, 128)
ELEMENTS = 1 << 20

# an H100 refuses the largest tiles, because they need more shared memory than it has
CUDA_CONFIGS = [
    {"block_m": m, "block_n": n, "block_k": k, "num_warps": warps, "num_stages": stages}
    for m, n, k, warps, stages in [
        (64, 64, 32, 4, 3),
        (64, 64, 64, 4, 2),
        (64, 128, 32, 4, 4),
        (64, 128, 64, 4, 3),
        (128, 64, 64, 4, 3),
        (128, 128, 32, 4, 2),
        (128, 128, 32, 4, 4),
        (128, 128, 64, 4, 3),
        (128, 128, 64, 8, 3),
        (128, 128, 128, 4, 4),
        (128, 256, 64, 8, 3),
        (128, 256, 64, 8, 4),
        (256, 128, 64, 8, 3),
        (256, 128, 128, 8, 3),
        (256, 256, 64, 8, 4),
        (256, 64, 64, 4, 4),
    ]
]
# the first is the baseline, and far from the best on any CPU
CPU_CONFIGS = [{"block": block} for block in (4, 6, 8, 12, 48, 96, 192, 384)]
CONFIGS = {"cuda": CUDA_CONFIGS, "cpu": CPU_CONFIGS}
# a config that is known to be good, for the step
GOOD = {"cuda": CUDA_CONFIGS[8], "cpu": CPU_CONFIGS[-1]}
FEW = {"cuda": CUDA_CONFIGS[:5] + CUDA_CONFIGS[7:9] + CUDA_CONFIGS[15:], "cpu": CPU_CONFIGS}


def cuda_product(x, y, *, block_m=64, block_n=64, block_k=32, num_warps=4, num_stages=3):
    """A Pallas-Triton matrix product."""
    size = x.shape[0]

    def kernel(x_ref, y_ref, o_ref):
        def step(index, sums):
            part = pl.ds(index * block_k, block_k)
            return sums + jnp.dot(x_ref[:, part], y_ref[part, :], preferred_element_type=jnp.float32)

        zeros = jnp.zeros(o_ref.shape, jnp.float32)
        o_ref[...] = jax.lax.fori_loop(0, size // block_k, step, zeros).astype(o_ref.dtype)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((size, size), x.dtype),
        grid=(size // block_m, size // block_n),
        in_specs=[
            pl.BlockSpec((block_m, size), lambda i, j: (i, 0)),
            pl.BlockSpec((size, block_n), lambda i, j: (0, j)),
        ],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        compiler_params=plgpu.CompilerParams(num_warps=num_warps, num_stages=num_stages),
    )(x, y)


def cpu_product(x, y, *, block=4):
    """A matrix product that adds up some columns at a time: small blocks pass over the sums more often."""

    def step(index, sums):
        left = jax.lax.dynamic_slice_in_dim(x, index * block, block, 1)
        right = jax.lax.dynamic_slice_in_dim(y, index * block, block, 0)
        return sums + left @ right

    return jax.lax.fori_loop(0, x.shape[1] // block, step, jnp.zeros_like(x))


PRODUCTS = {"cuda": cuda_product, "cpu": cpu_product}


def elementwise(kernel, x):
    """A Pallas-Triton kernel over blocks of a vector."""
    spec = pl.BlockSpec((1024,), lambda i: (i,))
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(x.shape[0] // 1024,),
        in_specs=[spec],
        out_specs=spec,
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=1),
    )(x)


def doubled(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2


def endless(start):
    """Minutes of dependent arithmetic."""

    def turn(_, value):
        return value * 1.0000001 + jnp.sin(value) * 1e-9

    return jax.lax.fori_loop(0, 8, lambda _, value: jax.lax.fori_loop(0, 1 << 30, turn, value), start)


def hundred_gigabytes(x):
    """Twice `x`, by way of an array of 100 GB that no fusion avoids."""
    wide = jnp.broadcast_to(x[:, None], (x.shape[0], 25_000_000_000 // x.shape[0]))
    return x * 2 + jnp.sort(wide + jnp.arange(wide.shape[1], dtype=x.dtype), axis=1)[:, 0] * 0


def too_much_shared_memory(x):
    """Twice `x`, beside a product whose operands fit no multiprocessor."""

    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    square = jnp.broadcast_to(x[:512, None], (512, 512))
    whole = pl.BlockSpec((512, 512), lambda: (0, 0))
    product = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.float32),
        in_specs=[whole, whole],
        out_specs=whole,
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=4),
    )(square, square)
    return x * 2 + product[0, 0] * 0


def out_of_bounds(x):
    """Twice `x`, and a write four gigabytes before it, where no pool of memory can be that begins with it."""

    def kernel(x_ref, o_ref):
        far = pl.program_id(0) * 0 - (1 << 30)
        plgpu.store(o_ref.at[pl.ds(far, 1024)], x_ref[...])
        o_ref[...] = x_ref[...] * 2

    return elementwise(kernel, x)


def added(x_ref, o_ref):
    o_ref[...] = x_ref[...] + x_ref[...]


def wrong(x_ref, o_ref):
    o_ref[...] = x_ref[...] * 2.5


def slow(x_ref, o_ref):
    o_ref[...] = endless(x_ref[...])


def cuda_bad(x, *, mode="right"):
    """Doubles a vector, or misbehaves."""
    return {
        "right": lambda: elementwise(doubled, x),
        "right-too": lambda: elementwise(added, x),
        "wrong": lambda: elementwise(wrong, x),
        "out-of-bounds": lambda: out_of_bounds(x),
        "minutes": lambda: elementwise(slow, x),
        "100-gigabytes": lambda: hundred_gigabytes(x),
        "shared-memory": lambda: too_much_shared_memory(x),
    }[mode]()


def cpu_bad(x, *, mode="right"):
    """Doubles a vector, or misbehaves as far as a program for a CPU can."""
    return {
        "right": lambda: x * 2,
        "right-too": lambda: jnp.sin(x) * 0 + x + x,
        "wrong": lambda: x * 2.5,
        "minutes": lambda: endless(x),
        "100-gigabytes": lambda: hundred_gigabytes(x),
    }[mode]()


BAD = {"cuda": cuda_bad, "cpu": cpu_bad}
MODES = {
    "cuda": ["right", "right-too", "wrong", "out-of-bounds", "minutes", "100-gigabytes", "shared-memory"],
    "cpu": ["right", "right-too", "wrong", "minutes", "100-gigabytes"],
}


def layers(x, w1, w2):
    """Four layers of a network: matrix products, reductions and fusions."""
    for _ in range(4):
        y = jax.nn.gelu(x @ w1) @ w2
        x = x + (y - jnp.mean(y, -1, keepdims=True)) * jax.lax.rsqrt(jnp.var(y, -1, keepdims=True) + 1e-5)
    return x


def stream(x):
    """One pass over an array."""
    return x * 2 + 1


def three_products(platform):
    """Three products in a row, with other work between them: six kernels. Its config is that of the products."""
    product = PRODUCTS[platform]

    def on_cuda(x, y, *, block_m=64, block_n=64, block_k=32, num_warps=4, num_stages=3):
        config = dict(block_m=block_m, block_n=block_n, block_k=block_k, num_warps=num_warps, num_stages=num_stages)
        return in_a_row(lambda x: product(x, y, **config), x)

    def on_cpu(x, y, *, block=4):
        return in_a_row(lambda x: product(x, y, block=block), x)

    return {"cuda": on_cuda, "cpu": on_cpu}[platform]


def in_a_row(product, x):
    for _ in range(3):
        x = jnp.tanh(product(x)) + x
    return x


class Recorder:
    """Writes the programs of one platform."""

    def __init__(self, folder, platform, targets):
        self.folder, self.platform = pathlib.Path(folder) / platform, platform
        self.targets = targets
        self.folder.mkdir(parents=True, exist_ok=True)

    def lower(self, function, arguments):
        return jax.jit(function).trace(*arguments).lower(lowering_platforms=(self.platform,))

    def recordings(self, registry):
        """One after the other: for each target, or for any device of the platform."""
        import autotune_lowered

        options = [{"target": target} for target in self.targets] or [{"platforms": (self.platform,)}]
        for option in options:
            with autotune_lowered.recording(registry, directions=("forward",), **option) as recorded:
                yield
            for call in recorded.report():
                print(f"{self.platform} {call['op_id']}: {call['programs']} programs of {call['candidates']} configs")
                if call["not_lowered"] or not call["programs"]:
                    raise SystemExit(f"{self.platform} {call['op_id']}: {call['not_lowered'] or call}")

    def call(self, name, function, *arguments):
        """Records the calls of a function, and dumps it."""
        import autotune_lowered

        place = self.folder / name
        for _ in self.recordings(str(place / "registry")):
            lowered = self.lower(function, arguments)
        autotune_lowered.dump(lowered, str(place / "module.mlir"))

    def tunable(self, name, function, configs, *arguments):
        """Records a call of a function with these configs."""
        import autotune_lowered

        tunable = autotune_lowered.tunable(op=name, version=1, candidates=configs)(function)
        self.call(name, lambda *values: tunable(*values), *arguments)

    def plain(self, name, function, *arguments):
        """Dumps a function that has no labels."""
        import autotune_lowered

        autotune_lowered.dump(self.lower(function, arguments), str(self.folder / f"{name}.mlir"))

    def all(self):
        large, small = (jax.ShapeDtypeStruct((size, size), DTYPES[self.platform]) for size in SHAPES[self.platform])
        product, bad = PRODUCTS[self.platform], BAD[self.platform]
        for name, configs, shape in (("product", CONFIGS, large), ("few", FEW, small)):
            self.tunable(name, product, configs[self.platform], shape, shape)
        self.tunable("step", three_products(self.platform), FEW[self.platform][:3], small, small)
        modes = [{"mode": mode} for mode in MODES[self.platform]]
        self.tunable("bad", bad, modes, jax.ShapeDtypeStruct((ELEMENTS,), jnp.float32))
        self.plain("stream", stream, jax.ShapeDtypeStruct((2 * ELEMENTS,), jnp.float32))
        good, whole = GOOD[self.platform], large if self.platform == "cuda" else small
        self.step("step_old", CONFIGS[self.platform][0], whole)
        self.step("step_new", good, whole)
        self.step("small", good, small)
        if self.platform == "cuda":
            self.attention()

    def step(self, name, config, shape):
        import autotune_lowered

        # Pallas asks which GPU it lowers for, and a recording answers
        with tempfile.TemporaryDirectory() as unused:
            for _ in self.recordings(unused):
                lowered = self.lower(lambda x, y: three_products(self.platform)(x, y, **config), (shape, shape))
        autotune_lowered.dump(lowered, str(self.folder / f"{name}.mlir"))

    def attention(self):
        import tokamax

        shape = jax.ShapeDtypeStruct(ATTENTION, jnp.bfloat16)
        self.call("attention", lambda q, k, v: tokamax.dot_product_attention(q, k, v), shape, shape, shape)


def main():
    out, *targets = sys.argv[1:]
    # no folder of the machine that this runs on stands in what is recorded
    jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
    # some modules have no labels on purpose
    logging.getLogger("autotune_lowered").setLevel(logging.ERROR)
    Recorder(out, "cuda", targets).all()
    Recorder(out, "cpu", []).all()


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
