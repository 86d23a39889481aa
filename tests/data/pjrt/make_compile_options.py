"""Writes what JAX tells the compiler of a function without and with options of its own, each a CompileOptionsProto, to a folder."""

import pathlib
import sys

import jax
import numpy
from jax._src.interpreters import pxla

OPTIONS = {
    "xla_cpu_enable_fast_math": True,
    "xla_cpu_prefer_vector_width": -3,
    "xla_disable_hlo_passes": "dce",
    "xla_gpu_auto_spmd_partitioning_memory_budget_ratio": 0.5,
}


def write(path, options):
    lowered = jax.jit(lambda x: jax.numpy.tanh(x) + 1, compiler_options=options).lower(jax.numpy.ones(4))
    inner = lowered._lowering
    its = inner.compile_args
    shardings = pxla.get_prop_to_input_output(its["in_shardings"], its["out_shardings"], len(its["ordered_effects"]))
    devices = numpy.array(list(inner._device_list), dtype=object)
    own = dict(inner._compiler_options_kvs)
    made = pxla.create_compile_options(inner.stablehlo(), its["tuple_args"], *shardings, its["backend"], devices, own)
    path.write_bytes(made.SerializeAsString())


folder = pathlib.Path(sys.argv[1])
write(folder / f"jax-{jax.__version__}-compile-options.pb", OPTIONS)
write(folder / f"jax-{jax.__version__}-compile-options-default.pb", {})
