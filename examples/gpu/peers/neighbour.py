"""Another program's work on the GPU: matrix products, one after the other, until it is ended.

    python neighbour.py

It prints a line once it computes. It reads its stdin: `idle` makes it wait, `busy` go on.
"""

import sys
import threading

import jax
import jax.numpy as jnp
import programs

PRODUCTS = 8


def main():
    size, dtype = programs.SHAPES["cpu" if jax.default_backend() == "cpu" else "cuda"][0], jnp.bfloat16
    x = jnp.ones((size, size), dtype)

    @jax.jit
    def work(x):
        for _ in range(PRODUCTS):
            x = (x @ x) * 1e-3
        return x

    work(x).block_until_ready()
    busy = threading.Event()
    busy.set()
    threading.Thread(target=obey, args=(busy,), daemon=True).start()
    print("computing", flush=True)
    while busy.wait():
        work(x).block_until_ready()


def obey(busy):
    for line in sys.stdin:
        busy.set() if line.strip() == "busy" else busy.clear()


if __name__ == "__main__":
    main()
