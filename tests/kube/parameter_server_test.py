#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job with parameter servers in the cluster: the example as a user applies it, servers that are
deleted, scaled, evicted, and a node that loses its power with a server on it.
"""
import json
import os

from kube_case import run_tests
from programs import REPOSITORY
from training import CLAIM, START, TrainingCase, digits, metric, on_claim

# As of workers: a planned leave costs nothing, a silent one is noticed after a second or two.
PLANNED = 3.0
UNPLANNED = 8.0
SMALL = {"spec": {"containers": [{"name": "trainer", "resources": {
    "requests": {"cpu": "20m", "memory": "32Mi"}}}]}}


def served(servers=2, replication=2, **changes):
    """A digits job that would train for hours, its model on servers."""
    job = digits(exchange={"parameterServer": {
        "replication": replication, "consistency": {"staleSynchronous": {"staleness": 3}}}},
        optimizer={"sgd": {"learningRate": 0.05, "momentum": 0.5}}, **changes)
    job["spec"]["replicaSpecs"]["parameterServer"] = {
        "replicas": servers, "maxReplicas": 4, "template": SMALL}
    return job


class Served(TrainingCase):
    ROLE = "parameter-server"

    def train(self, job):
        self.start(job)
        wanted = job["spec"]["replicaSpecs"]["parameterServer"]["replicas"]
        self.await_servers(wanted)

    def await_servers(self, count, without=()):
        """Until so many servers run and are ready, none of which has one of those UIDs."""
        def there():
            pods = self.roles(self.ROLE)
            living = self.living(self.ROLE)
            if not set(living) <= set(pods):  # one came between the two looks
                return False
            uids = {pods[name]["metadata"]["uid"] for name in living}
            ready = sum(self.is_ready(name) for name in living)
            return len(living) == count == ready and not uids & set(without)
        self.wait_for(there, START, lambda: f"{count} servers serve\n{self.describe()}")

    def uid(self, pod):
        return (self.get("pod", pod) or {}).get("metadata", {}).get("uid")


class ParameterServers(Served):
    def test_the_example_trains_to_its_accuracy(self):
        self.kubectl("apply", "-f", os.path.join(REPOSITORY, "examples/digits-ps.yaml"))
        self.await_condition("Succeeded", "digits-ps", deadline=180)
        result = self.status("digits-ps")["result"]
        self.say(f"{result}")
        self.assertGreaterEqual(result["metrics"]["validation/accuracy"], 0.95)

    def test_the_sparse_example_succeeds_though_a_worker_is_deleted(self):
        job = json.loads(self.kubectl(
            "create", "--dry-run=client", "-o", "json", "-f",
            os.path.join(REPOSITORY, "examples/sparse-ps.yaml")))
        # Time to delete something, and to go on after it.
        job["spec"].update(experiment={"stepDelay": "25ms"}, stop={"epochs": 8})
        self.start(job)
        with self.watch_steps("sparse-ps") as steps:
            steps.await_more(20)
            lost = self.uid("sparse-ps-worker-1")
            self.assertTrue(lost)
            self.kubectl("delete", "pod", "sparse-ps-worker-1", "--wait=false")
            began = steps.step()
            self.wait_for(
                lambda: {pod["metadata"]["uid"] for name, pod in self.roles(
                    "worker", "sparse-ps").items() if name in self.living("worker", "sparse-ps")}
                - {lost, self.uid("sparse-ps-worker-0")}, START, "the worker is replaced")
            steps.await_more(60)
            self.say(f"deleted at step {began}, seen to go on until step {steps.step()}; "
                     f"longest time without a step: {steps.gap():.2f} s")
            self.assertLess(steps.gap(), PLANNED)
        self.await_condition("Succeeded", "sparse-ps", deadline=180)
        result = self.status("sparse-ps")["result"]
        self.say(f"{result}")
        self.assertGreaterEqual(result["metrics"]["validation/accuracy"], 0.88)

    def test_servers_spread_over_the_nodes_and_have_a_budget(self):
        self.train(served())
        nodes = {self.node_of(name) for name in self.living(self.ROLE)}
        self.assertEqual(2, len(nodes), nodes)
        budgets = {found["metadata"]["name"]: found["spec"]
                   for found in self.get("poddisruptionbudgets")}
        self.assertEqual(1, budgets["digits-parameter-server"]["minAvailable"])

    def test_a_deleted_server_is_replaced_and_nobody_waits(self):
        self.train(served())
        with self.watch_steps() as steps:
            steps.await_more(10)
            lost = self.uid("digits-parameter-server-0")
            self.kubectl("delete", "pod", "digits-parameter-server-0", "--wait=false")
            self.await_servers(2, [lost])
            steps.await_more(20)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), PLANNED)
        self.check_nothing_repeated()

    def test_a_killed_process_of_a_server_is_started_again(self):
        self.train(served())
        with self.watch_steps() as steps:
            steps.await_more(10)
            self.assertEqual(1, self.kill_in_pod("digits-parameter-server-1", "starling-server"))
            steps.await_more(30)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), UNPLANNED)
        self.check_nothing_repeated()

    def test_servers_one_three_two_while_workers_one_three_two(self):
        self.train(served(servers=1, replication=1, workers=1))
        with self.watch_steps() as steps:
            steps.await_more(10)
            self.scale_servers(3)
            self.kubectl("scale", "tj/digits", "--replicas=3")
            self.await_servers(3)
            steps.await_more(20)
            self.scale_servers(2)
            self.kubectl("scale", "tj/digits", "--replicas=2")
            self.await_servers(2)
            self.wait_for(lambda: len(self.living()) == 2, START, "two workers are left")
            steps.await_more(20)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.check_nothing_repeated()

    def scale_servers(self, count):
        self.kubectl("patch", "tj", "digits", "--type=merge", "-p", json.dumps(
            {"spec": {"replicaSpecs": {"parameterServer": {"replicas": count}}}}))

    def test_workers_of_a_node_push_as_one(self):
        # A worker that has waited for a second, as on a busy machine, pushes for itself for 32 steps.
        for pushes, pulls in self.pushes_and_pulls({"hostReduce": {}}, windows=6):
            if pushes / pulls < 0.7:
                return
        self.fail("they do not, step after step")

    def test_without_that_each_pushes_for_itself(self):
        for pushes, pulls in self.pushes_and_pulls({"flat": {}}, windows=1):
            self.assertGreater(pushes / pulls, 0.9)

    def pushes_and_pulls(self, topology, windows):
        """Of four workers on two nodes, each of which pulls for itself; in so many times 40 steps."""
        job = served(workers=4, servers=1, replication=1)
        server = job["spec"]["exchange"]["parameterServer"]
        server.update(topology=topology, consistency={"bulkSynchronous": {}})
        self.train(job)
        self.members(4)
        self.assertEqual(2, len({self.node_of(name) for name in self.living()}))
        address = self.get("pod", "digits-parameter-server-0")["status"]["podIP"]

        def counted():
            return [metric(address, f"starling_server_{what}_total") for what in ("pushes", "pulls")]
        with self.watch_steps() as steps:
            steps.await_more(5)
            for _ in range(windows):
                before = counted()
                steps.await_more(40)
                pushes, pulls = (now - then for now, then in zip(counted(), before))
                self.say(f"{pushes} pushes and {pulls} pulls")
                yield pushes, pulls

    def test_suspended_on_a_claim_it_goes_on_where_it_was(self):
        self.apply(CLAIM)
        job = on_claim(served())
        roles = job["spec"]["replicaSpecs"]
        roles["parameterServer"]["template"] = roles["worker"]["template"]
        self.train(job)
        with self.watch_steps() as steps:
            reached = steps.await_more(20)
        self.suspend(True)
        self.assertIn("no pod", self.await_condition("Suspended", reason="JobSuspended"))
        self.assertEqual({}, self.pods("starling.dev/job=digits"))
        self.assertGreaterEqual(self.status()["lastCheckpoint"]["step"], reached)
        self.suspend(False)
        self.await_condition("Running")
        self.await_servers(2)
        with self.watch_steps() as steps:
            self.assertGreaterEqual(steps.await_more(5), reached)


class Nodes(Served):
    """Of which other jobs would feel the loss too."""

    def test_a_node_that_loses_its_power_takes_no_step_with_it(self):
        self.train(served())
        coordinator = self.coordinators_node()
        node = "node2" if coordinator == "node1" else "node1"
        gone = [pod["metadata"]["uid"] for pod in self.roles(self.ROLE).values()
                if pod["spec"].get("nodeName") == node]
        self.assertEqual(1, len(gone), "servers are spread")
        with self.watch_steps() as steps:
            steps.await_more(10)
            with self.power_cut(node) as cut:
                self.await_servers(2, gone)
                steps.await_more(20)
                self.say(f"survivors' gap {steps.gap(cut):.2f} s")
                self.assertLess(steps.gap(cut), UNPLANNED)
            steps.await_more(10)
        self.check_nothing_repeated()
        self.assertIn("ParameterServerLost", {incident["reason"] for incident in self.incidents()})

    def test_a_drained_node_hands_its_server_over(self):
        self.train(served())
        node = self.node_of(sorted(self.living(self.ROLE))[0])
        gone = [pod["metadata"]["uid"] for pod in self.roles(self.ROLE).values()
                if pod["spec"].get("nodeName") == node]
        with self.watch_steps() as steps:
            steps.await_more(10)
            try:
                self.kubectl("drain", node, f"--pod-selector=starling.dev/role={self.ROLE}",
                             "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=60s")
                self.await_servers(2, gone)
                steps.await_more(20)
            finally:
                self.kubectl("uncordon", node)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), PLANNED)
        self.check_nothing_repeated()


if __name__ == "__main__":
    run_tests()
