"""Calls the XLA FFI handler of xla_ffi.cc from JAX, and checks that it uses the block sizes of the cache.

    python capi/examples/xla_ffi.py PROGRAM PREFIX

PROGRAM is `autotune-lowered`, PREFIX where `capi/install` put the library. Needs JAX, its plugin for the device's
fingerprint (`xla-cpu-pjrt`), and a C++ compiler.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

HERE = pathlib.Path(__file__).parent
OP = "blocked_matmul@v1"


def build(folder: pathlib.Path, prefix: str) -> ctypes.CDLL:
    """Compiles the handler into a library that finds autotune-lowered's."""
    library = folder / "libengine.so"
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    flags = ["-std=c++17", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", f"-isystem{jax.ffi.include_dir()}"]
    links = [f"-I{prefix}/include", f"-L{prefix}/lib", "-lautotune_lowered", f"-Wl,-rpath,{prefix}/lib"]
    subprocess.run([*compiler, *flags, str(HERE / "xla_ffi.cc"), "-o", str(library), *links], check=True)
    return ctypes.CDLL(str(library))


def publish(program: str, folder: pathlib.Path, identity: dict[str, Any], configs: dict[str, dict[str, Any]]) -> None:
    """Puts configs into the cache folder's snapshot, as a tuner does."""
    lines = [
        json.dumps({"device": identity, "op_id": OP, "call_key": key, "config": config})
        for key, config in configs.items()
    ]
    listed = folder / "configs.jsonl"
    listed.write_text("\n".join(lines) + "\n")
    snapshot = str(folder / "next.snapshot")
    subprocess.run([program, "cache", "merge", str(listed), "-o", snapshot], check=True, stdout=subprocess.DEVNULL)
    os.rename(snapshot, folder / "best-v1.snapshot")


def main(program: str, prefix: str) -> None:
    """Builds the handler, and checks JAX's results with it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        engine = build(folder, prefix)
        devices = subprocess.run([program, "device", "--format", "json"], check=True, stdout=subprocess.PIPE).stdout
        identity = json.loads(devices)["plugins"][0]["devices"][0]["identity"]
        publish(program, folder, identity, {"tuned": {"block_m": 8, "block_n": 128, "block_k": 16}})

        message = ctypes.create_string_buffer(512)

        def call(status: int) -> None:
            assert status == 0, message.value.decode()

        where = os.fsencode(folder)
        call(engine.engine_open(where, devices, message, ctypes.c_size_t(512)))
        jax.ffi.register_ffi_target("tuned_matmul", jax.ffi.pycapsule(engine.matmul_handler), platform="cpu")

        results = (jax.ShapeDtypeStruct((70, 90), jnp.float32), jax.ShapeDtypeStruct((3,), jnp.int32))
        traced = []

        def product(a: jax.Array, b: jax.Array, key: str) -> tuple[jax.Array, jax.Array]:
            traced.append(key)
            out, taken = jax.ffi.ffi_call("tuned_matmul", results)(a, b, key=key)
            return out, taken

        multiply = jax.jit(product, static_argnames="key")
        with jax.default_device(jax.devices("cpu")[0]):
            a, b = jax.random.normal(jax.random.key(0), (70, 50)), jax.random.normal(jax.random.key(1), (50, 90))
            expected = np.asarray(a, np.float64) @ np.asarray(b, np.float64)

            def blocks(key: str) -> list[int]:
                out, taken = multiply(a, b, key=key)
                np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
                return [int(size) for size in taken]

            assert blocks("tuned") == [8, 128, 16]
            assert blocks("nobody tuned this") == [32, 32, 32]
            publish(program, folder, identity, {"tuned": {"block_m": 16, "block_n": 64, "block_k": 8}})
            assert blocks("tuned") == [8, 128, 16], "nothing refreshes by itself"
            call(engine.engine_refresh(message, ctypes.c_size_t(512)))
            assert blocks("tuned") == [16, 64, 8]
            assert traced == ["tuned", "nobody tuned this"], "a refresh needs no other trace"
            # a config that the kernel cannot use fails the call, with a message
            publish(program, folder, identity, {"tuned": {"block_m": "wide", "block_n": 64, "block_k": 8}})
            call(engine.engine_refresh(message, ctypes.c_size_t(512)))
            try:
                blocks("tuned")
            except Exception as error:  # JAX's own class has changed its place over the versions
                assert "`block_m` of the config is a text, not an integer" in str(error), error
            else:
                raise AssertionError("a config of the wrong type passed")
    print("xla_ffi: the handler takes the cache's block sizes, before and after a refresh")


if __name__ == "__main__":
    main(*sys.argv[1:])
