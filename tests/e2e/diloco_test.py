# SPDX-License-Identifier: Apache-2.0
"""DiLoCo as an elastic job: what all members hold after each outer step is what the algorithm says, whoever
dies in inner steps or in the outer one, and each sample counts once an epoch.

What is compared with is a simulation in one process with plain PyTorch (diloco_reference.py). The controls
leave out what makes it right.
"""
import collections
import json
import os
import subprocess
import sys
import unittest

import pytorch_test
from home import kill
from pytorch_test import NEAR, PYTHON, PytorchCase

HERE = os.path.dirname(os.path.abspath(__file__))
VICTIM = os.path.join(HERE, "diloco_victim.py")
TRAIN = os.path.join(HERE, "diloco_train.py")
PER_EPOCH = 10


class DilocoCase(PytorchCase):
    EPOCHS = 2
    STEPS = EPOCHS * PER_EPOCH

    def program(self, *flags, workers=2, delay="0s", readers=0):
        return self.job(script=VICTIM, workers=workers, delay=delay, arguments=[
            "--await", str(workers), "--tell", self.told, *flags, TRAIN, "--epochs", str(self.EPOCHS), "--readers", str(readers)])

    def contributions(self):
        """By outer step, of the view in which it counts: who has contributed which stretch of its samples."""
        views = collections.defaultdict(lambda: collections.defaultdict(list))
        for one in self.said():
            views[one["step"]][one["view"]].append(one)
        steps = []
        for step in sorted(views):
            of_view = views[step][max(view for view, said in views[step].items()
                                      if any("counts" in one for one in said))]
            made = sorted(one["made"] for one in of_view if "made" in one and one["made"][0] < one["made"][1])
            steps.append({"made": made, "finishes": of_view[0]["finishes"]})
        self.assertEqual(list(range(1, self.STEPS + 1)), sorted(views))
        return steps

    def compared(self, job):
        """With the simulation of what was contributed."""
        steps = self.contributions()
        model = self.result(job)["model"]["uri"].removeprefix("file://")
        done = subprocess.run(
            [PYTHON, "-B", os.path.join(HERE, "diloco_reference.py"),
             f"{self.home.job_folder(self.NAME)}/audit", model, str(self.EPOCHS)],
            input=json.dumps(steps), capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        found = json.loads(done.stdout)
        self.say(f"{found}, ended: {self.members()}")
        return found, steps

    def check(self, job):
        """The model is the algorithm's, each sample was used once an epoch, and members are equal."""
        found, steps = self.compared(job)
        self.assertLessEqual(found["distance"], NEAR)
        self.assertEqual({"used": [self.EPOCHS], "left": 0}, {key: found[key] for key in ("used", "left")})
        self.assertEqual(1, len({digest for digest, _ in self.members().values()}), "equal bit by bit")
        return steps


class Outer(DilocoCase):
    def test_two_workers_compute_what_the_algorithm_says(self):
        steps = self.check(self.finish(self.start(self.program(readers=1))))
        self.assertEqual([{"made": [[0, 7], [7, 15]], "finishes": False}] * self.STEPS, steps)

    def test_who_dies_in_inner_steps_or_in_the_outer_one_is_made_up_for(self):
        command = self.start(self.program(
            "--die", "own-worker-1", "4@inner", "--die", "own-worker-0", "8@exchange", "--die", "own-worker-3",
            "12@applied", workers=4, delay="50ms"))
        before = self.roles(4)
        steps = self.check(self.finish(command))
        members = self.members()
        self.assertIn(before[2], members, "who survives is the same process")
        self.assertEqual(set(), {before[0], before[1], before[3]} & set(members))
        # What the others had made was not made again, and the next step had the lost one's share besides.
        fourths = [[0, 3], [3, 7], [7, 11], [11, 15]]
        self.assertTrue(steps[3]["finishes"])
        self.assertEqual(3, len([one for one in steps[3]["made"] if one in fourths]), steps[3])
        self.assertLess(15, sum(end - begin for begin, end in steps[4]["made"]))
        self.assertTrue(steps[7]["finishes"])
        self.assertFalse(steps[11]["finishes"], "it counts, and the lost one's part in it")

    def test_the_first_step_is_finished_and_the_last_one_made_anew(self):
        command = self.start(self.program("--die", "own-worker-1", "1@inner", "--die", "own-worker-0",
                                          f"{self.STEPS}@inner", workers=3, delay="50ms"))
        before = self.roles()
        steps = self.check(self.finish(command))
        self.assertIn(before[2], self.members())
        self.assertEqual({"made": [[0, 5], [10, 15]], "finishes": True}, steps[0])
        self.assertFalse(steps[-1]["finishes"])

    def test_who_joins_has_momentum_scheduler_and_all_else(self):
        command = self.start(self.program("--hold", "6", "2", workers=1, delay="150ms"))
        self.home.await_step(4, self.NAME, command=command)
        self.home.run("scale", self.NAME, "--replicas", "2")
        steps = self.check(self.finish(command))
        self.assertEqual(2, len(self.members()), "the second came before the end")
        self.assertEqual(2, len(steps[-1]["made"]))

    def test_all_killed_goes_on_from_a_checkpoint(self):
        command = self.start(self.program(delay="150ms"))
        self.home.await_step(9, self.NAME, command=command)
        for pid in self.roles(2):
            self.assertTrue(kill(pid))
        self.check(self.finish(command))


class Controls(DilocoCase):
    """Each leaves out one thing, and the model is another, or samples are lost."""

    def test_no_momentum(self):
        found, _ = self.compared(self.finish(self.start(self.program("--without", "momentum"))))
        self.assertGreater(found["distance"], 100 * NEAR)

    def test_shares_of_other_sizes_that_weigh_the_same(self):
        found, _ = self.compared(self.finish(self.start(self.program("--without", "weights"))))
        self.assertGreater(found["distance"], 100 * NEAR)

    def test_nobody_makes_up_for_a_lost_member(self):
        command = self.start(self.program("--without", "left", "--die", "own-worker-1", "4@inner", workers=3))
        used = collections.Counter()
        self.finish(command)
        for step in self.contributions():
            used.update({"all": sum(end - begin for begin, end in step["made"])})
        self.assertEqual(self.EPOCHS * 150 - 5, used["all"])


class Refused(DilocoCase):
    def test_what_diloco_cannot_do_is_refused_by_name(self):
        with open(TRAIN, encoding="utf-8") as file:
            text = file.read()
        for old, new, told in (
                ("scheduler, diloco", "scheduler, accumulate=2, diloco", "takes neither accumulate nor scaler"),
                ("inner_steps=INNER", "inner_steps=0", "inner_steps=0): must be at least 1"),
                ("        for inputs", "        loader.weight(2)\n        for inputs", "loader.weight() is for")):
            with self.subTest(told):
                self.home.close()
                self.setUp()
                self.assertIn(old, text)
                job = self.job(script=self.home.write("wrong.py", text.replace(old, new)), arguments=[],
                               workers=1, delay="0s")
                job["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
                self.assertNotEqual(0, self.start(job).wait(60))
                self.assertIn(told, str(self.home.job(self.NAME)["status"]["incidents"]))


if __name__ == "__main__":
    if PYTHON is None:
        print(pytorch_test.WITHOUT)
        sys.exit(77)
    unittest.main()
