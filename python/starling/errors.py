# SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions; each says what failed, on what, and what to do.

An answer that refuses is an `ApiError` and carries all that the server told. To give a status a class
of its own, add it to the table at the end.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class StarlingError(Exception):
    """Everything that this package raises by itself."""


class ConfigurationError(StarlingError):
    """Nobody has said where the server is, or a file that says it cannot be used."""


class ConnectionFailed(StarlingError):
    """The server was not reached, or the connection broke; `sent`: it may have read the request."""

    def __init__(self, message: str, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(ConnectionFailed, TimeoutError):
    """What was asked for has not happened within the timeout."""


class IntegrityError(StarlingError):
    """What has arrived is not what the job says that it has written."""


class LogCut(StarlingError):
    """A log's connection broke, and where it stood is not known."""


class JobDeleted(StarlingError):
    """The job was deleted while it was waited for."""


class CheckpointNotWritten(StarlingError):
    """The job ended, or was suspended, before it wrote the checkpoint that it was asked for."""


@dataclass(frozen=True)
class FieldProblem:
    """One wrong field of a job."""

    path: str  # spec.stop.epochs, as `starling validate` names it
    pointer: str  # #/spec/stop/epochs
    detail: str  # what is wrong, and what to do


class ApiError(StarlingError):
    """The server has refused; the fields are those of its problem+json."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None) -> None:
        self.status = status
        self.code = str(problem.get("code", ""))
        self.title = str(problem.get("title", ""))
        self.detail = str(problem.get("detail", ""))
        self.remedy = str(problem.get("remedy", ""))
        self.request_id = str(problem.get("requestId", ""))
        self.errors = _field_problems(problem.get("errors"))
        self.retry_after = retry_after  # seconds
        super().__init__(self._text())

    def _text(self) -> str:
        head = f"{self.status} {self.code or 'without a problem'}"
        lines = [f"{head}: {self.title}" if self.title else head]
        if self.errors:
            lines += [f"  {error.path}: {error.detail}" for error in self.errors]
        elif self.detail:
            lines.append(f"  {self.detail}")
        if self.remedy:
            lines.append(f"  what to do: {self.remedy}")
        return "\n".join(lines)


class Unauthorized(ApiError):
    """401: the token is missing, wrong or has expired."""


class Forbidden(ApiError):
    """403: this caller may not do that."""


class NotFound(ApiError):
    """404: there is no such object."""


class Conflict(ApiError):
    """409 and 412: the object's state does not allow it, or somebody else has changed it."""


class Invalid(ApiError):
    """400 and 422: the request is wrong; `errors` names each wrong field of a job."""


_CLASSES = {400: Invalid, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict,
            412: Conflict, 422: Invalid}


def api_error(status: int, problem: object, retry_after: float | None = None) -> ApiError:
    """Of an answer's status and parsed body, whatever that is."""
    known = problem if isinstance(problem, Mapping) else {}
    return _CLASSES.get(status, ApiError)(status, known, retry_after)


def _field_problems(errors: object) -> tuple[FieldProblem, ...]:
    if not isinstance(errors, list):
        return ()
    return tuple(FieldProblem(str(error.get("path", "")), str(error.get("pointer", "")),
                              str(error.get("detail", "")))
                 for error in errors if isinstance(error, Mapping))
