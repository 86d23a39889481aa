"""The derivation of `docs/registry.md` written again from its words; prints `fills.json`. Needs ml_dtypes and numpy."""

import hashlib
import json
import math
import struct

import ml_dtypes
import numpy as np


def field_digest(*fields):
    return hashlib.sha256(b"".join(struct.pack("<Q", len(field)) + field for field in fields)).digest()


def chacha8_words(key):
    """The stream of 64-bit words: ChaCha with eight rounds, counter and nonce from zero (RFC 8439's quarter round)."""
    rotate = lambda x, n: (x << n | x >> 32 - n) & 0xFFFFFFFF
    for counter in range(1 << 20):
        start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, 0, 0, 0]
        state = start[:]

        def quarter(a, b, c, d):
            for x, y, z, n in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                state[x] = state[x] + state[y] & 0xFFFFFFFF
                state[z] = rotate(state[z] ^ state[x], n)

        for _ in range(4):
            for column in range(4):
                quarter(column, 4 + column, 8 + column, 12 + column)
            for column in range(4):
                quarter(column, 4 + (column + 1) % 4, 8 + (column + 2) % 4, 12 + (column + 3) % 4)
        block = [a + b & 0xFFFFFFFF for a, b in zip(state, start)]
        yield from (low | high << 32 for low, high in zip(block[::2], block[1::2]))


class Draws:
    def __init__(self, seed):
        self.words = chacha8_words(field_digest(b"array-fill", struct.pack("<Q", seed)))
        self.spare = None

    def unit(self):
        return (next(self.words) >> 11) / 2**53

    def up_to(self, most):
        count = most + 1
        while True:
            product = next(self.words) * count
            if product % 2**64 >= 2**64 % count:
                return product >> 64

    def normal(self):
        if self.spare is not None:
            value, self.spare = self.spare, None
            return value
        while True:
            u, v = 2 * self.unit() - 1, 2 * self.unit() - 1
            s = u * u + v * v
            if 0 < s < 1:
                factor = math.sqrt(-2 * math.log(s) / s)
                self.spare = v * factor
                return u * factor


def permutation(draws, n):
    order = list(range(n))
    for last in range(n - 1, 0, -1):
        other = draws.up_to(last)
        order[last], order[other] = order[other], order[last]
    return order


def cuts(draws, count, total):
    return sorted(draws.up_to(total) for _ in range(count))


def main():
    seed = int.from_bytes(field_digest(b"argument-seed", b"query", struct.pack("<Q", 1))[:8], "little")
    draws = lambda: Draws(seed)
    cases = []

    def case(spec, fill, values, dtype):
        cases.append({"spec": spec, "fill": fill, "hex": np.asarray(values).astype(dtype).tobytes().hex()})

    d = draws()
    normal = [d.normal() * 0.5 for _ in range(64)]
    # f32 at the widest: the logarithm may differ in the last bit of an f64
    for name, dtype in (("f32", "f4"), ("bf16", ml_dtypes.bfloat16), ("f8e4m3fn", ml_dtypes.float8_e4m3fn)):
        case(f"{name}[8,8]", {"kind": "normal", "scale": 0.5}, normal, dtype)
    case("c64[32]", {"kind": "normal", "scale": 0.5}, np.array(normal, "f4").view("c8"), "c8")
    d = draws()
    case("f64[50]", {"kind": "uniform", "low": -2.0, "high": 3.0}, [-2 + 5.0 * d.unit() for _ in range(50)], "f8")
    d = draws()
    case("s32[50]", {"kind": "integer-range", "low": -3, "high": 1000}, [-3 + d.up_to(1003) for _ in range(50)], "i4")
    d = draws()
    values = [d.up_to(2**64 - 1) for _ in range(9)]
    case("s64[9]", {"kind": "integer-range", "low": -(2**63), "high": 2**63 - 1}, [v - 2**63 for v in values], "i8")
    d = draws()
    case("s32[3,40]", {"kind": "permutation"}, [permutation(d, 40) for _ in range(3)], "i4")
    d = draws()
    rows = [[0, *cuts(d, 4, 100), 100] for _ in range(2)]
    case("s32[2,6]", {"kind": "sorted-cumulative", "total": 100}, rows, "i4")
    d = draws()
    rows = [np.diff([0, *cuts(d, 5, 100), 100]) for _ in range(2)]
    case("u8[2,6]", {"kind": "partition", "total": 100}, rows, "u1")
    d = draws()
    case("pred[64]", {"kind": "boolean-density", "density": 0.25}, [d.unit() < 0.25 for _ in range(64)], "u1")
    print(json.dumps({"argument": "query", "index": 1, "seed": seed, "cases": cases}, indent=1))


main()
