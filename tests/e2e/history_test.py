# SPDX-License-Identifier: Apache-2.0
"""What is told of jobs that are no more: by REST and by the command line, whatever died meanwhile."""
import json
import os
import sqlite3
import unittest

import jobs
from case import Case
from home import kill, read, until
from rest_client import Client

JOBS = "/v1/namespaces/default/jobs"


class History(Case):
    def up(self):
        self.home.run("up")
        self.rest = Client(self.home.home)

    def down(self):
        self.home.run("down")
        self.home.assert_nothing_runs()

    def ok(self, target, status=200, **headers):
        answer = self.rest.ask("GET", target, **headers)
        self.assertEqual(status, answer.status, answer)
        return answer.body

    def submit(self, job):
        answer = self.rest.ask("POST", JOBS, job)
        self.assertEqual(201, answer.status, answer)
        return answer.body["metadata"]["uid"]

    def await_state(self, name, state, timeout=90):
        until(lambda: self.rest.ask("GET", f"{JOBS}/{name}?include=live").body.get("status", {})
              .get("state") == state, timeout, lambda: f"{name} is {state}\n{self.home.describe()}")

    def delete(self, name):
        self.assertEqual(200, self.rest.ask("DELETE", f"{JOBS}/{name}").status)
        until(lambda: self.rest.ask("GET", f"{JOBS}/{name}?include=live").status == 404, 40,
              self.home.describe)

    def a_worker(self):
        """The first process of some worker that runs."""
        for name in self.home.pods():
            if "-worker-" in name and self.home.pod_pid(name):
                return self.home.pod_pid(name)
        return None

    def past(self, labels=""):
        """By REST, newest first, once the newest deletions have been noticed."""
        return self.ok(f"/v1/jobs?include=history{labels}")["items"]

    def await_past(self, count):
        until(lambda: len(self.past()) == count, 20, lambda: f"{count} past jobs: {self.past()}")
        return self.past()

    def curve(self, name, uid="", metric="loss"):
        target = f"{JOBS}/{name}/metrics?name={metric}" + (f"&uid={uid}" if uid else "")
        return self.ok(target)["metrics"].get(metric, [])

    def shape(self, curve):
        """Without the seconds, for which each observer has a clock of its own."""
        return [(step, value) for step, _, value in curve]

    def recorded(self, uid):
        """The newest step in the file."""
        with sqlite3.connect(f"file:{self.home.home}/history.db?mode=ro", uri=True) as database:
            pieces = database.execute("SELECT body FROM history_points WHERE uid = ? AND "
                                      "metric = 'loss' ORDER BY piece", (uid,)).fetchall()
        database.close()
        return json.loads(pieces[-1][0])[-1][0] if pieces else -1

    def check_curve(self, curve, last):
        self.assertGreaterEqual(len(curve), 3, curve)
        steps = [point[0] for point in curve]
        self.assertEqual(sorted(set(steps)), steps)
        self.assertEqual(last, steps[-1])
        seconds = [point[1] for point in curve]
        self.assertEqual(sorted(seconds), seconds)
        self.assertLess(curve[-1][2], curve[0][2], "the loss falls")

    def test_a_deleted_job_is_told_with_its_curve_its_logs_and_its_events(self):
        self.up()
        job = jobs.digits("digits", epochs=3)
        job["metadata"]["labels"] = {"team": "vision"}
        uid = self.submit(job)
        self.await_state("digits", "Running")
        kill(until(self.a_worker, 60, self.home.describe))
        self.await_state("digits", "Succeeded")
        until(lambda: not any(counted["active"] for counted in
                              self.ok(f"{JOBS}/digits")["status"]["replicaStatuses"].values()), 30,
              "its pods have ended")
        before = self.ok(f"{JOBS}/digits")
        live = self.curve("digits")
        log = self.ok(f"{JOBS}/digits/logs?pod=digits-worker-0").decode()
        self.delete("digits")
        until(lambda: not os.listdir(f"{self.home.home}/jobs/default"), 20, "the folder goes")

        after = self.ok(f"{JOBS}/digits")
        deleted = after["metadata"].pop("annotations").pop("starling.dev/deleted-at")
        self.assertEqual(before["status"], after["status"])
        self.assertEqual(before["spec"], after["spec"])
        self.assertTrue(deleted.endswith("Z"))
        self.assertEqual(self.shape(live), self.shape(self.curve("digits")))
        self.check_curve(live, self.result(before)["steps"])
        self.assertTrue(self.curve("digits", metric="samplesPerSecond"))
        reasons = {item["reason"] for item in self.ok(f"{JOBS}/digits/incidents")["items"]}
        self.assertTrue([reason for reason in reasons if reason.startswith("Worker")], reasons)
        self.assertTrue(self.ok(f"{JOBS}/digits/events")["items"])
        kept = self.ok(f"{JOBS}/digits/logs?pod=digits-worker-0").decode()
        self.assertTrue(log.endswith(kept) or kept.startswith(log), (log[-500:], kept[-500:]))
        self.assertEqual(kept.splitlines()[-2:],
                         self.ok(f"{JOBS}/digits/logs?pod=digits-worker-0&tail=2").decode()
                         .splitlines())
        self.assertIn(b"[digits-coordinator-0] ", self.ok(f"{JOBS}/digits/logs"))
        stream = self.rest.stream(f"{JOBS}/digits/logs?follow=true", Accept="text/event-stream")
        self.assertEqual({"reason": "JobFinished"}, stream.until("end")[-1].data)

        self.assertEqual([], self.ok("/v1/jobs")["items"])
        [item] = self.past()
        self.assertEqual((uid, "Succeeded", deleted), (item["uid"], item["state"], item["deleted"]))
        self.assertEqual(1, len(self.past("&labelSelector=team%3Dvision")))
        self.assertEqual([], self.past("&labelSelector=team%3Dother"))
        for target in (f"{JOBS}/digits?include=live", f"{JOBS}/digits?watch=1", f"{JOBS}/digits/scale",
                       f"{JOBS}/digits/pods", f"{JOBS}/digits?uid=other", f"{JOBS}/nobody/metrics",
                       f"{JOBS}/digits/logs?pod=digits-worker-9"):
            with self.subTest(target=target):
                self.assertEqual(404, self.rest.ask("GET", target).status)
        self.assertEqual(404, self.rest.ask("DELETE", f"{JOBS}/digits").status)
        self.check_command_line(uid)
        self.down()
        self.check_command_line(uid)

    def check_command_line(self, uid):
        """The same whether a controller runs or not."""
        listed = json.loads(self.home.run("get", "jobs", "--history", "-o", "json").stdout)
        self.assertEqual([uid], [item["metadata"]["uid"] for item in listed["items"]])
        table = self.home.run("get", "jobs", "--history").stdout
        self.assertRegex(table, r"digits +Succeeded .*" + uid)
        page = self.home.run("describe", "digits").stdout
        self.assertRegex(page, r"Deleted: +20\d\d-")
        self.assertRegex(page, r"loss +\d+ +\d+-\d+ ")
        self.assertRegex(page, r"digits-worker-\d was killed by signal 9")
        self.home.run("describe", "nobody", code=3)

    def test_nothing_is_lost_when_the_controller_is_killed_and_names_are_used_again(self):
        self.up()
        # Points come as often as the status is written: once a second or less on a busy machine.
        first = self.submit(jobs.digits("digits", epochs=12))
        until(lambda: len(self.curve("digits")) >= 3, 60, self.home.describe)
        seen = self.curve("digits")
        until(lambda: self.recorded(first) >= seen[-1][0], 10, "half a second later it is written")
        for controller in self.home.controllers():
            kill(controller)
        until(lambda: not self.home.controllers(), 10, "the controller ends")
        self.up()
        curve = self.curve("digits")
        self.assertEqual(self.shape(seen), self.shape(curve)[:len(seen)],
                         "what was told before the kill is told after it")
        self.await_state("digits", "Succeeded")
        job = self.ok(f"{JOBS}/digits")
        self.check_curve(self.curve("digits"), self.result(job)["steps"])
        self.delete("digits")
        self.await_past(1)

        # Killed at once after a deletion, with nobody there to notice.
        second = self.submit(jobs.digits("digits", epochs=1, experiment__stepDelay="0s"))
        self.await_state("digits", "Succeeded")
        for controller in self.home.controllers():
            kill(controller)
        until(lambda: not self.home.controllers(), 10, "the controller ends")
        self.home.run("delete", "digits", "--no-wait")
        third = json.loads(self.home.run(
            "submit", self.home.write("job.json", jobs.digits("digits", runPolicy={"suspend": True})),
            "-o", "json").stdout)["metadata"]["uid"]
        self.home.run("delete", "digits", "--no-wait")
        self.up()
        self.await_past(3)
        fourth = self.submit(jobs.digits("digits", epochs=1, experiment__stepDelay="0s"))
        self.await_state("digits", "Succeeded")

        self.assertEqual(4, len({first, second, third, fourth}))
        self.assertEqual({first, second, third}, {item["uid"] for item in self.past()})
        both = self.ok("/v1/jobs?include=live,history&limit=2")
        rest = self.ok(f"/v1/jobs?include=live,history&limit=2&continue={both['continue']}")
        # Newest first; those of one second in the order of their UIDs.
        self.assertIn(fourth, [item["uid"] for item in both["items"]])
        self.assertEqual({first, second, third, fourth},
                         {item["uid"] for item in both["items"] + rest["items"]})
        self.assertEqual(fourth, self.ok(f"{JOBS}/digits")["metadata"]["uid"])
        self.assertEqual(first, self.ok(f"{JOBS}/digits?uid={first}")["metadata"]["uid"])
        self.check_curve(self.curve("digits", first), self.result(job)["steps"])
        self.assertEqual(jobs.steps_of(1), self.curve("digits", fourth)[-1][0])
        self.assertEqual([], self.curve("digits", third))
        self.assertTrue(self.ok(f"{JOBS}/digits/logs?uid={second}"), "logs survive both deaths")
        self.down()

    def test_a_history_that_cannot_be_read_stops_nobody(self):
        self.up()
        self.down()
        path = os.path.join(self.home.home, "history.db")
        with sqlite3.connect(path) as database:
            database.execute("UPDATE history_schema SET version = 99")
        database.close()
        self.up()
        self.submit(jobs.digits("digits", epochs=1, experiment__stepDelay="0s"))
        self.await_state("digits", "Succeeded")
        self.assertEqual(200, self.rest.ask("GET", f"{JOBS}/digits").status)
        self.assertTrue(self.curve("digits"), "of a job that is there the controller knows itself")
        answer = self.rest.ask("GET", "/v1/jobs?include=history")
        self.assertEqual(503, answer.status, answer)
        self.assertIn("newer Starling", answer.body["detail"])
        self.assertIn("newer Starling", self.home.run("get", "jobs", "--history", code=1).stderr)
        self.assertIn("the history cannot be written", read(f"{self.home.home}/controller.log"))
        self.down()
        with open(path, "wb") as file:
            file.write(b"no database at all" * 1000)
        for suffix in ("-wal", "-shm"):
            if os.path.exists(path + suffix):
                os.remove(path + suffix)
        self.up()
        until(lambda: self.rest.ask("GET", "/v1/jobs?include=history").status == 200, 20,
              self.home.describe)
        self.delete("digits")
        self.await_past(1)
        self.assertTrue([name for name in os.listdir(self.home.home) if ".damaged-" in name])
        self.down()


if __name__ == "__main__":
    unittest.main(verbosity=2)
