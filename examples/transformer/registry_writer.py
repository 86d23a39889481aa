"""Writes the registry's folder, schema 1; the format is described in `crates/lookup/src/registry/mod.rs`."""

import hashlib
import json
import os
import pathlib
import re
import tempfile

SCHEMA = 1
EXTENSIONS = {"stablehlo-portable": "mlirbc", "stablehlo-text": "mlir", "hlo-proto": "hlo.pb"}


class RegistryWriter:
    """Adds programs and invocations to a registry; any number of writers may work on one folder at once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        header = self.root / "registry.json"
        if not header.exists():
            write_whole(header, b'{"kind":"autotune-lowered-registry","schema":%d}\n' % SCHEMA)

    def put_program(self, content, semantic_digest, custom_calls=(), form="stablehlo-portable"):
        """Stores a program's bytes and returns a candidate's reference to it."""
        digest = hashlib.sha256(content).hexdigest()
        path = self.root / "programs" / digest[:2] / f"{digest}.{EXTENSIONS[form]}"
        if not path.exists() or path.read_bytes() != content:
            write_whole(path, content)
        program = {"format": form, "digest": digest, "semantic_digest": semantic_digest}
        return program | ({"custom_calls": sorted(set(custom_calls))} if custom_calls else {})

    def add(self, invocation):
        """Stores an invocation whose programs are already stored; returns the record's path."""
        content = json.dumps({"schema": SCHEMA, "invocation": invocation}, indent=2, allow_nan=False).encode() + b"\n"
        name = f"{invocation_key(invocation)[:16]}-{hashlib.sha256(content).hexdigest()}.json"
        path = self.root / "invocations" / slug(invocation["op_id"]) / name
        write_whole(path, content)
        return path


def invocation_key(invocation):
    """The invocation's identity, as hexadecimal digits: target, operation, call key and direction."""
    ((kind, target),) = invocation["target"].items()
    if kind == "device":
        hardware = [part for pair in sorted(target["hardware"].items()) for part in pair]
        target = field_digest("device-identity", target["platform"], target["device_kind"], *hardware).digest()
    parts = (invocation[name] for name in ("op_id", "call_key", "direction"))
    return field_digest("invocation-key", kind, target, *parts).hexdigest()


def field_digest(*fields):
    """SHA-256 over fields, each after its length as eight little-endian bytes."""
    digest = hashlib.sha256()
    for field in fields:
        content = field if isinstance(field, bytes) else field.encode()
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest


def slug(op_id):
    """The name of the operation's folder."""
    plain = re.sub(rb"[^A-Za-z0-9._-]", b"_", op_id.encode()[:80]).decode()
    return "_" + plain[1:] if plain.startswith(".") else plain


def write_whole(path, content):
    """Writes a file so that a reader, or a crash, sees all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".tmp-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
