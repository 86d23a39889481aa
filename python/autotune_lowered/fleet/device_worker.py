"""The worker on a device of the fleet: plans and tunes with the program, and returns rows and entries as JSON."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from .._program import Done, run
from .._scratch import Scratch
from .._version import __version__
from .shipment import digest, unpack

# failures of a device or of a process, which may not occur elsewhere
_RETRY_KINDS = {"crash", "device", "execute", "memory", "protocol", "timeout"}
# exit codes of the program: a failure of the device, a failure of the (local) cache, ended from outside
_RETRY_CODES = {5, 6, 130}
# the module has no label, or none of the requested ones
_NOTHING_MATCHED = 3
_COMMIT_S = 120


class DeviceWorker:
    """One device. Each method ends within the seconds that it is given, and leaves no process behind."""

    def __init__(self, settings: Mapping[str, Any]):
        """`settings`: `timer`, `options` (more arguments of the main job), and for a shared file system `module`,
        `module_digest` and `registry`."""
        self._settings = settings
        self._scratch = Scratch()
        self._folder = self._scratch.path
        (self._folder / "tmp").mkdir()
        self._module = pathlib.Path(settings["module"])
        self._registry = pathlib.Path(settings["registry"])

    def where(self) -> str:
        """The node that this worker runs on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def start(self, shipment: bytes | None, expected: str, limit_s: float) -> dict[str, Any]:
        """Unpacks the shipment, and reports the device and what to tune on it.

        Returns `versions` (package, program), and `plan`, the main job's JSON of a dry run. If there is no plan,
        returns `failure`, one line, instead.
        """
        here: dict[str, Any] = {"versions": versions(limit_s)}
        if shipment is None:
            if self._module.is_file() and digest(self._module.read_bytes()) != expected:
                return here | {"failure": f"`{self._module}` is another file here than where the fleet was started"}
            for path in (self._module, self._registry):
                if not path.exists():
                    return here | {"failure": f"`{path}` is not there: it is on no shared file system, or not mounted"}
        else:
            unpack(shipment, expected, self._folder)
            self._module, self._registry = self._folder / self._module, self._folder / self._registry
        done = self._main_job(["--dry-run"], limit_s)
        plan = _result(done)
        if plan is None:
            what = {None: f"no plan within {limit_s:g} s: ", _NOTHING_MATCHED: ""}.get(
                done.code, f"exit code {done.code}: "
            )
            # the same text for the same cause, independent of paths
            return here | {"failure": what + done.fault.replace(f"{self._folder}/", "")}
        return here | {"plan": plan}

    def tune(
        self, calls: Sequence[tuple[str, str]], known: Sequence[Mapping[str, Any]], limit_s: float
    ) -> dict[str, Any]:
        """Tunes calls (`op_id`, `call_key`) in an empty cache that holds only the entries in `known`.

        Returns `rows`, the operations of the main job's JSON; `entries` as `cache export` writes them; and if the
        program could not end by itself, `failure`, one line, with `retry`.
        """
        with tempfile.TemporaryDirectory(prefix="lease-", dir=self._folder) as place:
            cache, exchange = pathlib.Path(place, "cache"), pathlib.Path(place, "entries.json")
            if known:
                exchange.write_text(json.dumps({"schema": 1, "entries": list(known)}))
                run(["cache", "import", "--format", "json", str(exchange), "--cache", str(cache)], _COMMIT_S)
            only = [word for op_id, call_key in calls for word in ("--only", f"{op_id}:{call_key}")]
            done = self._main_job(["--cache", str(cache), *only], limit_s)
            result = _result(done)
            # a decision before the end is valid
            exported = run(["cache", "export", "--format", "json", str(exchange), "--cache", str(cache)], _COMMIT_S)
            entries = json.loads(exchange.read_text())["entries"] if exported.code == 0 else []
            rows = [] if result is None else result["operations"]
            answer: dict[str, Any] = {"rows": rows, "entries": entries}
            if done.code is None:
                answer |= {"failure": f"it ran longer than the lease's {limit_s:g} s and was ended", "retry": True}
            elif result is None:
                retry = done.code in _RETRY_CODES or done.code > 128 or done.code < 0
                answer |= {"failure": f"exit code {done.code}: {done.fault}", "retry": retry}
            elif exported.code != 0:
                answer |= {"failure": f"its entries cannot be read: {exported.fault}", "retry": True}
            return answer

    def stop(self) -> None:
        """Removes this worker's files."""
        self._scratch.remove()

    def _main_job(self, words: list[str], limit_s: float) -> Done:
        timer = self._settings["timer"]
        # this worker's Python is the one with JAX
        timer = f"jax:{sys.executable}" if timer == "jax" else timer
        environment = {"TMPDIR": str(self._folder / "tmp"), "AUTOTUNE_LOWERED_CACHE": str(self._folder / "cache")}
        environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if sys.prefix != sys.base_prefix:
            # the folder in which plugins are searched for
            environment["VIRTUAL_ENV"] = os.environ.get("VIRTUAL_ENV", sys.prefix)
        job = [str(self._module), "--registry", str(self._registry), "--timer", timer, "--format", "json"]
        return run([*job, *self._settings["options"], *words], limit_s, environment)


def versions(limit_s: float) -> dict[str, str]:
    """The package's version and the program's, or what is wrong with it."""
    done = run(["--version"], limit_s)
    return {"package": __version__, "program": done.stdout.strip() if done.code == 0 else f"unusable: {done.fault}"}


def is_final(row: Mapping[str, Any]) -> bool:
    """Whether an operation would end the same way elsewhere; `False` if the device or a process was to blame."""
    if row["status"] == "interrupted":
        return False
    if row["status"] != "failed":
        return True
    failures = [row.get("failure")]
    baseline = row["baseline"]["config"]
    failures += [one.get("failure") for one in row.get("candidates", []) if one["config"] == baseline]
    return not any(failure and failure["kind"] in _RETRY_KINDS for failure in failures)


def _result(done: Done) -> dict[str, Any] | None:
    """The main job's document, if it printed one."""
    try:
        document = json.loads(done.stdout)
    except ValueError:
        return None
    return document if isinstance(document, dict) and "operations" in document else None
