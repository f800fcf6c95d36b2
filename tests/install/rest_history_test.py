#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a cluster's jobs were, by REST: kept when they are deleted, also while nobody listens, and shown
to nobody whose namespace merely has the name of theirs. No controller runs: the test says how jobs
fare."""
import contextlib
import datetime
import json
import os
import signal
import sqlite3
import tempfile
import unittest

import kubectl as k
from controller import install_chart
from rest_api import Client, RestApi, bind, make_account, token_of

BOTH = "include=live,history"


def jobs_of(namespace):
    return f"/v1/namespaces/{namespace}/jobs"


JOBS = jobs_of("default")


def suspended(name, namespace="default"):
    job = k.digits(name, runPolicy={"suspend": True})
    job["metadata"]["namespace"] = namespace
    return job


def tell(name, **status):
    k.kubectl("patch", "tj", name, "--subresource=status", "--type=merge", "-p",
              json.dumps({"status": status}))


def make_event(job):
    """As a controller tells of a job."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    k.create({"apiVersion": "events.k8s.io/v1", "kind": "Event",
              "metadata": {"generateName": job["metadata"]["name"], "namespace": "default"},
              "eventTime": now, "type": "Normal", "reason": "PodsCreated", "action": "Test",
              "note": "two", "reportingController": "starling.dev/test",
              "reportingInstance": "test", "regarding": {
                  "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
                  "name": job["metadata"]["name"], "namespace": "default",
                  "uid": job["metadata"]["uid"]}})


