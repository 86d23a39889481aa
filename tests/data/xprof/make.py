"""Writes `step.xplane.pb.gz` and `step.json`: a step as a GPU's profiler lays it out, and what xprof says of its operations.

    python make.py          # needs xprof 2.24 (`pip install xprof==2.24.2`)

xprof counts work on devices alone, and the captures in `../xplane` are of CPUs. So the operations of `../xplane/tf2_step` are
put on a stream of a GPU, one after the other in the order of their starts, each as long as it was. Control flow, which a GPU's
stream has no event of, is left out. The programs stay what they are. From `hlo_stats` come the occurrences, the time in
microseconds, and by the rates FLOPs and bytes; from `memory_viewer` bytes of each program's memory: all, what lives as long as
the program runs, and the most at once.
"""

import gzip
import importlib.metadata
import json
import pathlib
import tempfile

from xprof.convert import raw_to_tool_data

HERE = pathlib.Path(__file__).parent
CONTROL = ("while", "conditional", "call")
STATS = {name: number for number, name in enumerate(("hlo_op", "hlo_module", "program_id"), 1)}


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


def every(data, number):
    return [value for field, value, _ in fields(data) if field == number]


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


def programs(plane):
    """By id, the opcodes of a program's instructions by name; and all programs' names."""
    opcodes, names = {}, []
    for entry in every(plane, 4):
        event = one(entry, 2)
        stats = every(event, 5)
        # beside the program its id, which is 0 of one
        [program] = [one(stat, 3, 0) for stat in stats if not one(stat, 6)]
        [module] = [one(one(stat, 6), 1) for stat in stats if one(stat, 6)]
        names.append(one(event, 2).decode())
        opcodes[program] = {}
        for computation in every(module, 3):
            opcodes[program].update({one(inner, 1): one(inner, 2).decode() for inner in every(computation, 2)})
    return opcodes, names


def operations(plane):
    """Start and length in picoseconds, operation, module and program of each event that has them."""
    names = {one(one(entry, 2), 1, 0): one(one(entry, 2), 2) for entry in every(plane, 5)}
    for line in every(plane, 3):
        begin = one(line, 3, 0) * 1000
        for event in every(line, 4):
            stats = {}
            for stat in every(event, 4):
                kinds = {field: value for field, value, _ in fields(stat)}
                value = names[kinds[7]] if 7 in kinds else kinds.get(5, kinds.get(4, kinds.get(3)))
                stats[names[kinds[1]]] = value
            if b"hlo_op" in stats:
                start = begin + one(event, 2, 0)
                yield start, one(event, 3, 0), stats[b"hlo_op"], stats[b"hlo_module"], stats[b"program_id"]


def on_a_stream(ran):
    """The plane of a GPU whose one stream ran these."""
    strings, events, metadata, end = {}, b"", {}, 0
    base = min(start for start, *_ in ran)
    for start, length, operation, module, program in sorted(ran):
        # one stream does one thing at a time
        start = max(start - base, end)
        end = start + length
        refs = [strings.setdefault(word, 10 + len(strings)) for word in (operation, module)]
        kernel = metadata.setdefault(operation, 1 + len(metadata))
        stats = text(4, number(1, STATS["hlo_op"]) + number(7, refs[0]))
        stats += text(4, number(1, STATS["hlo_module"]) + number(7, refs[1]))
        stats += text(4, number(1, STATS["program_id"]) + number(3, program))
        events += text(4, number(1, kernel) + number(2, start) + number(3, length) + stats)
    line = number(1, 7) + text(2, b"Stream #7(Compute)") + events
    plane = number(1, 1) + text(2, b"/device:GPU:0") + text(3, line)
    for name, key in metadata.items():
        plane += text(4, number(1, key) + text(2, number(1, key) + text(2, name)))
    for name, key in [*((name.encode(), key) for name, key in STATS.items()), *strings.items()]:
        plane += text(5, number(1, key) + text(2, number(1, key) + text(2, name)))
    return plane


def of_a_gpu(space):
    """The capture of a CPU as one of a GPU, and the programs in it."""
    planes = {one(plane, 2): (plane, raw) for field, plane, raw in fields(space) if field == 1}
    programs_plane, raw = planes[b"/host:metadata"]
    opcodes, names = programs(programs_plane)
    ran = [event for event in operations(planes[b"/host:CPU"][0]) if opcodes[event[4]].get(event[2]) not in CONTROL]
    return text(1, on_a_stream(ran)) + raw, sorted(names)


def tool(path, name, **params):
    data, _ = raw_to_tool_data.xspace_to_tool_data([str(path)], name, params)
    return json.loads(data)


def hlo_stats(path):
    table = tool(path, "hlo_stats")
    columns = [column["id"] for column in table["cols"]]
    for row in table["rows"]:
        row = dict(zip(columns, (cell["v"] for cell in row["c"]), strict=True))
        if row["occurrences"]:
            seconds = row["total_self_time"] * 1e-6
            yield {
                "program_id": int(row["program_id"]),
                "operation": row["hlo_op_name"],
                "category": row["category"],
                "occurrences": int(row["occurrences"]),
                "time_us": row["total_time"],
                # counts are whole numbers
                "flops": round(row["model_flop_rate"] * 1e9 * seconds),
                "bytes": round(row["measured_memory_bw"] * 2**30 * seconds),
            }


def memory(path, names):
    # writes the programs beside the file, where the tool looks for them
    raw_to_tool_data.xspace_to_tool_names([str(path)])
    for name in names:
        told = tool(path, "memory_viewer", module_name=name)
        kinds = {"total": "totalBufferAllocationMib", "lasting": "indefiniteBufferAllocationMib", "peak": "peakHeapMib"}
        yield name, {kind: round(told.get(key, 0) * 2**20) for kind, key in kinds.items()}


def main():
    capture, names = of_a_gpu(gzip.decompress((HERE.parent / "xplane/tf2_step.xplane.pb.gz").read_bytes()))
    (HERE / "step.xplane.pb.gz").write_bytes(gzip.compress(capture, 9, mtime=0))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "host.xplane.pb"
        path.write_bytes(capture)
        rows = sorted(hlo_stats(path), key=lambda row: (row["program_id"], row["operation"]))
        memory_bytes = dict(memory(path, names))
    lines = ",\n".join(json.dumps(row) for row in rows)
    head = {"made_by": f"make.py, xprof {importlib.metadata.version('xprof')}", "memory_bytes": memory_bytes}
    (HERE / "step.json").write_text(f'{json.dumps(head)[:-1]}, "operations": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
