"""Measures in this process, for a device that no other process can use.

A candidate that crashes ends this process, and one that hangs hangs its device. All rounds are those of one process, so
no fresh one confirms the winner.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shlex
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from .._jax import jax_for
from .._scratch import scratch_folder
from ..worker import LIMIT, Worker, answer_to
from .relay import SOCKET

# one worker after the other: the program starts another one where it would have lost the first
_WAITING = 4


@contextlib.contextmanager
def measuring_here() -> Iterator[tuple[str, Mapping[str, str]]]:
    """The program's `--timer` for this process, and the variables that the program needs."""
    with scratch_folder() as folder, socket.socket(socket.AF_UNIX) as listening:
        path = folder / "worker"
        listening.bind(str(path))
        os.chmod(path, 0o600)
        listening.listen(_WAITING)
        threading.Thread(target=_accept, args=(listening,), daemon=True).start()
        relay = pathlib.Path(__file__).with_name("relay.py")
        try:
            yield f"command:{shlex.quote(sys.executable)} {shlex.quote(str(relay))}", {SOCKET: str(path)}
        finally:
            # closing it would not end a thread that waits for a connection
            listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # it is closed
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    jax = jax_for("autotune needs")
    devices = jax.local_devices()
    own = jax.config.jax_default_device
    worker: Any = Worker(devices.index(own) if own in devices else 0, devices=devices, process=os.getpid())
    with connection, connection.makefile("rb") as requests, contextlib.suppress(OSError):
        while line := requests.readline(LIMIT):
            answer, is_last = answer_to(worker, line)
            connection.sendall(json.dumps(answer).encode() + b"\n")
            if is_last:
                return
