# SPDX-License-Identifier: Apache-2.0
"""The REST service with many watchers, while jobs are submitted and one trains.

A small form of bench/service.py, which says how fast it is: here nobody may be refused or forgotten,
and what is bounded in time and memory is bounded generously, for the machine may be busy.
"""
import json
import os
import signal
import subprocess
import unittest

import jobs
from case import Case
from home import read, until
from rest_client import Client
from rest_load import JOBS, Load, quantile

WATCHERS = 200
WATCHED = 10
SECONDS = 6
RATES = {"submit": 20, "change": 10, "get": 5, "list": 2}
SLOWEST = 1.0  # seconds, of 99 requests of 100
GROWTH = 96 << 20  # bytes
LIMITS = ["--rest-caller-reads=0", "--rest-caller-writes=0", "--rest-caller-streams=1000"]


class ManyWatchers(Case):
    def setUp(self):
        super().setUp()
        # No other limits than those: a command would start a controller with its own.
        self.controller = subprocess.Popen(
            [self.home.program("starling-controller"), "--home", self.home.home, *LIMITS],
            env=self.home.environment, stderr=subprocess.DEVNULL)
        self.addCleanup(self.down)
        until(lambda: os.path.exists(os.path.join(self.home.home, "controller.json")), 30,
              "the controller is ready")
        self.rest = Client(self.home.home)
        self.jobs = ["digits"] + [f"waiting-{number}" for number in range(1, WATCHED)]
        for name in self.jobs:
            suspend = {} if name == "digits" else {"runPolicy": {"suspend": True}}
            self.ask(201, "POST", JOBS, jobs.digits(name, epochs=10000, **suspend))
        self.home.await_step(10)

    def down(self):
        self.controller.send_signal(signal.SIGTERM)
        self.controller.wait(60)

    def ask(self, status, *request, **headers):
        answer = self.rest.ask(*request, **headers)
        self.assertEqual(status, answer.status, answer)
        return answer.body

    def order(self, **more):
        return {"port": self.rest.port, "token": self.rest.token, "jobs": self.jobs, **more}

    def memory(self):
        status = read(f"/proc/{self.controller.pid}/status")
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.controller.pid}/fd"))

    def test_nobody_is_refused_or_forgotten(self):
        memory, step = self.memory(), self.home.steps()
        watchers = Load("watch", self.order(watchers=WATCHERS, mark='"last":"yes"'))
        self.addCleanup(watchers.close)
        self.assertEqual(WATCHERS, watchers.hear()["opened"])
        descriptors = self.descriptors()
        requests = Load("request", self.order(
            rates=RATES, seconds=SECONDS, connections=8, prefix="load-",
            submitted=json.dumps(jobs.digits("NAME", runPolicy={"suspend": True}))))
        self.addCleanup(requests.close)
        said = requests.hear()
        self.assertEqual({}, said["failed"])
        for kind, seconds in said["seconds"].items():
            self.assertEqual(RATES[kind] * SECONDS, len(seconds))
            slow = quantile(seconds, 0.99)
            self.say(f"{kind}: p99 {slow * 1000:.0f} ms of {len(seconds)}")
            self.assertLess(slow, SLOWEST, kind)
        for name in self.jobs:
            self.ask(200, "PATCH", f"{JOBS}/{name}", {"metadata": {"labels": {"last": "yes"}}},
                     Content_Type="application/merge-patch+json")
        self.check_heard(watchers)
        self.assertLess(self.memory() - memory, GROWTH)
        # Jobs that wait hold nothing: each had a descriptor for its folder once.
        self.assertLess(self.descriptors() - descriptors, RATES["submit"] * SECONDS / 2)
        until(lambda: self.home.steps() > step, 30, "training goes on")

    def check_heard(self, watchers):
        heard = watchers.ask_until(lambda said: said["marked"] == WATCHERS, 30)
        self.assertEqual((WATCHERS, 0), (heard["marked"], heard["lost"]), heard)
        self.say(f"{heard['events']} events, {heard['bytes'] >> 20} MiB")


if __name__ == "__main__":
    unittest.main(verbosity=2)
