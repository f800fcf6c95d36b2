# SPDX-License-Identifier: Apache-2.0
"""Jobs over REST: submit them, watch them, read their curves and logs, fetch their models.

Every call ends: plain ones within `timeout` seconds, tries included; streams when the job has
ended, when the `timeout` that they were given is over, or when the server was silent for five
minutes. Only what cannot do harm is sent twice: reads, and submissions, which carry an
Idempotency-Key. A call that REST offers and this class does not: add a method that says its path,
and a test to tests/e2e/python_test.py.
"""
from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import quote

from starling._download import download
from starling._endpoint import default_namespace, find_endpoint
from starling._events import Event, EventStream
from starling._job_files import read_job
from starling._wire import Clock, Transport
from starling.errors import (CheckpointNotWritten, ConnectionFailed, IntegrityError, JobDeleted,
                             LogCut, NotFound)
from starling.types import (CheckpointStatus, JobSummary, Plan, Progress, Scale, TrainingJob,
                            TrainingTemplate, Usage)

__all__ = ["Client", "JobEvent", "LogLine", "Point"]

Kind = Literal["added", "modified", "deleted", "bookmark", "progress"]
_PAGE = 200


class Point(NamedTuple):
    """One of a metric's curve."""

    step: int
    seconds: float  # since the job's first point
    value: float


class LogLine(NamedTuple):
    pod: str
    line: str


@dataclass(frozen=True)
class JobEvent:
    """What has become of a job; `job` while one job is watched, `summary` while many are."""

    kind: Kind
    uid: str = ""
    job: TrainingJob | None = None
    summary: JobSummary | None = None
    progress: Progress | None = None


def is_finished(job: TrainingJob) -> bool:
    """Whether it has succeeded or failed; `status.state` says which."""
    conditions = job.get("status", {}).get("conditions", [])
    return any(condition["type"] in ("Succeeded", "Failed") and condition["status"] == "True"
               for condition in conditions)