class History(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="starling-history-")
        install_chart("--set=webhook.enabled=false,api.replicas=1,api.history.store=sqlite")
        make_account("editor")
        bind("edit", "editor")
        make_account("auditor")
        k.kubectl("create", "clusterrolebinding", "auditor", "--clusterrole=view",
                  "--serviceaccount=default:auditor")
        k.eventually(lambda: "trainingjobs" in json.dumps(k.get("clusterrole", "view")["rules"]),
                     "Starling's rights are part of Kubernetes' own roles")
        cls.token = token_of("editor", "default")
        cls.auditor = token_of("auditor", "default")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.file = os.path.join(self.folder.name, f"{self._testMethodName}.db")
        self.begin("first")

    def tearDown(self):
        k.kubectl("delete", "tj", "--all")

    def begin(self, name, file=None):
        self.api = RestApi(self.folder.name, f"--history-file={file or self.file}",
                           name=f"{self._testMethodName}-{name}")
        self.addCleanup(self.api.end, signal.SIGKILL)
        self.api.await_ready()
        self.rest = Client(self.token, self.api)

    def ok(self, answer, status=200):
        self.assertEqual(status, answer.status, answer)
        return answer.body

    def past(self, path=JOBS, client=None):
        """By name, when each was seen to be gone."""
        items = self.ok((client or self.rest).ask("GET", f"{path}?include=history"))["items"]
        return {item["name"]: item["deleted"] for item in items}

    def recorded(self):
        """How many jobs the file has."""
        with contextlib.closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as history:
            return history.execute("SELECT count(*) FROM history_jobs").fetchone()[0]

    def await_past(self, name, path=JOBS):
        k.eventually(lambda: name in self.past(path),
                     lambda: f"{name} is past; it says:\n{self.api.read_log()}")

    def test_a_deleted_job_is_there_with_its_end_its_curve_and_its_events(self):
        job = self.ok(self.rest.ask("POST", JOBS, suspended("digits")), 201)
        make_event(job)
        for step in (5, 6, 7):
            tell("digits", progress={"step": step, "loss": 1 / step})
            k.eventually(lambda s=step: self.ok(self.rest.ask("GET", f"{JOBS}/digits/metrics"))
                         ["metrics"].get("loss", [[0]])[-1][0] == s, "the curve goes on")
        tell("digits", incidents=[{"time": "2026-01-01T00:00:00Z", "reason": "WorkerLost",
                                   "pod": "digits-worker-0"}])
        self.assertEqual({}, self.past(), "it is not past yet")
        self.ok(self.rest.ask("DELETE", f"{JOBS}/digits"))
        self.await_past("digits")
        kept = self.ok(self.rest.ask("GET", f"{JOBS}/digits"))
        self.assertEqual(job["metadata"]["uid"], kept["metadata"]["uid"])
        self.assertEqual(7, kept["status"]["progress"]["step"])
        self.assertIn("starling.dev/deleted-at", kept["metadata"]["annotations"])
        curve = self.ok(self.rest.ask("GET", f"{JOBS}/digits/metrics?name=loss"))["metrics"]["loss"]
        self.assertEqual([5, 6, 7], [point[0] for point in curve])
        told = self.ok(self.rest.ask("GET", f"{JOBS}/digits/incidents"))["items"]
        self.assertEqual(["WorkerLost"], [incident["reason"] for incident in told])
        k.eventually(lambda: [event["note"] for event in self.ok(
            self.rest.ask("GET", f"{JOBS}/digits/events"))["items"]] == ["two"], "its events are kept")
        self.assertEqual(404, self.rest.ask("GET", f"{JOBS}/digits?include=live").status)
        # Whoever may not read jobs reads no past ones either.
        make_account("nobody")
        stranger = Client(token_of("nobody", "default"), self.api)
        self.assertEqual(403, stranger.ask("GET", f"{JOBS}/digits").status)
        self.assertEqual(403, stranger.ask("GET", f"{JOBS}?include=history").status)
        # The name's next owner is another job.
        again = self.ok(self.rest.ask("POST", JOBS, suspended("digits")), 201)
        self.assertEqual(again["metadata"]["uid"], self.ok(
            self.rest.ask("GET", f"{JOBS}/digits"))["metadata"]["uid"])
        self.assertEqual(7, self.ok(self.rest.ask(
            "GET", f"{JOBS}/digits?uid={job['metadata']['uid']}"))["status"]["progress"]["step"])

    def test_jobs_that_are_deleted_while_the_service_is_away_are_in_the_history(self):
        self.ok(self.rest.ask("POST", JOBS, suspended("known")), 201)
        self.ok(self.rest.ask("POST", JOBS, suspended("stays")), 201)
        self.assertEqual(0, self.api.end())
        tell("known", progress={"step": 9})
        k.create(suspended("unknown"))
        k.kubectl("delete", "tj", "known", "unknown")
        self.begin("second")
        self.await_past("known")
        self.await_past("unknown")
        self.assertNotIn("stays", self.past())
        kept = self.ok(self.rest.ask("GET", f"{JOBS}/known"))
        self.assertEqual(9, kept["status"]["progress"]["step"], "as it was at its very end")

    def test_killed_it_loses_no_job_that_it_has_seen(self):
        for number in range(10):
            self.ok(self.rest.ask("POST", JOBS, suspended(f"job-{number}")), 201)
        k.eventually(lambda: self.recorded() == 10, "what is new is written within a second or two")
        k.kubectl("delete", "tj", *(f"job-{number}" for number in range(5)))
        self.api.end(signal.SIGKILL)
        k.kubectl("delete", "tj", *(f"job-{number}" for number in range(5, 10)))
        self.begin("second")
        for number in range(10):
            self.await_past(f"job-{number}")

    def test_a_namespace_that_is_made_anew_inherits_nothing(self):
        k.kubectl("create", "namespace", "team")
        make_account("member", "team")
        bind("edit", "member", "team")
        team = jobs_of("team")
        before = Client(token_of("member", "team"), self.api)
        self.ok(before.ask("POST", team, suspended("secret", "team")), 201)
        uid = self.ok(before.ask("GET", f"{team}/secret"))["metadata"]["uid"]
        self.ok(before.ask("DELETE", f"{team}/secret"))
        k.eventually(lambda: "secret" in self.past(team, before), "its own members see it")
        k.kubectl("delete", "namespace", "team")
        all_jobs = Client(self.auditor, self.api)
        self.assertIn("secret", self.past("/v1/jobs", all_jobs), "who sees all namespaces sees it")

        k.kubectl("create", "namespace", "team")
        make_account("member", "team")
        bind("edit", "member", "team")
        after = Client(token_of("member", "team"), self.api)
        self.assertEqual({}, self.past(team, after))
        for query in ("", f"?uid={uid}", "?include=history"):
            self.assertEqual(404, after.ask("GET", f"{team}/secret{query}").status, query)
        for part in ("incidents", "metrics", "events", "logs"):
            self.assertEqual(404, after.ask("GET", f"{team}/secret/{part}?uid={uid}").status, part)
        self.assertNotIn("secret", self.past("/v1/jobs", all_jobs))
        k.kubectl("delete", "namespace", "team")

    def test_a_history_that_cannot_be_written_holds_up_nobody(self):
        self.begin("blind", "/proc/no-such-folder/history.db")
        self.ok(self.rest.ask("POST", JOBS, suspended("digits")), 201)
        self.assertEqual(200, self.rest.ask("GET", f"{JOBS}/digits").status)
        self.assertEqual(200, self.rest.ask("GET", JOBS).status)
        problem = self.ok(self.rest.ask("GET", f"{JOBS}?{BOTH}"), 503)
        self.assertIn("include=live", problem["remedy"])
        self.ok(self.rest.ask("DELETE", f"{JOBS}/digits"))


if __name__ == "__main__":
    k.helm_or_skip()
    unittest.main()
