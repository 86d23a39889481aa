"""Opens traces with Perfetto's own trace processor and compares them with the expected content.

    python check.py target/debug/autotune-lowered

The captures of `tests/data/xplane` are compared with JAX's reader for each line, synthetic ones, finer than
nanoseconds, slice by slice, and the trace of a tuning run with that run's result. Needs `requirements.txt` and Node.js.
"""

import collections
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

import perfetto.trace_processor
import viztracer
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HERE = pathlib.Path(__file__).parent
DATA = HERE.parent / "data"


def messages():
    files = descriptor_pb2.FileDescriptorSet()
    folder = pathlib.Path(perfetto.trace_processor.__file__).parent
    files.ParseFromString((folder / "trace_processor.descriptor").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)

    def of(name):
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"perfetto.protos.{name}"))

    return of("TraceProcessorRpc"), of("TraceProcessorRpcStream"), of("QueryResult.CellsBatch")


RPC, STREAM, CELLS = messages()


def query(trace, *queries):
    """The rows of each query on a trace."""
    requests = []

    def request(**fields):
        stream = STREAM()
        message = stream.msg.add(seq=len(requests))
        message.query_args.sql_query = fields.pop("query", "")
        if not message.query_args.sql_query:
            message.ClearField("query_args")
        for name, value in fields.items():
            setattr(message, name, value)
        data = stream.SerializeToString()
        requests.append(struct.pack("<I", len(data)) + data)

    request(request=RPC.TPM_APPEND_TRACE_DATA, append_trace_data=trace.read_bytes())
    request(request=RPC.TPM_FINALIZE_TRACE_DATA)
    for text in queries:
        request(request=RPC.TPM_QUERY_STREAMING, query=text)
    (ui,) = (pathlib.Path(viztracer.__file__).parent / "web_dist").glob("v*/")
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = pathlib.Path(folder, "asked"), pathlib.Path(folder, "answered")
        asked.write_bytes(b"".join(requests))
        subprocess.run(["node", HERE / "trace_processor.js", ui, asked, answered], check=True, timeout=600)
        replies = STREAM.FromString(answered.read_bytes())
    found, names, batches = [], [], []
    for reply in replies.msg:
        assert not reply.append_result.error, reply.append_result.error
        assert not reply.query_result.error, reply.query_result.error
        names += reply.query_result.column_names
        batches += reply.query_result.batch
        if batches and batches[-1].is_last_batch:
            found.append(rows(names, batches))
            names, batches = [], []
    assert len(found) == len(queries)
    return found


def rows(names, batches):
    cells = []
    for batch in batches:
        numbers, floats = iter(batch.varint_cells), iter(batch.float64_cells)
        texts = iter(batch.string_cells.split("\0"))
        for kind in batch.cells:
            if kind == CELLS.CELL_VARINT:
                cells.append(next(numbers))
            elif kind == CELLS.CELL_FLOAT64:
                cells.append(next(floats))
            else:
                cells.append(next(texts) if kind == CELLS.CELL_STRING else None)
    return [dict(zip(names, cells[at : at + len(names)])) for at in range(0, len(cells), len(names))]


SLICES = """
select s.id, s.name, s.ts, s.dur, s.parent_id parent, s.arg_set_id arguments,
    coalesce(own.name, above.name) thread, p.name process
from slice s join track t on t.id = s.track_id
left join thread_track k on k.id = t.id left join thread own on own.utid = k.utid
left join thread_track pk on pk.id = t.parent_id left join thread above on above.utid = pk.utid
left join process p on p.upid = coalesce(own.upid, above.upid)
"""
PROBLEMS = "select name, value from stats where severity != 'info' and value > 0"
ARGUMENTS = "select arg_set_id, count(*) n from args where key glob 'debug.*' or key glob 'args.*' group by 1"


def opened(program, capture, ending, folder, *more):
    trace = folder / f"trace{ending}"
    subprocess.run([program, "profile", "trace", capture, "-o", trace, *more], check=True, stdout=subprocess.DEVNULL)
    return checked(trace)


def checked(trace):
    """The slices of a trace, after a check that Perfetto accepts it without an error and that they nest."""
    slices, problems, arguments = query(trace, SLICES, PROBLEMS, ARGUMENTS)
    assert problems == [], problems
    by_id = {one["id"]: one for one in slices}
    for one in slices:
        # Chrome's JSON names tracks by thread
        one["thread"] = one["thread"].split(", overlapping ")[0]
        outer = by_id.get(one["parent"])
        if outer:
            assert outer["ts"] <= one["ts"] and one["ts"] + one["dur"] <= outer["ts"] + outer["dur"], (outer, one)
    counts = {one["arg_set_id"]: one["n"] for one in arguments}
    for one in slices:
        one["arguments"] = counts.get(one["arguments"], 0)
    return slices


ENDINGS = (".pftrace", ".json", ".json.gz")


