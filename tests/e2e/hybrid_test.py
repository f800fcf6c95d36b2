# SPDX-License-Identifier: Apache-2.0
"""Jobs whose workers hold some of the tensors and servers the others, as real processes: a worker,
a server and the coordinator are killed on the way, and every sample is used once in every epoch.
"""
import os
import unittest

import parameter_server_test
from home import REPOSITORY, until
from parameter_server_test import EPOCHS, job


def hybrid(**changes):
    made = job(consistency={"bulkSynchronous": {}}, **changes)
    made["spec"]["exchange"]["parameterServer"]["tensors"] = ["layers.0.*"]
    return made


class Hybrid(parameter_server_test.Servers):
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

    def scale(self, role, count):
        self.home.run("scale", "digits", "--role", role, "--replicas", count)
        self.await_size(role, count)

    def test_workers_and_servers_come_and_go(self):
        self.start(hybrid(workers=1, servers=2, epochs=16))
        self.home.await_step(10, command=self.command)
        self.scale("worker", 4)
        self.scale("parameter-server", 3)
        self.home.await_step(self.home.steps() + 25, command=self.command)
        self.scale("worker", 2)
        self.scale("parameter-server", 2)
        done = self.finish_whole(epochs=16)
        self.assertEqual([], done["status"].get("incidents", []))

    def test_a_suspended_job_resumes_where_it_was(self):
        self.home.run("up")
        self.home.run("submit", self.home.write("job.yaml", hybrid(epochs=5)))
        self.home.await_step(30)
        self.home.run("suspend", "digits")
        until(lambda: self.home.condition("Suspended"), 60, self.home.describe)
        until(lambda: not self.home.pods(), 40, lambda: "no pod is left\n" + self.home.describe())
        self.home.run("resume", "digits")
        until(lambda: self.home.condition("Succeeded"), 120, self.home.describe)
        self.check_audit(5)
        self.home.run("down")


if __name__ == "__main__":
    unittest.main(verbosity=2)
