#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes real jobs of one machine: every query of every dashboard returns data, and
alerts fire under their real faults and not without.

The rules are the ones that are shipped, with minutes for seconds and hours for minutes, so that nobody
waits for twenty minutes. Exits with 77 where Prometheus cannot be built.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request

from metric_names import REPOSITORY, names_in

FOLDER = os.path.join(REPOSITORY, "dashboards")
sys.path.insert(0, FOLDER)
sys.path.insert(0, os.path.join(REPOSITORY, "tests/e2e"))
import generate  # pylint: disable=wrong-import-position
import jobs  # pylint: disable=wrong-import-position
import parameter_server_test  # pylint: disable=wrong-import-position
from home import Home, kill, until  # pylint: disable=wrong-import-position
from scrape import PORT, controller_address  # pylint: disable=wrong-import-position

ADDRESS = "127.0.0.1:19290"
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


def configuration(folder):
    return {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [f"{folder}/rules.yaml"],
            "scrape_configs": [{"job_name": "starling", "honor_labels": True,
                                "file_sd_configs": [{"files": [f"{folder}/targets.json"],
                                                     "refresh_interval": "1s"}]}]}


class Prometheus:
    """Scrapes everything of a home; which jobs it knows of can be changed."""

    def __init__(self, home):
        self._home = home
        self._folder = tempfile.mkdtemp(dir=home.home)
        self.hidden = set()  # jobs that are not scraped
        self._write("prometheus.yaml", json.dumps(configuration(self._folder)))
        with open(os.path.join(FOLDER, "rules.yaml"), encoding="utf-8") as file:
            self._write("rules.yaml", faster(file.read()))
        self._write("targets.json", "[]")
        self._log = open(f"{self._folder}/log", "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [PROGRAM, f"--config.file={self._folder}/prometheus.yaml",
             f"--storage.tsdb.path={self._folder}/data", f"--web.listen-address={ADDRESS}"],
            stdout=self._log, stderr=subprocess.STDOUT)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._find, daemon=True)
        self._thread.start()
        until(self._is_ready, 30, self.log)

    def close(self):
        self._done.set()
        self._thread.join()
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    def log(self):
        self._log.seek(0)
        return self._log.read()[-3000:]

    def ask(self, path, **parameters):
        url = f"http://{ADDRESS}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self):
        return {(alert["labels"]["alertname"], alert["labels"].get("job_name", ""))
                for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"}

    def samples(self, expression, seconds):
        """Finite values of the expression over the last seconds."""
        end = time.time()
        found = self.ask("query_range", query=expression, start=end - seconds, end=end, step=1)
        values = [float(value) for series in found["result"] for _, value in series["values"]]
        return [value for value in values if value == value and abs(value) != float("inf")]

    def _is_ready(self):
        try:
            return self.ask("query", query="1")
        except OSError:
            return None

    def _write(self, name, text):
        with open(f"{self._folder}/{name}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(f"{self._folder}/{name}.new", f"{self._folder}/{name}")

    def _find(self):
        while not self._done.wait(1):
            targets = [{"targets": [controller_address(self._home)],
                        "labels": {"pod": "controller", "role": "controller"}}]
            for name, pod in self._home.pods().items():
                address = pod.get("status", {}).get("podIP")
                of = re.match(r"(.+)-(coordinator|worker|parameter-server)-\d+$", name)
                if not address or of.group(1) in self.hidden:
                    continue
                targets.append({"targets": [f"{address}:{PORT}"], "labels": {
                    "job_namespace": "default", "job_name": of.group(1), "role": of.group(2),
                    "pod": name}})
            self._write("targets.json", json.dumps([one for one in targets if one["targets"][0]]))


class Play(unittest.TestCase):
    def setUp(self):
        self.home = Home()
        self.addCleanup(self.home.close)
        self.home.run("up")
        self.prometheus = Prometheus(self.home)
        self.addCleanup(self.prometheus.close)

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
        time.sleep(25)
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
        self.prometheus.hidden.add(name)
        self.await_alert("JobsUnscraped")

    def test_of_files_that_run_out(self):
        (controller,) = self.home.controllers()
        opened = len(os.listdir(f"/proc/{controller}/fd"))
        subprocess.run(["prlimit", "--pid", str(controller), f"--nofile={opened * 6 // 5}:"],
                       check=True)
        self.await_alert("FileDescriptorsLow")


def panels():
    found = []
    for name, *_ in generate.DASHBOARDS:
        with open(os.path.join(FOLDER, f"{name}.json"), encoding="utf-8") as file:
            board = json.load(file)
        found += [(name, panel["title"], target["expr"]) for panel in board["panels"]
                  for target in panel["targets"]]
        found += [(name, one["name"], one["expr"]) for one in board["annotations"]["list"]]
    return found


if __name__ == "__main__":
    built = subprocess.run([os.path.join(REPOSITORY, "tests/kube/tools/build.sh"), "prometheus"],
                           stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        sys.exit(built.returncode)
    PROGRAM = os.path.join(built.stdout.strip(), "prometheus")
    unittest.main(verbosity=2)
