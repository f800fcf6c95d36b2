# SPDX-License-Identifier: Apache-2.0
"""Server-sent events: their text, and a stream that outlives its connections."""
from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starling._wire import Body, Clock, Transport, may_repeat, pause
from starling.errors import ApiError, ConnectionFailed, StarlingError, TimedOut

LONGEST_LINE = 4 << 20  # bytes; a job has at most 1 MiB
SILENCE = 45.0  # seconds; a server says `: hb` each 15 s
PATIENCE = 300.0  # seconds without a word from the server before a stream gives up
# Reasons of the event `end` after which there is nothing more to hear.
FINAL = ("JobFinished", "Complete")


@dataclass(frozen=True)
class Event:
    name: str
    id: str | None
    data: Any  # parsed JSON


class EventText:
    """Events out of lines, by the HTML standard's rules; `retry` is what was last asked for."""

    def __init__(self) -> None:
        self.retry: float | None = None  # seconds
        self._name = "message"
        self._id: str | None = None
        self._data: list[str] = []

    def take(self, raw: bytes) -> Event | None:
        """One line with its end; an event when this line completes one."""
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            return self._complete()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isdigit():
            self.retry = min(int(value) / 1000, 60.0)
        return None

    def _complete(self) -> Event | None:
        name, identity, data = self._name, self._id, self._data
        self._name, self._id, self._data = "message", None, []
        if not data:
            return None
        try:
            return Event(name, identity, json.loads("\n".join(data)))
        except ValueError as error:
            raise ConnectionFailed(f"event {name} is no JSON: {error}", sent=True) from error


class EventStream:
    """The events of one path, over as many connections as it takes, up to a final `end`.

    `begun` is called with each new connection after the first, for whoever must forget or skip.
    Confined to one thread.
    """

    def __init__(self, transport: Transport, path: str, query: Mapping[str, str], clock: Clock,
                 connect_seconds: float, begun: Callable[[], None] | None = None) -> None:
        self._transport = transport
        self._path, self._query = path, dict(query)
        self._clock, self._connect_seconds = clock, connect_seconds
        self._begun = begun
        self._text = EventText()
        self._last_id: str | None = None
        self._heard = time.monotonic()
        self._connections = 0
        self._failures = 0

    def __iter__(self) -> Iterator[Event]:
        while True:
            try:
                for event in self._connection():
                    yield event
                    if event.name == "end" and event.data.get("reason") in FINAL:
                        return
                cut = ConnectionFailed("the stream was cut", sent=True)
            except (ApiError, ConnectionFailed) as error:
                self._judge(error)
                cut = error if isinstance(error, ConnectionFailed) else ConnectionFailed(
                    str(error), sent=False)
            self._rest(cut)

    def _connection(self) -> Iterator[Event]:
        """The events of one connection; it returns after an `end` that is not final, or a cut."""
        headers = {"Accept": "text/event-stream"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        begin = Clock(self._clock.left(self._connect_seconds))
        with self._transport.open("GET", self._path, query=self._query, headers=headers,
                                  clock=begin) as body:
            self._connections += 1
            if self._begun and self._connections > 1:
                self._begun()
            retry, self._text = self._text.retry, EventText()
            self._text.retry = retry
            body.go_on(self._clock, SILENCE)
            yield from self._events(body)

    def _events(self, body: Body) -> Iterator[Event]:
        while line := body.line(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise ConnectionFailed(f"a line of the stream has more than {LONGEST_LINE} bytes",
                                       sent=True)
            if not line.endswith(b"\n"):
                return  # cut in the middle of a line
            self._heard, self._failures = time.monotonic(), 0
            event = self._text.take(line)
            if event is None:
                continue
            if event.id is not None:
                self._last_id = event.id
            yield event
            if event.name == "end":
                return

    def _judge(self, error: StarlingError) -> None:
        """Raises what no other attempt would make good."""
        self._clock.left()
        if isinstance(error, ApiError) and not may_repeat(error, repeat=True):
            raise error
        never_heard = self._connections == 0
        if never_heard and (isinstance(error, TimedOut) or self._failures >= 4):
            raise error  # nobody has ever answered there: it is the address that is wrong

    def _rest(self, cut: ConnectionFailed) -> None:
        """Waits before the next connection, about as long as the server has asked for."""
        if time.monotonic() - self._heard > PATIENCE:
            raise ConnectionFailed(f"nothing was heard for {PATIENCE:.0f} s: {cut}",
                                   sent=True) from cut
        asked = self._text.retry if self._text.retry is not None else 0.0
        wait = pause(self._failures, asked * random.uniform(0.8, 1.2))
        self._failures += 1
        left = self._clock.left()
        time.sleep(wait if left is None else min(wait, left))
        self._clock.left()