class Client:
    """Thread-safe. What is not given comes from the environment, else from this machine's home.

    url: STARLING_SERVER, else what `starling up` has written into controller.json.
    token: STARLING_TOKEN, else the home's api.token; in a pod, the service account's.
    namespace: STARLING_NAMESPACE, else the pod's, else `default`.
    ca_file: STARLING_CA_FILE, else the system's authorities; for https alone.
    timeout: seconds for each plain call.
    """

    def __init__(self, url: str | None = None, token: str | None = None, *,
                 token_file: str | os.PathLike[str] | None = None, namespace: str | None = None,
                 ca_file: str | os.PathLike[str] | None = None, timeout: float = 30.0) -> None:
        environment = os.environ
        authority = ca_file or environment.get("STARLING_CA_FILE") or None
        endpoint = find_endpoint(url, token, token_file, environment)
        self._transport = Transport(endpoint, None if authority is None else os.fspath(authority))
        self._local = endpoint.local
        self._namespace = namespace or default_namespace(environment)
        self._timeout = timeout

    # Jobs.

    def submit(self, job: Mapping[str, Any] | str | os.PathLike[str],
               idempotency_key: str | None = None, dry_run: bool = False, *,
               namespace: str | None = None) -> TrainingJob:
        """Submits a dictionary, a JSON or YAML text, or a file; the same again makes no second job.

        Where the server is this machine's, relative data paths are made absolute as `starling run`
        does. Without a key each call gets one of its own, which makes its own retries safe.
        `dry_run`: everything is checked and nothing is stored. Invalid names each wrong field.
        """
        body = read_job(job, absolute=self._local)
        headers = {"Content-Type": body.media_type,
                   "Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        query = {"dryRun": "All"} if dry_run else None
        answer = self._transport.ask("POST", self._jobs(namespace), query=query, headers=headers,
                                     body=body.content, clock=self._clock(), repeat=True)
        return cast(TrainingJob, answer.body)

    def get(self, name: str, *, namespace: str | None = None) -> TrainingJob:
        return cast(TrainingJob, self._read(self._job(name, namespace)))

    def list(self, *, namespace: str | None = None, all_namespaces: bool = False, labels: str = "",
             fields: str = "") -> Iterator[JobSummary]:
        """Newest first, page by page. Selectors are written as kubectl's."""
        path = "/v1/jobs" if all_namespaces else self._jobs(namespace)
        query = {"limit": str(_PAGE), **_selectors(labels, fields)}
        while True:
            page = self._read(path, query)
            yield from cast("Sequence[JobSummary]", page["items"])
            if not page.get("continue"):
                return
            query["continue"] = page["continue"]

    def templates(self, *, namespace: str | None = None) -> Sequence[TrainingTemplate]:
        """What administrators give: the templates that jobs here may name in spec.templateRef."""
        path = f"/v1/namespaces/{quote(namespace or self._namespace, safe='')}/templates"
        return cast("Sequence[TrainingTemplate]", self._read(path)["items"])

    def plan(self, job: Mapping[str, Any] | str | os.PathLike[str], *,
             namespace: str | None = None) -> Plan:
        """What the job would take, what is left for it and how long it would run; stores nothing."""
        body = read_job(job, absolute=self._local)
        answer = self._transport.ask("POST", self._jobs(namespace) + ":plan",
                                     headers={"Content-Type": body.media_type}, body=body.content,
                                     clock=self._clock(), repeat=True)
        return cast(Plan, answer.body)

    def usage(self, *, since: datetime | None = None, until: datetime | None = None,
              by: Sequence[Literal["namespace", "account", "job"]] = ("namespace", "account"),
              namespace: str | None = None, all_namespaces: bool = False) -> Usage:
        """Who has used how many core-seconds. Times without a zone are this machine's."""
        path = "/v1" if all_namespaces else (
            f"/v1/namespaces/{quote(namespace or self._namespace, safe='')}")
        query = {"by": ",".join(by)}
        for name, time in (("from", since), ("to", until)):
            if time is not None:
                query[name] = time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return cast(Usage, self._read(path + "/usage", query))

    def patch(self, name: str, patch: Mapping[str, Any], *, if_match: str | None = None,
              namespace: str | None = None) -> TrainingJob:
        """A merge patch (RFC 7386). `if_match`: Conflict unless this is its resourceVersion."""
        headers = {"Content-Type": "application/merge-patch+json"}
        if if_match is not None:
            headers["If-Match"] = f'"{if_match}"'
        return cast(TrainingJob, self._write("PATCH", self._job(name, namespace), patch, headers))

    def delete(self, name: str, *, uid: str | None = None,
               namespace: str | None = None) -> TrainingJob:
        """With its pods and all that it has written. `uid`: only that very job, else Conflict."""
        answer = self._transport.ask("DELETE", self._job(name, namespace),
                                     query={"uid": uid} if uid else None, clock=self._clock())
        return cast(TrainingJob, answer.body)

    def scale(self, name: str, replicas: int, role: Literal["worker", "parameterServer"] = "worker",
              *, namespace: str | None = None) -> Scale:
        path = self._job(name, namespace) + "/scale"
        return cast(Scale, self._write("PUT", path, {"role": role, "replicas": replicas}))

    def suspend(self, name: str, *, namespace: str | None = None) -> TrainingJob:
        """Saves the job and lets its pods go; it goes on after `resume`."""
        return cast(TrainingJob, self._write("POST", self._job(name, namespace) + ":suspend"))

    def resume(self, name: str, *, namespace: str | None = None) -> TrainingJob:
        return cast(TrainingJob, self._write("POST", self._job(name, namespace) + ":resume"))

    def checkpoint(self, name: str, timeout: float | None = 60.0, *,
                   namespace: str | None = None) -> CheckpointStatus:
        """Has a running job write a checkpoint at its next step; returns it once it is written.

        Conflict (NotPossibleNow) where nothing trains: the job is finished, suspended, or brings its own
        container. CheckpointNotWritten, JobDeleted: it came to its end first. TimedOut: it is
        still written when that becomes possible.
        """
        asked = self._write("POST", self._job(name, namespace) + ":checkpoint")
        word = asked["metadata"]["annotations"]["starling.dev/checkpoint-requested-at"]
        for event in self.watch(name, timeout=timeout, namespace=namespace):
            if event.kind == "deleted":
                raise JobDeleted(f"job {name!r} was deleted before it wrote the checkpoint")
            if event.job is None:
                continue
            answer = event.job.get("status", {}).get("requestedCheckpoint", {})
            if answer.get("request") == word:
                return answer["checkpoint"]
            if event.job["spec"].get("runPolicy", {}).get("suspend"):
                break
        raise CheckpointNotWritten(f"job {name!r} has ended or was suspended; what it wrote then is "
                                   "in its status.lastCheckpoint")

    # What becomes of them.

    def watch(self, name: str, *, timeout: float | None = None,
              namespace: str | None = None) -> Iterator[JobEvent]:
        """The job as it is, then each change as a whole new state, until it has ended.

        A connection that breaks is made anew, and goes on where it was: a slow reader misses states,
        never the newest one. The last event has the job as it ended, or is `deleted`. TimedOut after
        `timeout` seconds; NotFound if there never was such a job.
        """
        job: TrainingJob | None = None
        stream = self._stream(self._job(name, namespace), {"watch": "true"}, timeout)
        try:
            for event in stream:
                told = _job_event(event)
                if told is None:
                    continue
                if told.job is not None:
                    if job is not None and _uid(told.job) != _uid(job):
                        yield JobEvent("deleted", _uid(job), job)
                        return  # one of the same name has taken its place
                    job = told.job
                yield told
        except NotFound:
            if job is None:
                raise
            yield JobEvent("deleted", _uid(job), job)  # while we were away

    def watch_all(self, *, timeout: float | None = None, namespace: str | None = None,
                  all_namespaces: bool = False, labels: str = "",
                  fields: str = "") -> Iterator[JobEvent]:
        """Summaries of all jobs as they are, a `bookmark`, then each change, until TimedOut.

        What was deleted while the connection was away is told as `deleted` too.
        """
        path = "/v1/jobs" if all_namespaces else self._jobs(namespace)
        query = {"watch": "true", **_selectors(labels, fields)}
        known: dict[str, JobSummary] = {}
        fresh: set[str] = set()
        stream = self._stream(path, query, timeout, begun=fresh.clear)
        for event in stream:
            told = _job_event(event)
            if told is None:
                continue
            if told.kind == "bookmark":  # what is has been told; what was not in it is no more
                for uid in [uid for uid in known if uid not in fresh]:
                    yield JobEvent("deleted", uid, summary=known.pop(uid))
            elif told.kind == "deleted":
                known.pop(told.uid, None)
            elif told.summary is not None:
                fresh.add(told.uid)
                known[told.uid] = told.summary
            yield told

    def wait(self, name: str, timeout: float | None = None, *,
             namespace: str | None = None) -> TrainingJob:
        """The job once it has ended: `status.state` is Succeeded or Failed. JobDeleted, TimedOut."""
        for event in self.watch(name, timeout=timeout, namespace=namespace):
            if event.kind == "deleted":
                raise JobDeleted(f"job {name!r} was deleted before it ended")
            if event.job is not None and is_finished(event.job):
                return event.job
        raise ConnectionFailed(f"the stream of job {name!r} has ended before the job", sent=True)

    def metrics(self, name: str, metric: str = "loss", *, start: int = 0, points: int = 2000,
                namespace: str | None = None) -> Sequence[Point]:
        """How a metric went from step `start` on: at most 2,000 points; none of an unknown metric."""
        query = {"name": metric, "from": str(start), "points": str(points)}
        read = self._read(self._job(name, namespace) + "/metrics", query)["metrics"].get(metric, [])
        return [Point(int(step), float(seconds), float(value)) for step, seconds, value in read]

    def stream_metrics(self, name: str, metric: str = "loss", *, timeout: float | None = None,
                       namespace: str | None = None) -> Iterator[Point]:
        """Each point as it comes, by growing steps, until the job has ended."""
        last = -1
        for event in self.watch(name, timeout=timeout, namespace=namespace):
            if event.kind not in ("added", "modified", "progress"):
                continue
            for point in self.metrics(name, metric, start=last + 1, namespace=namespace):
                if point.step > last:
                    last = point.step
                    yield point

    def logs(self, name: str, pod: str | None = None, follow: bool = False, tail: int | None = None,
             *, timeout: float | None = None, namespace: str | None = None) -> Iterator[LogLine]:
        """What the job's pods have written; `follow`: and write, until the job has ended.

        `tail`: only the last so many lines of each pod. A connection that breaks is made anew and what
        was told is not told again; only beside `tail`, where nobody knows how far it was, it is LogCut.
        """
        query = {"follow": "true" if follow else "false"}
        if pod is not None:
            query["pod"] = pod
        if tail is not None:
            query["tail"] = str(tail)
        heard = _HeardLines(tail is None)
        path = self._job(name, namespace) + "/logs"
        for event in self._stream(path, query, timeout, begun=heard.begin):
            if event.name == "log":
                line = LogLine(event.data["pod"], event.data["line"])
                if heard.take(line):
                    yield line

    def model(self, name: str, to: str | os.PathLike[str], *, timeout: float | None = None,
              namespace: str | None = None) -> Path:
        """Fetches the trained model into the file, or folder, `to`; returns the file.

        The file appears once all of it is there and has the digest that the job tells. What was cut
        goes on where it stopped. Conflict (ModelNotKept) if the job has none, or none that was kept.
        """
        path = Path(to)
        if path.is_dir():
            path = path / f"{name}.safetensors"
        target = self._job(name, namespace) + "/model"
        job = self.get(name, namespace=namespace)
        digest = job.get("status", {}).get("result", {}).get("model", {}).get("sha256", "")
        if not digest:
            with self._transport.open("GET", target, clock=self._clock()):
                pass  # it says why there is none
            raise IntegrityError(f"job {name!r} does not tell its model's digest; it is not fetched")
        download(self._transport, target, path, digest, Clock(timeout))
        return path

    # Requests.

    def _clock(self) -> Clock:
        return Clock(self._timeout)

    def _jobs(self, namespace: str | None) -> str:
        return f"/v1/namespaces/{quote(namespace or self._namespace, safe='')}/jobs"

    def _job(self, name: str, namespace: str | None) -> str:
        return f"{self._jobs(namespace)}/{quote(name, safe='')}"

    def _read(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        return self._transport.ask("GET", path, query=query, clock=self._clock(), repeat=True).body

    def _write(self, method: str, path: str, body: Mapping[str, Any] | None = None,
               headers: Mapping[str, str] | None = None) -> Any:
        sent = {} if body is None else {"Content-Type": "application/json", **(headers or {})}
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        return self._transport.ask(method, path, headers=sent, body=content,
                                   clock=self._clock()).body

    def _stream(self, path: str, query: Mapping[str, str], timeout: float | None,
                begun: Any = None) -> EventStream:
        return EventStream(self._transport, path, query, Clock(timeout), self._timeout, begun)


class _HeardLines:
    """Which lines were told before a connection broke: the new one tells them again."""

    def __init__(self, can_go_on: bool) -> None:
        self._can_go_on = can_go_on
        self._told: dict[str, list[Any]] = {}  # by pod: the first line, how many there were
        self._now: dict[str, int] = {}  # of this connection

    def begin(self) -> None:
        if not self._can_go_on and self._told:
            raise LogCut("the connection was cut, and with tail nobody knows where it stood; follow "
                         "the log without tail, or ask again")
        self._now = {}

    def take(self, line: LogLine) -> bool:
        """Whether it is new. A pod of the same name that has taken the other's place begins anew."""
        told = self._told.setdefault(line.pod, [line.line, 0])
        count = self._now.get(line.pod, 0)
        if count == 0 and line.line != told[0]:
            told[:] = [line.line, 0]
        self._now[line.pod] = count + 1
        if count < told[1]:
            return False
        told[1] = count + 1
        return True


def _selectors(labels: str, fields: str) -> dict[str, str]:
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in given.items() if value}


def _uid(job: TrainingJob) -> str:
    return str(job["metadata"].get("uid", ""))


def _job_event(event: Event) -> JobEvent | None:
    """None: of no interest to whoever watches, or of a kind that is newer than this client."""
    data = event.data if isinstance(event.data, dict) else {}
    if event.name == "progress":
        return JobEvent("progress", progress=cast(Progress, data))
    if event.name in ("added", "modified", "deleted", "bookmark"):
        return JobEvent(cast(Kind, event.name), str(data.get("uid", "")), data.get("object"),
                        data.get("summary"))
    return None
