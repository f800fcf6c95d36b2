# SPDX-License-Identifier: Apache-2.0
"""A machine whose power is cut: what was told is on the disk, and training goes on from there.

All programs run on a disk that keeps only what they have synced (tests/power_cut). Cutting the power is
kill -9 of everything and a home made anew of what was kept.
"""
import glob
import os
import random
import re
import sys
import unittest

import jobs
from case import Case
from home import BIN, REPOSITORY, read, sha256, until

sys.path.insert(0, os.path.join(REPOSITORY, "tests/power_cut"))
from power_cut import Disk  # noqa: E402  (the path must come first)

EPOCHS = 12
LIBRARY = os.path.join(BIN, "libstarling_power_cut.so")


class PowerCut(Case):
    def setUp(self):
        super().setUp()
        self.use("disk")

    def use(self, name, **options):
        """From here on the home lies on a new disk."""
        self.disk = Disk(LIBRARY, os.path.join(self.home.folder, name), **options)
        self.home.home = os.path.join(self.disk.folder, "state", "starling")
        self.home.environment |= self.disk.environment | {"STARLING_HOME": self.home.home}

    def cut(self):
        self.home.kill_everything()
        gone = self.disk.cut()
        self.say(f"power cut: {len(gone)} names are gone, such as {gone[:3]}")

    def submit(self, name="digits", **changes):
        made = jobs.digits(name, epochs=EPOCHS, reproducible=True, checkpoint__interval="200ms", **changes)
        self.home.run("up")
        self.home.run("submit", self.home.write("job.yaml", made))

    def finish_job(self, name="digits"):
        self.home.run("watch", name, timeout=120)
        job = self.home.job(name)
        self.home.run("down")
        return job

    def undisturbed(self):
        self.submit("baseline", experiment__stepDelay="0s")
        return self.digest(self.finish_job("baseline"))

    def told(self):
        """The step of the newest checkpoint that the job's status tells of; 0: none yet."""
        return (self.home.job() or {}).get("status", {}).get("lastCheckpoint", {}).get("step", 0)

    def went_on_from(self):
        """The step of the checkpoint that training went on from after the last cut, which no log outlives."""
        def said():
            logs = "".join(read(path) for path in glob.glob(f"{self.home.job_folder()}/pods/*/log"))
            return re.search(r'goes on from a checkpoint","checkpoint":"[-0-9]*-(\d+)"', logs)
        return int(until(said, 60, self.home.describe).group(1))

    def test_a_job_that_was_accepted_is_there(self):
        self.submit(runPolicy__suspend=True)
        self.cut()
        self.home.run("up")
        self.assertIsNotNone(self.home.job(), "what was acknowledged is lost")
        self.home.run("resume", "digits")
        self.result(self.finish_job())

    def test_training_goes_on_from_the_checkpoint_that_was_told(self):
        expected = self.undisturbed()
        seed = random.randrange(1 << 32)
        self.say(f"seed {seed}")
        choice = random.Random(seed)
        self.submit(experiment__stepDelay="40ms")
        told = 0
        while told < jobs.steps_of(EPOCHS) / 3:  # seconds before the end, however late it is told
            least = told + choice.randint(1, 20)
            until(lambda: self.told() >= least, 60, self.home.describe)
            told = self.told()
            self.cut()
            self.home.run("up")
            kept = self.went_on_from()
            self.say(f"step {told} was told, training went on from step {kept}")
            self.assertGreaterEqual(kept, told, "a checkpoint that was told is lost")
        job = self.finish_job()
        self.assertEqual(expected, self.digest(job))
        self.check_audit(EPOCHS)

    def test_a_model_that_was_told_is_there(self):
        self.submit(experiment__stepDelay="0s")
        self.home.run("watch", "digits", timeout=120)
        told = self.home.job()
        self.cut()
        self.home.run("up")
        kept = self.home.job()
        self.assertEqual("Succeeded", kept["status"]["state"])
        self.assertEqual(self.digest(told), self.digest(kept))
        uri = self.result(kept)["model"]["uri"]
        self.assertEqual(self.digest(told), sha256(uri.removeprefix("file://")))
        self.home.run("down")

    def test_without_the_syncing_of_folders_checkpoints_are_lost(self):
        self.use("forgetful", loses_folders=True)
        self.submit()
        until(lambda: self.told() > 0, 60, self.home.describe)
        self.cut()
        self.assertFalse(os.path.exists(self.home.home), "the control loses what the others keep")


if __name__ == "__main__":
    unittest.main(verbosity=2)
