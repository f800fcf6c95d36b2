# SPDX-License-Identifier: Apache-2.0
"""Jobs whose workers hold some of the tensors and servers the others, as real processes: a worker,
a server and the coordinator are killed on the way, and every sample is used once in every epoch.
"""
import os
import unittest

from home import REPOSITORY
from parameter_server_test import EPOCHS, Servers, job


def hybrid(**changes):
    made = job(consistency={"bulkSynchronous": {}}, **changes)
    made["spec"]["exchange"]["parameterServer"]["tensors"] = ["layers.0.*"]
    return made


class Hybrid(Servers):
    def test_the_example_reaches_its_accuracy(self):
        command = self.home.start("run", os.path.join(REPOSITORY, "examples/digits-hybrid.yaml"),
                                  "-o", "json")
        result = self.result(self.finish(command, timeout=180))
        self.say(f"accuracy {result['metrics']['validation/accuracy']}, {result['steps']} steps, "
                 f"{result['seconds']} s")
        self.assertTrue(result["targetReached"])

    def test_a_kill_of_each_role_loses_nothing(self):
        self.start(hybrid(experiment__stepDelay="20ms"))
        self.kill_at(20, lambda: self.home.role_pid("digits-worker-1"), "worker 1's role")
        self.kill_at(70, lambda: self.home.pod_pid("digits-parameter-server-0"),
                     "pod of server 0")
        self.kill_at(120, lambda: self.home.role_pid("digits-coordinator-0"),
                     "the coordinator's role")
        done = self.finish_whole(EPOCHS)
        for role in ("worker", "parameter-server"):
            self.assertTrue(self.incidents(done, role), f"the incident of a {role} is told")


if __name__ == "__main__":
    unittest.main(verbosity=2)
