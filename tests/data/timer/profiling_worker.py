"""A worker with simulated profiles, without JAX: XSpaces as a CPU's profiler writes them, with computed durations.

Its arguments are STATE_FOLDER [order] [failing] [clock]: with `order`, modules have one name and are distinguished by
the launches' order; with `failing`, candidates fail in all ways, and those that fail once leave a mark in the folder;
with `clock`, profiles state when they were taken, as JAX's do.
"""

import json, os, random, struct, sys, time

state, order, failing, clock = sys.argv[1], "order" in sys.argv, "failing" in sys.argv, "clock" in sys.argv
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
device = {"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}, "environment": {}}
draws = random.Random(7)
rounds = 0


class Failed(Exception):
    pass


def once(mark):
    path = os.path.join(state, mark)
    if not failing or os.path.exists(path):
        return False
    open(path, "w").close()
    return True


def varint(value):
    text = b""
    while value >= 0x80:
        text, value = text + bytes([value & 0x7F | 0x80]), value >> 7
    return text + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def space(launches):
    names = ["hlo_op", "hlo_module", "program_id", "run_id", "device_ordinal"]
    events, at, run = b"", 1000, 0
    for launch in launches:
        candidate = launch["candidate"]
        name = "jit_same" if order else "jit_autotune_fn_%d" % candidate
        for _ in range(launch["runs"]):
            run += 1
            whole = (3_000_000_000 - 300_000_000 * candidate) * draws.randint(900, 1100) // 1000
            # two operations and a gap: busy time is two thirds of the span
            for part in (0, 2):
                stats = [("dot.%d" % part), name, 2 * candidate + 4, run, 0]
                stats = [field(1, i + 1) + (field(5, v) if isinstance(v, str) else field(4, v)) for i, v in enumerate(stats)]
                event = field(1, 1) + field(2, at + whole * part // 3) + field(3, whole // 3)
                events += field(4, event + b"".join(field(4, stat) for stat in stats))
            at += whole + 1_000_000
    line = field(3, field(1, 1) + field(2, "pool") + events)
    metadata = field(4, field(1, 1) + field(2, field(1, 1) + field(2, "dot")))
    stats = b"".join(field(5, field(1, i + 1) + field(2, field(1, i + 1) + field(2, n))) for i, n in enumerate(names))
    return field(1, field(2, "/host:CPU") + line + metadata + stats) + (taken(time.time_ns()) if clock else b"")


def taken(start):
    name = field(5, field(1, 1) + field(2, field(1, 1) + field(2, "profile_start_time")))
    return field(1, field(2, "Task Environment") + name + field(6, field(1, 1) + field(3, start)))


def handle(method, p):
    global rounds
    if method == "hello":
        return {"protocol": 1, "worker": "simulated", "capabilities": ["profile"], "source": "device-profile", "devices": [device]}
    if method == "load":
        if failing and p["candidate"] == 1:
            raise Failed("compile", "no such layout")
        return {"compile_ns": 1}
    if method == "measure-round":
        launches = p["launches"]
        if [launch["candidate"] for launch in launches] == [5] and once("warm-up"):
            raise Failed("execute", "a transient error")
        rounds += len(launches) > 1
        if rounds == 3 and once("round"):
            os.abort()
        path = os.path.join(p["folder"], "round.xplane.pb")
        with open(path, "wb") as file:
            file.write(space(launches))
        return {"profile": path} if order else {"profile": path, "module_name": "jit_autotune_fn_{candidate}"}
    if method == "outputs":
        if p["candidate"] == 4 and once("outputs"):
            os.abort()
        path = os.path.join(p["folder"], "output-%d.bin" % p["candidate"])
        with open(path, "wb") as file:
            file.write(struct.pack("<f", 2.0 if failing and p["candidate"] == 3 else 1.0))
        return {"outputs": [{"spec": "f32[1]", "path": path}]}
    return {}


for line in sys.stdin.buffer:
    request = json.loads(line)
    answer = {"id": request["id"]}
    try:
        answer["result"] = handle(request["method"], request["params"])
    except Failed as failure:
        answer["error"] = {"kind": failure.args[0], "message": failure.args[1]}
    print(json.dumps(answer), file=answers, flush=True)
    if request["method"] == "shutdown":
        break
