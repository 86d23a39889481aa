"""A worker that answers with paths that it must not use: KIND TRICK VICTIM.

KIND is the answer that has the path: `outputs`, `profile` or `executable`. TRICK is its fault. VICTIM is somebody
else's folder, with a file `secret.bin`, which the worker tries to have read, changed or removed. All other answers, and
those for candidates other than CANDIDATE (default 1), are correct. Wherever it can, the worker replaces the folders
that it is given by links to VICTIM.
"""

import json, os, sys, threading, time

kind, trick, victim = sys.argv[1:4]
bad = 1
secret = os.path.join(victim, "secret.bin")
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
device = {"identity": {"platform": "cpu", "device_kind": "cpu", "hardware": {}}, "environment": {}}
capabilities = {"outputs": ["build-programs"], "profile": ["build-programs", "profile"], "executable": ["compile"]}[kind]


def grow(path):
    # slower than any reader, and endless
    with open(path, "ab") as file:
        while True:
            file.write(b"\0" * 64)
            file.flush()
            time.sleep(0.0005)


def plant(folder, path):
    """Puts the trick at a path in the folder from the tuner; returns the path to answer."""
    if trick == "outside":
        return secret
    if trick == "relative":
        return os.path.relpath(secret, folder)
    if trick == "dots":
        return os.path.join(folder, os.path.relpath(secret, folder))
    if trick == "device":
        return "/dev/zero"
    if trick == "missing":
        return path
    if trick == "folder-itself":
        return folder
    if trick == "link-folder":
        os.symlink(victim, os.path.join(folder, "sub"))
        return os.path.join(folder, "sub", "secret.bin")
    if trick == "swapped":
        os.rmdir(folder)
        os.symlink(victim, folder)
        return os.path.join(folder, "secret.bin")
    if trick == "link":
        os.symlink(secret, path)
    if trick == "link-zero":
        os.symlink("/dev/zero", path)
    if trick == "fifo":
        os.mkfifo(path)
    if trick == "folder":
        os.mkdir(path)
    if trick == "large":
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    if trick == "growing":
        with open(path, "wb") as file:
            file.write(b"\0" * 16)
        threading.Thread(target=grow, args=[path], daemon=True).start()
        while os.stat(path).st_size <= 16:
            time.sleep(0.001)
    return path


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)
    return path


def handle(method, p):
    if method == "hello":
        result = {"protocol": 1, "worker": "hostile", "capabilities": capabilities, "devices": [device]}
        result["source"] = "device-profile" if kind == "profile" else "host-wall"
        return result
    if method == "begin":
        # its own folder, and names that a tuner might write beside it
        if not os.path.islink(p["scratch"]):
            os.rmdir(p["scratch"])
            os.symlink(victim, p["scratch"])
        for name in ("argument-0.bin", "round.xplane.pb", "output-1-0.bin"):
            if not os.path.lexists(os.path.join(os.path.dirname(p["scratch"]), name)):
                os.symlink(secret, os.path.join(os.path.dirname(p["scratch"]), name))
    if method == "load":
        # the answer that `measure` needs; a tuner compares it with its inputs, and other modes have none
        return {"compile_ns": 1, "signature": {"parameters": ["f32[4]"]}} if trick == "measured" else {"compile_ns": 1}
    if method == "measure":
        return {"samples_ns": [100 + p["candidate"]] * p["runs"]}
    if method == "compile":
        path = p["executable"]
        if p["candidate"] == bad:
            plant(os.path.dirname(path), path)
        else:
            write(path, b"machine code")
        # what `measure` asks for; a tuner compares it with its inputs, of which there are none elsewhere
        return {"compile_ns": 1, "signature": {"parameters": ["f32[4]"]}} if trick == "measured" else {"compile_ns": 1}
    if method == "measure-round":
        path = os.path.join(p["folder"], "round.xplane.pb")
        if bad in [launch["candidate"] for launch in p["launches"]]:
            return {"profile": plant(p["folder"], path)}
        # one empty plane
        return {"profile": write(path, b"\x0a\x0b\x12\x09/host:CPU")}
    if method == "outputs":
        path = os.path.join(p["folder"], "output.bin")
        path = plant(p["folder"], path) if kind == "outputs" and p["candidate"] == bad else write(path, b"\0" * 16)
        return {"outputs": [{"spec": "f32[4]", "path": path}]}
    return {}


while line := sys.stdin.readline():
    request = json.loads(line)
    print(json.dumps({"id": request["id"], "result": handle(request["method"], request["params"])}), file=out, flush=True)
    if request["method"] == "shutdown":
        break
