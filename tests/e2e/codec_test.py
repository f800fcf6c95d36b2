# SPDX-License-Identifier: Apache-2.0
"""Updates that travel as one bit a number: so many bytes, and a model as good, whoever is killed."""
import unittest

import jobs
from case import Case
from home import kill, until

HEAD = 16  # bytes before each stretch of a tensor
SMALL_PIECE = 64  # numbers below which an end of a tensor travels as it is
# Of the flat gradient: numbers, and those of a row (None: they travel as they are). 64-128-64-10.
TENSORS = [(64 * 128, 64), (128, None), (128 * 64, 128), (64, None), (64 * 10, 64), (10, None)]


def piece(count, width, first):
    """Bytes of `count` numbers in rows of `width`, the first of which has `first` of its numbers."""
    size, row = 0, first
    while count > 0:
        row = min(row, count)
        size += 8 + 4 * ((row + 31) // 32)
        count, row = count - row, width
    return size


def encoded(begin, end, tensors):
    """Bytes of numbers [begin, end) of the flat gradient."""
    size, offset, plain = 0, 0, False
    for count, width in tensors:
        low, high = max(begin, offset), min(end, offset + count)
        if low < high and width and high - low >= SMALL_PIECE:
            size += HEAD + piece(high - low, width, width - (low - offset) % width)
            plain = False
        elif low < high:  # neighbours that travel as they are have one head
            size += 4 * (high - low) + (0 if plain else HEAD)
            plain = True
        offset += count
    return size


class OneBit(Case):
    EPOCHS = 10

    def job(self, **changes):
        return jobs.digits(workers=2, epochs=self.EPOCHS,
                           compression={"codec": {"oneBit": {}}, "errorFeedback": True}, **changes)

    def check(self, job):
        metrics = job["status"]["progress"]["metrics"]
        self.say(f"{metrics}")
        self.assertGreater(self.result(job)["metrics"]["validation/accuracy"], 0.9)
        return metrics["exchange/sentBytes"], metrics["exchange/denseBytes"]

    def test_sends_the_bytes_of_its_formula(self):
        # Whoever is there first would train alone, and send nothing.
        sent, dense = self.check(self.run_job(self.job(experiment__stepDelay="0s",
                                                       replicaSpecs__worker__minReplicas=2)))

        numbers = sum(count for count, _ in TENSORS)
        half = numbers // 2
        # Layers lie last first or first first; each of two workers sends a share and a sum.
        orders = (TENSORS, [each for i in (4, 2, 0) for each in TENSORS[i:i + 2]])
        steps = jobs.steps_of(self.EPOCHS)
        each = {order: encoded(0, half, tensors) + encoded(half, numbers, tensors)
                for order, tensors in enumerate(orders)}
        self.assertEqual(steps * 4 * numbers, dense)
        self.assertIn(sent, [steps * size for size in each.values()])
        self.assertLess(sent, dense / 14)

    def test_survives_a_kill(self):
        path = self.home.write("job.yaml", self.job())
        command = self.home.start("run", path, "-o", "json")
        self.home.await_step(20, command=command)
        killed = until(lambda: self.home.pod_pid("digits-worker-1"), 30, "worker 1 runs")
        self.assertTrue(kill(killed))

        job = self.finish(command)
        self.check_audit(self.EPOCHS)
        sent, dense = self.check(job)
        self.assertLess(sent, dense / 8)
        self.assertTrue(job["status"]["incidents"], "the incident is told")


if __name__ == "__main__":
    unittest.main(verbosity=2)
