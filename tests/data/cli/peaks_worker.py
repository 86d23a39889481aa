"""A worker that plays a device of known rates: a run takes its operations divided by the rate of their kind and type.

It counts the operations in the program's text. It refuses types and programs that are not among RATES.
"""

import json
import re
import sys

DEVICE = {"identity": {"platform": "cpu", "device_kind": "played", "hardware": {}}, "environment": {}}
# operations or bytes in a second; matrices of s8 are faster where they are larger
RATES = {
    ("dot", "f32"): 1e10,
    ("dot", "f64"): 5e9,
    ("dot", "i8"): 2e10,
    ("chain", "f32"): 2e9,
    ("chain", "f64"): 1e9,
    ("negate", "f32"): 1e10,
    ("add", "f32"): 1.2e10,
}


def seconds(text):
    """The duration of a run; a KeyError for anything unknown to this device."""
    first = re.search(r"%x: tensor<((?:\d+x)+)(\w+)>", text)
    dims, dtype = [int(n) for n in first[1].split("x")[:-1]], first[2]
    elements = 1
    for size in dims:
        elements *= size
    if "dot_general" in text:
        if len(dims) < 2:
            raise KeyError("a row")
        rate = RATES["dot", dtype] * (1.25 if dtype == "i8" and dims[0] > 512 else 1)
        return 2 * dims[0] * dims[0] * dims[1] / rate
    operations = len(re.findall(r"stablehlo\.(?:add|multiply)", text))
    if operations > 1:
        return operations * elements / RATES["chain", dtype]
    if "negate" in text:
        return 2 * 4 * elements / RATES["negate", dtype]
    return 3 * 4 * elements / RATES["add", dtype]


def main():
    took = {}
    for line in sys.stdin:
        request = json.loads(line)
        method, params = request["method"], request["params"]
        answer = {"result": {}}
        if method == "hello":
            about = {"protocol": 1, "worker": "peaks", "capabilities": [], "source": "host-wall", "devices": [DEVICE]}
            answer = {"result": about}
        elif method == "load":
            with open(params["program"]["path"]) as file:
                text = file.read()
            try:
                took[params["candidate"]] = seconds(text)
            except KeyError as missing:
                answer = {"error": {"kind": "compile", "message": "not on this device: %s" % missing}}
        elif method == "measure":
            # half of the runs take the nominal time, a quarter less and a quarter more
            spread = (1, 0.8, 1, 1.25)
            ns = [round(took[params["candidate"]] * spread[run % 4] * 1e9) for run in range(params["runs"])]
            answer = {"result": {"samples_ns": ns}}
        print(json.dumps({"id": request["id"], **answer}), flush=True)
        if method == "shutdown":
            break


main()
