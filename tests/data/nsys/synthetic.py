"""Writes `synthetic.zip` and `synthetic_old/`: captures in the shape that nsys-jax writes, with numbers made up for hand-worked tests.

No GPU and no Nsight Systems had a part in them. Run with pandas and pyarrow; the files are committed.

Times are nanoseconds. One process, two devices, program 7 `jit_step`, which was compiled in the capture and ran three times a device:

    device 0, execution e:  fusion.1 from t to t+100, all-reduce-start.1 from t+50 to t+250, fusion.2 from t+150 to t+200
    device 1, execution e:  fusion.1 from t to t+100, all-reduce-start.1 from t+150 to t+250, fusion.2 from t+90 to t+200

with t = 10000 + 1000 e. `fusion.2` is a thunk within the thunk `command_buffer`. The all-reduce takes 1000 f32 over a group of two.

Compilation of `jit_step` lasts 1000: own 100, a pass 200, the backend 700. In the backend two workers run from 300 to 700 after the
start: worker A 400 of `XlaEmitLlvmIr`, which holds 100 of `XlaOptimizeLlvmIr`; worker B 200 of `XlaEmitGpuAsm`. A range of cuBLAS lasts 50 in
the backend.
"""

import lzma
import pathlib
import zipfile

import pandas as pd

HERE = pathlib.Path(__file__).parent
PID, MAIN, LAUNCHERS, WORKERS = 100, 100, (101, 102), (103, 104)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def hlo():
    """`HloProto` of a program over two partitions, of the fields that are read."""
    shape = field(2, 11) + field(3, varint(1000))  # f32[1000]
    groups = field(1, field(1, bytes([0, 1])))

    def instruction(name, opcode, number, *more):
        return field(2, field(1, name) + field(2, opcode) + field(3, shape) + field(35, number) + b"".join(more))

    operand = field(36, varint(1))
    entry = field(1, "main") + field(5, 9)
    entry += instruction("x", "parameter", 1)
    entry += instruction("fusion.1", "fusion", 2, operand)
    entry += instruction("fusion.2", "fusion", 3, operand)
    entry += instruction("all-reduce-start.1", "all-reduce-start", 4, operand, field(87, groups))
    placement = field(1, 1) + field(2, 2) + field(3, field(1, bytes([0]))) + field(3, field(1, bytes([1])))
    module = field(1, "jit_step") + field(2, "main") + field(3, entry) + field(5, 7) + field(15, placement)
    return field(1, module)


def device_rows():
    rows = []

    def add(name, start, end, tid, parent):
        rows.append({"id": 1000 + len(rows), "name": name, "start": start, "end": end, "tid": tid, "parent": parent})
        return rows[-1]["id"]

    # the autotuner's: without a program id
    module = add("TSL:XlaModule:#hlo_module=extracted#", 5000, 5100, MAIN, None)
    add("TSL:Thunk:#hlo_op=gemm#", 5000, 5100, MAIN, module)
    # the end of an execution that began before the capture
    add("TSL:Thunk:#hlo_op=fusion.9#", 4000, 4100, LAUNCHERS[0], None)
    for device, tid in enumerate(LAUNCHERS):
        for execution in range(3):
            t = 10000 + 1000 * execution
            module = add("TSL:XlaModule:#prefix=jit(step),hlo_module=jit_step,program_id=7#", t, t + 250, tid, None)
            add("TSL:Thunk:#name=jit(step)/mul[axes=(0,)],hlo_op=fusion.1#", t, t + 100, tid, module)
            reduce = add("TSL:Thunk:#hlo_op=all-reduce-start.1#", t + (50, 150)[device], t + 250, tid, module)
            add("NCCL:ncclGroupEnd", t + (50, 150)[device], t + 250, tid, reduce)
            buffer = add("TSL:Thunk:#hlo_op=command_buffer#", t + (150, 90)[device], t + 200, tid, module)
            add("TSL:Thunk:#hlo_op=fusion.2#", t + (150, 90)[device], t + 200, tid, buffer)
    return rows


