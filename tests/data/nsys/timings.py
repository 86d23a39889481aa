"""What `profile timings` is to say of a capture of nsys-jax, by pandas and pyarrow.

    python timings.py CAPTURE.zip > NAME.timings.json

An execution is a range `TSL:XlaModule:#hlo_module=F,program_id=P#`, or of no program where XLA's autotuner ran it. Its work is in
the thunks whose innermost module it is and that hold no thunk themselves; what counts is the union of their times on the GPU. By
`F(P-None)`, with -1 for the autotuner's: nanoseconds of each execution of 1000 or more, sorted; and the same of the thunks whose
names match `REGEX` alone.
"""

import io
import json
import re
import sys
import zipfile

import pandas as pd

REGEX = "^(all-gather|reduce-scatter|all-reduce)"


def union(times):
    total, end = 0, None
    for start, stop in sorted(times):
        if end is None or start > end:
            total, end = total + stop - start, stop
        elif stop > end:
            total, end = total + stop - end, stop
    return total


with zipfile.ZipFile(sys.argv[1]) as archive:
    frame = pd.read_parquet(io.BytesIO(archive.read("nvtx_gpu_proj_trace/trace.parquet")))
frame = frame[frame["Name"].notna()].copy()
frame["Stop"] = frame["Projected Start"] + frame["Projected Duration"]
by_id = frame.set_index("RangeId")
parent = by_id["ParentId"].to_dict()
kind = by_id["Name"].str.extract(r"^TSL:(XlaModule|Thunk):#", expand=False).to_dict()
name = by_id["Name"].to_dict()

thunks = frame[frame["Name"].str.startswith("TSL:Thunk:#")]
module_of, outer = {}, set()
for thunk in thunks["RangeId"]:
    at = parent.get(thunk)
    while pd.notna(at) and kind.get(at) != "XlaModule":
        if kind.get(at) == "Thunk":
            outer.add(at)
        at = parent.get(at)
    if pd.notna(at):
        module_of[thunk] = at

inner = thunks[thunks["RangeId"].isin(module_of) & ~thunks["RangeId"].isin(outer)].copy()
inner["module"] = inner["RangeId"].map(module_of)
inner["operation"] = inner["Name"].str.extract(r"hlo_op=([^,#]*)", expand=False)
found = {"all": {}, "regex": {}}
for module, rows in inner.groupby("module"):
    function = re.search(r"hlo_module=([^,#]*)", name[module])[1]
    program = re.search(r"program_id=(\d+)", name[module])
    label = f"{function}({program[1] if program else -1}-None)"
    times = list(zip(rows["Projected Start"].astype(int), rows["Stop"].astype(int), rows["operation"]))
    matching = [(start, stop) for start, stop, operation in times if re.search(REGEX, operation)]
    found["all"].setdefault(label, []).append(union([(start, stop) for start, stop, _ in times]))
    found["regex"].setdefault(label, []).append(union(matching))
kept = {
    what: {label: sorted(ns for ns in times if ns >= 1000) for label, times in of.items() if max(times) >= 1000}
    for what, of in found.items()
}
print(json.dumps({"regex_pattern": REGEX, **kept}, sort_keys=True))
