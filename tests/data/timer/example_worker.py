import array, json, operator, os, sys, time

answers = os.fdopen(os.dup(1), "w")  # stdout is the protocol's alone:
os.dup2(2, 1)                        # whatever prints from here on goes to stderr
LIMIT = 1 << 20
BUILDS = {"loop": lambda a, b: [x + y for x, y in zip(a, b)], "map": lambda a, b: list(map(operator.add, a, b))}
DEVICE = {"identity": {"platform": "python", "device_kind": sys.version.split()[0], "hardware": {}}, "environment": {}}
job = {}

def handle(method, p):
    if method == "hello":
        return {"protocol": 1, "worker": "example 1.0", "capabilities": ["build-programs"], "source": "host-wall", "devices": [DEVICE]}
    if method == "begin":
        job.update(inputs=[array.array("f", open(i["path"], "rb").read()) for i in p["inputs"]], specs=[i["spec"] for i in p["inputs"]], loaded={})
    elif method == "load":
        job["loaded"][p["candidate"]] = BUILDS[p["config"].get("build", "loop")]
    elif method == "measure":
        function, samples = job["loaded"][p["candidate"]], []
        for _ in range(p["runs"]):
            start = time.perf_counter_ns()
            function(*job["inputs"])
            samples.append(time.perf_counter_ns() - start)
        return {"samples_ns": samples}
    elif method == "outputs":
        path = os.path.join(p["folder"], "output-%d.bin" % p["candidate"])
        with open(path, "wb") as file:
            array.array("f", job["loaded"][p["candidate"]](*job["inputs"])).tofile(file)
        return {"outputs": [{"spec": job["specs"][0], "path": path}]}
    elif method == "end":
        job.clear()
    elif method != "shutdown":
        raise KeyError(method)
    return {}

while line := sys.stdin.buffer.readline(LIMIT):
    request, answer = {}, {"id": None}
    try:
        while len(line) == LIMIT and not line.endswith(b"\n"):
            line, request = sys.stdin.buffer.readline(LIMIT), None  # too long: skipped to its end
        if request is None:
            raise ValueError("a line of more than %d bytes" % LIMIT)
        request = json.loads(line)
        answer = {"id": request["id"]}
        answer["result"] = handle(request["method"], request["params"])
    except Exception as error:
        answer["error"] = {"kind": "protocol", "message": repr(error)}
    print(json.dumps(answer), file=answers, flush=True)
    if (request or {}).get("method") == "shutdown":
        break
