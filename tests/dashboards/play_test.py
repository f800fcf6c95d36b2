#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes real jobs of one machine: every query of every dashboard returns data, and
alerts fire under their real faults and not without.

The rules are the ones that are shipped, with minutes for seconds and hours for minutes, so that nobody
waits for twenty minutes. Exits with 77 where Prometheus cannot be built.

--pictures draws those of docs/ anew instead: five minutes of jobs that train, fail and are hurt, with the
rules as they are.
"""
import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

from metric_names import REPOSITORY, names_in
from prometheus import HomeTargets, Prometheus, find_programs, panels, shipped_rules
# Of dashboards/ and tests/e2e, where prometheus.py leads.
import draw
import hybrid_test
import jobs
import parameter_server_test
from browser import find_tools
from home import Home, kill, until
from rest_client import Client

PICTURES = os.path.join(REPOSITORY, "docs")

VARIABLES = {"$__rate_interval": "10s", "$ns": ".*", "$job": ".*"}
# What one machine does not have. (tests/kube has an API server and leaders.)
ELSEWHERE = {"leader_election_master_status": "one controller a machine",
             "rest_client_requests_total": "no API server",
             "rest_client_request_duration_seconds_bucket": "no API server",
             "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "no GPU"}
# Nobody leads where there is no leader to elect, and steps that wait 20 ms are mostly waiting.
CALM = {"StarlingNoLeader", "StarlingGoodputLow"}


def faster(rules):
    """Minutes become seconds and hours minutes, in ranges, waits and ages."""
    rules = re.sub(r"(\[|for: |offset )(\d+)m", r"\1\2s", rules)
    rules = re.sub(r"(\[|offset )(\d+)h", r"\1\2m", rules)
    return rules.replace(", 600)", ", 10)")


class Play(unittest.TestCase):
    SCRAPED = "1s"

    def setUp(self):
        self.home = Home()
        self.addCleanup(self.home.close)
        self.home.run("up")
        self.targets = HomeTargets(self.home)
        self.addCleanup(self.targets.close)
        self.prometheus = Prometheus(PROGRAMS, self.targets.scrape_configs(), self.rules(),
                                     self.SCRAPED)
        self.addCleanup(self.prometheus.close)

    @staticmethod
    def rules():
        return faster(shipped_rules())

    def submit(self, job):
        name = job["metadata"]["name"]
        self.home.run("submit", self.home.write(f"{name}.yaml", job))
        return name

    def train(self, job, step=10):
        name = self.submit(job)
        until(lambda: (self.home.job(name) or {}).get("status", {}).get("progress", {})
              .get("step", 0) >= step, 90, lambda: self.home.describe())
        return name

    def await_alert(self, name, job="", timeout=60, deed=None):
        """Fires within the timeout, while `deed` is done again and again."""
        def fires():
            if deed is not None:
                deed()
            return (f"Starling{name}", job) in self.prometheus.firing()
        began = time.time()
        until(fires, timeout, lambda: f"{name} does not fire; these do: {self.prometheus.firing()}")
        print(f"  {name} fires after {time.time() - began:.0f} s", flush=True)

    def kill_role(self, pod):
        pid = self.home.role_pid(pod)
        return pid is not None and kill(pid)


def two_jobs():
    """All workers together, and parameter servers; both go on for longer than the play."""
    return (jobs.digits(workers=2, epochs=100000, checkpoint__interval="2s"),
            parameter_server_test.job(name="servers", epochs=100000, checkpoint__interval="2s"))


class Queries(Play):
    def test_every_panel_shows_data(self):
        names = [self.train(job) for job in two_jobs()]
        for name in names:
            until(lambda: len(self.prometheus.samples(  # pylint: disable=cell-var-from-loop
                f'starling_job_step{{job_name="{name}"}}', 10)) > 3, 30, f"{name} is scraped")
        # What incidents, failures and ends show.
        until(lambda: self.kill_role(f"{names[0]}-worker-1"), 10, "a worker runs")
        self.submit(jobs.digits("queued", epochs=1, runPolicy__schedulingPolicy={"queue": "nobody"}))
        rest, end = Client(self.home.home), time.time() + 25
        while time.time() < end:
            self.assertEqual(200, rest.ask("GET", "/v1/namespaces/default/jobs").status)
            time.sleep(0.5)
        self.assertEqual(set(), {name for name, _ in self.prometheus.firing()} - CALM)
        empty, shown = set(), 0
        for board, title, expression in panels():
            for variable, value in VARIABLES.items():
                expression = expression.replace(variable, value)
            elsewhere = names_in(expression) & set(ELSEWHERE)
            values = self.prometheus.samples(expression, 30)
            self.assertFalse(elsewhere and values, f"{elsewhere} is there after all")
            shown += bool(values)
            if not values and not elsewhere:
                empty.add(f"{board}: {title}: {expression}")
        self.assertEqual(set(), empty)
        print(f"  {shown} queries of {len(panels())} show data; the others are a cluster's", flush=True)


class Alerts(Play):
    def test_of_members_that_go_and_stay_away(self):
        name = self.train(jobs.digits(workers=2, epochs=100000))
        pods = [f"{name}-worker-{index}" for index in (0, 1)]
        self.await_alert("JobFlapping", name, 90, lambda: self.flap(pods))
        # Nobody is there who would put another in its place.
        (controller,) = self.home.controllers()
        kill(controller, signal.SIGSTOP)
        try:
            kill(self.home.pod_pid(pods[1]))
            self.await_alert("JobUnderstaffed", name)
        finally:
            kill(controller, signal.SIGCONT)

    def flap(self, pods):
        pods.reverse()
        self.kill_role(pods[0])
        time.sleep(3)

    def test_of_steps_that_do_not_come(self):
        self.submit(jobs.digits("slow", epochs=1, experiment__stepDelay="1h"))
        self.await_alert("JobStalled", "slow")

    def test_of_a_worker_that_is_slower_than_the_others(self):
        name = self.train(jobs.digits(
            workers=3, epochs=100000, experiment__stepDelay="0s", dataset__globalBatchSize=192,
            workload__classification__model__mlp__hidden=[1024, 1024]))
        slow = self.home.role_pid(f"{name}-worker-2")
        self.await_alert("Straggler", name, 90, lambda: self.hold_up(slow))

    @staticmethod
    def hold_up(pid):
        for _ in range(5):
            kill(pid, signal.SIGSTOP)
            time.sleep(0.15)
            kill(pid, signal.SIGCONT)
            time.sleep(0.1)

    def test_of_checkpoints_that_cannot_be_written(self):
        # One that never writes any, and one that cannot any more. After a failure the next one is
        # tried a minute later.
        for job, folder in zip(two_jobs(), ("checkpoints", "shards")):
            name = self.train(job)
            place = f"{self.home.job_folder(name)}/{folder}"
            until(lambda: os.path.isdir(place), 30, f"{place} is there")
            if folder == "shards":
                until(lambda: self.home.job(name)["status"].get("lastCheckpoint"), 30, "a snapshot")
            os.rename(place, f"{place}.before")
            with open(place, "w", encoding="utf-8") as file:
                file.write("in the way")
            self.await_alert("CheckpointFailing", name, 100)
            self.await_alert("CheckpointStale", name)
        self.await_alert("ServerSnapshotStale", "servers")

    def test_of_jobs_that_fail_and_one_that_nobody_scrapes(self):
        for number in range(3):
            self.submit(jobs.digits(f"wrong-{number}", optimizer={"sgd": {"learningRate": 1000}}))
        self.await_alert("JobsFail")
        name = self.train(jobs.digits(epochs=100000))
        self.targets.hidden.add(name)
        self.await_alert("JobsUnscraped")

    def test_of_a_history_that_cannot_be_written(self):
        self.train(jobs.digits(epochs=100000))
        rest = Client(self.home.home)
        with contextlib.closing(sqlite3.connect(f"{self.home.home}/history.db")) as history:
            history.execute("BEGIN IMMEDIATE")  # somebody else writes, and does not end
            self.await_alert("HistoryBehind", timeout=120)
            self.assertEqual(200, rest.ask("GET", "/v1/namespaces/default/jobs").status)
            history.rollback()
        until(lambda: ("StarlingHistoryBehind", "") not in self.prometheus.firing(), 30,
              "it has caught up")

    def test_of_files_that_run_out(self):
        (controller,) = self.home.controllers()
        opened = len(os.listdir(f"/proc/{controller}/fd"))
        subprocess.run(["prlimit", "--pid", str(controller), f"--nofile={opened * 6 // 5}:"],
                       check=True)
        self.await_alert("FileDescriptorsLow")


class Pictures(Play):
    SCRAPED = "2s"
    SECONDS = 300
    # What is done to the jobs, by seconds since the beginning of the picture.
    DEEDS = ((10, lambda play: play.ended_jobs("first")),
             (40, lambda play: play.kill_role("digits-parameter-server-1")),
             (80, lambda play: play.ended_jobs("second")),
             (110, lambda play: play.home.run("scale", "digits", "--replicas", "3")),
             (160, lambda play: play.kill_role("recommender-worker-0")),
             (190, lambda play: play.ended_jobs("third")),
             (220, lambda play: play.kill_role("digits-worker-1")))

    @staticmethod
    def rules():
        return shipped_rules()

    def ended_jobs(self, name):
        for end, optimizer in (("trial", 0.05), ("wrong", 1000)):
            self.submit(jobs.digits(f"{name}-{end}", epochs=4, workers=1,
                                    optimizer={"sgd": {"learningRate": optimizer}}))

    def start(self, job):
        """One after the other: a busy machine has enough to do with one."""
        name = self.submit(job)
        until(lambda: self.prometheus.samples(
            f'sum(starling_job_members{{job_name="{name}"}}) == '
            f'sum(starling_job_members_wanted{{job_name="{name}"}})', 4), 180, self.home.describe)

    def use_rest(self, rest):
        for path in ("", "/digits", "/digits/metrics", "/nowhere"):
            rest.ask("GET", f"/v1/namespaces/default/jobs{path}")
        time.sleep(0.5)
        return True

    def start_all(self):
        self.start(hybrid_test.hybrid(
            epochs=100000, checkpoint__interval="20s", experiment__stepDelay="0s",
            optimizer={"sgd": {"learningRate": 0.01, "momentum": 0.5}}, dataset__globalBatchSize=256,
            workload__classification__model__mlp__hidden=[512, 512, 256]))
        self.start(parameter_server_test.job("recommender", epochs=100000, checkpoint__interval="20s"))
        self.submit(jobs.digits("queued", epochs=100000, workers=1, experiment__stepDelay="500ms",
                                runPolicy__schedulingPolicy={"queue": "nobody"}))
        self.submit(jobs.digits("paused", epochs=1, runPolicy={"suspend": True}))

    def runTest(self):
        rest = Client(self.home.home)
        self.start_all()
        began = time.time()
        for at, deed in (*self.DEEDS, (self.SECONDS, lambda play: True)):
            until(lambda: self.use_rest(rest) and time.time() > began + at  # pylint: disable=cell-var-from-loop
                  and deed(self) is not False,  # pylint: disable=cell-var-from-loop
                  self.SECONDS, self.home.describe)
        stretch = draw.Range(f"http://{self.prometheus.address}", (time.time() - began) / 60, 2)
        for boards, job in ((["fleet", "controller"], ".*"), (["job"], "digits"),
                            (["trainer"], "digits|recommender")):
            draw.draw(boards, stretch, PICTURES, TOOLS, job=job)


if __name__ == "__main__":
    PROGRAMS = find_programs()
    if sys.argv[1:] == ["--pictures"]:
        TOOLS = find_tools()
        sys.exit(not unittest.TextTestRunner().run(Pictures()).wasSuccessful())
    unittest.main(argv=sys.argv[:1] + (sys.argv[1:] or ["Queries", "Alerts"]), verbosity=2)
