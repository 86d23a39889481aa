"""A worker that compiles nothing, and writes the candidates that it is asked to compile ahead to the file named, a line each."""

import json, os, sys

out = os.fdopen(os.dup(1), "w")
DEVICE = {"identity": {"platform": "cpu", "device_kind": "ahead", "hardware": {}}, "environment": {}}
with open(sys.argv[1], "w") as asked:
    while line := sys.stdin.readline():
        request = json.loads(line)
        method, params, result = request["method"], request["params"], {}
        if method == "hello":
            result = {
                "protocol": 1,
                "worker": "ahead",
                "capabilities": ["compile-ahead"],
                "source": "host-wall",
                "devices": [DEVICE],
            }
        if method == "begin":
            inputs = len(params["inputs"])
        if method == "compile-ahead":
            name = os.path.basename(params["program"]["path"])
            print(
                inputs,
                params["candidate"],
                json.dumps(params["config"], separators=(",", ":")),
                name,
                file=asked,
                flush=True,
            )
        print(json.dumps({"id": request["id"], "result": result}), file=out, flush=True)
        if method == "shutdown":
            break
