"""Writes `donating.hlo.pb.gz` and `oracle.json`: what XLA says of the memory of compiled programs.

    python make.py          # needs JAX 0.10.2

`donating`: a step with a donated argument and a loop, compiled for the CPU: its module and the buffer assignment as
`compiled.memory_analysis()` has it, with that analysis' own sums. `heaps`: the programs of the capture `tf2_step` whose assignment
has a trace of the heap; the peak is the largest sum, at any event, of the memory that some buffer lives in then. `hlo.proto` says that
memory lives as long as any of the buffers that share it.
"""

import gzip
import json
import pathlib
import sys

import jax
import jax.numpy as jnp

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "cost"))
from oracle import fields, one, text  # noqa: E402


def step(w, x):
    def body(carry, _):
        return jnp.sin(carry @ w), carry.sum()

    last, sums = jax.lax.scan(body, jnp.tanh(jnp.tanh(x @ w) @ w), None, length=5)
    return w - 0.1 * (x.T @ last), sums


def heap(assignment):
    """The peak of the heap, and the sizes of what is alive there."""
    size = {one(buffer, 1, 0): one(buffer, 2, 0) for field, buffer, _ in fields(assignment) if field == 1}
    best = (0, [])
    for field, trace, _ in fields(assignment):
        events = [event for inner, event, _ in fields(trace) if inner == 1] if field == 4 else []
        owner, lives = {}, {}
        for at, event in enumerate(events):
            kind, buffer = one(event, 1, 0), one(event, 2, 0)
            if kind == 2:
                owner[buffer] = one(event, 5, 0)
            lives[buffer] = (at, len(events)) if kind != 1 else (lives[buffer][0], at)
        for at in range(len(events)):
            groups = {owner.get(buffer, buffer) for buffer, (first, last) in lives.items() if first <= at < last}
            alive = sorted((size[group] for group in groups), reverse=True)
            best = max(best, (sum(alive), alive))
    return {"peak": best[0], "alive": best[1]}


def main():
    shape = lambda *dims: jax.ShapeDtypeStruct(dims, "float32")
    compiled = jax.jit(step, donate_argnums=0).lower(shape(256, 256), shape(512, 256)).compile()
    analysis = compiled.memory_analysis()
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    proto = text(1, module) + text(3, analysis.serialized_buffer_assignment_proto)
    (HERE / "donating.hlo.pb.gz").write_bytes(gzip.compress(proto, 9, mtime=0))
    kinds = ("argument", "output", "alias", "temp")
    found = {"donating": {kind: getattr(analysis, f"{kind}_size_in_bytes") for kind in kinds}, "heaps": {}}
    for number, plane, _ in fields(gzip.decompress((HERE.parent.parent / "xplane/tf2_step.xplane.pb.gz").read_bytes())):
        for field, entry, _ in fields(plane) if number == 1 and one(plane, 2) == b"/host:metadata" else ():
            event = one(entry, 2) if field == 4 else b""
            for inner, stat, _ in fields(event):
                assignment = one(one(stat, 6), 3) if inner == 5 and one(stat, 6) else b""
                if any(part == 4 for part, _, _ in fields(assignment)):
                    found["heaps"][one(event, 2).decode()] = heap(assignment)
    (HERE / "oracle.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
