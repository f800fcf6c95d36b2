# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 over one connection a request, where nothing waits for ever.

http.client writes and parses; what it lacks is a deadline for a whole answer: its timeout begins
anew with each byte, so that a server which says one a second is listened to for hours. The socket
here counts down instead.
"""
from __future__ import annotations

import http.client
import io
import json
import random
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode, urlsplit

from starling._endpoint import Endpoint
from starling.errors import (ApiError, ConfigurationError, ConnectionFailed, StarlingError,
                             TimedOut, api_error)

MOST_BYTES = 64 << 20  # of an answer that is held in memory
_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 8.0  # seconds
_BUSY = (502, 503, 504)
USER_AGENT = "starling-python"


class Clock:
    """The time that is left until a deadline; None: for ever."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float | None = None) -> float | None:
        """Seconds, at most `most`; TimedOut when none is left."""
        if self._end is None:
            return most
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut("not within the timeout", sent=True)
        return left if most is None else min(left, most)


def pause(attempt: int, at_least: float = 0.0) -> float:
    """Seconds before the next attempt: more each time, and at random, for others try again too."""
    return max(at_least, random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)))


class _Socket:
    """As much of a socket as http.client needs. Each read and write gets the time that is left."""

    def __init__(self, connected: socket.socket, clock: Clock, idle: float | None) -> None:
        self._socket = connected
        self._reader: io.BufferedReader | None = None
        self.clock = clock
        self.idle = idle  # seconds for each read, at most

    def sendall(self, content: bytes) -> None:
        self._socket.settimeout(self.clock.left())
        self._socket.sendall(content)

    def receive(self, buffer: Any) -> int:
        self._socket.settimeout(self.clock.left(self.idle))
        return self._socket.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._reader = io.BufferedReader(_Reader(self))
        return self._reader

    def close(self) -> None:
        """The connection does this before the answer is read, which then ends it."""
        if self._reader is None:
            self.shut()

    def shut(self) -> None:
        self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, source: _Socket) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.receive(buffer)

    def close(self) -> None:
        if not self.closed:
            self._source.shut()
        super().close()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: dict[str, Any]


class Body:
    """The body of an answer while it arrives; its errors are ours."""

    def __init__(self, response: http.client.HTTPResponse, source: _Socket, where: str) -> None:
        self._response = response
        self._source = source
        self.where = where
        self.status = response.status
        self.headers = response.headers

    def go_on(self, clock: Clock, idle: float) -> None:
        """From here on the answer has until `clock` ends, and each piece of it `idle` seconds."""
        self._source.clock, self._source.idle = clock, idle

    def read(self, most: int) -> bytes:
        """Some bytes; none at the end."""
        with translated(self.where, sent=True):
            return self._response.read1(most)

    def line(self, most: int) -> bytes:
        with translated(self.where, sent=True):
            return self._response.readline(most)

    def rest(self) -> bytes:
        """Everything, if it is not too much for memory."""
        content = bytearray()
        while piece := self.read(1 << 16):
            content += piece
            if len(content) > MOST_BYTES:
                raise ConnectionFailed(
                    f"{self.where}: the answer has more than {MOST_BYTES} bytes", sent=True)
        if self._response.length:
            raise ConnectionFailed(f"{self.where}: the connection was cut within the answer",
                                   sent=True)
        return bytes(content)


@contextmanager
def translated(where: str, sent: bool) -> Iterator[None]:
    """The network's errors in our words."""
    try:
        yield
    except StarlingError:
        raise
    except TimeoutError as error:
        raise TimedOut(f"{where}: no answer within the timeout", sent) from error
    except ssl.SSLCertVerificationError as error:
        raise ConnectionFailed(f"{where}: its certificate is not trusted ({error.verify_message}); "
                               "name the authority's file with ca_file or STARLING_CA_FILE",
                               sent) from error
    except (OSError, http.client.HTTPException) as error:
        words = str(error) or type(error).__name__
        raise ConnectionFailed(f"{where}: {words}; is the server up?", sent) from error


