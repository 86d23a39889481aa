"""Tokamax tunes its own attention on this device.

    python tokamax_peer.py OUT.json SITE

SITE holds Tokamax and those of its packages that the machine lacks.
"""

import dataclasses
import importlib.util
import json
import pathlib
import sys
import time
import types

import jax
import jax.numpy as jnp
import programs


def without_viewer():
    """Stands in for the package that Tokamax reads other profiles with: it is large, and no GPU needs it."""
    if importlib.util.find_spec("xprof") is None:
        for name in ("xprof", "xprof.cli", "xprof.cli.tools", "xprof.cli.tools.get_kernel_stats_tool"):
            sys.modules[name] = types.ModuleType(name)


def plain(value):
    """A config as the recorder writes it: its fields, enumerations by name."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def median_ms(times):
    found = getattr(times, "median_evaluation_time_ms", None)
    return found if isinstance(found, (int, float)) else None


def main():
    out, site = pathlib.Path(sys.argv[1]), sys.argv[2]
    sys.path.insert(0, site)
    without_viewer()
    import tokamax

    q, k, v = (jax.random.normal(jax.random.PRNGKey(seed), programs.ATTENTION, jnp.bfloat16) for seed in range(3))
    began = time.monotonic()
    result = tokamax.autotune(lambda q, k, v: tokamax.dot_product_attention(q, k, v), q, k, v, progress_bar=False)
    seconds = time.monotonic() - began
    # in place of an operation's times there may be an error
    configs = [
        {"operation": type(bound.op).__name__, "config": plain(config), "median_ms": median_ms(times)}
        for bound, data in result.data
        for config, times in getattr(data, "items", dict)()
    ]
    out.write_text(json.dumps({"seconds": seconds, "configs": configs}, indent=1))


if __name__ == "__main__":
    main()
