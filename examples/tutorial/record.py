"""Lowers the training step: its calls and their candidates into `registry/`, the step itself into `step.mlir`."""

import jax
import transformer

import autotune_lowered

with autotune_lowered.recording("registry", directions=("forward-vjp",)) as recorded:
    lowered = jax.jit(transformer.train_step).lower(*transformer.arguments())
autotune_lowered.dump(lowered, "step.mlir")

for call in recorded.report():
    print(f"{call['op_id']}:{call['call_key']}: {call['candidates']} candidates")
