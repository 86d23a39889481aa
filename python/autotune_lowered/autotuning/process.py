"""This process, as far as it matters to one that measures beside it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from .._jax import jax_for


def outside_of_traces(work: Callable[[], object]) -> None:
    """Do something while this thread traces a program, and wait for it. What it raises is raised here."""
    jax = jax_for("autotune needs")
    # what is set for this thread alone is a part of the program
    wide, precision = jax.config.jax_enable_x64, jax.config.jax_default_matmul_precision
    place = jax if hasattr(jax, "enable_x64") else __import__("jax.experimental").experimental
    raised: list[BaseException] = []

    def run() -> None:
        try:
            with place.enable_x64(wide), jax.default_matmul_precision(precision):
                work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="autotune")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def why_held() -> str | None:
    """Why no other process can measure on this process's device, with what to do; `None` if one can."""
    platform = jax_for("autotune needs").devices()[0].platform
    if platform == "tpu":
        return (
            "this process holds the TPU, and a TPU has one process at a time: measure in this one "
            "(`in_process=True`), or record here (`autotune_lowered.recording`) and tune when it has ended"
        )
    # as XLA reads them
    is_asked = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true").lower() not in ("false", "0")
    is_pooled = os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "default").lower() in ("default", "bfc", "")
    if platform in ("gpu", "cuda", "rocm") and is_asked and is_pooled:
        return (
            "this process has reserved the GPU's memory, so no other one can measure there: set "
            "XLA_PYTHON_CLIENT_PREALLOCATE=false before JAX is imported, or measure in this one (`in_process=True`)"
        )
    return None
