"""Tunes the step's calls, and lowers the step in the forms that `prove` races into `variants/`."""

import transformer

import autotune_lowered

result = autotune_lowered.tune("step.mlir", registry="registry")
print(result)
autotune_lowered.dump(transformer.train_step, "variants", args=transformer.arguments(), variants=result)
