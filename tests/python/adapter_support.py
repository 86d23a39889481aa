"""Calls of kernels that other projects own, with few configs each, so that a test need not lower a whole space."""

import importlib
import json
import os
import pathlib
import sys
import types

import jax
import jax.numpy as jnp
import pytest

import autotune_lowered
from autotune_lowered.adapters import sets

OPS = "jax.experimental.pallas.ops."
BF16, F16, F32, I8, I32 = jnp.bfloat16, jnp.float16, jnp.float32, jnp.int8, jnp.int32


def spec(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype)


def of_jax(module):
    return importlib.import_module(OPS + module)


def tiles(kernel, **more):
    return kernel.TuningConfig(tile_m=64, tile_n=128, tile_k=64, max_concurrent_steps=2, **more)


def splash(kind, heads, **options):
    """A kernel as MaxText makes it, inside of what is traced."""
    kernels, masks = (of_jax(f"tpu.splash_attention.splash_attention_{name}") for name in ("kernel", "mask"))
    sizes = dict(block_q=512, block_kv=512, block_kv_compute=256)
    backward = dict(block_q_dkv=512, block_kv_dkv=512, block_kv_dkv_compute=512, block_q_dq=512, block_kv_dq=512)
    mask = masks.MultiHeadMask([masks.CausalMask((1024, 1024))] * heads)
    options = {"head_shards": 1, "q_seq_shards": 1} | options
    return getattr(kernels, f"make_splash_{kind}")(mask, block_sizes=kernels.BlockSizes(**sizes, **backward), **options)


GROUPED = (spec((1024, 512), F16), spec((8, 512, 512), F16), spec((8,), I32))
RAGGED = dict(block_m=64, block_n=64, block_k=64, max_concurrent_steps=2, grid_block_n=2)
NORM = (spec((2, 8, 1024), F32), spec((1024,), F32), spec((1024,), F32))

