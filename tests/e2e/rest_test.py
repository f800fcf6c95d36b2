# SPDX-License-Identifier: Apache-2.0
"""The REST service of one machine: what people do with it, and what nobody may do to it."""
import hashlib
import os
import re
import stat
import subprocess
import time
import unittest

import jobs
from case import Case
from home import DATA, REPOSITORY, read, sha256, until
from rest_client import Client

JOBS = "/v1/namespaces/default/jobs"


def quick(name, **changes):
    return jobs.digits(name=name, epochs=1, experiment__stepDelay="0s", **changes)


class RestCase(Case):
    def setUp(self):
        super().setUp()
        self.home.run("up")
        self.rest = Client(self.home.home)

    def down(self):
        self.home.run("down")
        self.home.assert_nothing_runs()

    def ok(self, answer, status=200):
        self.assertEqual(status, answer.status, answer)
        return answer.body

    def refused(self, answer, status, code):
        self.assertEqual((status, code), (answer.status, answer.body["code"]), answer)
        self.assertTrue(answer.headers["Content-Type"].startswith("application/problem+json"))
        self.assertTrue(answer.body["remedy"])
        self.assertEqual(answer.headers["X-Request-Id"], answer.body["requestId"])
        return answer.body

    def await_state(self, name, state, timeout=60):
        until(lambda: self.rest.ask("GET", f"{JOBS}/{name}").body.get("status", {}).get("state")
              == state, timeout, lambda: f"{name} is {state}\n{self.home.describe()}")


