# SPDX-License-Identifier: Apache-2.0
"""Random histories of a PyTorch job: STARLING_HISTORIES of them, from STARLING_E2E_SEED on. Members die at
random points of random steps, are killed from outside, come and go; afterwards they are equal bit by bit,
near to what one process computes, and each sample was used once an epoch."""
import os
import random
import sys
import unittest

import jobs
import pytorch_test
from home import kill
from pytorch_test import NEAR, PYTHON, PytorchCase
from results import judged

# pytorch_victim.py's; the middle of backward is none of its names.
POINTS = ("", "@forward", "@finish", "@applied", "@stepped", "@boundary")
LAST = jobs.steps_of(PytorchCase.EPOCHS) - 8


class Histories(PytorchCase):
    def plan(self, seed):
        """Workers, deaths by their own hand as pytorch_victim.py's flags, and what is done from outside
        when a step is reached."""
        choice = random.Random(seed)
        workers = choice.randint(1, 4)
        flags = []
        for _ in range(choice.randint(1, 3)):
            flags += ["--die", f"{self.NAME}-worker-{choice.randrange(workers)}",
                      f"{choice.randint(2, LAST)}{choice.choice(POINTS)}"]
        deeds = sorted((choice.randint(4, LAST), choice.choice(("scale", "kill")), choice.randint(0, 3))
                       for _ in range(choice.randint(0, 3)))
        return workers, flags, deeds

    def do(self, command, step, deed, number):
        if deed == "scale":
            self.home.run("scale", self.NAME, "--replicas", str(number + 1), code=None)
        else:
            pid = self.home.role_pid(f"{self.NAME}-worker-{number}")
            deed = f"kill {pid}" if pid and kill(pid) else "nobody to kill"
        self.say(f"step {self.home.steps(self.NAME)} ({step}): {deed} {number}")

    def history(self, seed):
        workers, flags, deeds = self.plan(seed)
        self.say(f"seed {seed}: {workers} workers, {' '.join(flags)}, {deeds}")
        command = self.start(self.job(*flags, workers=workers, delay="60ms"))
        for step, deed, number in deeds:
            self.home.await_step(step, self.NAME, timeout=120, command=command)
            self.do(command, step, deed, number)
        job = self.finish(command, timeout=300)
        self.check_audit(self.EPOCHS, self.NAME)
        digests = {digest for digest, _ in self.members().values()}
        distance = self.distance(job)
        self.say(f"seed {seed}: {len(self.members())} to the end, distance {distance:.2e}")
        with judged():
            self.assertEqual(1, len(digests), "equal bit by bit")
            self.assertLessEqual(distance, NEAR)

    def test_whatever_happens_members_stay_equal_and_each_sample_is_used_once(self):
        base = int(os.environ.get("STARLING_E2E_SEED", "1"))
        for seed in range(base, base + int(os.environ.get("STARLING_HISTORIES", "2"))):
            with self.subTest(seed=seed):
                self.history(seed)
            self.home.close()
            self.setUp()


if __name__ == "__main__":
    if PYTHON is None:
        print(pytorch_test.WITHOUT)
        sys.exit(77)
    unittest.main()