# by operation: the target, how a user calls it, its arrays, and how two configs differ
JAX_CALLS = {
    "jax.tpu.flash_attention": (
        "tpu:v6e",
        lambda *a: of_jax("tpu.flash_attention").flash_attention(*a, causal=True),
        (spec((1, 4, 1024, 128), BF16),) * 3,
        {"block_q": (128, 512)},
    ),
    "jax.tpu.splash_mha": (
        "tpu:v6e",
        lambda *a: jax.vmap(splash("mha", heads=4))(*a),
        (spec((2, 4, 1024, 128), BF16),) * 3,
        {"block_q": (128, 256)},
    ),
    "jax.tpu.splash_mqa": (
        "tpu:v6e",
        lambda *a: splash("mqa", heads=4)(*a),
        (spec((4, 1024, 128), BF16), *(spec((1024, 128), BF16),) * 2),
        {"block_kv": (256, 512)},
    ),
    "jax.tpu.gmm": (
        "tpu:v6e",
        lambda *a: of_jax("tpu.megablox").gmm(*a),
        (spec((1024, 512), BF16), spec((8, 512, 512), BF16), spec((8,), I32)),
        {"tm": (128, 512)},
    ),
    "jax.tpu.tgmm": (
        "tpu:v6e",
        lambda *a: of_jax("tpu.megablox.gmm").tgmm(*a),
        (spec((512, 1024), BF16), spec((1024, 512), BF16), spec((8,), I32)),
        {"tn": (128, 512)},
    ),
    "jax.tpu.matmul": (
        "tpu:v6e",
        lambda x, y: of_jax("tpu.matmul").matmul(x, y, block_shape=(256, 256)),
        (spec((1024, 1024), BF16),) * 2,
        {"block_k": (256, 512)},
    ),
    "jax.tpu.paged_attention": (
        "tpu:v6e",
        lambda *a: of_jax("tpu.paged_attention").paged_attention(*a, pages_per_compute_block=4),
        (
            spec((8, 16, 128), BF16),
            spec((8, 256, 16, 128), BF16),
            spec((8, 256, 16, 128), BF16),
            spec((8,), I32),
            spec((8, 32), I32),
        ),
        {"pages_per_compute_block": (4, 8)},
    ),
    "jax.tpu.ragged_paged_attention": (
        "tpu:v6e",
        lambda *a: of_jax("tpu.ragged_paged_attention").ragged_paged_attention(*a),
        (
            spec((256, 16, 128), BF16),
            spec((256, 16, 8, 128), BF16),
            spec((16,), I32),
            spec((16, 32), I32),
            spec((17,), I32),
            spec((1,), I32),
        ),
        {"num_queries_per_block": (8, 16)},
    ),
    "jax.gpu.mha": (
        "cuda:h100_sxm",
        lambda *a: of_jax("gpu.attention").mha(*a, segment_ids=None),
        (spec((2, 1024, 4, 64), F16),) * 3,
        {"block_q": (64, 128)},
    ),
    "jax.gpu.decode_mqa": (
        "cuda:h100_sxm",
        lambda *a: of_jax("gpu.decode_attention").mqa(*a),
        (spec((2, 8, 64), F16), *(spec((2, 1024, 64), F16),) * 2),
        {"k_splits": (8, 16)},
    ),
    "jax.gpu.decode_gqa": (
        "cuda:h100_sxm",
        lambda *a: of_jax("gpu.decode_attention").gqa(*a),
        (spec((2, 8, 64), F16), *(spec((2, 1024, 2, 64), F16),) * 2),
        {"k_splits": (8, 16)},
    ),
    "jax.gpu.paged_attention": (
        "cuda:h100_sxm",
        lambda *a: of_jax("gpu.paged_attention").paged_attention(*a),
        (spec((8, 16, 64), F16), *(spec((4, 256, 16, 64), F16),) * 2, spec((8, 128), I32), spec((8,), I32)),
        {"pages_per_compute_block": (4, 8)},
    ),
    "jax.gpu.layer_norm": (
        "cuda:h100_sxm",
        lambda *a: of_jax("gpu.layer_norm").layer_norm(*a),
        NORM,
        {"num_stages": (1, 3)},
    ),
    "jax.gpu.rms_norm": (
        "cuda:h100_sxm",
        lambda *a: of_jax("gpu.rms_norm").rms_norm(*a),
        NORM,
        {"num_stages": (1, 3)},
    ),
    "jax.gpu.softmax": (
        "cuda:h100_sxm",
        lambda x: of_jax("gpu.softmax").softmax(x),
        (spec((8, 1024), F32),),
        {"num_warps": (4, 8)},
    ),
    "jax.gpu.attention_mgpu": (
        "cuda:h100_sxm",
        lambda *a: of_jax("gpu.attention_mgpu").attention(
            *a, of_jax("gpu.attention_mgpu").TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2)
        ),
        (spec((1, 1024, 4, 64), F16),) * 3,
        {"block_kv": (64, 128)},
    ),
    "jax.gpu.hopper_matmul": (
        "cuda:h100_sxm",
        lambda x, y: of_jax("gpu.hopper_matmul_mgpu").matmul(x, y, None, tiles(of_jax("gpu.hopper_matmul_mgpu"))),
        (spec((1024, 1024), F16),) * 2,
        {"tile_n": (64, 128)},
    ),
    "jax.gpu.hopper_mixed_type_matmul": (
        "cuda:h100_sxm",
        lambda x, y: of_jax("gpu.hopper_mixed_type_matmul_mgpu").mixed_matmul_kernel(
            x, y, out_dtype=jnp.dtype(BF16), config=tiles(of_jax("gpu.hopper_mixed_type_matmul_mgpu"))
        ),
        (spec((1024, 1024), I8), spec((1024, 1024), BF16)),
        {"tile_n": (64, 128)},
    ),
    "jax.gpu.blackwell_matmul": (
        "cuda:b200",
        lambda x, y: of_jax("gpu.blackwell_matmul_mgpu").matmul_kernel(
            x,
            y,
            of_jax("gpu.blackwell_matmul_mgpu").TuningConfig(
                tile_m=128, tile_n=128, tile_k=64, max_concurrent_steps=4, collective=False
            ),
        ),
        (spec((1024, 1024), F16),) * 2,
        {"max_concurrent_steps": (2, 4)},
    ),
    "jax.gpu.ragged_dot": (
        "cuda:h100_sxm",
        lambda x, y, g: of_jax("gpu.ragged_dot_mgpu").ragged_dot(x, y, group_sizes=g, **RAGGED),
        GROUPED,
        {"block_n": (64, 128)},
    ),
    "jax.gpu.transposed_ragged_dot": (
        "cuda:h100_sxm",
        lambda x, y, g: of_jax("gpu.transposed_ragged_dot_mgpu").transposed_ragged_dot(x, y, group_sizes=g, **RAGGED),
        (spec((1024, 512), F16), spec((1024, 512), F16), spec((8,), I32)),
        {"block_n": (64, 128)},
    ),
}


