"""The share of lowering that finding a program's compiler options adds: printing and hashing it.

    python benches/options/hashing.py

For each module of `modules.py`, in a separate process: the time of its first lowering, and of the digest that
`autotune_lowered.compiler_options` computes of it, the median of nine. Exit code 1 if that is over 5 % of lowering.
"""

import statistics
import subprocess
import sys
import time


def child(name):
    import modules

    from autotune_lowered import _native
    from autotune_lowered._stages import text_to_hash

    def took(work):
        begin = time.perf_counter()
        result = work()
        return time.perf_counter() - begin, result

    # what a process loads only once does not count as a module's lowering
    modules.lowered(next(one for one in modules.MODULES if one != name))
    lowering, lowered = took(lambda: modules.lowered(name))
    printing, text = statistics.median(took(lambda: text_to_hash(lowered))[0] for _ in range(9)), text_to_hash(lowered)
    content = text.encode()
    hashing = statistics.median(took(lambda: _native.semantic_digest(content))[0] for _ in range(9))
    print(lowering, printing, hashing, len(content))


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2])
    import modules

    print(f"{'module':22} {'lowering':>11} {'printing':>10} {'hashing':>10} {'share':>7} {'bytes':>8}")
    shares = []
    for name in modules.MODULES:
        done = subprocess.run([sys.executable, __file__, "--child", name], text=True, capture_output=True, check=True)
        *times, size = map(float, done.stdout.split())
        lowering, printing, hashing = (1e3 * one for one in times)
        shares.append((printing + hashing) / lowering)
        print(
            f"{name:22} {lowering:9.2f}ms {printing:8.3f}ms {hashing:8.3f}ms {shares[-1]:7.1%} {size:8.0f}", flush=True
        )
    print(f"share of lowering: median {statistics.median(shares):.1%}, most {max(shares):.1%}")
    return 1 if max(shares) > 0.05 else 0


if __name__ == "__main__":
    sys.exit(main())
