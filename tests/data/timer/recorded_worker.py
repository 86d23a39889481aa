"""A worker that answers with the samples and outputs of a file for `--timer replay:`, as if it had just measured them.

Arguments: FILE. What it decides is not marked as replayed, so it can be looked up, signed and published. For tests alone.
"""

import itertools, json, os, sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
with open(sys.argv[1]) as file:
    recording = json.load(file)
known, loaded = {}, {}
for job in recording["invocations"]:
    configs = {json.dumps(one["config"], sort_keys=True): one for one in job["candidates"]}
    known[job["op_id"], job["call_key"], job["direction"]] = configs

while line := sys.stdin.readline():
    request = json.loads(line)
    method, params, result = request["method"], request["params"], {}
    if method == "hello":
        result = {"protocol": 1, "worker": "recorded", "capabilities": ["build-programs"], "source": "host-wall", "devices": [recording["device"]]}
    elif method == "begin":
        configs, loaded = known[params["op_id"], params["call_key"], params["direction"]], {}
    elif method == "load":
        one = configs[json.dumps(params["config"], sort_keys=True)]
        loaded[params["candidate"]] = one, itertools.cycle(itertools.chain(*one["epochs"]))
    elif method == "measure":
        _, samples = loaded[params["candidate"]]
        result = {"samples_ns": list(itertools.islice(samples, params["runs"]))}
    elif method == "outputs":
        outputs = []
        for number, output in enumerate(loaded[params["candidate"]][0]["outputs"]):
            path = os.path.join(params["folder"], "output-%d-%d.bin" % (params["candidate"], number))
            with open(path, "wb") as file:
                file.write(bytes.fromhex(output["hex"]))
            outputs.append({"spec": output["spec"], "path": path})
        result = {"outputs": outputs}
    print(json.dumps({"id": request["id"], "result": result}), file=answers, flush=True)
    if method == "shutdown":
        break