def without_cuda(name, monkeypatch):
    """Skips the test if this JAX has no such kernel. Some kernels ask for CUDA's version, which is not here, even where they
    are lowered for a device that is absent, and get one."""
    (owner,) = {one.module for one in sets.operations("jax-pallas") if one.op == name and "ops:" not in one.function}
    try:
        held = importlib.import_module(owner)
    except ImportError as error:
        pytest.skip(f"this JAX has no {owner}: {error}")
    if hasattr(held, "cuda_versions"):
        monkeypatch.setattr(held, "cuda_versions", types.SimpleNamespace(cuda_runtime_get_version=lambda: 13000))


def lowered(function, arrays, target):
    return jax.jit(function).trace(*arrays).lower(lowering_platforms=(target.partition(":")[0],))


def records(folder):
    return [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("invocations/*/*.json")]


# packages whose own code imports what kernels do not need (vLLM, a trainer's configuration), so that they are replaced
# by empty ones
HOLLOW = {
    "tpu_inference": ("tpu_inference",),
    "sgl_jax": (),
    "maxtext": ("maxtext", "maxtext.kernels", "maxtext.kernels.attention", "maxtext.kernels.megablox"),
}


def project(name):
    """Makes the kernels of a project importable, of the first folder with it that a variable names, or as they are
    installed. Skips the test if there are none."""
    if name in sys.modules:
        return
    named = os.environ.get("AUTOTUNE_LOWERED_TEST_PROJECTS")
    folders = [pathlib.Path(folder) for folder in (named.split(os.pathsep) if named else sys.path) if folder]
    root = next((folder for folder in folders if (folder / name).is_dir()), None)
    if root is None:
        pytest.skip(f"no {name} is installed, and AUTOTUNE_LOWERED_TEST_PROJECTS names none")
    if named:
        sys.path.append(str(root))
    for package in HOLLOW[name]:
        module(package, __path__=[str(root.joinpath(*package.split(".")))])
    if name == "tpu_inference":
        # of its helpers, which import torch, kernels use one
        module("tpu_inference.utils", align_to=lambda value, to: -(-value // to) * to)
        module("tpu_inference.logger", init_logger=lambda name: Logger())
    if name == "sgl_jax" and (root / "sgl_jax/srt/kernels").is_dir():
        # its sources import a server's helpers, of which kernels use one
        module("sgl_jax.srt.utils", __path__=[str(root / "sgl_jax/srt/utils")])
        module("sgl_jax.srt.utils.common_utils", next_power_of_2=lambda n: 1 << (n - 1).bit_length())
    if name == "maxtext":
        module("maxtext.layers", __path__=[]).quantizations = module("maxtext.layers.quantizations")
    if "sympy" not in sys.modules and importlib.util.find_spec("sympy") is None:
        module("sympy", divisors=lambda n: [k for k in range(1, n + 1) if n % k == 0])


class Logger:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def module(name, **members):
    """An empty module, also as a member of its parent."""
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(members)
    parent, _, own = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], own, sys.modules[name])
    return sys.modules[name]


