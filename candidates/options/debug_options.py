"""Writes `debug_options.json`: every field of XLA's `DebugOptions` in some versions of jaxlib, and what JAX sends in it.

    python debug_options.py FOLDER...

Each FOLDER holds an unpacked wheel of jaxlib, with its version as the folder's name, and `default.pb`: what
`jaxlib.xla_client.CompileOptions().SerializeAsString()` gives there, with no XLA_FLAGS. Names, numbers and types come from
the descriptor of `xla/xla.proto`, which `libjax_common.so` contains. It needs the package `protobuf`.
"""

import json
import pathlib
import sys

from google.protobuf import descriptor_pb2

HERE = pathlib.Path(__file__).resolve().parent

# besides the fields whose names have `dump`: they write, log, keep what was compiled, or say where a tool is, and the program
# is the same without them
ASIDE = {
    "xla_debug_buffer_assignment_show_max",
    "xla_detailed_logging",
    "xla_enable_hlo_modules_upload",
    "xla_enable_scoped_logging_timers",
    "xla_gpu_cuda_data_dir",
    "xla_gpu_experimental_autotune_cache_mode",
    "xla_gpu_experimental_autotuner_cache_dir",
    "xla_gpu_experimental_enable_buffer_saver_on_thunks",
    "xla_gpu_experimental_enable_checksum_tracing_on_thunks",
    "xla_gpu_experimental_thunk_buffer_debug_filter",
    "xla_gpu_experimental_thunk_buffer_debug_module_outputs",
    "xla_gpu_kernel_cache_file",
    "xla_gpu_log_minmax",
    "xla_gpu_per_fusion_autotune_cache_dir",
    "xla_gpu_print_compilation_stats",
    "xla_hlo_print_inline_stack_frames",
    "xla_hlo_profile",
}


# JAX unsets it for small programs
ALSO_SENT = {"xla_detailed_logging": 0}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return value, at


def fields(data):
    """Each field of a message: its number, and its value: a number, or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            width = {1: 8, 5: 4}[tag & 7]
            value, at = int.from_bytes(data[at : at + width], "little"), at + width
        yield tag >> 3, value


def descriptor(library):
    """The fields of `DebugOptions`, from the file descriptor that the library registers."""
    data = library.read_bytes()
    name = b"xla/xla.proto"
    start = at = data.index(bytes([10, len(name)]) + name)
    # fields of FileDescriptorProto: all are of length-delimited types but the edition
    while True:
        tag, after = varint(data, at)
        if tag & 7 != 2 or not 0 < tag >> 3 < 15:
            break
        length, after = varint(data, after)
        at = after + length
    file = descriptor_pb2.FileDescriptorProto.FromString(data[start:at])
    (message,) = [message for message in file.message_type if message.name == "DebugOptions"]
    return message.field


def main(folders):
    known = {}

    def add(member, number, value):
        if value not in known[number][member]:
            known[number][member].append(value)

    for folder in sorted(folders, key=lambda folder: [int(part) for part in folder.name.split(".")]):
        (build,) = [value for number, value in fields((folder / "default.pb").read_bytes()) if number == 3]
        (debug,) = [value for number, value in fields(build) if number == 3]
        sent = list(fields(debug))
        for field in descriptor(folder / "jaxlib" / "libjax_common.so"):
            kind = {field.TYPE_STRING: "text", field.TYPE_MESSAGE: "message"}.get(field.type, "number")
            one = {"number": field.number, "names": [], "kind": kind, "defaults": []}
            known.setdefault(field.number, one)
            add("names", field.number, field.name)
            # what is not sent has the value of an empty field
            is_sent = any(number == field.number for number, _ in sent)
            if not is_sent and field.label != field.LABEL_REPEATED and field.type != field.TYPE_MESSAGE:
                add("defaults", field.number, {"hex": ""} if field.type == field.TYPE_STRING else 0)
            if field.name in ALSO_SENT:
                add("defaults", field.number, ALSO_SENT[field.name])
        for number, value in sent:
            add("defaults", number, value if isinstance(value, int) else {"hex": value.hex()})
    for one in known.values():
        one["aside"] = any("dump" in name or name in ASIDE for name in one["names"])
    known = {number: known[number] for number in sorted(known)}
    versions = [folder.name for folder in folders]
    lines = ",\n".join("    " + json.dumps(one) for one in known.values())
    text = f'{{\n  "schema": 1,\n  "asked": {json.dumps(versions)},\n  "fields": [\n{lines}\n  ]\n}}\n'
    (HERE / "debug_options.json").write_text(text)


if __name__ == "__main__":
    main([pathlib.Path(name) for name in sys.argv[1:]])
