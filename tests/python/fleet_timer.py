"""A worker of `docs/worker-protocol.md` for the fleet's tests: times computed from the config, and requested trouble.

FOLDER contains `log`, to which it writes one line per job (`begin` and `end`, its node, operation and key), and files
that control the beginning of a job:
`block-NODE`, `block-OP@vN`: a named pipe to which it writes its node, and then waits forever;
`freeze-NODE`: once, it stops the process of its Ray actor and writes that process's number to the named pipe `frozen`;
`together`: how many workers must have shown their device (`FLEET_SHOWS`) before a job begins;
`gate-NODE`: a named pipe; workers of all other nodes wait until somebody opens it for writing.
"""

import binascii
import contextlib
import glob
import json
import os
import signal
import struct
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
FOLDER, NODE = sys.argv[1], os.environ.get("FLEET_NODE", "here")
IDENTITY = {"platform": "cpu", "device_kind": os.environ.get("FLEET_KIND", "simulated"), "hardware": {}}
if os.environ.get("FLEET_SHOWS"):
    # so that tests can see a worker's environment
    IDENTITY["hardware"] = {name: os.environ.get(name, "unset") for name in os.environ["FLEET_SHOWS"].split(",")}
DEVICE = {"identity": IDENTITY, "environment": {"platform_version": os.environ.get("FLEET_SOFTWARE", "1")}}
job, configs = {}, {}


def log(what):
    line = "%s %s %s %s\n" % (what, NODE, job["op_id"], job["call_key"])
    # a single write of one line, at the end: many processes share the file
    file = os.open(os.path.join(FOLDER, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


def tell(pipe, text):
    # waits for the reader, once
    with open(pipe, "w") as out:
        out.write(text)


def actor():
    """The process of the Ray actor above this one."""
    process = os.getpid()
    while process > 1:
        with open("/proc/%d/cmdline" % process) as file:
            if file.read().startswith("ray::"):
                return process
        with open("/proc/%d/stat" % process) as file:
            process = int(file.read().rpartition(")")[2].split()[1])
    raise RuntimeError("not under a Ray actor")


def wait_for_company():
    path = os.path.join(FOLDER, "together")
    while os.path.exists(path) and len(glob.glob(os.path.join(FOLDER, "shown-*"))) < int(open(path).read()):
        time.sleep(0.01)  # the lease's limit ends it


def trouble():
    wait_for_company()
    for pipe in glob.glob(os.path.join(FOLDER, "gate-*")):
        if not pipe.endswith("-" + NODE):
            open(pipe).close()
    for name in (NODE, job["op_id"]):
        pipe = os.path.join(FOLDER, "block-" + name)
        if os.path.exists(pipe):
            tell(pipe, NODE)
            signal.pause()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(FOLDER, "freeze-" + NODE))
        process = actor()
        os.kill(process, signal.SIGSTOP)
        tell(os.path.join(FOLDER, "frozen"), str(process))


def handle(method, params):
    if method == "hello":
        if os.environ.get("FLEET_SHOWS"):
            open(os.path.join(FOLDER, "shown-" + "-".join(IDENTITY["hardware"].values())), "w").close()
        return {
            "protocol": 1,
            "worker": "fleet's test 1",
            "capabilities": [],
            "source": "host-wall",
            "devices": [DEVICE],
        }
    if method == "begin":
        job.update(op_id=params["op_id"], call_key=params["call_key"])
        configs.clear()
        log("begin")
        trouble()
    elif method == "load":
        configs[params["candidate"]] = json.dumps(params["config"], sort_keys=True)
    elif method == "measure":
        ns = 1_000_000 + binascii.crc32((job["call_key"] + configs[params["candidate"]]).encode()) % 1_000_000
        return {"samples_ns": [ns + run % 7 for run in range(params["runs"])]}
    elif method == "outputs":
        path = os.path.join(params["folder"], "output.bin")
        with open(path, "wb") as file:
            file.write(struct.pack("<f", 1.0))
        return {"outputs": [{"spec": "f32[1]", "path": path}]}
    elif method == "end":
        log("end")
    return {}


for line in sys.stdin:
    request = json.loads(line)
    result = handle(request["method"], request["params"])
    print(json.dumps({"id": request["id"], "result": result}), file=answers, flush=True)
    if request["method"] == "shutdown":
        break
