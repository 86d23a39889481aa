"""What a step works with: the program, the peers, this machine, and the time that is left."""

from __future__ import annotations

import functools
import json
import os
import pathlib
import re
import time
import typing

from . import process

MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# a step that could not even start something is not begun
LEAST_S = 5


class Unfit(Exception):
    """The step cannot be tried here."""


class TimeUp(Exception):
    """The time of the whole run, or of the step, is used up."""


class Finding(typing.NamedTuple):
    """What a step found.

    `works` says whether what can be judged anywhere holds, and `computed` whether what follows from computed values
    and true times does; each is None if the step has no such part. On a SIMULATED device only the first counts.
    """

    works: bool | None
    figure: str
    data: dict
    computed: bool | None = None


class Tools:
    def __init__(self, gpu, machine, program, work, results, ends):
        self.gpu, self.machine, self.program = pathlib.Path(gpu), machine, str(program)
        self.work, self.results, self.ends = pathlib.Path(work), results, ends
        self.manifest = json.loads((self.gpu / "manifest.json").read_text())
        self.step_ends = ends
        # which step is in progress, and its files
        self.files = self.work / "files"
        self.folder = self.files

    def begin(self, step, limit):
        """Makes the step's folder, and starts its time."""
        self.step_ends = min(self.ends, time.monotonic() + limit)
        self.folder = self.files / step
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.rglob("*"):
            if path.is_file():
                path.unlink()

    def environment(self, **more):
        """For every process: nothing of the user's own settings, and all its files in the working folder."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AUTOTUNE_LOWERED")}
        own = {"HOME": self.work / "home", "TMPDIR": self.work / "tmp"}
        for folder in own.values():
            folder.mkdir(exist_ok=True)
        own["PYTHONUNBUFFERED"] = "1"
        if self.machine.cuda_home:
            own["CUDA_HOME"] = self.machine.cuda_home
        return kept | {name: str(value) for name, value in (own | more).items()}

    def left(self):
        return self.step_ends - time.monotonic()

    def run(self, command, name, limit=None, suffix=".out", **environment):
        """Runs a process to its end. Raises TimeUp if it does not end in time."""
        limit = min(limit or self.left(), self.left())
        if limit < LEAST_S:
            raise TimeUp("no time was left")
        stem = self.folder / name
        done = process.run(command, stem, suffix, limit, self.environment(**environment), self.work)
        if done.timed_out:
            raise TimeUp(f"{name} was ended after {done.seconds:.0f} s")
        return done

    def ask(self, name, *words, limit=None):
        """Runs the program, and returns its document and what it took. Raises RuntimeError if there is none."""
        done = self.run([self.program, *words, "--format", "json"], name, limit, suffix=".json")
        try:
            document = done.document()
        except ValueError:
            raise RuntimeError(f"{name}: {done.said()}") from None
        return document, done

    def peer(self, script, name, *words, limit=None, **environment):
        """Runs a script with the machine's Python, without any part of this program, and returns its document."""
        if not self.machine.site:
            raise Unfit("no Python with JAX was found: name one with --python")
        peers = pathlib.Path(__file__).resolve().parent.parent / "peers"
        out = self.folder / f"{name}.json"
        environment.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        if not self.is_gpu():
            environment["JAX_PLATFORMS"] = "cpu"
        done = self.run([self.machine.python, peers / script, out, *words], name, limit, **environment)
        if not out.is_file():
            missing = MISSING.search(done.said())
            raise Unfit(f"`{missing[1]}` is not installed") if missing else RuntimeError(f"{name}: {done.said()}")
        return json.loads(out.read_text())

    # the program's options

    def timer(self):
        return ["--timer", "pjrt", "--plugin", self.plugin()]

    def plugin(self):
        if not self.machine.plugin:
            raise Unfit("no plugin was found: name one with --plugin")
        return self.machine.plugin

    def jax_timer(self):
        if not self.machine.site:
            raise Unfit("no Python with JAX was found: name one with --python")
        return ["--timer", f"jax:{self.machine.python}"]

    def tune(self, name, program, *words, timer=None, cache=None, limit=None):
        """Tunes a recorded call, into a cache of its own unless it is named."""
        place = self.programs() / program
        command = [place / "module.mlir", "--registry", place / "registry", "--match", "any"]
        command += ["--cache", self.work / "caches" / (cache or f"{self.folder.name}-{name}")]
        command += [*(timer or self.timer()), *words]
        document, done = self.ask(name, *command, limit=limit)
        return document, done

    def module(self, name):
        return self.programs() / f"{name}.mlir"

    def programs(self):
        return self.gpu / "programs" / ("cuda" if self.is_gpu() else "cpu")

    # the device

    @functools.cached_property
    def device(self):
        """The document of `device` for the plugin, or the reason why there is none."""
        try:
            document, _ = self.ask("device", "device", "--plugin", self.plugin())
            return document
        except (RuntimeError, TimeUp) as error:
            return f"the plugin does not start: {error}"

    @property
    def identity(self):
        if isinstance(self.device, str):
            raise Unfit(self.device)
        return self.device["plugins"][0]["devices"][0]["identity"]

    def identity_text(self):
        hardware = ", ".join(f"{name}={value}" for name, value in self.identity["hardware"].items())
        return f"{self.identity['platform']}: {self.identity['device_kind']} ({hardware})"

    def is_gpu(self):
        return self.identity["platform"] != "cpu"

    def needs_gpu(self):
        if not self.is_gpu():
            raise Unfit(f"it needs a GPU, and this is `{self.identity['platform']}`")

    def manifest_target(self):
        """The target of the store that this device is, or None."""
        targets = self.manifest["targets"].items()
        return next((name for name, target in targets if target["identity"] == self.identity), None)

    def target(self):
        """The same. Raises Unfit if it is none."""
        self.needs_gpu()
        found = self.manifest_target()
        if found is None:
            raise Unfit("the device is no target of the store")
        return found

    def earlier(self, step, file):
        """A document of an earlier step, which may be of an earlier run. Raises Unfit if there is none."""
        path = self.files / step / file
        try:
            return json.loads(path.read_text())
        except (OSError, ValueError):
            raise Unfit(f"it needs what `{step}` found") from None

    def earlier_data(self, step):
        """What an earlier step noted."""
        return self.results.steps.get(step, {}).get("data", {})

    def store(self):
        """The options that load what was compiled elsewhere."""
        return ["--compiled", self.gpu / "store", "--verify-key", self.gpu / "key.pub"]
