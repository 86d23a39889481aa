"""Seven calls of unmodified ejkernel, for `flips.py`.

`calls.py record REGISTRY MODULE` records them and writes the module; it prints each call's key. `calls.py call` runs
each once and prints the config that ejkernel chose.
"""

import importlib
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

# by name: the operation, and batch, length, heads and width of its arrays
CALLS = {
    "attention, 256": ("flash_attention", (1, 256, 4, 64)),
    "attention, 2 x 256": ("flash_attention", (2, 256, 4, 64)),
    "attention, 512": ("flash_attention", (1, 512, 4, 64)),
    "attention, 512, wide": ("flash_attention", (1, 512, 2, 128)),
    "delta rule, 256": ("gated_delta_rule", (1, 256, 4, 32)),
    "delta rule, 512": ("gated_delta_rule", (1, 512, 4, 32)),
    "delta rule, 1024": ("gated_delta_rule", (1, 1024, 2, 32)),
}


def module_of(operation):
    return importlib.import_module(f"ejkernel.modules.operations.{operation}")


def call(operation, arrays):
    run = getattr(module_of(operation), operation)
    return run(*arrays, causal=True) if operation == "flash_attention" else run(*arrays)


def arrays_of(name):
    operation, shape = CALLS[name]
    random = np.random.default_rng(list(name.encode()))
    normal = [random.standard_normal(shape, dtype=np.float32) * shape[-1] ** -0.5 for _ in range(3)]
    gates = [random.random(shape[:-1], dtype=np.float32), -random.random(shape[:-1], dtype=np.float32)]
    return [jnp.asarray(array) for array in normal + (gates if operation != "flash_attention" else [])]


def record(registry, module):
    import autotune_lowered

    def step(arguments):
        return [call(CALLS[name][0], arrays) for name, arrays in arguments.items()]

    arguments = {name: arrays_of(name) for name in CALLS}
    keys = {}
    with autotune_lowered.recording(registry, directions=("forward",)):
        text = jax.jit(step).lower(arguments).as_text(debug_info=True)
    pathlib.Path(module).write_text(text)
    by_spec = {(operation, f"f32[{','.join(map(str, shape))}]"): name for name, (operation, shape) in CALLS.items()}
    for path in pathlib.Path(registry, "invocations").rglob("*.json"):
        said = json.loads(path.read_text())["invocation"]
        keys[by_spec[said["op_id"].partition("@")[0], said["arguments"][0]["spec"]]] = said["call_key"]
    print(json.dumps({name: keys[name] for name in CALLS}))


def plain(config):
    """Its parameters; ejkernel reads some configs from its store as other objects than it keeps there."""
    return {name: plain(value) for name, value in vars(config).items()} if hasattr(config, "__dict__") else config


def run_each():
    said = {}
    for name, (operation, _) in CALLS.items():
        module = module_of(operation)
        (executor,) = [value for value in vars(module).values() if type(value).__name__ == "Executor"]
        events = []
        executor.chooser.on_event = lambda event, events=events, **data: events.append((event, data))
        jax.block_until_ready(call(operation, arrays_of(name)))
        event, data = events[-1]
        is_stored = event == "cache_hit" and data.get("level") == "persistent"
        said[name] = {"config": plain(data["cfg"]), "is_stored": is_stored}
    print(json.dumps(said))


if __name__ == "__main__":
    record(*sys.argv[2:]) if sys.argv[1] == "record" else run_each()
