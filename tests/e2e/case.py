# SPDX-License-Identifier: Apache-2.0
"""The base of the tests that run real processes: a home each, and nothing left behind."""
import collections
import os
import sys
import time
import unittest

import jobs
from home import Home

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import pages  # noqa: E402,F401  (the path must come first)
import results  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        self.home = Home()
        self.addCleanup(self._close)

    def _close(self):
        """What runs after a test that has not failed had its time to end, and is left behind."""
        wrong = self._outcome.result.errors + self._outcome.result.failures
        try:
            if not any(test is self for test, _ in wrong):
                self.home.assert_nothing_runs()
        finally:
            self.home.close()

    def run_job(self, job, *flags, name="job.yaml", timeout=120):
        """Runs a job undisturbed and returns its final object."""
        command = self.home.run("run", self.home.write(name, job), "-o", "json", *flags,
                                timeout=timeout)
        return command.result()

    def finish(self, command, timeout=120):
        """Waits for a `run` to succeed, with nothing left, and returns the final object."""
        code = command.wait(timeout)
        self.assertEqual(0, code, f"{command.tail()}\n{self.home.describe()}")
        self.home.assert_nothing_runs()
        return command.result()

    def result(self, job):
        self.assertIn("result", job["status"], job["status"])
        return job["status"]["result"]

    def digest(self, job):
        return self.result(job)["model"]["sha256"]

    def check_audit(self, epochs, name="digits", batch=64):
        """Every sample exactly once in every epoch, whatever happened; one line for every step."""
        lines = self.home.audit(name)
        steps = [line["step"] for line in lines]
        used = collections.defaultdict(collections.Counter)
        for line in lines:
            used[line["epoch"]].update(line["samples"])
        with results.judged():
            self.assertEqual(sorted(set(steps)), steps, "steps are neither repeated nor disordered")
            self.assertEqual(jobs.steps_of(epochs, batch), len(steps))
            self.assertEqual(epochs, len(used))
            for epoch, samples in used.items():
                self.assertEqual(jobs.SAMPLES, len(samples), f"samples of epoch {epoch}")
                self.assertEqual({1}, set(samples.values()), f"epoch {epoch} used a sample twice")

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {self.id().rpartition('.')[2]}: {text}", flush=True)
