"""A worker that plays times: each config says how long it takes (`ns`) and how it misbehaves (`do`).

Arguments: MODE COUNTER. MODE is the misbehaviour of the whole worker: `begin` for the operation `hostile@v1`,
`no-outputs` for every one. COUNTER is a file with one letter for every started process.
"""

import json, os, shutil, signal, sys, time

mode, counter = sys.argv[1], sys.argv[2]
with open(counter, "a") as file:
    file.write("p")
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
DEVICE = {"identity": {"platform": "cpu", "device_kind": "played", "hardware": {}}, "environment": {}}
job, measured = {}, {}


def say(text):
    print(text, file=out, flush=True)


def misbehave(what, request):
    """True if the request needs no other answer."""
    if what == "print":
        say("step 1 of 10 done")
    if what == "abort-at-4" and measured.get(request["params"]["candidate"], 0) == 4:
        print("F0000 kernel.cc:7] Check failed: the fourth call", file=sys.stderr, flush=True)
        os.abort()
    if what == "nonsense":
        say(json.dumps({"id": request["id"], "result": {"samples_ns": "many"}}))
        return True
    if what == "zero":
        say(json.dumps({"id": request["id"], "result": {"samples_ns": [0] * request["params"]["runs"]}}))
        return True
    if what == "hang":
        time.sleep(1000)
    if what == "no-device":
        say(json.dumps({"id": request["id"], "error": {"kind": "device", "message": "the device fell off the bus"}}))
        return True
    if what == "remove-cache" and measured[request["params"]["candidate"]] == 6:
        shutil.rmtree(os.environ["AUTOTUNE_LOWERED_CACHE"])
    if what in ("SIGTERM", "SIGHUP", "SIGQUIT") and measured[request["params"]["candidate"]] == 14:
        # the cache's lock file names the process that has it: the tuner
        with open(os.environ["AUTOTUNE_LOWERED_CACHE"] + "/lock") as file:
            os.kill(int(file.read().split()[1]), getattr(signal, what))
    return False


while line := sys.stdin.readline():
    request = json.loads(line)
    method, params, result = request["method"], request["params"], {}
    if method == "hello":
        result = {"protocol": 1, "worker": "played", "capabilities": [], "source": "host-wall", "devices": [DEVICE]}
    if method == "begin":
        if mode == "begin" and params["op_id"] == "hostile@v1":
            print("out of luck", file=sys.stderr, flush=True)
            sys.exit(4)
        job.update(spec=params["inputs"][0]["spec"], size=os.path.getsize(params["inputs"][0]["path"]), configs={})
    if method == "load":
        job["configs"][params["candidate"]] = params["config"]
        if mode == "no-outputs":
            result = {"signature": {"parameters": [job["spec"]], "results": []}}
    if method == "measure":
        candidate = params["candidate"]
        config = job["configs"][candidate]
        measured[candidate] = measured.get(candidate, 0) + 1
        if misbehave(config.get("do"), request):
            continue
        result = {"samples_ns": [config["ns"] + 10 * n for n in range(params["runs"])]}
    if method == "outputs" and mode == "no-outputs":
        result = {"outputs": []}
    elif method == "outputs":
        path = os.path.join(params["folder"], "output-%d.bin" % params["candidate"])
        with open(path, "wb") as file:
            file.write(bytes(job["size"]))
        result = {"outputs": [{"spec": job["spec"], "path": path}]}
    say(json.dumps({"id": request["id"], "result": result}))
    if method == "shutdown":
        break
