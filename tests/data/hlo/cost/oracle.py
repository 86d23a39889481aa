"""Writes `oracle.json`: what XLA's own HloCostAnalysis counts, of whole modules and of each instruction alone.

    python oracle.py          # needs jaxlib 0.10.2; writes `opcodes.hlo.pb`, `declared.hlo.pb` and `oracle.json`

The modules are `opcodes.hlo.txt`, which has every opcode that XLA's text parser takes, `declared.hlo.txt`, whose custom calls
declare what they cost, and the sample modules beside this
folder and in the captures of `../../xplane`. For one instruction a module is made around it: its operands become parameters,
the computations that it calls stay. XLA's client of the CPU counts; a count of -1 is its `unknown`.
"""

import gzip
import json
import pathlib
import subprocess

import jax
from jaxlib import _jax
from jaxlib._hlo import HloModule, hlo_module_from_text

HERE = pathlib.Path(__file__).parent
CLIENT = jax.devices("cpu")[0].client
# what XLA takes only beside the instruction that it belongs to
PAIRED = ("async-start", "send", "recv")


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        start = at
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            length, at = (8, at) if tag & 7 == 1 else (4, at) if tag & 7 == 5 else varint(data, at)
            value, at = data[at : at + length], at + length
        yield tag >> 3, value, data[start:at]


def one(data, number, default=b""):
    return {field: value for field, value, _ in fields(data)}.get(number, default)


def numbers(data, number):
    found = []
    for field, value, _ in fields(data):
        if field == number and isinstance(value, int):
            found.append(value)
        elif field == number:
            at = 0
            while at < len(value):
                item, at = varint(value, at)
                found.append(item)
    return found


def encode(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def number(field, value):
    return encode(field << 3) + encode(value)


def text(field, value):
    return encode(field << 3 | 2) + encode(len(value)) + value


def cost(proto):
    found = _jax.hlo_module_cost_analysis(CLIENT, HloModule.from_serialized_hlo_module_proto(proto))
    return [found.get(key, 0.0) for key in ("flops", "transcendentals", "bytes accessed")]


def alone(instruction, by_id, computations):
    """A module of one instruction."""
    operands = numbers(instruction, 36)
    parameters, shapes, names = b"", b"", b""
    for place, operand in enumerate(dict.fromkeys(operands)):
        shape = one(by_id[operand], 3)
        shapes += text(1, shape)
        names += text(3, b"p%d" % place)
        parameter = text(1, b"p%d" % place) + text(2, b"parameter") + text(3, shape)
        parameters += text(2, parameter + number(9, place) + number(35, operand))
    own = b"".join(raw for field, _, raw in fields(instruction) if field not in (7, 37, 40))
    program = text(4, shapes + text(2, one(instruction, 3)) + names)
    wanted, called = list(numbers(instruction, 38)), {}
    while wanted:
        computation = wanted.pop()
        if computation not in called:
            called[computation] = computations[computation]
            for field, inner, _ in fields(called[computation]):
                if field == 2:
                    wanted += numbers(inner, 38)
    kept = b"".join(text(3, computations[computation]) for computation in computations if computation in called)
    main = text(1, b"alone") + parameters + text(2, own) + program + number(5, 1 << 30) + number(6, one(instruction, 35, 0))
    return text(1, b"alone") + text(2, b"alone") + number(6, 1 << 30) + kept + text(3, main) + program


def oracle(proto):
    found = {}
    computations = {one(value, 5, 0): value for field, value, _ in fields(proto) if field == 3}
    for computation in computations.values():
        instructions = [value for field, value, _ in fields(computation) if field == 2]
        by_id = {one(instruction, 35, 0): instruction for instruction in instructions}
        for instruction in instructions:
            opcode = one(instruction, 2).decode()
            is_paired = opcode.endswith(("-done", "-update")) or opcode in PAIRED
            if opcode not in ("parameter", "constant") and not is_paired:
                found[one(instruction, 1).decode()] = cost(alone(instruction, by_id, computations))
    return {"whole": cost(proto), "instructions": found}


def captured(path):
    """The protos of a capture, by `name(id)`."""
    for number, plane, _ in fields(gzip.decompress(path.read_bytes())):
        if number == 1 and one(plane, 2) == b"/host:metadata":
            for field, entry, _ in fields(plane):
                event = one(entry, 2) if field == 4 else b""
                for inner, stat, _ in fields(event):
                    if inner == 5 and one(stat, 6):
                        yield one(event, 2).decode(), one(one(stat, 6), 1)


def main():
    modules = {}
    for name in ("opcodes", "declared"):
        proto = hlo_module_from_text((HERE / f"{name}.hlo.txt").read_text()).as_serialized_hlo_module_proto()
        (HERE / f"{name}.hlo.pb").write_bytes(proto)
        modules[f"cost/{name}.hlo.pb"] = proto
    for name in ("flash_attention.json.post", "grouped_matmul.hash.pre", "grouped_matmul.hash.post"):
        modules[f"{name}.hlo.pb"] = (HERE.parent / f"{name}.hlo.pb").read_bytes()
    name = "tf2_train.hash.alt.post.hlo.pb.zst"
    modules[name] = subprocess.check_output(["zstd", "-dc", str(HERE.parent / name)])
    found = {}
    for name, proto in modules.items():
        inner = one(proto, 1)
        found[name] = oracle(inner if inner[:1] == b"\n" else proto)
    for name in ("multi8_shardmap", "tf2_step"):
        for program, proto in captured(HERE.parent.parent / "xplane" / f"{name}.xplane.pb.gz"):
            found[f"{name}: {program}"] = oracle(proto)
    made_by = f"oracle.py, jaxlib {jax.lib.__version__}"
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(module)}" for name, module in found.items())
    (HERE / "oracle.json").write_text(f'{{"made_by": {json.dumps(made_by)}, "modules": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
