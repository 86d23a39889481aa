"""A worker that works for candidate 0 and misbehaves as its arguments say: MODE [PID_FILE].

Candidate 1 is the bad one, unless the mode concerns `hello`. `warned-MODE` warns of nothing when a program is loaded.
"""

import json, os, signal, subprocess, sys, time

mode = sys.argv[1].removeprefix("warned-")
warns = mode != sys.argv[1]
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
device = {"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}, "environment": {}}


def say(text):
    print(text, file=out, flush=True)


def misbehave(request):
    if mode == "abort":
        print("F0000 thunk.cc:7] Check failed: shape.ok() \x1b[31mbad\x1b[0m", "*** stack trace ***", sep="\n", file=sys.stderr, flush=True)
        os.abort()
    if mode == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if mode == "exit":
        sys.exit(3)
    if mode == "hang":
        time.sleep(1000)
    if mode == "spin":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass
    if mode == "memory":
        hoard = [bytearray(os.urandom(1 << 20) * 16) for _ in range(1000)]
    if mode == "child-memory":
        subprocess.run([sys.executable, "-c", "import os,time;x=bytearray(os.urandom(1<<20)*400);time.sleep(1000)"])
    if mode == "noise":
        say("step 1 of 10 done")
    if mode == "binary":
        out.buffer.write(bytes(range(128, 256)) + b"\n")
        out.flush()
    if mode == "huge":
        out.write("x" * (1 << 22))
        out.flush()
    if mode == "flood":
        while True:
            os.write(2, b"warning: all is lost\n" * 1000)
    if mode == "other-id":
        say(json.dumps({"id": request["id"] + 1, "result": {"samples_ns": [1]}}))
    if mode == "both":
        say(json.dumps({"id": request["id"], "result": {}, "error": {"kind": "execute", "message": "no"}}))
    if mode == "few-samples":
        say(json.dumps({"id": request["id"], "result": {"samples_ns": []}}))
    if mode == "negative":
        say(json.dumps({"id": request["id"], "result": {"samples_ns": [-1]}}))
    if mode == "close-stdout":
        os.close(out.fileno())
        time.sleep(1000)
    if mode == "device-error":
        say(json.dumps({"id": request["id"], "error": {"kind": "execute", "message": "CUDA_ERROR_ILLEGAL_ADDRESS:\n  launch failed"}}))
    if mode == "unknown-kind":
        say(json.dumps({"id": request["id"], "error": {"kind": "sadness", "message": "x"}}))
    if mode in ("orphans", "hello-orphans"):
        time.sleep(1000)


def leave_orphans():
    children = [
        subprocess.Popen(["sleep", "1000"]),
        subprocess.Popen(["sleep", "1000"], start_new_session=True),
    ]
    with open(sys.argv[2] + ".new", "w") as file:
        print(os.getpid(), os.getppid(), *[child.pid for child in children], file=file)
    os.rename(sys.argv[2] + ".new", sys.argv[2])


if mode == "hello-exit":
    print("no such device", file=sys.stderr, flush=True)
    sys.exit(9)
if mode == "hello-hang":
    time.sleep(1000)
if mode == "hello-noise":
    say("Welcome!")
while line := sys.stdin.readline():
    request = json.loads(line)
    params, result = request["params"], {}
    if request["method"] == "hello":
        result = {"protocol": 1, "worker": "misbehaving", "capabilities": ["build-programs"], "source": "host-wall", "devices": [device]}
        if mode.startswith("batches"):
            result["capabilities"].append("batches")
        if mode == "hello-old":
            result["protocol"] = 0
        if mode == "hello-no-device":
            result["devices"] = []
    if mode == "orphans" and request["method"] == "load" and params["candidate"] == 1:
        leave_orphans()
    if warns and request["method"] == "load":
        print("E0000 loader.cc:7] this machine lacks a feature", file=sys.stderr, flush=True)
    if params.get("candidate") == 1 and (request["method"] == "load") == (mode == "load-abort"):
        if mode == "load-abort":
            os.abort()
        misbehave(request)
        if mode in ("device-error", "other-id", "both", "few-samples", "negative", "unknown-kind", "huge", "noise", "binary"):
            continue
    if mode == "hello-orphans":
        leave_orphans()
        misbehave(request)
    if request["method"] == "measure":
        result = {"samples_ns": [100] * params["runs"]}
        if mode == "batches":
            # a sample tells the batch that it is of
            batch = params.get("batch", 1)
            result = {"samples_ns": [100 + batch] * (params["runs"] // batch)}
            with open(sys.argv[2], "a") as file:
                print(params["runs"], params.get("batch"), file=file)
    if request["method"] == "outputs":
        result = {"outputs": [{"spec": "f32[4]", "path": "/no/such/file"}]}
    say(json.dumps({"id": request["id"], "result": result}))
    if request["method"] == "shutdown":
        break
