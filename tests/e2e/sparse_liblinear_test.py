# SPDX-License-Identifier: Apache-2.0
"""A sparse job and liblinear on the same hashed features (bench/sparse.py in its short form): the
job's model becomes as good, and one that does not learn is seen not to."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from case import Case
from home import BIN, REPOSITORY

BENCH = os.path.join(REPOSITORY, "bench/sparse.py")
SAMPLES = 6000
NEARLY = 1.01  # of a loss


@unittest.skipUnless(shutil.which("liblinear-train"),
                     "liblinear-tools is missing (cmake/packages-develop.txt)")
class BesideLiblinear(Case):
    def compare(self, *flags):
        path = os.path.join(self.home.folder, "figures.json")
        ended = subprocess.run(
            [sys.executable, "-B", BENCH, "--bin", BIN, "--samples", str(SAMPLES), "--repeats", "1",
             "--batch", "128", "--costs", "0.1", "--json", path, *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False)
        self.assertEqual(0, ended.returncode, ended.stdout)
        self.say(ended.stdout)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["results"]

    def losses(self, figures):
        """The lowest of the job's validations, and liblinear's."""
        return (min(one["loss"] for one in figures["starling"][0]["passes"]),
                min(run["loss"] for run in figures["liblinear"][0]))

    def test_the_job_becomes_as_good_and_says_when_and_for_how_many_bytes(self):
        figures = self.compare("--epochs", "6")
        ours, peers = self.losses(figures)
        self.assertLessEqual(ours, NEARLY * peers)
        self.assertLess(peers, 0.68, "there is something to learn")
        job = figures["starling"][0]
        self.assertEqual(6, len(job["passes"]))
        for before, after in zip(job["passes"], job["passes"][1:]):
            self.assertLess(before["from_first"], after["from_first"])
        last = job["passes"][-1]
        self.assertLess(0, last["from_first"])
        self.assertLess(last["from_first"], last["from_start"])
        self.assertLess(last["from_start"], job["seconds"])
        self.assertAlmostEqual(job["metrics"]["validation/loss"], last["loss"], places=5)

    def test_a_job_that_learns_nothing_is_seen_not_to_get_there(self):
        figures = self.compare("--epochs", "2", "--rate", "0.000001")
        ours, peers = self.losses(figures)
        self.assertGreater(ours, NEARLY * peers)
        lowest = figures["compared"][-1]
        self.assertEqual(peers, lowest["loss"])
        self.assertEqual([None], lowest["starling"])
        self.assertIsNotNone(lowest["liblinear"][0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
