# SPDX-License-Identifier: Apache-2.0
"""A model's bytes into a file: what was cut goes on, and only what is whole appears."""
from __future__ import annotations

import hashlib
import os
import time
import uuid
from pathlib import Path
from typing import BinaryIO

from starling._wire import Body, Clock, Transport, may_repeat, pause
from starling.errors import ApiError, ConnectionFailed, IntegrityError, TimedOut

_IDLE = 30.0  # seconds without a byte
_TRIES = 6  # attempts in a row that bring nothing
_PIECE = 1 << 20


def download(transport: Transport, path: str, to: Path, sha256: str, clock: Clock) -> None:
    """Writes beside `to` and renames; nothing is left behind when it fails."""
    part = to.with_name(f".{to.name}.{uuid.uuid4().hex[:8]}")
    try:
        with open(part, "xb") as file:
            _fill(transport, path, file, clock)
            file.flush()
            os.fsync(file.fileno())
        got = _digest(part)
        if got != sha256:
            raise IntegrityError(
                f"{to}: the model has arrived with the digest {got}, but the job has written "
                f"{sha256}; fetch it again, and look at the server's disk")
        os.replace(part, to)
    finally:
        part.unlink(missing_ok=True)


def _fill(transport: Transport, path: str, file: BinaryIO, clock: Clock) -> None:
    tag, failures = "", 0
    while True:
        begin = file.tell()
        headers = {"Range": f"bytes={begin}-"} if begin else {}
        try:
            with transport.open("GET", path, headers=headers,
                                clock=Clock(clock.left(_IDLE))) as body:
                body.go_on(clock, _IDLE)
                begin = _place(body, begin, tag, file)
                tag = body.headers.get("ETag") or ""
                if _copy(body, begin, file):
                    return
                raise ConnectionFailed("the connection was cut within the model", sent=True)
        except (ApiError, ConnectionFailed) as error:
            clock.left()
            again = isinstance(error, TimedOut) or may_repeat(error, repeat=True)
            failures = 0 if file.tell() > begin else failures + 1
            if not again or failures >= _TRIES:
                raise
            wait, left = pause(failures), clock.left()
            time.sleep(wait if left is None else min(wait, left))


def _place(body: Body, begin: int, tag: str, file: BinaryIO) -> int:
    """Where the body's first byte belongs: what is another model by now begins anew."""
    goes_on = body.status == 206 and begin > 0 and body.headers.get("ETag", "") == tag
    if begin and body.status == 206 and not goes_on:
        file.seek(0)
        file.truncate()
        raise ConnectionFailed("the model was replaced while it was fetched", sent=True)
    if not goes_on:
        file.seek(0)
        file.truncate()
    return begin if goes_on else 0


def _copy(body: Body, begin: int, file: BinaryIO) -> bool:
    """Whether it came to its end, which it must have told: a head that was cut tells none."""
    length = body.headers.get("Content-Length") or ""
    end = begin + int(length) if length.isdigit() else None
    chunked = "chunked" in (body.headers.get("Transfer-Encoding") or "")
    while piece := body.read(_PIECE):
        file.write(piece)
    return chunked if end is None else file.tell() == end


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
