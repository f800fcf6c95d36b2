# SPDX-License-Identifier: Apache-2.0
"""spec.export.tensorboard: what a job is told to write is what its status and its result show."""
import collections
import glob
import os
import struct
import subprocess
import time
import unittest

import jobs
from case import Case
from event_files import scalars
from home import REPOSITORY, kill, until

PAGE = os.path.join(REPOSITORY, "docs/how-to/tensorboard.md")


def single(value):
    """As an event file holds it: in four bytes."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


class TensorBoard(Case):
    def setUp(self):
        super().setUp()
        self.logs = os.path.join(self.home.folder, "logs")

    def job(self, **changes):
        return jobs.digits(export={"tensorboard": {"uri": self.logs}}, **changes)

    def run_folder(self, name="digits"):
        folders = glob.glob(f"{self.logs}/{name}-????????")
        self.assertEqual(1, len(folders), folders)
        return folders[0]

    def by_tag(self):
        tags = collections.defaultdict(list)
        for scalar in scalars(self.run_folder()):
            tags[scalar.tag].append(scalar)
        return tags

    def check_tags(self, tags, job):
        """Each step once and in order, and at the end what the result says."""
        for tag, found in tags.items():
            steps = [scalar.step for scalar in found]
            self.assertEqual(sorted(set(steps)), steps, tag)
        result = self.result(job)
        for name, value in result["metrics"].items():
            self.assertEqual((result["steps"], single(value)),
                             (tags[name][-1].step, tags[name][-1].value), name)
        self.assertLessEqual({"loss", "samplesPerSecond", "validation/accuracy"}, set(tags))

    def test_what_status_and_result_show_is_in_the_files(self):
        began = time.time()
        job = self.run_job(self.job(epochs=8))
        tags = self.by_tag()
        self.check_tags(tags, job)
        self.assertEqual({os.path.basename(self.run_folder())},
                         {f"digits-{job['metadata']['uid'][:8]}"})
        self.assertGreater(len(tags["loss"]), 2)
        self.assertLess(tags["loss"][-1].value, tags["loss"][0].value)
        for scalar in tags["loss"]:
            self.assertTrue(began - 1 < scalar.time < time.time() + 1, scalar)
        self.assertEqual(1, len({scalar.file for scalar in tags["loss"]}))

    def test_a_coordinator_that_takes_over_repeats_no_step(self):
        command = self.home.start("run", self.home.write("job.yaml", self.job(epochs=14)), "-o",
                                  "json")
        for files in (1, 2):
            until(lambda files=files: self.files() == files, 60, self.home.describe)
            time.sleep(2)
            self.assertTrue(kill(self.home.role_pid("digits-coordinator-0")))
        job = self.finish(command)
        tags = self.by_tag()
        self.check_tags(tags, job)
        self.assertEqual(3, self.files())
        self.assertEqual(self.files(), len({scalar.file for scalar in tags["loss"]}))

    def files(self):
        return len(glob.glob(f"{self.logs}/*/events.out.tfevents.*"))

    def test_a_folder_that_cannot_be_written_is_told_and_training_goes_on(self):
        with open(self.logs, "w", encoding="ascii") as file:
            file.write("in the way")
        command = self.home.start("run", self.home.write("job.yaml", self.job(epochs=16)), "-o",
                                  "json")
        found = until(self.degraded, 60, self.home.describe)
        self.assertEqual("ExportFailing", found["reason"])
        self.assertIn(self.logs, found["message"])
        self.assertIn("make room", found["message"])
        os.remove(self.logs)
        job = self.finish(command)
        self.check_tags(self.by_tag(), job)

    def degraded(self):
        for condition in (self.home.job() or {}).get("status", {}).get("conditions", []):
            if condition["type"] == "Degraded" and condition["status"] == "True":
                return condition
        return None

    def test_the_page_shows_what_is_done(self):
        """Its job file, and its commands but for the one that starts a program of others."""
        with open(PAGE, encoding="utf-8") as file:
            blocks = file.read().split("```")
        source = next(block for block in blocks if block.startswith("yaml\n")).partition("\n")[2]
        commands = next(block for block in blocks if block.startswith("sh\n")).partition("\n")[2]
        with open(os.path.join(self.home.folder, "digits-logged.yaml"), "w",
                  encoding="utf-8") as file:
            file.write(source.replace("examples/", os.path.join(REPOSITORY, "examples/")))
        environment = dict(self.home.environment)
        environment["PATH"] = os.path.dirname(self.home.program("starling")) + ":" + os.environ["PATH"]
        shell = subprocess.run(["bash", "-euo", "pipefail", "-c", commands], cwd=self.home.folder,
                               env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(0, shell.returncode, shell.stdout + shell.stderr)
        self.assertIn("events.out.tfevents.", shell.stdout)
        self.logs = os.path.join(self.home.folder, "logs")
        self.assertIn("loss", {scalar.tag for scalar in scalars(self.run_folder("digits-logged"))})
        self.home.run("down", code=None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
