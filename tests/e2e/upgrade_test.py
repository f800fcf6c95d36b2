#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The controller is replaced by a build of another version while a job trains on this machine: the
same processes train on, and every sample of every epoch is used once."""
import json
import os
import shutil
import subprocess
import time
import unittest

import jobs
from case import Case
from home import BIN, kill, read, until

EPOCHS = 14
NEXT = os.path.join(os.path.dirname(BIN), "next/starling-controller")


def make_next_version(folder):
    """A folder with all programs, the controller among them of the next version: a build of its own
    (target starling-controller-next). Its path."""
    for name in os.listdir(BIN):
        if name != "starling-controller" and not name.endswith("_test"):
            os.symlink(os.path.join(BIN, name), os.path.join(folder, name))
    path = os.path.join(folder, "starling-controller")
    shutil.copy(NEXT, path)  # it looks for the others beside itself
    return path


class Upgrade(Case):
    def ready(self):
        """What the controller that serves tells of itself."""
        text = read(os.path.join(self.home.home, "controller.json"))
        return json.loads(text) if text else {"pid": 0, "version": ""}

    def test_another_version_takes_over_while_the_job_trains(self):
        folder = os.path.join(self.home.folder, "next")
        os.mkdir(folder)
        program = make_next_version(folder)
        self.home.run("up")
        old = self.ready()["version"]
        self.home.run("submit", self.home.write("digits.yaml", jobs.digits(epochs=EPOCHS)))
        self.home.await_step(20)
        before = {pod: self.home.pod_pid(pod) for pod in self.home.pods()}
        self.assertEqual(3, len([pid for pid in before.values() if pid]), before)

        kill(self.home.controllers()[0])
        until(lambda: not self.home.controllers(), 10, "the old controller is gone")
        gone = time.monotonic()
        at = self.home.steps()
        with open(os.path.join(self.home.folder, "next.log"), "ab") as log:
            process = subprocess.Popen([program, "--home", self.home.home], stderr=log,
                             env=self.home.environment, start_new_session=True)
        until(lambda: self.ready()["pid"] == process.pid, 20,
              lambda: read(f"{self.home.folder}/next.log"))
        took = time.monotonic() - gone
        new = self.ready()["version"]
        self.assertNotEqual(old, new)
        self.home.await_step(at + 20)
        self.assertEqual(before, {pod: self.home.pod_pid(pod) for pod in before},
                         "the same processes train on")
        self.home.run("scale", "digits", "--replicas", "3")
        self.home.await_pod("digits-worker-2")
        until(lambda: self.home.condition("Succeeded"), 120, self.home.describe)
        self.check_audit(EPOCHS)
        status = self.home.job()["status"]
        self.assertEqual([], status.get("incidents", []))
        self.assertEqual(0, status.get("restarts", 0))
        self.say(f"version {old} replaced by {new} within {took:.1f} s at step {at}")
        self.home.run("down")
        self.home.assert_nothing_runs()
        process.wait()


if __name__ == "__main__":
    unittest.main()
