"""A worker whose configs take their `ns` times a factor from the file CONTROL:
`{"pace": {"CONFIG": 1.5}, "terminate": true}`.

`pace` is keyed by the config's `ns`; with `terminate`, the program that holds the cache gets SIGTERM at a config's
sixth sample.
"""

import json, os, signal, sys

out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
DEVICE = {"identity": {"platform": "cpu", "device_kind": "paced", "hardware": {}}, "environment": {}}
job, measured = {}, {}
while line := sys.stdin.readline():
    request = json.loads(line)
    method, params, result = request["method"], request["params"], {}
    if method == "hello":
        result = {"protocol": 1, "worker": "paced", "capabilities": [], "source": "host-wall", "devices": [DEVICE]}
    if method == "begin":
        job.update(spec=params["inputs"][0]["spec"], size=os.path.getsize(params["inputs"][0]["path"]), configs={})
        measured.clear()
    if method == "load":
        job["configs"][params["candidate"]] = params["config"]
    if method == "measure":
        with open(sys.argv[1]) as file:
            control = json.load(file)
        ns = job["configs"][params["candidate"]]["ns"]
        measured[ns] = measured.get(ns, 0) + 1
        if control.get("terminate") and measured[ns] == 6:
            with open(os.environ["AUTOTUNE_LOWERED_CACHE"] + "/lock") as file:
                os.kill(int(file.read().split()[1]), signal.SIGTERM)
        pace = control.get("pace", {}).get(str(ns), 1)
        result = {"samples_ns": [int(ns * pace) + 10 * n for n in range(params["runs"])]}
    if method == "outputs":
        path = os.path.join(params["folder"], "output-%d.bin" % params["candidate"])
        with open(path, "wb") as file:
            file.write(bytes(job["size"]))
        result = {"outputs": [{"spec": job["spec"], "path": path}]}
    print(json.dumps({"id": request["id"], "result": result}), file=out, flush=True)
    if method == "shutdown":
        break
