"""Makes `kernels/VERSION`: serialized executables for GPUs that are not here, and what other programs say of their kernels.

    python tests/data/targets/kernels.py PROGRAM PLUGIN

PROGRAM is autotune-lowered, PLUGIN the .so of jax-cuda12-pjrt 0.10.2 or jax-cuda13-pjrt 0.11.2, beside it nvidia-cuda-nvcc-cu12
12.9.86 or nvidia-cuda-nvcc 13.0.88. The script needs jax of the same version, GNU readelf and no GPU. Registers, stack and static shared memory in `kernels.json` are the words of `ptxas -v` on the PTX
that XLA dumps, dynamic shared memory is that of XLA's own dump of its thunks, and `readelf` tells the size of the code that
ptxas wrote. Executables are compiled once more without a dump, so that no folder's name stands in them.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

HERE = pathlib.Path(__file__).resolve().parent
BLOCK, STEP, SIZE = 256, 32, 4096


def spilling(x, y):
    """A matrix product whose sums are more than a thread's registers hold."""

    def kernel(x_ref, y_ref, o_ref):
        def step(index, sums):
            part = pl.ds(index * STEP, STEP)
            return sums + jnp.dot(x_ref[:, part], y_ref[part, :], preferred_element_type=jnp.float32)

        zeros = jnp.zeros((BLOCK, BLOCK), jnp.float32)
        o_ref[...] = jax.lax.fori_loop(0, SIZE // STEP, step, zeros).astype(o_ref.dtype)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((SIZE, SIZE), x.dtype),
        grid=(SIZE // BLOCK, SIZE // BLOCK),
        in_specs=[pl.BlockSpec((BLOCK, SIZE), lambda i, j: (i, 0)), pl.BlockSpec((SIZE, BLOCK), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j)),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=2),
    )(x, y)


def loop(x):
    """Kernels within a loop, with static and with dynamic shared memory."""
    return jax.lax.fori_loop(0, 7, lambda _, c: jnp.sin(c) @ c.T @ c / (1 + jnp.sum(c)), x)


def add(x, y):
    return x + y


PROGRAMS = [
    ("add", "a100_sxm_80", add, [jax.ShapeDtypeStruct((4,), jnp.float32)] * 2),
    ("loop", "h100_sxm", loop, [jax.ShapeDtypeStruct((512, 2048), jnp.float32)]),
    ("spilling", "a100_sxm_80", spilling, [jax.ShapeDtypeStruct((SIZE, SIZE), jnp.bfloat16)] * 2),
]


# as the plugin names the targets, with their multiprocessors
DEVICES = {"a100_sxm_80": ("NVIDIA A100-SXM4-80GB", 108), "h100_sxm": ("NVIDIA H100 80GB HBM3", 132)}


def lowered(function, arguments, target):
    """The module's text. From 0.11 on, Pallas wants to know the device."""
    traced = jax.jit(function)
    if jax.version.__version_info__ < (0, 11):
        return traced.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    kind, cores = DEVICES[target]
    device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=cores, platform="gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device)):
        return traced.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


def compile_for(target, module, store, flags):
    program, plugin = sys.argv[1:]
    command = [program, "compile", module, "--target", f"cuda:{target}", "--plugin", plugin, "-o", store]
    subprocess.run(command, check=True, env={**os.environ, "XLA_FLAGS": flags})


def payload(store):
    (kept,) = pathlib.Path(store).glob("executables-*/*.exe")
    kept = kept.read_bytes()
    return kept[44 + int.from_bytes(kept[8:12], "little") :]


def figures(dump, ptxas):
    """By kernel, in the order of their launches."""
    thunks = "".join(path.read_text() for path in dump.glob("*.thunk_sequence.txt"))
    launches = re.findall(r"kCustomKernel .*\] (\S+) grid: .* shared_memory: (\d+) bytes", thunks)
    by_name = {}
    for ptx in dump.glob("*.ptx"):
        if ".entry" not in ptx.read_text():
            continue
        (architecture,) = re.findall(r"^\.target (\S+)", ptx.read_text(), re.MULTILINE)
        cubin = dump / "cubin"
        said = subprocess.run(
            [ptxas, "-v", f"-arch={architecture}", ptx, "-o", cubin], capture_output=True, text=True, check=True
        )
        for name, text in re.findall(r"properties for (\S+)\n((?:.*\n){2})", said.stderr):
            number = lambda what: int((re.findall(what, text) or ["0"])[0])
            sections = subprocess.run(["readelf", "-SW", cubin], capture_output=True, text=True).stdout
            (size,) = re.findall(rf" \.text\.{name} +PROGBITS +\w+ \w+ (\w+)", sections)
            by_name[name] = {
                "code_bytes": int(size, 16),
                "registers": number(r"Used (\d+) registers"),
                "stack_bytes": number(r"(\d+) bytes stack frame"),
                "static": number(r"(\d+) bytes smem"),
            }
    told = []
    for name, dynamic in launches:
        kernel = {"name": name, **by_name[name]}
        kernel["shared_bytes"] = kernel.pop("static") + int(dynamic)
        told += [kernel] if kernel not in told else []
    return told


def main():
    made = HERE / "kernels" / jax.__version__
    made.mkdir(parents=True, exist_ok=True)
    # CUDA 12's package, and CUDA 13's
    packages = pathlib.Path(sys.argv[2]).resolve().parents[2]
    ptxas = next(path for name in ("cuda_nvcc", "cu13") for path in packages.glob(f"nvidia/{name}/bin/ptxas"))
    said = {}
    for name, target, function, arguments in PROGRAMS:
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            module = scratch / "module.mlir"
            module.write_text(lowered(function, arguments, target))
            compile_for(
                target, module, scratch / "dumped", f"--xla_dump_to={scratch / 'dump'} --xla_dump_emitter_re=.*"
            )
            compile_for(target, module, scratch / "plain", "")
            (made / f"{name}.executable").write_bytes(payload(scratch / "plain"))
            said[name] = figures(scratch / "dump", ptxas)
    (made / "kernels.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
