#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Room that comes and goes under a job that trains: a node that announces its end, a pod of higher
priority, a node that is full at first."""
import os

from kube_case import run_tests, sleeper
from training import START, TrainingCase, digits

SPOT = "aws-node-termination-handler/spot-itn"
PLANNED = 2.0   # seconds without a step where everybody knows in time
WATCHED = '{.metadata.name} {.metadata.uid} {.metadata.deletionTimestamp}{"\\n"}'


class Room(TrainingCase):
    def room(self, node="node2"):
        """So much of a node's CPU that it has room for one such pod and not for two."""
        text = self.get("node", node, namespace=None)["status"]["allocatable"]["cpu"]
        whole = int(text[:-1]) if text.endswith("m") else 1000 * int(text)
        return f"{whole * 6 // 10}m"

    def large(self, workers):
        """A job of whose workers each node can hold one."""
        job = digits(workers=workers)
        template = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        template["containers"][0]["resources"]["requests"]["cpu"] = self.room()
        return job

    def fill(self, name, **spec):
        """A pod that takes the room of one worker on node2, by way of the scheduler."""
        pod = sleeper(name, "node2")
        del pod["spec"]["nodeName"]
        pod["spec"].update(nodeSelector={"kubernetes.io/hostname": "node2"}, **spec)
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": self.room()}}
        self.apply(pod)
        self.wait_for(lambda: self.phase(name) == "Running", START,
                      lambda: f"{name} runs\n{self.describe()}")

    def workers_by_node(self):
        return {pod["spec"].get("nodeName"): pod["metadata"]["uid"]
                for pod in self.roles("worker").values()}

    def test_a_spot_notice_moves_what_runs_there_before_it_goes(self):
        self.start(digits())
        self.members(2)
        before = self.workers_by_node()
        self.assertEqual({"node1", "node2"}, set(before), "workers are spread")
        watching = self.start_kubectl("get", "pods", "-w", "-l", "starling.dev/role=worker",
                                      "-o", f"jsonpath={WATCHED}")
        with self.watch_steps() as steps:
            steps.await_more(10)
            self.addCleanup(self.kubectl, "taint", "node", "node2", f"{SPOT}:NoSchedule-",
                            namespace=None, check=False)
            self.kubectl("taint", "node", "node2", f"{SPOT}=:NoSchedule", namespace=None)
            self.wait_for(lambda: before["node2"] not in {
                pod["metadata"]["uid"] for pod in self.roles("worker").values()}, START,
                          lambda: f"the worker leaves node2\n{self.describe()}")
            self.members(2)
            steps.await_more(10)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), PLANNED)
        self.wait_for(lambda: {pod["spec"].get("nodeName") for pod in self.pods(
            "starling.dev/job=digits").values()} == {"node1"}, START,
                      lambda: f"workers and coordinator are on node1\n{self.describe()}")
        # A new coordinator gives up a worker that is only starting; what it knew was nothing.
        self.assertEqual([], [one["reason"] for one in self.incidents()], "it was announced")
        self.check_nothing_repeated()

        # Its successor was made before it was deleted.
        watching.kill()
        seen = [line.split() for line in watching.stdout.read().splitlines()]
        deleted = next(i for i, words in enumerate(seen)
                       if words[1] == before["node2"] and len(words) == 3)
        self.assertTrue(any(words[1] not in before.values() for words in seen[:deleted]), seen)

    def test_a_pod_of_higher_priority_takes_a_workers_room_and_the_rest_trains(self):
        urgent = f"urgent-{os.getpid()}"
        self.addCleanup(self.kubectl, "delete", "priorityclass", urgent, namespace=None)
        self.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                    "metadata": {"name": urgent}, "value": 1000})
        self.start(self.large(workers=2))
        self.members(2)
        with self.watch_steps() as steps:
            steps.await_more(10)
            self.fill("urgent", priorityClassName=urgent)
            self.members(1)
            steps.await_more(10)
            self.say(f"longest time without a step: {steps.gap():.2f} s")
            self.assertLess(steps.gap(), PLANNED)
            told = {incident["reason"]: incident for incident in self.incidents()}
            self.assertIn("was preempted", told["WorkerPreempted"]["message"])
            self.check_nothing_repeated()
            self.assertIn("minReplicas", self.await_condition("Degraded", reason="Unschedulable"))
            self.kubectl("delete", "pod", "urgent", "--wait=false")
            self.members(2)
            steps.await_more(10)
        self.wait_for(lambda: self.condition("Degraded")[0] != "True", START, "all is well again")

    def test_a_job_starts_at_its_least_size_and_grows_as_room_appears(self):
        self.fill("full")
        self.apply(self.large(workers=3))
        self.assertIn("minReplicas", self.await_condition("Degraded", reason="Unschedulable"))
        self.await_condition("Running")
        self.members(1)
        with self.watch_steps() as steps:
            steps.await_more(10)
            self.kubectl("delete", "pod", "full", "--wait=false")
            self.members(2)
            steps.await_more(10)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), PLANNED)
        self.assertEqual("Unschedulable", self.condition("Degraded")[1], "there is none for three")
        self.assertEqual([], self.incidents())


if __name__ == "__main__":
    run_tests()
