# SPDX-License-Identifier: Apache-2.0
"""AlexNet and VGG-16 over two workers and over parameter servers, with kill -9 of each kind of process.

With 57 and 134 million weights their updates are a thousand times those of other tests. `make prove` plays
them: a step of VGG-16 takes seconds, and its processes 12 GB.
"""
import collections
import math
import os
import random
import struct
import unittest
import zlib

import jobs
from case import Case, results
from home import kill, until
from images_test import chunk

CLASSES = 4
IMAGES = 48
BATCH = 16
EPOCHS = 8
SIDE = 64
STEPS = EPOCHS * IMAGES // BATCH


def png(number, label):
    """A colour image of a class: a bar at a place of its own, and noise."""
    draw = random.Random(number)
    rows = bytearray()
    for _ in range(SIDE):
        rows.append(0)
        for x in range(SIDE):
            bright = x * CLASSES // SIDE == label
            rows += bytes(min(255, 150 * (bright or channel == label % 3) + draw.randrange(100))
                          for channel in range(3))
    head = struct.pack(">2I5B", SIDE, SIDE, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(rows))) +
            chunk(b"IEND", b""))


class Large(Case):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.home.folder, "images")
        for number in range(IMAGES):
            label = number % CLASSES
            os.makedirs(os.path.join(self.folder, str(label)), exist_ok=True)
            with open(os.path.join(self.folder, str(label), f"{number}.png"), "wb") as file:
                file.write(png(number, label))

    def start(self, model, workers=2, **changes):
        made = jobs.digits("large", workers, EPOCHS, workload={"classification": {"model": model}},
                           dataset__train={"imageFolder": {"uri": self.folder,
                                                           "shape": [3, SIDE, SIDE]}},
                           dataset__validation={"imageFolder": {"uri": self.folder,
                                                                "shape": [3, SIDE, SIDE]}},
                           dataset__globalBatchSize=BATCH, optimizer={"adam": {"learningRate": 0.0003}},
                           checkpoint__interval="1h", experiment__stepDelay="0s",
                           validation={"everyEpochs": 1}, **changes)
        self.command = self.home.start("run", self.home.write("job.yaml", made), "-o", "json")

    def kill(self, pod, step):
        self.home.await_step(step, "large", timeout=300, command=self.command)
        killed = until(lambda: self.home.pod_pid(pod), 60, f"{pod} runs")
        self.say(f"kill -9 of {pod} at step {self.home.steps('large')}")
        self.assertTrue(kill(killed))
        until(lambda: self.home.pod_pid(pod) not in (None, killed), 120,
              lambda: f"another is in its place\n{self.home.describe()}")

    def finish_whole(self, *killed):
        """It has learnt, each sample was used once in each epoch, and what was killed is told."""
        done = self.finish(self.command, 900)
        used = collections.defaultdict(collections.Counter)
        for line in self.home.audit("large"):
            used[line["epoch"]].update(line["samples"])
        with results.judged():
            self.assertEqual(EPOCHS, len(used))
            for epoch, samples in used.items():
                self.assertEqual({number: 1 for number in range(IMAGES)}, dict(samples), epoch)
        result = self.result(done)
        self.assertEqual(STEPS, result["steps"])
        told = [incident.get("pod") for incident in done["status"].get("incidents", [])]
        self.assertLessEqual(set(killed), set(told))
        loss = result["metrics"]["validation/loss"]
        self.say(f"loss {loss:.3f}, of chance {math.log(CLASSES):.3f}; {result['seconds']} s")
        self.assertLess(loss, 0.9 * math.log(CLASSES))

    def workers(self, model):
        self.start(model)
        self.kill("large-worker-1", 4)
        self.finish_whole("large-worker-1")

    def servers(self, model):
        self.start(model, exchange={"parameterServer": {
            "replication": 2, "consistency": {"staleSynchronous": {"staleness": 1}}}},
            replicaSpecs__parameterServer={"replicas": 2})
        self.kill("large-parameter-server-1", 3)
        self.kill("large-worker-1", self.home.steps("large") + 2)
        self.finish_whole("large-parameter-server-1", "large-worker-1")

    def full_size(self, model):
        """Two batches of images as large as those that the network was made for."""
        done = self.run_job(jobs.digits(
            "whole", 2, 1, workload={"classification": {"model": model}},
            dataset={"train": {"synthetic": {"samples": 8, "shape": [3, 224, 224], "classes": 10}},
                     "globalBatchSize": 4}, optimizer={"sgd": {"learningRate": 0.00001}},
            experiment__stepDelay="0s"), timeout=600)
        self.assertEqual(2, self.result(done)["steps"])
        loss = self.result(done)["metrics"]["loss"]
        self.say(f"loss {loss:.3f}")
        self.assertTrue(0 < loss < 100)


class Tests:
    """What each of the networks is to show."""

    def test_over_two_workers_of_which_one_is_killed(self):
        self.workers(self.MODEL)

    def test_over_parameter_servers_of_which_one_is_killed_and_then_a_worker(self):
        self.servers(self.MODEL)

    def test_two_batches_of_224_by_224(self):
        self.full_size(self.MODEL)


class AlexNet(Tests, Large):
    MODEL = {"alexnet": {"dropout": 0.1}}


class Vgg16(Tests, Large):
    MODEL = {"vgg16": {"dropout": 0.1}}


if __name__ == "__main__":
    unittest.main(verbosity=2)