def captures(program, folder):
    oracle = json.loads((DATA / "trace" / "oracle.json").read_text())
    for capture in sorted((DATA / "xplane").glob("*.xplane.pb*")):
        lines = oracle[capture.name.split(".")[0]]
        base = min(line["first_ns"] for line in lines.values())
        for ending in ENDINGS:
            slices = opened(program, capture, ending, folder, "--stats")
            late = base - min(one["ts"] for one in slices)
            found = collections.defaultdict(lambda: [0, 0, float("inf"), 0, 0])
            for one in slices:
                line = found[f"{one['process']} {one['thread']}"]
                line[0] += 1
                line[1] += one["dur"]
                line[2] = min(line[2], one["ts"] + late)
                line[3] = max(line[3], one["ts"] + one["dur"] + late)
                line[4] += one["arguments"]
            expected = {name: list(line.values()) for name, line in lines.items()}
            assert dict(found) == expected, (capture.name, ending, dict(found), expected)
            print(f"{capture.name} as {ending}: {len(slices)} slices")


def varint(number):
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, value):
    value = value if isinstance(value, bytes) else value.encode()
    return varint(field << 3 | 2) + varint(len(value)) + value


def tree(draw, start, end, depth):
    """Intervals that nest, to the picosecond."""
    yield start, end
    if depth < 5 and end - start > 3:
        ends = sorted(draw.randint(start, end) for _ in range(draw.choice((0, 2, 4))))
        for inner in zip(ends[::2], ends[1::2]):
            yield from tree(draw, *inner, depth + 1)


def synthetic(program, folder):
    draw = random.Random(20)
    lines, expected = b"", collections.Counter()
    for at, kind in enumerate(("nested", "nested, unordered", "any")):
        intervals, start = [], 0
        while len(intervals) < 3000:
            if kind == "any":
                start = draw.randint(0, 500_000)
                intervals.append((start, start + draw.randint(0, 1500)))
            else:
                end = start + draw.randint(0, 20_000)
                intervals += tree(draw, start, end, 0)
                start = end + draw.choice((0, 0, draw.randint(0, 500)))
        if kind == "nested, unordered":
            draw.shuffle(intervals)
        events = b""
        for place, (start, end) in enumerate(intervals):
            name = 1 + place % 7
            events += message(4, number(1, name) + number(2, start) + number(3, end - start))
            expected[kind, f"op.{name}", start // 1000, end // 1000 - start // 1000] += 1
        lines += message(3, number(1, at) + message(2, kind) + number(3, 5) + events)
    names = b"".join(
        message(4, number(1, at) + message(2, number(1, at) + message(2, f"op.{at}"))) for at in range(1, 8)
    )
    capture = folder / "synthetic.xplane.pb"
    capture.write_bytes(message(1, message(2, "/device:TPU:0") + lines + names))
    for ending in ENDINGS:
        slices = opened(program, capture, ending, folder)
        late = min(one["ts"] for one in slices) - min(start for _, _, start, _ in expected)
        found = collections.Counter((one["thread"], one["name"], one["ts"] - late, one["dur"]) for one in slices)
        assert found == expected, (ending, (found - expected), (expected - found))
        print(f"synthetic as {ending}: {len(slices)} slices")


CONFIGS = """
select s.name, a.string_value config from slice s join args a using (arg_set_id)
where a.key in ('debug.config', 'args.config') and s.name glob 'candidate *'
"""


def of_a_run(program, folder):
    """A tuning run's own trace: operations, phases, rounds, and each candidate with its config, as in the result."""
    module = HERE.parent.parent / "examples" / "transformer" / "module.hlo.txt"
    worker = f"command:exec {sys.executable} {DATA / 'timer' / 'profiling_worker.py'} {folder}"
    words = [module, "--timer", worker, "--rounds", "6", "--no-persist", "--format", "json"]
    for ending in ENDINGS:
        trace = folder / f"run{ending}"
        done = subprocess.run([program, *words, "--trace-run", trace], check=True, capture_output=True)
        result = json.loads(done.stdout)
        slices = checked(trace)
        by_id = {one["id"]: one for one in slices}
        assert {one["thread"] for one in slices} == {"tuner"}
        for operation in result["operations"]:
            call = f"{operation['op_id']}:{operation['call_key']}"
            # the first one; then come those of the fresh processes that confirm it
            whole = min(
                (one for one in slices if one["name"] == call and one["parent"] is None), key=lambda one: one["ts"]
            )
            phases = [one["name"] for one in slices if one["parent"] == whole["id"] and one["dur"] > 0]
            for phase in ("load inputs", "compile", "warm-up", "compare outputs", "measure", "decide"):
                assert phase in phases, (call, phases)
            of_phase = [one for one in slices if one["parent"] and by_id[one["parent"]]["parent"] == whole["id"]]
            rounds = [one for one in of_phase if one["name"].startswith("round ")]
            assert len(rounds) == operation["rounds_measured"], (call, rounds)
            compiled = [one["name"] for one in of_phase if by_id[one["parent"]]["name"] == "compile"]
            assert sorted(compiled) == [f"candidate {at}" for at in range(len(operation["candidates"]))], compiled
        (found,) = query(trace, CONFIGS)
        told = {(one["name"], one["config"]) for one in found}
        expected = {
            (f"candidate {at}", json.dumps(candidate["config"], separators=(",", ":"), sort_keys=True))
            for operation in result["operations"]
            for at, candidate in enumerate(operation["candidates"])
        }
        assert told == expected, (told - expected, expected - told)
        print(f"a run as {ending}: {len(slices)} slices")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        captures(sys.argv[1], pathlib.Path(made))
        synthetic(sys.argv[1], pathlib.Path(made))
        of_a_run(sys.argv[1], pathlib.Path(made))
