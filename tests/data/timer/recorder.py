"""A recorder without JAX: `recorder.py REGISTRY LOG [MODE]` answers as `docs/recorder-protocol.md` says.

A config `{"q": A, "kv": B}` becomes the program of `scripted::distinct_program(20 * A + B)`. Each request is a line of the
log. MODE: `refusing` refuses odd `kv`, `dying` ends at `q` = 3 (exit code 11), `hanging-7` never answers at `q` = 7, `silent` never
answers at all, `mute` not even says hello, `changed` makes other programs, `other` has another name, `ending` ends at once,
`first` has one recording on demand and ends where another one is asked for.
`mute` and `silent` start a process in a session of its own, and LOG.processes has their ids.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

registry, log, mode = pathlib.Path(sys.argv[1]), sys.argv[2], (sys.argv[3:] or [""])[0]
print("what a program prints is no answer")
if mode == "ending":
    sys.exit("no such model")
if mode in ("mute", "silent"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    started = pathlib.Path(log + ".starting")
    started.write_text(f"{os.getppid()} {os.getpid()} {child.pid}")
    started.rename(log + ".processes")
if mode == "mute":
    time.sleep(1000)
requests, answers = map(int, os.environ["AUTOTUNE_LOWERED_ANSWER"].split(","))


def lowered(config):
    if mode == "refusing" and config["kv"] % 2:
        return {"not_lowered": "ValueError: kv is odd"}
    if mode == "dying" and config["q"] == 3:
        os._exit(11)
    number = 20 * config["q"] + config["kv"] + (1000 if mode == "changed" else 0)
    text = f"module @m{{ func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{ // {number}\n }} }}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = registry / "programs" / digest[:2] / f"{digest}.mlir"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return {"program": {"format": "stablehlo-text", "digest": digest, "semantic_digest": digest}}


with open(requests) as lines, open(answers, "w") as out:
    for line in lines:
        asked = json.loads(line)
        if asked["method"] == "hello":
            if mode == "first" and asked["params"].get("recording", 1) > 1:
                break
            result = {"protocol": 1, "recorder": "others" if mode == "other" else "tests"}
        else:
            with open(log, "a") as file:
                file.write(json.dumps(asked["params"]["config"]) + "\n")
            if mode == "silent" or (mode == f"hanging-{asked['params']['config'].get('q')}"):
                continue
            result = lowered(asked["params"]["config"])
        out.write(json.dumps({"id": asked["id"], "result": result}) + "\n")
        out.flush()
