"""A process that has imported JAX, and forks the workers of all tunings of this process, so that later ones import nothing.

It is `Template` in `worker.py`. It ends with this process, which holds its stdin.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping

from .. import worker
from .._jax import jax_for
from .._scratch import Scratch

# of the program: the socket where workers are forked
TEMPLATE = "AUTOTUNE_LOWERED_TEMPLATE"


class _Warm:
    """One of them, with the environment that its workers have."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment, self.of = environment, os.getpid()
        self._scratch = Scratch()
        self.path = str(self._scratch.path / "workers")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self.path)
            # who connects before JAX is imported waits
            listening.listen()
            number = listening.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-u", worker.__file__, worker.TEMPLATE_OPTION, str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                # Ctrl-C is for this process, with which it ends
                process_group=0,
            )

    def is_running(self) -> bool:
        return self._process.poll() is None

    def was_killed(self) -> bool:
        return (self._process.poll() or 0) < 0

    def end(self) -> None:
        if self.of == os.getpid():
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._scratch.remove()


_warm: _Warm | None = None


def warm_variables() -> dict[str, str]:
    """The program's variables by which it finds such a process, which is started if there is none for this environment.
    No variables where workers are not forked: on another device than a CPU, or if this system has no such thing."""
    global _warm
    if jax_for("autotune needs").devices()[0].platform != "cpu" or not hasattr(socket, "recv_fds"):
        return {}
    environment = dict(os.environ)
    # a fork of this process does not own it; one that ended by itself forks nothing here
    if _warm is None or _warm.of != os.getpid() or _warm.environment != environment or _warm.was_killed():
        end()
        try:
            _warm = _Warm(environment)
        except OSError:
            return {}
    return {TEMPLATE: _warm.path} if _warm.is_running() else {}


@atexit.register
def end() -> None:
    """Ends it, if it is this process's."""
    global _warm
    if _warm is not None:
        with contextlib.suppress(OSError):
            _warm.end()
        _warm = None
