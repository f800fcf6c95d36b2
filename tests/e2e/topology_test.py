# SPDX-License-Identifier: Apache-2.0
"""Jobs whose workers push through one of their group, as real processes: whoever sums up is killed
with -9 in mid-training, and every sample is still used once in every epoch.
"""
import unittest

from parameter_server_test import Servers, job


def grouped(topology, consistency, **changes):
    made = job(workers=4, servers=2, consistency=consistency, **changes)
    made["spec"]["exchange"]["parameterServer"]["topology"] = topology
    return made


class Topology(Servers):
    def test_of_a_tree_survives_its_aggregators(self):
        self.start(grouped({"tree": {"fanout": 2}}, {"staleSynchronous": {"staleness": 2}}))
        self.kill_at(30, lambda: self.home.pod_pid("digits-worker-0"), "pod of the first of 0, 1")
        self.kill_at(80, lambda: self.home.role_pid("digits-worker-2"), "role of the first of 2, 3")

        self.assertTrue(self.incidents(self.finish_whole(), "worker"))

    def test_of_a_tree_survives_them_in_synchronous_training(self):
        self.start(grouped({"tree": {"fanout": 2}}, {"bulkSynchronous": {}}, epochs=8,
                           experiment__stepDelay="20ms"))
        self.kill_at(20, lambda: self.home.pod_pid("digits-worker-0"), "pod of the first of 0, 1")

        self.finish_whole(epochs=8, accuracy=0.5)

    def test_of_two_levels_survives_the_one_that_pushes(self):
        self.start(grouped({"hostReduce": {}}, {"asynchronous": {}}, epochs=8,
                           experiment__stepDelay="20ms"))
        self.kill_at(30, lambda: self.home.pod_pid("digits-worker-0"), "pod of the node's first")

        self.finish_whole(epochs=8)


if __name__ == "__main__":
    unittest.main(verbosity=2)
