# SPDX-License-Identifier: Apache-2.0
"""Sparse logistic regression over parameter servers as real processes: the example, a server that
is killed, and files that are wrong."""
import os
import unittest

from case import Case
from home import REPOSITORY, kill

EXAMPLE = os.path.join(REPOSITORY, "examples/sparse-ps.yaml")
UNREACHABLE = ["--set", "spec.stop.target.atLeast=1"]
HOGWILD = ["--set", "spec.exchange.parameterServer.consistency.asynchronous={}",
           "--set", "spec.update.hogwild.threads=2",
           "--set", 'spec.optimizer={"sgd": {"learningRate": 0.05}}']


class Sparse(Case):
    def accuracy(self, done):
        reached = self.result(done)["metrics"]["validation/accuracy"]
        self.say(f"accuracy {reached:.4f}, {self.result(done)['steps']} steps, "
                 f"{self.result(done)['seconds']} s")
        return reached

    def test_the_example_reaches_its_accuracy(self):
        done = self.finish(self.home.start("run", EXAMPLE, "-o", "json"), timeout=120)
        self.assertGreaterEqual(self.accuracy(done), 0.91)
        self.assertTrue(self.result(done)["targetReached"])

    def check_that_a_kill_costs_nothing(self, pod, *flags):
        command = self.home.start(
            "run", EXAMPLE, "-o", "json", *flags, *UNREACHABLE, "--set", "spec.stop.epochs=6",
            "--set", "spec.dataset.globalBatchSize=64",
            "--set", "spec.dataset.auditUse=true", "--set", "spec.experiment.stepDelay=20ms")
        self.home.await_step(60, name="sparse-ps", command=command)
        self.assertTrue(kill(self.home.pod_pid(pod)))
        done = self.finish(command, timeout=120)
        self.check_audit(6, name="sparse-ps")
        self.assertGreater(self.accuracy(done), 0.88)

    def test_a_killed_server_costs_nothing(self):
        self.check_that_a_kill_costs_nothing("sparse-ps-parameter-server-0")

    def test_threads_that_share_their_weights_reach_it_though_a_worker_is_killed(self):
        self.check_that_a_kill_costs_nothing("sparse-ps-worker-1", *HOGWILD)

    def test_a_wrong_line_is_named(self):
        path = self.home.write("wrong.libsvm", "1 3:1 4:1\n-1 5:1 4:1\n")
        wrong = self.home.run("run", EXAMPLE, "--set", f"spec.dataset.train.libsvm.uri={path}",
                              code=2)
        self.assertIn("spec.dataset.train.libsvm.uri", wrong.stderr)
        self.assertIn("line 2: feature 4 follows 5", wrong.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
