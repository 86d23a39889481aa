"""A worker that builds programs: it plays times by a formula of the config's `a`, `b` and `c`, and refuses to build those
whose `a` is 3 more than a multiple of 8.
"""

import json, math, os, sys

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
DEVICE = {"identity": {"platform": "cpu", "device_kind": "played", "hardware": {}}, "environment": {}}
job = {}


def ns(config):
    above = (config["a"] - 21) ** 2 / 400 + (config["b"] - 9) ** 2 / 300 + (math.log2(config["c"]) - 2) ** 2 * 0.05
    return int(1e6 * (1 + above))


while line := sys.stdin.readline():
    request = json.loads(line)
    method, params, answer = request["method"], request["params"], {"result": {}}
    if method == "hello":
        answer["result"] = {"protocol": 1, "worker": "building", "capabilities": ["build-programs"], "source": "host-wall", "devices": [DEVICE]}
    if method == "begin":
        job.clear()
    if method == "load":
        job[params["candidate"]] = params["config"]
        if params["config"]["a"] % 8 == 3:
            answer = {"error": {"kind": "compile", "message": "too much shared memory"}}
    if method == "measure":
        answer["result"] = {"samples_ns": [ns(job[params["candidate"]]) + run for run in range(params["runs"])]}
    if method == "outputs":
        path = os.path.join(params["folder"], "output-%d.bin" % params["candidate"])
        with open(path, "wb") as file:
            file.write(bytes(32))
        answer["result"] = {"outputs": [{"spec": "f32[8]", "path": path}]}
    print(json.dumps({"id": request["id"], **answer}), file=out, flush=True)
    if method == "shutdown":
        break
