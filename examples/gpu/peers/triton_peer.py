"""The main job's matrix product with Triton's own autotuner and the same configs, and with cuBLAS.

    python triton_peer.py OUT.json TUNE.json

Times are medians of `triton.testing.do_bench`, which flushes the second-level cache before each run.
"""

import json
import pathlib
import sys
import time

import torch
import triton
import triton.language as tl

SIZE = 4096


def kernel(x, y, o, size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, size, K):
        left = tl.load(x + rows[:, None] * size + (start + inner)[None, :])
        right = tl.load(y + (start + inner)[:, None] * size + columns[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(o + rows[:, None] * size + columns[None, :], sums.to(o.dtype.element_ty))


def config_of(ours):
    tile = {"M": ours["block_m"], "N": ours["block_n"], "K": ours["block_k"]}
    return triton.Config(tile, num_warps=ours["num_warps"], num_stages=ours["num_stages"])


def median_ms(run):
    return triton.testing.do_bench(run, return_mode="median")


def main():
    out, tune = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    operation = json.loads(tune.read_text())["operations"][0]
    ours = [candidate["config"] for candidate in operation["candidates"]]
    configs = {json.dumps(one, sort_keys=True): config_of(one) for one in ours}
    compiled = triton.jit(kernel)
    tuned = triton.autotune(list(configs.values()), key=["size"])(compiled)
    x, y = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    o = torch.empty_like(x)

    def grid(values):
        return SIZE // values["M"], SIZE // values["N"]

    began = time.monotonic()
    tuned[grid](x, y, o, SIZE)
    torch.cuda.synchronize()
    seconds = time.monotonic() - began
    reference = x.float() @ y.float()
    error = float((o.float() - reference).norm() / reference.norm())
    best = next(name for name, config in configs.items() if str(config) == str(tuned.best_config))
    times = {}
    for name, config in configs.items():
        words = {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        try:
            times[name] = median_ms(lambda words=words: compiled[grid(words)](x, y, o, SIZE, **words))
        except triton.runtime.errors.OutOfResources:
            continue
    found = {"autotune_s": seconds, "best": best, "times_ms": times, "relative_error": error}
    found["cublas_ms"] = median_ms(lambda: x @ y)
    out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