class Life(RestCase):
    def test_a_job_is_submitted_watched_to_its_end_and_its_model_fetched(self):
        created = self.rest.ask("POST", JOBS, quick("digits"))
        job = self.ok(created, 201)
        self.assertEqual(f"{JOBS}/digits", created.headers["Location"])
        self.assertEqual(f'"{job["metadata"]["resourceVersion"]}"', created.headers["ETag"])
        logs = self.rest.stream(f"{JOBS}/digits/logs?follow=true", Accept="text/event-stream")

        seen = self.rest.stream(f"{JOBS}/digits?watch=1").until("end")

        self.assertEqual("added", seen[0].name)
        self.assertEqual({"reason": "JobFinished"}, seen[-1].data)
        last = [event for event in seen if event.name == "modified"][-1].data["object"]
        self.assertEqual("Succeeded", last["status"]["state"], self.home.describe())
        self.assertIn("progress", {event.name for event in seen})
        ids = [int(event.id) for event in seen if event.id and event.name != "bookmark"]
        self.assertEqual(sorted(set(ids)), ids, "versions only grow")
        self.check_logs(logs)
        self.check_model(last["status"]["result"]["model"])
        points = self.ok(self.rest.ask("GET", f"{JOBS}/digits/metrics?name=loss"))["metrics"]
        self.assertEqual({"loss"}, set(points))
        self.assertTrue(all(len(point) == 3 for point in points["loss"]), points)
        self.assertEqual(self.result(last)["steps"], points["loss"][-1][0])
        events = self.ok(self.rest.ask("GET", f"{JOBS}/digits/events"))["items"]
        self.assertTrue(events, "the controller tells what it did")
        self.down()

    def check_logs(self, stream):
        seen = stream.until("end")
        self.assertEqual({"reason": "JobFinished"}, seen[-1].data)
        pods = {event.data["pod"] for event in seen if event.name == "log"}
        self.assertLessEqual({"digits-coordinator-0", "digits-worker-0", "digits-worker-1"}, pods)
        text = self.ok(self.rest.ask("GET", f"{JOBS}/digits/logs?pod=digits-worker-0&tail=2"))
        self.assertEqual(2, len(text.decode().splitlines()))
        whole = self.ok(self.rest.ask("GET", f"{JOBS}/digits/logs?pod=digits-worker-0")).decode()
        folder = self.home.job_folder("digits")
        pod = [name for name in os.listdir(f"{folder}/pods") if name.startswith("digits-worker-0")]
        self.assertEqual(read(f"{folder}/pods/{pod[0]}/log"), whole)
        self.refused(self.rest.ask("GET", f"{JOBS}/digits/logs?pod=other"), 404, "NotFound")

    def check_model(self, model):
        path = f"{JOBS}/digits/model"
        whole = self.rest.ask("GET", path)
        content = self.ok(whole)
        self.assertEqual(model["sha256"], hashlib.sha256(content).hexdigest())
        self.assertEqual(f'"{model["sha256"]}"', whole.headers["ETag"])
        part = self.rest.ask("GET", path, Range="bytes=10-19")
        self.assertEqual(content[10:20], self.ok(part, 206))
        self.assertEqual(f"bytes 10-19/{len(content)}", part.headers["Content-Range"])
        rest = self.rest.ask("GET", path, Range="bytes=20-")
        self.assertEqual(content[20:], self.ok(rest, 206))
        for header in (f"bytes={len(content)}-", "bytes=" + ",".join(["0-9"] * 1000)):
            self.refused(self.rest.ask("GET", path, Range=header), 416, "RangeNotSatisfiable")
        self.assertEqual(304, self.rest.ask("GET", path, If_None_Match=whole.headers["ETag"]).status)
        head = self.rest.ask("HEAD", path)
        self.assertEqual((200, b"", str(len(content))),
                         (head.status, head.body, head.headers["Content-Length"]))

    def test_a_job_file_is_taken_as_it_is_but_for_its_relative_paths(self):
        text = read(os.path.join(REPOSITORY, "examples/digits.yaml"))
        yaml = {"Content_Type": "application/yaml"}
        errors = self.refused(self.rest.ask("POST", JOBS, text, **yaml), 422, "InvalidJob")["errors"]
        self.assertEqual(["spec.dataset.train.csv.uri", "spec.dataset.validation.csv.uri"],
                         [error["path"] for error in errors])
        text = text.replace("uri: data", "uri: " + DATA)
        self.ok(self.rest.ask("POST", JOBS, text, **yaml), 201)
        self.await_state("digits", "Succeeded", 120)
        self.down()

    def test_a_plan_learns_from_what_was_trained_and_usage_counts_it(self):
        job = quick("digits")
        before = self.ok(self.rest.ask("POST", f"{JOBS}:plan", job))
        self.assertEqual({"basis": "unknown: no finished job computed the same"}, before["duration"])
        self.assertEqual([("coordinator", 1), ("worker", 2)],
                         [(role["role"], role["replicas"]) for role in before["pods"]])
        self.assertEqual("this machine", before["left"][0]["source"])
        self.assertGreater(before["left"][0]["amounts"]["memory"], 0)
        wide = quick("wide", replicaSpecs__worker__replicas=1024, replicaSpecs__worker__maxReplicas=1024)
        self.assertEqual("WithFewer", self.ok(self.rest.ask("POST", f"{JOBS}:plan", wide))["fits"])
        self.refused(self.rest.ask("POST", f"{JOBS}:plan", {"metadata": {"name": "a"}}), 422, "InvalidJob")
        self.assertEqual(404, self.rest.ask("GET", f"{JOBS}/digits").status, "a plan stores nothing")

        self.ok(self.rest.ask("POST", JOBS, job), 201)
        self.await_state("digits", "Succeeded", 120)
        result = self.ok(self.rest.ask("GET", f"{JOBS}/digits"))["status"]["result"]
        longer = quick("digits", stop__epochs=3)
        plan = self.ok(self.rest.ask("POST", f"{JOBS}:plan", longer))["duration"]
        self.assertAlmostEqual(3 * result["seconds"], plan["seconds"]["p50"], delta=0.01)
        self.assertEqual("1 finished job of this name that computed the same", plan["basis"])

        now = self.usage()
        self.assertEqual(("default", 1), (now["namespace"], now["jobs"]))
        self.assertGreater(now["processSeconds"], 0)
        self.assertAlmostEqual(now["processSeconds"] / 2, now["coreSeconds"], delta=0.01)
        self.ok(self.rest.ask("DELETE", f"{JOBS}/digits"))
        until(lambda: self.rest.ask("GET", "/v1/jobs?include=history").body["items"], 40,
              self.home.describe)
        self.assertEqual(now, self.usage(), "what is past counts as well")
        self.assertEqual([], self.ok(self.rest.ask("GET", "/v1/usage?to=2001-01-01T00:00:00Z"))["items"])
        for wrong in ("from=yesterday", "from=2001-01-01T00:00:00Z&to=2000-01-01T00:00:00Z", "by=weekday"):
            self.refused(self.rest.ask("GET", f"/v1/usage?{wrong}"), 400, "MalformedRequest")
        table = self.rest.ask("GET", "/v1/usage", Accept="text/csv")
        self.assertTrue(self.ok(table).decode().startswith("namespace,account,job,jobs,coreSeconds"))
        self.assertIn("1 finished job of this name", self.home.run("plan", self.home.write("plan.json", longer)).stdout)
        self.assertIn("default", self.home.run("usage").stdout)
        self.down()

    def usage(self):
        items = self.ok(self.rest.ask("GET", "/v1/namespaces/default/usage"))["items"]
        self.assertEqual(1, len(items), items)
        return items[0]

    def test_scale_suspend_resume_and_delete(self):
        self.ok(self.rest.ask("POST", JOBS, jobs.digits("long", epochs=200)), 201)
        self.await_state("long", "Running")
        path = f"{JOBS}/long"
        scale = self.ok(self.rest.ask("PUT", f"{path}/scale", {"role": "worker", "replicas": 3}))
        self.assertEqual(3, scale["roles"]["worker"]["replicas"])
        until(lambda: self.rest.ask("GET", f"{path}/scale").body["roles"]["worker"]["active"] == 3,
              60, self.home.describe)
        pods = self.ok(self.rest.ask("GET", f"{path}/pods"))["items"]
        self.assertIn("long-worker-2", [pod["metadata"]["name"] for pod in pods])
        self.refused(self.rest.ask("PUT", f"{path}/scale", {"replicas": 99}), 422, "InvalidJob")
        self.refused(self.rest.ask("PUT", f"{path}/scale", {"role": "parameterServer",
                                                            "replicas": 1}), 422, "InvalidRequest")
        self.refused(self.rest.ask("GET", f"{path}/model"), 409, "ModelNotKept")

        asked = self.ok(self.rest.ask("POST", f"{path}:checkpoint"), 202)["metadata"]["annotations"]
        word = asked["starling.dev/checkpoint-requested-at"]
        until(lambda: self.rest.ask("GET", path).body["status"].get("requestedCheckpoint", {})
              .get("request") == word, 60, self.home.describe)
        self.refused(self.rest.ask("POST", f"{path}:checkpoint", If_Match='"1"'), 412,
                     "PreconditionFailed")
        self.ok(self.rest.ask("POST", f"{path}:suspend"), 202)
        self.await_state("long", "Suspended")
        problem = self.refused(self.rest.ask("POST", f"{path}:checkpoint"), 409, "NotPossibleNow")
        self.assertIn("resume it first", problem["detail"])
        self.ok(self.rest.ask("POST", f"{path}:resume"), 202)
        self.await_state("long", "Running")

        self.ok(self.rest.ask("DELETE", path))
        until(lambda: self.rest.ask("GET", path + "?include=live").status == 404, 40,
              self.home.describe)
        # Lists come from the copy that a watch keeps, which learns of it a moment later.
        until(lambda: self.ok(self.rest.ask("GET", "/v1/jobs"))["items"] == [], 10,
              self.home.describe)
        self.down()


