"""A worker with the capability `profile` that runs nothing: it returns prepared captures.

Arguments: PLATFORM PROFILE CONTROL MODULE_NAME. PROFILE is an XSpace file for every program but the control program,
CONTROL one for that; `error:TEXT` in place of a file is an error of the round. MODULE_NAME may be empty.
"""

import json, os, shutil, sys

platform, profile, control, module_name = sys.argv[1:]
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
DEVICE = {"identity": {"platform": platform, "device_kind": "played", "hardware": {}}, "environment": {}}
is_control = False

while line := sys.stdin.readline():
    request = json.loads(line)
    method, params, result, error = request["method"], request["params"], {}, None
    if method == "hello":
        result = {"protocol": 1, "worker": "captured", "capabilities": ["profile"], "source": "device-profile"}
        result["devices"] = [DEVICE]
    if method == "load":
        with open(params["program"]["path"], "rb") as file:
            is_control = b"@control" in file.read()
        result = {"compile_ns": 1, "signature": {"parameters": ["f32[4096]"] if is_control else ["f32[4]", "s32[2]"]}}
    if method == "measure-round":
        captured = control if is_control else profile
        if captured.startswith("error:"):
            error = {"kind": "execute", "message": captured[len("error:"):]}
        else:
            path = os.path.join(params["folder"], "round.xplane.pb")
            shutil.copyfile(captured, path)
            result = {"profile": path}
            if module_name:
                result["module_name"] = module_name
    answer = {"id": request["id"], "error": error} if error else {"id": request["id"], "result": result}
    print(json.dumps(answer), file=out, flush=True)
    if method == "shutdown":
        break