def host_rows():
    rows = []

    def add(name, start, end, tid, parent):
        rows.append({"id": 1 + len(rows), "name": name, "start": start, "end": end, "tid": tid, "parent": parent})
        return rows[-1]["id"]

    root = add("TSL:XlaCompile:#module=jit_step#", 1000, 2000, MAIN, None)
    add("TSL:XlaPassPipeline:#name=simplification,module=jit_step,program_id=7#", 1050, 1250, MAIN, root)
    backend = add("TSL:XlaCompileBackend:#module=jit_step,program_id=7#", 1250, 1950, MAIN, root)
    add("CUBLAS:cublasCreate", 1260, 1310, MAIN, backend)
    emit = add("TSL:XlaEmitLlvmIr:#module=jit_step,program_id=7#", 1300, 1700, WORKERS[0], None)
    add("TSL:XlaOptimizeLlvmIr:#module=split_module#", 1500, 1600, WORKERS[0], emit)
    add("TSL:XlaEmitGpuAsm:#module=split_module#", 1400, 1600, WORKERS[1], None)
    return rows


def device_frame():
    rows = device_rows()
    # the first row is of no range, as in real captures; gaps make doubles of the ids
    head = {"Name": None, "Projected Start": 0, "Projected Duration": 20000, "RangeId": None, "ParentId": None, "TID": MAIN}
    body = [
        {
            "Name": row["name"],
            "Projected Start": row["start"],
            "Projected Duration": row["end"] - row["start"],
            "RangeId": row["id"],
            "ParentId": row["parent"],
            "TID": row["tid"],
        }
        for row in rows
    ]
    frame = pd.DataFrame([head, *body])
    frame["PID"], frame["Rank"], frame["Style"] = PID, 0, "PushPop"
    return frame.astype({"RangeId": "float64", "ParentId": "float64"})


def newer_device_frame():
    """The columns of Nsight Systems 2026: text and domain apart, start and end, the stack as a list."""
    rows = device_rows()
    return pd.DataFrame(
        {
            "Text": [row["name"].split(":", 1)[1] for row in rows],
            "Domain": [row["name"].split(":", 1)[0] for row in rows],
            "Start": [row["start"] for row in rows],
            "End": [row["end"] for row in rows],
            "Range ID": [row["id"] for row in rows],
            "Parent ID": pd.array([row["parent"] for row in rows], dtype="Int64"),
            "Range Stack": [[row["parent"] or 0, row["id"]] for row in rows],
            "Stack Level": 0,
            "Children Count": 0,
            "PID": PID,
            "TID": [row["tid"] for row in rows],
            "Rank": 0,
        }
    )


def host_frame():
    rows = host_rows()
    return pd.DataFrame(
        {
            "Start (ns)": [row["start"] for row in rows],
            "End (ns)": [row["end"] for row in rows],
            "Name": [row["name"] for row in rows],
            "PID": PID,
            "TID": [row["tid"] for row in rows],
            "RangeId": [row["id"] for row in rows],
            "ParentId": pd.array([row["parent"] for row in rows], dtype="Int64"),
        }
    )


def threads():
    names = ["python", *(f"XlaLauncher:#global={n},local={n},process=0,partition=0#" for n in range(2)), "w", "w"]
    return pd.DataFrame({"Name": names, "PID": PID, "TID": [MAIN, *LAUNCHERS, *WORKERS]})


def main():
    program = lzma.compress(hlo(), preset=6)
    name = "dump/module_0007.jit_step.sm_8.0_gpu_after_optimizations.hlo.pb.xz"
    with zipfile.ZipFile(HERE / "synthetic.zip", "w", zipfile.ZIP_DEFLATED) as archive:

        def write(path, content):
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)

        write("nvtx_gpu_proj_trace/trace.parquet", newer_device_frame().to_parquet())
        write("thread-metadata.parquet", threads().to_parquet())
        write("report_nvtx_pushpop_trace.parquet", host_frame().to_parquet())
        write(name, program)
        # what a name leads to is never looked at
        write("../../escaped", b"outside")
    old = HERE / "synthetic_old"
    for folder in ["nvtx_gpu_proj_trace", "dump"]:
        (old / folder).mkdir(parents=True, exist_ok=True)
    device_frame().to_parquet(old / "nvtx_gpu_proj_trace/trace.parquet")
    threads().to_parquet(old / "thread-metadata.parquet")
    text = host_frame().to_csv(index=False).encode()
    (old / "report_nvtx_pushpop_trace.csv.xz").write_bytes(lzma.compress(text, preset=6))
    (old / name).write_bytes(program)


if __name__ == "__main__":
    main()
