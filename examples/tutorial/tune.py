"""Tunes the step's calls, and lowers the step in the forms that `prove` races into `variants/`."""

import sys

import transformer

import autotune_lowered

result = autotune_lowered.tune("step.mlir", registry="registry")
print(result)
if not result.configs:
    sys.exit("no call was decided: the table says why")
autotune_lowered.dump(transformer.train_step, "variants", args=transformer.arguments(), variants=result)
