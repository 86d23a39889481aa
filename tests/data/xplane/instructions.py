"""Writes `*.instructions.json`: what XLA's own printer says of the instructions that a capture ran.

    python instructions.py CAPTURE.xplane.pb.gz ...          # needs jaxlib 0.10

The protos come from `/host:metadata`; each is parsed and printed by XLA, and the text is read here. A stack is the list of an
instruction's frames, outermost first, and its op_name; those of an operation are the distinct ones of its instruction and of
the instructions of the computations that it fuses or applies (not of control flow, whose bodies are operations themselves).
"""

import gzip
import json
import re
import sys
from collections import defaultdict

from jaxlib._hlo import HloModule


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
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        else:
            length, at = (8, at) if tag & 7 == 1 else (4, at) if tag & 7 == 5 else varint(data, at)
            value, at = data[at : at + length], at + length
        yield tag >> 3, value


def one(data, number, default=b""):
    return dict(fields(data)).get(number, default)


def read(path):
    """The modules' protos by name and id, and by them the operations that ran."""
    with open(path, "rb") as file:
        data = file.read()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    protos, ran = {}, defaultdict(set)
    for number, plane in fields(data):
        if number != 1:
            continue
        names = {one(one(entry, 2), 1, 0): one(one(entry, 2), 2).decode() for n, entry in fields(plane) if n == 5}
        if one(plane, 2) == b"/host:metadata":
            for n, entry in fields(plane):
                if n == 4:
                    event = one(entry, 2)
                    for m, stat in fields(event):
                        if m == 5 and one(stat, 6):
                            protos[one(event, 2).decode()] = one(one(stat, 6), 1)
        for n, line in fields(plane):
            for m, event in fields(line) if n == 3 else ():
                stats = {names.get(one(stat, 1, 0)): stat for k, stat in fields(event) if k == 4} if m == 4 else {}
                if "hlo_op" in stats and "hlo_module" in stats:
                    program = one(stats["program_id"], 4, one(stats["program_id"], 3, 0))
                    module = f"{names[one(stats['hlo_module'], 7)]}({program})"
                    ran[module].add(names[one(stats["hlo_op"], 7)])
    return protos, ran


def unquote(text):
    return re.sub(r"\\(.)", r"\1", text)


def instructions(text):
    tables, table, computation = defaultdict(dict), None, None
    found, inside = {}, defaultdict(list)
    for line in text.splitlines():
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables[line]
        elif table is not None and re.match(r"\d+ ", line):
            number, rest = line.split(" ", 1)
            table[int(number)] = rest[1:-1] if rest[0] == '"' else dict(re.findall(r"(\w+)=(\d+)", rest))
        elif match := re.match(r"(?:ENTRY )?%([^ ]+) .*\{$", line):
            table, computation = None, match[1]
        elif match := re.match(r"  (?:ROOT )?%([^ ]+) = (.*)", line):
            name, rest = match[1], match[2]
            # a result is one word, or a tuple in brackets
            if rest.startswith("("):
                depth = 0
                for place, letter in enumerate(rest):
                    depth += (letter == "(") - (letter == ")")
                    if depth == 0:
                        break
                rest = rest[place + 1 :].strip()
            else:
                rest = rest.split(" ", 1)[1]
            metadata = re.search(r"metadata=\{(.*)", rest)
            metadata = metadata[1] if metadata else ""
            op_name = re.search(r'op_name="((?:[^"\\]|\\.)*)"', metadata)
            frame = re.search(r"stack_frame_id=(\d+)", metadata)
            called = re.findall(r"(?:calls|to_apply|select|scatter|comparator)=%([^,} ]+)", rest)
            opcode = rest.split("(", 1)[0]
            stack, at = [], int(frame[1]) if frame else 0
            while at:
                entry = tables["StackFrames"][at]
                place = tables["FileLocations"][int(entry["file_location_id"])]
                file = tables["FileNames"][int(place["file_name_id"])]
                function = tables["FunctionNames"][int(place["function_name_id"])]
                stack.insert(0, f"{function} ({file}:{place['line']})")
                at = int(entry["parent_frame_id"]) - 1  # the printer counts parents from one more
            found[name] = {
                "opcode": opcode,
                "op_name": unquote(op_name[1]) if op_name else "",
                "stack": stack,
                "called": [] if opcode in ("while", "call", "conditional") else called,
            }
            inside[computation].append(name)
    return found, inside


for path in sys.argv[1:]:
    protos, ran = read(path)
    document, stacks = {}, {}
    for module, operations in sorted(ran.items()):
        found, inside = instructions(HloModule.from_serialized_hlo_module_proto(protos[module]).to_string())
        of_module = document.setdefault(module, {})
        for operation in sorted(operations):
            instruction = found[operation]
            group = [instruction] + [found[name] for called in instruction["called"] for name in inside[called]]
            whole = {tuple(part["stack"] + [part["op_name"]] * bool(part["op_name"])) for part in group if part["stack"]}
            of_module[operation] = {
                "opcode": instruction["opcode"],
                "op_name": instruction["op_name"],
                "op_names": sorted({part["op_name"] for part in group if part["op_name"]}),
                "stack": stacks.setdefault(tuple(instruction["stack"]), len(stacks)),
                "stacks": sorted(stacks.setdefault(stack, len(stacks)) for stack in whole),
            }
    out = re.sub(r"\.xplane\.pb(\.gz)?$", ".instructions.json", path)
    with open(out, "w") as file:
        json.dump({"modules": document, "stacks": [list(stack) for stack in stacks]}, file, separators=(",", ":"))
        file.write("\n")