def of_tpu_inference(name):
    return importlib.import_module(f"tpu_inference.kernels.{name}")


def of_sglang(name):
    """A kernel of one of its versions: 0.0.2 has `layers`, and later ones `kernels`."""
    if name.startswith("layers.attention") and not hasattr(importlib.import_module("jax._src.dtypes"), "bit_width"):
        pytest.skip("the attention of this sglang_jax is for an older JAX")
    try:
        return importlib.import_module(f"sgl_jax.srt.{name}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("sgl_jax.srt"):
            raise
        pytest.skip(f"the sglang_jax that AUTOTUNE_LOWERED_TEST_PROJECTS names has no {name}")


def one_tpu(second="model"):
    """A mesh whose only device is not here. Its kernels ask it for the chip."""
    return autotune_lowered.target_mesh("tpu:v6e:1x1", (1, 1), ("data", second), [jax.sharding.AxisType.Auto] * 2)


def of_maxtext(name):
    return importlib.import_module(f"maxtext.kernels.{name}")


def rpa_arrays(sequences=16, pages_each=32, page_size=64):
    cache = of_tpu_inference("ragged_paged_attention.v3.kernel").get_kv_cache_shape(256, page_size, 2, 128, BF16)
    return (
        spec((256, 8, 128), BF16),
        *(spec((256, 2, 128), BF16),) * 2,
        spec(cache, BF16),
        spec((sequences,), I32),
        spec((sequences * pages_each,), I32),
        spec((sequences + 1,), I32),
        spec((3,), I32),
    )


def mla_arrays():
    cache = of_tpu_inference("mla.v2.kernel").get_kv_cache_shape(256, 64, 512 + 128, BF16)
    return (
        spec((16, 128, 512), BF16),
        spec((128, 16, 64), BF16),
        spec((128, 512), BF16),
        spec((128, 64), BF16),
        spec(cache, BF16),
        spec((16,), I32),
        spec((512,), I32),
        spec((17,), I32),
        spec((3,), I32),
    )


GMM = (spec((1024, 512), BF16), spec((8, 512, 512), BF16), spec((8,), I32))
SGLANG_RPA = (
    spec((256, 8, 128), BF16),
    *(spec((256, 2, 128), BF16),) * 2,
    spec((256, 64, 4, 128), BF16),
    spec((16,), I32),
    spec((512,), I32),
    *(spec((17,), I32),) * 2,
    spec((3,), I32),
)


def maxtext_splash(*arrays):
    kernels = of_maxtext("attention.splash_attention_kernel")
    masks = of_jax("tpu.splash_attention.splash_attention_mask")
    sizes = kernels.BlockSizes(block_q=512, block_kv=512, block_kv_compute=256)
    mask = masks.MultiHeadMask([masks.CausalMask((1024, 1024))] * 4)
    kernel = kernels.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
    return kernel(*arrays)


# by operation: its set, its package, how a user calls it, and its arrays
SERVING_CALLS = {
    "tpu_inference.rpa_v3": (
        "tpu-inference",
        "tpu_inference",
        lambda *a: of_tpu_inference("ragged_paged_attention.v3.kernel").ragged_paged_attention(*a),
        rpa_arrays,
    ),
    "tpu_inference.mla_v2": (
        "tpu-inference",
        "tpu_inference",
        lambda *a: of_tpu_inference("mla.v2.kernel").mla_ragged_paged_attention(
            *a, num_kv_pages_per_block=2, num_queries_per_block=4
        ),
        mla_arrays,
    ),
    "tpu_inference.quantized_matmul": (
        "tpu-inference",
        "tpu_inference",
        lambda *a: of_tpu_inference("quantized_matmul.kernel").quantized_matmul_kernel(*a, x_q_dtype=I8),
        lambda: (spec((256, 1024), BF16), spec((1024, 1024), I8), spec((1024,), F32)),
    ),
    "tpu_inference.fused_moe": (
        "tpu-inference",
        "tpu_inference",
        lambda *a: of_tpu_inference("fused_moe.v1.kernel").fused_ep_moe(one_tpu(), *a, top_k=2),
        lambda: (
            spec((128, 2048), BF16),
            spec((8, 2, 2048, 1024), BF16),
            spec((8, 1024, 2048), BF16),
            spec((128, 8), BF16),
        ),
    ),
    "tpu_inference.gmm": (
        "tpu-inference",
        "tpu_inference",
        lambda *a: of_tpu_inference("megablox.gmm").gmm(*a),
        lambda: GMM,
    ),
    "tpu_inference.flash_attention": (
        "tpu-inference",
        "tpu_inference",
        lambda *a: of_tpu_inference("flash_attention.kernel").flash_attention(*a),
        lambda: (spec((1, 4, 1024, 128), BF16),) * 3,
    ),
    "sglang_jax.rpa": (
        "sglang-jax",
        "sgl_jax",
        lambda *a: of_sglang("layers.attention.flash_attn_kernel.flash_attention").ragged_paged_attention(*a),
        lambda: SGLANG_RPA,
    ),
    "sglang_jax.gmm": (
        "sglang-jax",
        "sgl_jax",
        lambda *a: of_sglang("layers.gmm.megablox_gmm_kernel.gmm").gmm(*a),
        lambda: GMM,
    ),
    "sglang_jax.ragged_paged_attention": (
        "sglang-jax",
        "sgl_jax",
        lambda *a: of_sglang("kernels.ragged_paged_attention.ragged_paged_attention").ragged_paged_attention(*a, None),
        lambda: SGLANG_RPA,
    ),
    "sglang_jax.fused_moe": (
        "sglang-jax",
        "sgl_jax",
        lambda *a: of_sglang("kernels.fused_moe.v1.kernel").fused_ep_moe(one_tpu("tensor"), *a, top_k=2),
        lambda: (
            spec((128, 2048), BF16),
            spec((8, 2048, 1024), BF16),
            spec((8, 1024, 2048), BF16),
            spec((8, 2048, 1024), BF16),
            spec((128, 2), F32),
            spec((128, 2), I32),
        ),
    ),
    "sglang_jax.gmm_v1": (
        "sglang-jax",
        "sgl_jax",
        lambda *a: of_sglang("kernels.gmm.megablox_gmm_kernel.gmm").gmm(*a),
        lambda: GMM,
    ),
    "sglang_jax.gmm_v2": (
        "sglang-jax",
        "sgl_jax",
        lambda *a: of_sglang("kernels.gmm.megablox_gmm_kernel.gmm_v2").gmm_v2(*a),
        lambda: GMM,
    ),
    "sglang_jax.quantized_matmul": (
        "sglang-jax",
        "sgl_jax",
        lambda *a: of_sglang("kernels.quantized_matmul.quantized_matmul_kernels.kernel").quantized_matmul_kernel(
            *a, x_q_dtype=I8
        ),
        lambda: (spec((256, 1024), BF16), spec((1024, 1024), I8), spec((1024,), F32)),
    ),
    "maxtext.splash_mha": ("maxtext", "maxtext", maxtext_splash, lambda: (spec((4, 1024, 128), BF16),) * 3),
    "maxtext.gmm": ("maxtext", "maxtext", lambda *a: of_maxtext("megablox.ops").gmm(*a), lambda: GMM),
    "maxtext.gmm_v2": (
        "maxtext",
        "maxtext",
        lambda *a: of_maxtext("megablox.pallas_mosaic_tpu_v2_gmm_kernel").gmm_v2(*a),
        lambda: GMM,
    ),
    "maxtext.tgmm_kernel": (
        "maxtext",
        "maxtext",
        lambda *a: of_maxtext("megablox.backend").tgmm(*a),
        lambda: (spec((512, 1024), BF16), spec((1024, 512), BF16), spec((8,), I32)),
    ),
}
