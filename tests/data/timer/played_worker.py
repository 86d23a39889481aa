"""A worker that plays fixed times: [STATE N WHO].

Config `{"block": c}` of operation `opK@v1` takes 1 ms if c is K modulo 4, else 2 ms and c tenths. With arguments,
config 3 crashes each worker in `measure`; and the worker that gets the N-th request of all workers together, counted in
the file STATE, is killed before it answers, or its supervisor if WHO is `supervisor`.
"""

import json, os, signal, sys, time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
device = {"identity": {"platform": "cpu", "device_kind": "played", "hardware": {}}, "environment": {"platform_version": "cpu"}}
op, loaded = 0, {}


def kill_at_its_turn():
    with open(sys.argv[1], "ab") as state:
        state.write(b".")
        state.flush()
        if os.fstat(state.fileno()).st_size != int(sys.argv[2]):
            return
    os.kill(os.getppid() if sys.argv[3] == "supervisor" else os.getpid(), signal.SIGKILL)
    while True:
        time.sleep(1)


while line := sys.stdin.readline():
    request = json.loads(line)
    if sys.argv[1:]:
        kill_at_its_turn()
    method, params, result = request["method"], request["params"], {}
    if method == "hello":
        result = {"protocol": 1, "worker": "played", "capabilities": ["build-programs"], "source": "host-wall", "devices": [device]}
    elif method == "begin":
        op = int(params["op_id"].removeprefix("op").removesuffix("@v1"))
    elif method == "load":
        loaded[params["candidate"]] = params["config"]["block"]
    elif method == "measure":
        block = loaded[params["candidate"]]
        if sys.argv[1:] and block == 3:
            os.abort()
        result = {"samples_ns": [1_000_000 if block == op % 4 else 2_000_000 + 100_000 * block] * params["runs"]}
    elif method == "outputs":
        path = os.path.join(params["folder"], "output-%d.bin" % params["candidate"])
        with open(path, "wb") as file:
            file.write(b"\0\0\x80\x3f")
        result = {"outputs": [{"spec": "f32[1]", "path": path}]}
    print(json.dumps({"id": request["id"], "result": result}), file=answers, flush=True)
    if method == "shutdown":
        break