class Transport:
    """Thread-safe: requests have no state in common."""

    def __init__(self, endpoint: Endpoint, ca_file: str | None) -> None:
        self.endpoint = endpoint
        try:
            self._tls = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"{ca_file}: no certificates of an authority can be read from "
                                     f"it: {error}") from error

    @contextmanager
    def open(self, method: str, path: str, *, query: Mapping[str, str] | None = None,
             headers: Mapping[str, str] | None = None, body: bytes | None = None,
             clock: Clock) -> Iterator[Body]:
        """The answer, its body unread. ApiError where it refuses."""
        parts = urlsplit(self.endpoint.url())
        where = f"{parts.scheme}://{parts.netloc}"
        target = parts.path.rstrip("/") + path + ("?" + urlencode(query) if query else "")
        with translated(where, sent=False):
            source = _Socket(self._connect(parts.scheme, parts.hostname or "", parts.port, clock),
                             clock, None)
        try:
            with translated(where, sent=True):
                connection = http.client.HTTPConnection(parts.hostname or "")
                connection.sock = cast(Any, source)
                connection.request(method, target, body, self._headers(parts.netloc, headers))
                response = connection.getresponse()
            answer = Body(response, source, where)
            if response.status >= 300 and response.status != 304:
                raise _refusal(answer)
            yield answer
        finally:
            source.shut()

    def ask(self, method: str, path: str, *, query: Mapping[str, str] | None = None,
            headers: Mapping[str, str] | None = None, body: bytes | None = None, clock: Clock,
            repeat: bool = False) -> Answer:
        """One answer as a whole. `repeat`: the request may be sent again when an answer was lost."""
        attempt = 0
        while True:
            try:
                with self.open(method, path, query=query, headers=headers, body=body,
                               clock=clock) as answer:
                    return Answer(answer.status, answer.headers, _require_object(answer))
            except (ApiError, ConnectionFailed) as error:
                attempt += 1
                if attempt >= _TRIES or not may_repeat(error, repeat):
                    raise
                wait = pause(attempt - 1, getattr(error, "retry_after", None) or 0.0)
                if (clock.left() or wait) < wait:
                    raise
            time.sleep(wait)

    def _headers(self, host: str, more: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"Host": host.rpartition("@")[2], "User-Agent": USER_AGENT,
                   "Connection": "close"}
        token = self.endpoint.token()
        if token:
            headers["Authorization"] = "Bearer " + token
        headers.update(more or {})
        return headers

    def _connect(self, scheme: str, host: str, port: int | None, clock: Clock) -> socket.socket:
        secure = scheme == "https"
        plain = socket.create_connection((host, port or (443 if secure else 80)), clock.left())
        if not secure:
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=host)
        except BaseException:
            plain.close()
            raise


def may_repeat(error: Exception, repeat: bool) -> bool:
    """What never reached the server may always be sent again, and what it refused unread."""
    if isinstance(error, TimedOut):
        return False
    if isinstance(error, ConnectionFailed):
        return repeat or not error.sent
    return isinstance(error, ApiError) and (
        error.status == 429 or (repeat and error.status in _BUSY))


def _parse(answer: Body) -> Any:
    content = answer.rest()
    try:
        return json.loads(content)
    except ValueError:
        return None


def _require_object(answer: Body) -> dict[str, Any]:
    """What is no object is no answer: a head that was cut reads like one without a body."""
    read = _parse(answer)
    if not isinstance(read, dict):
        raise ConnectionFailed(f"{answer.where}: the answer is not the JSON object that it should "
                               "be; is it Starling's REST service?", sent=True)
    return read


def _refusal(answer: Body) -> ApiError:
    after = answer.headers.get("Retry-After") or ""
    seconds = min(float(after), 60.0) if after.isdigit() else None
    return api_error(answer.status, _parse(answer), seconds)
