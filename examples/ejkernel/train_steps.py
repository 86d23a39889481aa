"""A train step of each of seven ejkernel operations, small: recorded under `jit`, and tuned from its module.

pip install '.[jax]' ejkernel
python examples/ejkernel/train_steps.py                                # all of them, a minute or two on a CPU
python examples/ejkernel/train_steps.py grouped_matmul mean_pooling    # some
"""

import os
import pathlib
import subprocess
import sys
import tempfile

# this package does the tuning; ejkernel uses its heuristics
os.environ.setdefault("EJKERNEL_AUTOTUNE_POLICY", "heuristics")

import attention
import jax
import jax.numpy as jnp
from ejkernel.modules import operations as ejkernel

import autotune_lowered

Q = jax.ShapeDtypeStruct((1, 64, 1, 16), jnp.float32)
GATE = jax.ShapeDtypeStruct((1, 64, 1), jnp.float32)
HEADS = jax.ShapeDtypeStruct((1, 1, 128, 16), jnp.float32)
# known when the step is traced, like packed sequences of one length
LENGTHS = jnp.array([0, 32, 64], jnp.int32)
GROUPS = jnp.array([16, 8, 24, 16], jnp.int32)


def spec(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def gated(operation):
    # `beta` between 0 and 1, `decay` below 0, as the recurrences require
    return lambda q, k, v, beta, decay: operation(q, k, v, jax.nn.sigmoid(beta), -jax.nn.softplus(decay)).sum()


def recurrent(query, key, value):
    # without lengths, ejkernel's derivative of this operation cannot be traced
    return ejkernel.recurrent_attention(query, key, value, None, None, None, None, None, LENGTHS).sum()


LOSSES = {
    "kernel_delta_attention": (gated(ejkernel.kernel_delta_attention), (Q, Q, Q, GATE, GATE)),
    "gated_delta_rule": (gated(ejkernel.gated_delta_rule), (Q, Q, Q, GATE, GATE)),
    "blocksparse_attention": (
        lambda query, key, value: ejkernel.blocksparse_attention(query, key, value, causal=True).sum(),
        (HEADS, HEADS, HEADS),
    ),
    "recurrent": (recurrent, (Q, Q, Q)),
    "grouped_matmul": (
        lambda rows, weights: ejkernel.grouped_matmul(rows, weights, GROUPS).sum(),
        (spec(64, 32), spec(4, 32, 64)),
    ),
    "mean_pooling": (lambda x: ejkernel.mean_pooling(x).sum(), (spec(2, 64, 32),)),
    "fused_cross_entropy": (
        lambda logits, targets: ejkernel.fused_cross_entropy(logits, targets).loss.sum(),
        (spec(64, 2048), spec(64, dtype=jnp.int32)),
    ),
}


def train_step(loss):
    """One step of gradient descent."""

    def step(parameters, *rest):
        value, gradient = jax.value_and_grad(loss)(parameters, *rest)
        return value, parameters - 0.1 * gradient

    return step


def tune(name, folder, timer=(), **options):
    """Records and tunes one train step; returns the program's finished process."""
    loss, arguments = LOSSES[name]
    folder = pathlib.Path(folder)
    with autotune_lowered.recording(folder / "registry"):
        lowered = jax.jit(train_step(loss)).lower(*arguments)
    module = autotune_lowered.dump(lowered, folder / "module.mlir")
    command = [attention.program(), module, "--registry", folder / "registry", "--cache", folder / "cache"]
    command += [*(timer or attention.timer())]
    return subprocess.run([str(word) for word in command], check=False, timeout=300, **options)


def main(names):
    codes = {}
    for name in names or LOSSES:
        with tempfile.TemporaryDirectory() as folder:
            codes[name] = tune(name, folder).returncode
    print(*(f"{name}: exit code {code}" for name, code in codes.items()), sep="\n")
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
