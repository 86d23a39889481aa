"""Compiles mutated programs with a vendor's compiler: does each end within its limit, and does the tuner survive?

    python benches/mutated.py PROGRAM PLUGIN TARGET [COUNT]

PROGRAM is `target/release/autotune-lowered`, PLUGIN a vendor's PJRT plugin, TARGET a device such as `cuda:h100_sxm`.
COUNT (200) programs are made from those of `tests/data/targets`, half of them as bytecode (bytes flipped, cut, doubled)
and half as text (numbers, types and lines exchanged); the seed is fixed. Each is compiled with a limit of LIMIT
seconds, after one unchanged program, which must compile. No device is needed.
"""

import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

DATA = pathlib.Path(__file__).resolve().parents[1] / "tests" / "data" / "targets"
LIMIT = 20
# start, loading a plugin of some 500 MB, and clean-up, on a busy machine
AROUND = 20
TYPES = [b"bf16", b"f32", b"f64", b"i1", b"i8", b"i32", b"f8E4M3FN", b"complex<f32>"]
# compiled or refused, failed worker, no program: docs/targets.md
DOCUMENTED = (0, 1, 4)
NUMBERS = [b"0", b"1", b"3", b"-1", b"1024", b"65536", b"4294967296", b"9223372036854775807"]


def of_bytes(program, chance):
    changed = bytearray(program)
    kind = chance.choice(["flip", "flip", "flip", "cut", "double", "fill"])
    at = chance.randrange(len(changed))
    if kind == "flip":
        for _ in range(chance.choice([1, 1, 2, 8, 64])):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del changed[at : at + chance.choice([1, 16, len(changed)])]
    elif kind == "double":
        changed[at:at] = changed[at : at + 256]
    else:
        changed[at : at + 16] = bytes([chance.randrange(256)]) * 16
    return bytes(changed)


def of_text(program, chance):
    kind = chance.choice(["number", "number", "type", "line", "swap"])
    if kind in ("number", "type"):
        pattern = rb"(?<=[<x ])\d+(?=[x>, ])" if kind == "number" else rb"\b(?:bf16|f32|i32|i1)\b"
        places = list(re.finditer(pattern, program))
        for place in sorted(
            chance.sample(places, min(len(places), chance.choice([1, 1, 4]))), key=lambda one: -one.start()
        ):
            put = chance.choice(NUMBERS if kind == "number" else TYPES)
            program = program[: place.start()] + put + program[place.end() :]
        return program
    lines = program.split(b"\n")
    a, b = chance.randrange(len(lines)), chance.randrange(len(lines))
    if kind == "line":
        del lines[a]
    else:
        lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def main(program, plugin, target, count=200):
    chance = random.Random(0)
    text = (DATA / "module.mlir").read_bytes()
    bytecode = [path.read_bytes() for path in sorted((DATA / "registry" / "programs").glob("*/*.mlirbc"))]
    ended, statuses, seconds, wrong = collections.Counter(), collections.Counter(), [], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for number in range(-1, count):
            # the first one is unchanged
            is_whole, is_text = number < 0, number < 0 or number % 2 == 0
            if is_whole:
                made = text
            else:
                made = of_text(text, chance) if is_text else of_bytes(chance.choice(bytecode), chance)
            made_file = folder / f"mutant-{number}.{'mlir' if is_text else 'mlirbc'}"
            made_file.write_bytes(made)
            command = [program, "compile", made_file, "--target", target, "--plugin", plugin]
            command += ["-o", folder / f"store-{number}", "--timeout", str(LIMIT), "--format", "json"]
            begin = time.monotonic()
            try:
                done = subprocess.run(command, capture_output=True, timeout=LIMIT + AROUND)
                code = done.returncode
                # if nothing could be read, there is no document
                module = json.loads(done.stdout)["targets"][0]["module"] if done.stdout else {"status": "not read"}
                said = done.stderr.decode(errors="replace").strip().split("\n")[-1]
                if is_whole and module["status"] != "compiled":
                    sys.exit(
                        f"a whole program is {module['status']}, so nothing is shown: {module.get('reason', said)}"
                    )
                if is_whole:
                    continue
                statuses[module["status"]] += 1
                if code == 1:
                    print(f"mutant {number}: {module['reason']}", file=sys.stderr)
            except subprocess.TimeoutExpired:
                code, said = "hangs", ""
            seconds.append(time.monotonic() - begin)
            ended[code] += 1
            # a documented exit code, and no panic
            if code not in DOCUMENTED or "panicked" in said:
                wrong.append(f"mutant {number}: {code}: {said}")
    seconds.sort()
    print(
        f"{count} mutated programs for {target}: " + ", ".join(f"{n} × exit {code}" for code, n in ended.most_common())
    )
    print(", ".join(f"{n} {status}" for status, n in statuses.most_common()))
    print(f"median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s; limit {LIMIT} s")
    print(f"{len(wrong)} hang or end the tuner")
    print("\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:4], *map(int, sys.argv[4:])))
