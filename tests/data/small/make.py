"""Makes the step that tests tune on real runtimes, where `examples/transformer` would take a minute.

    python tests/data/small/make.py

writes `module.mlir` and `registry/` beside this file. It needs this package and jax==0.10.2, and no device. Each program
compiles in a tenth of a second and runs in less than a millisecond.
"""

import json
import os
import pathlib
import shutil

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

import autotune_lowered
from autotune_lowered._native import RegistryWriter

# no folder of the machine that this runs on is in what is committed
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

HERE = pathlib.Path(__file__).resolve().parent


@autotune_lowered.tunable(
    op="split_matmul",
    version=1,
    space={"slices": [32, 16, 8, 4, 2, 1]},
    constraints=[lambda config, arrays: arrays["w"].shape[1] == 64 or config["slices"] in (2, 32)],
)
def split_matmul(x, w, *, slices=32):
    """`x @ w` as a sum over slices of the contracted dimension."""
    left = x.reshape(x.shape[0], slices, -1)
    return jnp.einsum("rsk,skc->src", left, w.reshape(slices, -1, w.shape[1])).sum(0)


def loss(weights, x):
    for w in weights:
        x = jnp.tanh(split_matmul(x, w))
    return jnp.mean(x * x)


def main():
    shutil.rmtree(HERE / "registry", ignore_errors=True)
    spec = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    # four calls, the first with six configs, the others with two each
    weights = [spec(128, 64), spec(64, 32), spec(32, 96), spec(96, 128)]
    with autotune_lowered.recording(HERE / "registry", platforms=("cpu",), directions=("forward-vjp",)) as recorded:
        lowered = jax.jit(jax.value_and_grad(loss)).lower(weights, spec(128, 128))
    autotune_lowered.dump(lowered, HERE / "module.mlir")
    writer = RegistryWriter(HERE / "registry")
    for call in recorded.report():
        # for every CPU, and not only for the one that recorded it
        record = pathlib.Path(call["record"])
        invocation = json.loads(record.read_text())["invocation"]
        record.unlink()
        print(writer.add(json.dumps(invocation | {"target": {"platform": "cpu"}})))


if __name__ == "__main__":
    main()
