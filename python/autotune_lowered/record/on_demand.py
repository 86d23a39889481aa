"""Candidates lowered when they are asked for: a program that recorded on demand runs again, and then answers.

The tuner starts it with a variable that names two file descriptors. Requests and answers are JSON lines
(`docs/recorder-protocol.md`); the program keeps its own standard input and output. It answers at the end of a recording,
and goes on to the next one when that is asked for.
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .call import DIRECTIONS, Config, RecordedCall
from .describe import one_line
from .fills import Fill
from .parameters import spelled
from .record import lowering_of
from .recorder import Recorder, lowering
from .registry import Registry, recorder_name
from .stand_in import answering

VARIABLE = "AUTOTUNE_LOWERED_ANSWER"
PROTOCOL = 1

_LONGEST_LINE = 16 << 20

Lower = Callable[[Config], dict[str, Any]]


def descriptors() -> tuple[int, int] | None:
    """The file descriptors of requests and answers, if this process is to answer."""
    # the descriptors are not for the processes that this one starts
    requests, _, answers = os.environ.pop(VARIABLE, "").partition(",")
    return (int(requests), int(answers)) if requests.isdigit() and answers.isdigit() else None


@functools.cache
def answers() -> Answers | None:
    """The answers of this process, if it is to give any."""
    found = descriptors()
    return None if found is None else Answers(*found)


class Answers:
    """Answers of one recording of the process after the other."""

    def __init__(self, requests: int, out: int) -> None:
        self._out = open(out, "wb")
        self._lines = _lines(open(requests, "rb", buffering=0))
        self._ended: dict[int, Answering] = {}

    def add(self, ended: Answering) -> None:
        """Answer for this recording from now on."""
        self._ended[ended.registry.on_demand] = ended

    def give(self) -> None:
        """Answer until the requests end, and the process with them, or until a recording is asked for that has not
        ended yet."""
        for line in self._lines:
            answer = self._answer(line)
            if answer is None:
                # the next recording that ends finds it again
                self._lines = itertools.chain([line], self._lines)
                return
            self._out.write(json.dumps(answer).encode() + b"\n")
            self._out.flush()
        # what the program does after its recordings was done when it recorded
        os._exit(0)

    def _answer(self, line: bytes) -> dict[str, Any] | None:
        number = None
        try:
            request = json.loads(line)
            number, method, asked = request["id"], request["method"], request.get("params") or {}
            if method not in ("hello", "lower"):
                raise ValueError(f"there is no method `{method}`")
            recording = self._ended.get(asked.get("recording", 1))
            if recording is None:
                return None
            if method == "hello":
                return {"id": number, "result": {"protocol": PROTOCOL, "recorder": recording.name}}
            return {"id": number, "result": recording.lower(asked)}
        except (ValueError, LookupError, TypeError) as error:
            return {"id": number, "error": {"kind": "protocol", "message": one_line(error)}}
        except Exception as error:  # such as a registry that cannot be written
            return {"id": number, "error": {"kind": "no-program", "message": one_line(error)}}


class Answering(Recorder):
    """Keeps calls in place of records, and lowers their candidates on request."""

    def __init__(self, answers: Answers, registry: Registry, *rest: Any) -> None:
        super().__init__(registry, *rest)
        self._answers = answers
        self._calls: dict[tuple[str, str], RecordedCall] = {}
        self._lowers: dict[tuple[str, str, str, str], tuple[Lower, list[Config]]] = {}
        self.name = ""

    def _store(self, call: RecordedCall, fills: dict[str, Fill], unknown: dict[str, str]) -> list[dict[str, Any]]:
        self._calls[call.op_id, call.call_key] = call
        return []

    def serve(self, now: bool) -> None:
        """Answer, at once if this is the time for it."""
        # as its records say it
        self.name = recorder_name()
        self._answers.add(self)
        if now:
            self._answers.give()

    def lower(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The candidate that a request names."""
        op_id, call_key, direction = asked["op_id"], asked["call_key"], asked["direction"]
        target = asked["target"]
        platform = target.get("platform") or target["device"]["platform"]
        if direction not in DIRECTIONS or platform not in self.registry.platforms:
            raise ValueError(f"`{direction}` for `{platform}` is not what is recorded here")
        call = self._calls.get((op_id, call_key))
        if call is None:
            raise ValueError(f"the program did not call {op_id}:{call_key} this time")
        with lowering(), answering(self.registry.device_away(platform)):
            place = (op_id, call_key, direction, platform)
            if place not in self._lowers:
                configs = call.configs_on(platform)
                self._lowers[place] = (lowering_of(call, platform, direction, self.registry), configs)
            lower, configs = self._lowers[place]
            wanted = spelled(asked["config"])
            config = next((config for config in configs if spelled(config) == wanted), None)
            if config is None:
                raise ValueError(f"{wanted} is not in the space of {op_id}")
            return lower(config)


def _lines(raw: io.RawIOBase) -> Iterator[bytes]:
    held = b""
    while block := raw.read(1 << 16) or b"":
        held += block
        *lines, held = held.split(b"\n")
        yield from lines
        if len(held) > _LONGEST_LINE:
            raise ValueError("a request is longer than the protocol allows")
