"""Makes an XSpace small enough to be committed, without changing what ran on its devices.

It works on protobuf's wire format. Field numbers: openxla/xla, xla/tsl/profiler/protobuf/xplane.proto. Planes of
devices stay as they are, byte for byte; if there is none, programs ran on the host, and its plane stays. Lines of other
planes keep their first events. Metadata that no event refers to any more goes, as do the names of hosts, and errors and
warnings of the profiler, which may hold paths.
"""

import gzip
import io

MOST_HOST_EVENTS = 200
MOST_DEVICE_EVENTS = 20_000
MOST_BYTES = 64 << 20

PLANES, PLANE_NAME, PLANE_LINES, PLANE_EVENT_METADATA = 1, 2, 3, 4
PLANE_STAT_METADATA = 5
LINE_EVENTS, EVENT_METADATA_ID, EVENT_STATS = 4, 1, 4
KEY, VALUE, CHILDREN, STAT_NAME, STAT_METADATA_ID = 1, 2, 6, 2, 1
# what XLA notes of a kernel that was launched as part of a CUDA graph, its command buffers
GRAPH = b"cuda_graph_id"
# its metadata is the content: the programs, to which no event refers
PROGRAMS = b"/host:metadata"
DEVICE, HOST = b"/device:", b"/host:CPU"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Unreadable(ValueError):
    """These bytes are no XSpace, or one that is too large."""


def decompressed(data):
    """The bytes of a file that may be gzipped."""
    if data[:2] != b"\x1f\x8b":
        return data
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        try:
            plain = file.read(MOST_BYTES + 1)
        except (OSError, EOFError) as error:
            raise Unreadable(f"it is damaged: {error}") from None
    if len(plain) > MOST_BYTES:
        raise Unreadable(f"it has more than {MOST_BYTES >> 20} MB")
    return plain


def varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Unreadable("a number in it has no end")
        byte = data[at]
        at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """Number, type, value, and the field's own bytes, of each field of a message."""
    at = 0
    while at < len(data):
        start = at
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
        elif kind in (FIXED64, FIXED32, BYTES):
            length, at = (8, at) if kind == FIXED64 else (4, at) if kind == FIXED32 else varint(data, at)
            value, at = data[at : at + length], at + length
            if at > len(data):
                raise Unreadable("a field in it is longer than the rest")
        else:
            raise Unreadable(f"a field in it has the type {kind}")
        yield tag >> 3, kind, value, data[start:at]


def number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(field, content):
    return number(field << 3 | BYTES) + number(len(content)) + content


def one(data, field, default):
    """The last value of a field."""
    found = default
    for number_, _, value, _ in fields(data):
        if number_ == field:
            found = value
    return found


def trimmed(data):
    """The bytes of a smaller XSpace. Raises Unreadable."""
    planes = [value for field, kind, value, _ in fields(decompressed(data)) if (field, kind) == (PLANES, BYTES)]
    if not planes:
        raise Unreadable("it has no planes")
    has_device = any(one(plane, PLANE_NAME, b"").startswith(DEVICE) for plane in planes)
    device = DEVICE if has_device else HOST
    return b"".join(message(PLANES, smaller(plane, device)) for plane in planes)


def smaller(data, device):
    name = one(data, PLANE_NAME, b"")
    if name == PROGRAMS:
        return data
    if name.startswith(device):
        events = sum(number_of_events(line) for field, _, line, _ in fields(data) if field == PLANE_LINES)
        if events > MOST_DEVICE_EVENTS:
            raise Unreadable(f"its devices have {events} events, more than {MOST_DEVICE_EVENTS}")
        return data
    return without_unused(b"".join(shortened(*parts) for parts in fields(data)))


def number_of_events(line):
    return sum(field == LINE_EVENTS for field, *_ in fields(line))


def shortened(field, kind, value, raw):
    """A field of a host's plane; a line has its first events alone."""
    if (field, kind) != (PLANE_LINES, BYTES):
        return raw
    out, events = bytearray(), 0
    for inner, _, _, bytes_ in fields(value):
        events += inner == LINE_EVENTS
        if inner != LINE_EVENTS or events <= MOST_HOST_EVENTS:
            out += bytes_
    return message(PLANE_LINES, bytes(out))


def without_unused(data):
    """A plane without the metadata of events that are gone."""
    metadata = {}
    used = set()
    for field, _, value, _ in fields(data):
        if field == PLANE_EVENT_METADATA:
            metadata[one(value, KEY, 0)] = children_of(one(value, VALUE, b""))
        elif field == PLANE_LINES:
            events = (event for inner, _, event, _ in fields(value) if inner == LINE_EVENTS)
            used |= {one(event, EVENT_METADATA_ID, 0) for event in events}
    pending = list(used)
    while pending:
        children = metadata.get(pending.pop(), set()) - used
        used |= children
        pending += children
    out = bytearray()
    for field, _, value, raw in fields(data):
        if field != PLANE_EVENT_METADATA or one(value, KEY, 0) in used:
            out += raw
    return bytes(out)


def children_of(metadata):
    """The ids of nested metadata, packed or not."""
    found = set()
    for field, kind, value, _ in fields(metadata):
        if field == CHILDREN and kind == VARINT:
            found.add(value)
        elif field == CHILDREN and kind == BYTES:
            at = 0
            while at < len(value):
                child, at = varint(value, at)
                found.add(child)
    return found


def launched_in_graphs(data):
    """How many events of devices there are, and how many of them are of kernels in CUDA graphs."""
    events = in_graphs = 0
    for field, _, plane, _ in fields(decompressed(data)):
        if field != PLANES or not one(plane, PLANE_NAME, b"").startswith(DEVICE):
            continue
        entries = [entry for inner, _, entry, _ in fields(plane) if inner == PLANE_STAT_METADATA]
        marks = {one(entry, KEY, 0) for entry in entries if one(one(entry, VALUE, b""), STAT_NAME, b"") == GRAPH}
        for inner, _, line, _ in fields(plane):
            if inner == PLANE_LINES:
                found = [event for part, _, event, _ in fields(line) if part == LINE_EVENTS]
                events += len(found)
                in_graphs += sum(bool(marks & stats_of(event)) for event in found)
    return events, in_graphs


def stats_of(event):
    """The metadata ids of an event's stats."""
    return {one(stat, STAT_METADATA_ID, 0) for field, _, stat, _ in fields(event) if field == EVENT_STATS}
