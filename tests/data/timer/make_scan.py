"""Writes `scan.CHUNK.mlirbc`: h = 7/8 h + x along 256 rows of 64 numbers in bf16, in chunks of so many rows, and
`scan.wrong.mlirbc`, the chunks of 32 with one tile of 8 × 64 computed without what comes before its chunk. JAX 0.10.2.

python make_scan.py
"""

import jax
import jax.numpy as jnp
from jax import export, lax

DECAY = jnp.bfloat16(0.875)


def scan(x, chunk, wrong=False):
    parts = x.reshape(-1, chunk, x.shape[1])

    def step(carry, row):
        carry = DECAY * carry + row
        return carry, carry

    zero = jnp.zeros_like(parts[:, 0])
    _, own = lax.scan(step, zero, parts.swapaxes(0, 1))
    decay = jnp.cumprod(jnp.full(chunk, DECAY))

    def join(before, last):
        return decay[-1] * before + last, before

    _, before = lax.scan(join, zero[0], own[-1])
    if wrong:
        tile = jnp.arange(before.shape[0]) == 5
        kept = jnp.where(tile[:, None], jnp.bfloat16(0), before)
        late = (jnp.arange(chunk) < 8)[None, :, None]
        whole = own.swapaxes(0, 1) + decay[None, :, None] * jnp.where(late, kept[:, None], before[:, None])
    else:
        whole = own.swapaxes(0, 1) + decay[None, :, None] * before[:, None]
    return whole.reshape(x.shape)


shape = jax.ShapeDtypeStruct((256, 64), jnp.bfloat16)
programs = [("256", 256, False), ("32", 32, False), ("8", 8, False), ("wrong", 32, True)]
for name, chunk, wrong in programs:
    exported = export.export(jax.jit(lambda x, chunk=chunk, wrong=wrong: scan(x, chunk, wrong)))(shape)
    with open(f"scan.{name}.mlirbc", "wb") as file:
        file.write(exported.mlir_module_serialized)