class HowTo(Case):
    def test_the_commands_of_the_page_work_as_they_stand(self):
        page = read(os.path.join(REPOSITORY, "docs/how-to/rest.md"))
        blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        script = "set -eo pipefail\n" + "\n".join(blocks)
        environment = dict(self.home.environment,
                           PATH=os.path.dirname(self.home.program("starling")) + ":" +
                           os.environ["PATH"])
        done = subprocess.run(["bash", "-c", script], cwd=REPOSITORY, env=environment,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.home.describe())
        self.assertIn('{"reason":"JobFinished"}', done.stdout)
        self.assertIn(sha256(f"{self.home.home}/digits.safetensors"), done.stdout)
        self.home.assert_nothing_runs()


class Requests(RestCase):
    def test_wrong_jobs_get_the_paths_and_words_of_the_cli(self):
        wrong = quick("wrong")
        wrong["spec"]["stop"] = {"epochs": -1}
        wrong["spec"]["replicaSpecs"]["worker"] = {"replcas": 2}
        told = self.home.run("validate", self.home.write("wrong.json", wrong), code=None)
        problem = self.refused(self.rest.ask("POST", JOBS, wrong), 422, "InvalidJob")
        self.assertEqual(2, len(problem["errors"]), problem)
        for error in problem["errors"]:
            self.assertIn(f'{error["path"]}: {error["detail"]}', told.stdout + told.stderr)
        self.assertIn({"path": "spec.stop.epochs", "pointer": "#/spec/stop/epochs"},
                      [{key: error[key] for key in ("path", "pointer")}
                       for error in problem["errors"]])
        resolved = self.ok(self.rest.ask("POST", "/v1/jobs:validate", quick("right")))
        self.assertEqual("400ms", resolved["spec"]["checkpoint"]["interval"])
        self.assertIn("exchange", resolved["spec"], "defaults are filled in")
        self.ok(self.rest.ask("POST", JOBS + "?dryRun=All", quick("right")), 201)
        self.assertEqual([], self.ok(self.rest.ask("GET", "/v1/jobs"))["items"])
        self.down()

    def test_wrong_requests_are_told_what_would_be_right(self):
        deep = '{"a":' * 100_000 + "1" + "}" * 100_000
        table = [
            ("POST", JOBS, "{", {}, 400, "MalformedRequest"),
            ("POST", JOBS, "[]", {}, 400, "MalformedRequest"),
            ("POST", JOBS, '{"a":1,"a":2}', {}, 400, "MalformedRequest"),
            ("POST", JOBS, '{"a":1e999}', {}, 400, "MalformedRequest"),
            ("POST", JOBS, b'{"a":"\xff"}', {}, 400, "MalformedRequest"),
            ("POST", JOBS, '{"a":"\\ud800"}', {}, 400, "MalformedRequest"),
            ("POST", JOBS, deep, {}, 400, "MalformedRequest"),
            ("POST", JOBS, "a: &x [*x]", {"Content_Type": "application/yaml"}, 400,
             "MalformedRequest"),
            ("POST", JOBS, "[" * 30_000, {"Content_Type": "application/yaml"}, 400,
             "MalformedRequest"),
            ("POST", JOBS, "{}", {"Content_Type": "text/plain"}, 415, "UnsupportedMediaType"),
            ("POST", JOBS, "{}", {"Content_Encoding": "gzip"}, 415, "UnsupportedMediaType"),
            ("POST", JOBS, "x" * (1 << 20) + "x", {}, 413, "BodyTooLarge"),
            ("POST", JOBS, "{}", {}, 422, "InvalidJob"),
            ("GET", "/v1/nothing", None, {}, 404, "NoSuchRoute"),
            ("GET", f"{JOBS}/nobody", None, {}, 404, "NotFound"),
            ("GET", f"{JOBS}/%2e%2e", None, {}, 400, "MalformedRequest"),
            ("GET", "/v1/namespaces/..%2f..%2fetc/jobs/passwd", None, {}, 400, "MalformedRequest"),
            ("GET", f"{JOBS}/x%00", None, {}, 400, "MalformedRequest"),
            ("GET", f"{JOBS}?limti=3", None, {}, 400, "MalformedRequest"),
            ("GET", f"{JOBS}?continue=AAAA", None, {}, 410, "Expired"),
            ("GET", f"{JOBS}?labelSelector=a%20in", None, {}, 400, "MalformedRequest"),
            ("DELETE", "/v1/jobs", None, {}, 405, "MethodNotAllowed"),
        ]
        for method, path, body, headers, status, code in table:
            with self.subTest(path=path, code=code, body=str(body)[:30]):
                began = time.monotonic()
                headers = {"Content_Type": "application/json", **headers} if body else headers
                self.refused(self.rest.ask(method, path, body, **headers), status, code)
                self.assertLess(time.monotonic() - began, 5)
        self.down()

    def test_who_may_ask(self):
        table = [
            ("GET", {"Authorization": None}, 401, "Unauthorized"),
            ("GET", {"Authorization": "Bearer " + "0" * 64}, 401, "Unauthorized"),
            ("GET", {"Authorization": "Basic " + self.rest.token}, 401, "Unauthorized"),
            ("GET", {"Host": "evil.example"}, 403, "ForeignHost"),
            ("GET", {"Host": f"evil.example:{self.rest.port}"}, 403, "ForeignHost"),
            ("DELETE", {"Origin": "http://evil.example"}, 403, "ForeignOrigin"),
            ("DELETE", {"Origin": "null"}, 403, "ForeignOrigin"),
            ("DELETE", {"Origin": f"http://localhost:{self.rest.port}"}, 404, "NotFound"),
            ("GET", {"Origin": "http://evil.example"}, 404, "NotFound"),
        ]
        for method, headers, status, code in table:
            with self.subTest(method=method, headers=headers):
                answer = self.rest.ask(method, f"{JOBS}/nobody", **headers)
                self.refused(answer, status, code)
                self.assertIsNone(answer.headers["Access-Control-Allow-Origin"])
        for path in ("/v1/version", "/openapi.json"):
            self.ok(self.rest.ask("GET", path, Authorization=None))
        self.assertEqual({"name": "owner"}, self.ok(self.rest.ask("GET", "/v1/whoami")))
        self.assertEqual(0o600, stat.S_IMODE(os.stat(f"{self.home.home}/api.token").st_mode))
        api = self.ok(self.rest.ask("GET", "/openapi.json"))
        self.check_every_route_asks_who(api)
        self.assertNotIn(self.rest.token, read(f"{self.home.home}/controller.log"))
        self.down()

    def check_every_route_asks_who(self, api):
        for path, methods in api["paths"].items():
            for method, operation in methods.items():
                target = path.replace("{namespace}", "default").replace("{name}", "nobody")
                answer = self.rest.ask(method.upper(), target, Authorization=None)
                public = operation["security"] == []
                self.assertEqual(200 if public else 401, answer.status, (method, path))

    def test_the_same_request_again_makes_no_second_job(self):
        suspended = {"runPolicy": {"suspend": True}}
        job = quick("once", **suspended)
        first = self.ok(self.rest.ask("POST", JOBS, job), 201)
        again = self.ok(self.rest.ask("POST", JOBS, job), 200)
        self.assertEqual(first["metadata"]["uid"], again["metadata"]["uid"])
        other = quick("once", seed=9, **suspended)
        self.refused(self.rest.ask("POST", JOBS, other), 409, "AlreadyExists")

        job["metadata"] = {"generateName": "made-"}
        other["metadata"] = {"generateName": "made-"}
        made = [self.rest.ask("POST", JOBS, job, Idempotency_Key="a").body["metadata"]["name"]
                for _ in range(3)]
        self.assertEqual(1, len(set(made)), made)
        self.assertTrue(made[0].startswith("made-"))
        self.refused(self.rest.ask("POST", JOBS, other, Idempotency_Key="a"), 422,
                     "IdempotencyKeyReused")
        self.ok(self.rest.ask("POST", JOBS, other, Idempotency_Key="b"), 201)
        self.home.run("down")
        self.home.run("up")
        self.rest = Client(self.home.home)
        self.ok(self.rest.ask("POST", JOBS, job, Idempotency_Key="a"), 200)
        self.down()

    def test_a_job_is_changed_only_as_it_was_read(self):
        self.ok(self.rest.ask("POST", JOBS, quick("held", runPolicy={"suspend": True})), 201)
        path = f"{JOBS}/held"
        self.await_state("held", "Suspended")

        def unchanged():
            tag = self.rest.ask("GET", path).headers["ETag"]
            return self.rest.ask("GET", path, If_None_Match=tag).status == 304

        def change_as_read():
            tag = self.rest.ask("GET", path).headers["ETag"]
            answer = self.rest.ask("PATCH", path, {"spec": {"seed": 3}}, If_Match=tag)
            return None if answer.status == 412 else (tag, self.ok(answer))

        # Again where the controller has written its status in between.
        until(unchanged, 10, "a job that nobody changes is not sent twice")
        tag, changed = until(change_as_read, 10, "it is changed as it was read")
        self.assertEqual(3, changed["spec"]["seed"])
        for method, body in (("PATCH", {"spec": {"seed": 4}}), ("DELETE", None),
                             ("PUT", quick("held"))):
            self.refused(self.rest.ask(method, path, body, If_Match=tag), 412, "PreconditionFailed")
        self.refused(self.rest.ask("DELETE", path + "?uid=other"), 412, "PreconditionFailed")
        self.refused(self.rest.ask("PATCH", path, {"metadata": {"finalizers": ["x"]}}), 422,
                     "InvalidJob")
        self.refused(self.rest.ask("PATCH", path, {"spec": {"sede": 4}}), 422, "InvalidJob")
        put = quick("held", runPolicy={"suspend": True})
        put["metadata"]["labels"] = {"team": "a"}
        stale = {**put, "metadata": {**put["metadata"], "resourceVersion": tag.strip('"')}}
        self.refused(self.rest.ask("PUT", path, stale), 409, "Conflict")
        self.assertEqual(7, self.ok(self.rest.ask("PUT", path, put))["spec"]["seed"])
        found = self.ok(self.rest.ask("GET", JOBS + "?labelSelector=team%3Da"))["items"]
        self.assertEqual(["held"], [item["name"] for item in found])
        self.down()

    def test_lists_come_in_pages_newest_first(self):
        names = [f"job-{number}" for number in range(7)]
        for name in names:
            self.ok(self.rest.ask("POST", JOBS, quick(name, runPolicy={"suspend": True})), 201)
        seen, token = [], ""
        for _ in range(4):
            page = self.ok(self.rest.ask("GET", f"{JOBS}?limit=2&continue={token}"))
            seen += [(item["created"], item["name"]) for item in page["items"]]
            token = page.get("continue", "")
        self.assertEqual("", token)
        self.assertEqual(sorted(names), sorted(name for _, name in seen))
        created = [when for when, _ in seen]
        self.assertEqual(sorted(created, reverse=True), created)
        self.down()

    def test_a_stream_goes_on_where_it_was_and_says_when_it_ends(self):
        first = self.rest.stream("/v1/jobs?watch=1")
        self.assertEqual("bookmark", first.until("bookmark")[0].name)
        self.ok(self.rest.ask("POST", JOBS, quick("one", runPolicy={"suspend": True})), 201)
        added = first.until("added")[-1]
        self.assertEqual("one", added.data["summary"]["name"])
        first.close()
        self.await_state("one", "Suspended")
        self.ok(self.rest.ask("POST", JOBS, quick("two", runPolicy={"suspend": True})), 201)
        self.ok(self.rest.ask("DELETE", f"{JOBS}/one"))
        until(lambda: self.rest.ask("GET", f"{JOBS}/one?include=live").status == 404, 30,
              self.home.describe)

        second = self.rest.stream("/v1/jobs?watch=1", Last_Event_ID=added.id)
        # In the order of their newest changes: two's status may be written after one is gone.
        told = {}
        while not {"added", "deleted"} <= told.keys():
            told |= {event.name: event.data for event in second.until("added", "deleted")}
        self.assertNotIn("bookmark", told)
        self.assertEqual(added.data["uid"], told["deleted"]["uid"])
        self.assertEqual("two", told["added"]["summary"]["name"])
        brief = self.rest.stream("/v1/jobs?watch=1&timeoutSeconds=1")
        self.assertEqual({"reason": "Deadline"}, brief.until("end")[-1].data)
        stopping = self.home.start("down")
        self.assertEqual({"reason": "Shutdown"}, second.until("end")[-1].data)
        stopping.wait(60)
        self.home.assert_nothing_runs()


if __name__ == "__main__":
    unittest.main(verbosity=2)
