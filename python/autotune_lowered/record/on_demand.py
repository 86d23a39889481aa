"""Candidates lowered when they are asked for: a program that recorded on demand runs again, and then answers.

The tuner starts it with a variable that names two file descriptors. Requests and answers are JSON lines
(`docs/recorder-protocol.md`); the program keeps its own standard input and output.
"""

from __future__ import annotations

import io
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


class Answering(Recorder):
    """Keeps calls in place of records, and lowers their candidates on request."""

    def __init__(self, registry: Registry, *rest: Any) -> None:
        super().__init__(registry, *rest)
        self._calls: dict[tuple[str, str], RecordedCall] = {}
        self._lowers: dict[tuple[str, str, str, str], tuple[Lower, list[Config]]] = {}

    def _store(self, call: RecordedCall, fills: dict[str, Fill], unknown: dict[str, str]) -> list[dict[str, Any]]:
        self._calls[call.op_id, call.call_key] = call
        return []

    def serve(self, requests: int, answers: int) -> None:
        """Answer until the requests end."""
        with open(requests, "rb", buffering=0) as raw, open(answers, "wb") as out:
            for line in _lines(raw):
                out.write(json.dumps(self._answer(line)).encode() + b"\n")
                out.flush()

    def _answer(self, line: bytes) -> dict[str, Any]:
        number = None
        try:
            request = json.loads(line)
            number, method, asked = request["id"], request["method"], request.get("params") or {}
            if method == "hello":
                return {"id": number, "result": {"protocol": PROTOCOL, "recorder": recorder_name()}}
            if method != "lower":
                raise ValueError(f"there is no method `{method}`")
            return {"id": number, "result": self._lower(asked)}
        except (ValueError, LookupError, TypeError) as error:
            return {"id": number, "error": {"kind": "protocol", "message": one_line(error)}}
        except Exception as error:  # such as a registry that cannot be written
            return {"id": number, "error": {"kind": "no-program", "message": one_line(error)}}

    def _lower(self, asked: Mapping[str, Any]) -> dict[str, Any]:
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
