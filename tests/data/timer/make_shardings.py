"""Makes `shardings.json`: what JAX has each of eight devices take of an array, by its `devices_indices_map`, and the same
sharding as the bytes of XLA's `OpSharding`. Run with JAX on CPU."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import json
from pathlib import Path

import jax
import numpy as np

P = jax.sharding.PartitionSpec
CASES = [
    # axes of the mesh, the array, how it is cut
    ({"x": 8}, [16], ["x"]),
    ({"x": 8}, [3, 16, 2], [None, "x", None]),
    ({"x": 8}, [5, 3], [None, None]),
    ({"x": 4, "y": 2}, [8, 4], ["x", "y"]),
    ({"x": 4, "y": 2}, [4, 8], ["y", "x"]),
    ({"x": 4, "y": 2}, [8, 4], ["y", None]),
    ({"x": 4, "y": 2}, [8, 4], ["x", None]),
    ({"x": 4, "y": 2}, [16, 3], [["x", "y"], None]),
    ({"x": 4, "y": 2}, [2, 16], [None, ["y", "x"]]),
    ({"x": 2, "y": 2, "z": 2}, [4, 6, 2], ["z", None, "x"]),
    ({"x": 2, "y": 2, "z": 2}, [4, 6, 2], ["y", "x", "z"]),
    ({"x": 2, "y": 2, "z": 2}, [8, 2], [["z", "x"], "y"]),
    ({"x": 2, "y": 2, "z": 2}, [4], [["z", "y"]]),
    ({"x": 2, "y": 4}, [], []),
]


def case(axes, shape, cut):
    mesh = jax.sharding.Mesh(np.array(jax.devices()).reshape(tuple(axes.values())), tuple(axes))
    sharding = jax.sharding.NamedSharding(mesh, P(*(tuple(one) if isinstance(one, list) else one for one in cut)))
    indices = sharding.devices_indices_map(tuple(shape))
    parts = [
        [list(one.indices(size)[:2]) for one, size in zip(indices[device], shape, strict=True)]
        for device in jax.devices()
    ]
    proto = sharding._to_xla_hlo_sharding(len(shape)).to_proto().SerializeToString()
    return {"mesh": axes, "shape": shape, "cut": cut, "proto": proto.hex(), "parts": parts}


text = ",\n".join(json.dumps(case(*one)) for one in CASES)
Path(__file__).with_name("shardings.json").write_text(f"[\n{text}\n]\n")
