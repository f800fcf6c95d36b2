# SPDX-License-Identifier: Apache-2.0
"""Members of several processes, among which FSDP2 cuts the model: whichever of them dies, the others' members go
on, and the model is the one that a single process makes without any of it.

Needs PyTorch 2.6: STARLING_PYTHON_WITH_TORCH names a Python that has it (cmake/setup/pytorch.sh).
"""
import os
import sys
import unittest

from home import DATA, until
from pytorch_test import HERE, NEAR, PYTHON, TRAIN, PytorchCase, has

PROGRAM = os.path.join(HERE, "shard_group_train.py")
NEEDED = "from torch.distributed.fsdp import fully_shard"


class Members(PytorchCase):
    def program(self, *flags, workers=2, delay="20ms"):
        return self.job(script=PROGRAM, workers=workers, delay=delay, arguments=[
            "--tell", self.told, *flags, TRAIN, DATA, str(self.EPOCHS)])

    def equal(self):
        """Who has come to the end, all with the same bits."""
        members = self.members()
        self.assertEqual(1, len({digest for digest, _ in members.values()}), members)
        return members

    def check(self, job):
        self.check_audit(self.EPOCHS, self.NAME)
        distance = self.distance(job)
        incidents = [(one["reason"], one.get("pod"), one["message"])
                     for one in job["status"].get("incidents", [])]
        self.say(f"distance {distance:.2e}, ended: {self.members()}, incidents: {incidents}")
        self.assertLessEqual(distance, NEAR)

    def dies(self, rank):
        """Process `rank` of member 1 is killed in the midst of step 20's backward pass."""
        command = self.start(self.program("--die", "own-worker-1", "20", str(rank)))
        before = self.roles(2)
        job = self.finish(command, timeout=300)
        self.check(job)
        members = self.equal()
        self.assertIn(before[0], members, "who survives is the same process")
        self.assertNotIn(before[1], members, "the group ends as one")
        lost = [one for one in job["status"]["incidents"] if one.get("pod") == "own-worker-1"]
        self.assertTrue(lost, job["status"]["incidents"])
        self.assertLessEqual(lost[0]["repeatedSteps"], 1)

    def test_a_members_first_process_dies_and_the_others_go_on(self):
        self.dies(0)

    def test_another_process_of_a_member_dies_and_the_others_go_on(self):
        self.dies(1)

    def test_a_member_of_another_number_of_processes_is_not_let_in(self):
        command = self.start(self.program("--more", "own-worker-1", "3", delay="500ms"))

        def refusal():
            job = self.home.job(self.NAME) or {}
            return [one["message"] for one in job.get("status", {}).get("conditions", [])
                    if one["reason"] == "WorkerRefused"]
        message, = until(refusal, 120, self.home.describe)
        self.assertRegex(message, "own-worker-[01]")  # whoever came second
        self.finish(command, timeout=300)

    def test_who_joins_takes_up_its_part_of_everything(self):
        command = self.start(self.program(workers=1, delay="500ms"))
        self.home.await_step(5, self.NAME, command=command)
        self.home.run("scale", self.NAME, "--replicas", "2")
        self.check(self.finish(command, timeout=300))
        self.assertEqual(2, len(self.equal()), "the second came before the end")

    def test_a_process_that_fails_when_training_is_over_costs_nobody_the_model(self):
        job = self.finish(self.start(self.program("--fail-at-end")), timeout=300)
        self.check(job)
        self.assertEqual(2, len(self.equal()))
        self.assertEqual([], job["status"].get("incidents", []))

    def test_control_without_the_sum_across_groups_they_differ(self):
        self.finish(self.start(self.program("--without", "across")), timeout=300)
        self.assertEqual(2, len({digest for digest, _ in self.members().values()}))

    def test_control_without_the_weights_of_parts_the_model_is_another(self):
        # A share of 21 samples is 10 and 11 for two processes.
        job = self.finish(self.start(self.program("--without", "scale", workers=3)), timeout=300)
        distance = self.distance(job)
        self.say(f"distance {distance:.2e}")
        self.assertGreater(distance, 100 * NEAR)

    def test_what_cannot_be_cut_is_refused_by_name(self):
        for what, told in (("whole", "2.weight is not cut: call fully_shard(model)"),
                           ("averages", "5 (BatchNorm1d) keeps running averages")):
            with self.subTest(what):
                self.home.close()
                self.setUp()
                job = self.program("--spoil", what, workers=1)
                job["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
                self.assertNotEqual(0, self.start(job).wait(120))
                self.assertIn(told, str(self.home.job(self.NAME)["status"]["incidents"]))


if __name__ == "__main__":
    if PYTHON is None or not has(PYTHON, NEEDED):
        print("skipped: fully_shard needs PyTorch 2.6: STARLING_PYTHON_WITH_TORCH names one")
        sys.exit(77)
    unittest.main()
