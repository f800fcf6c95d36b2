#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every run policy, and every trouble that a cluster makes before a pod runs, against real kubelets."""
import os
import time

from kube_case import run_tests
from training import START, TrainingCase, container, digits

FOREVER = "sleep infinity & wait"
# The worker of rank 0 ends well after a moment, the others go on.
FIRST_ENDS = "if [ $RANK = 0 ]; then sleep 1; else sleep infinity & wait; fi"


def trainer_of(job):
    return job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]


class RunPolicies(TrainingCase):
    def finish(self, job, kind="Succeeded", reason=None):
        self.apply(job)
        return self.await_condition(kind, job["metadata"]["name"], reason)

    def phases(self, name="own"):
        return {pod.removeprefix(f"{name}-"): found["status"]["phase"]
                for pod, found in self.roles("worker", name).items()
                if "deletionTimestamp" not in found["metadata"]}

    def test_clean_pod_policy_running_deletes_what_still_runs(self):
        self.finish(container(FIRST_ENDS, successPolicy="FirstWorker", cleanPodPolicy="Running"))
        self.wait_for(lambda: self.phases() == {"worker-0": "Succeeded"}, START,
                      lambda: f"only the ended pod is left: {self.phases()}")

    def test_clean_pod_policy_all_deletes_every_pod(self):
        self.finish(container(FIRST_ENDS, successPolicy="FirstWorker", cleanPodPolicy="All"))
        self.wait_for(lambda: not self.pods(), START, "no pod is left")

    def test_clean_pod_policy_none_deletes_nothing(self):
        self.finish(container(FIRST_ENDS, successPolicy="FirstWorker", cleanPodPolicy="None"))
        end = time.monotonic() + 3
        while time.monotonic() < end:
            self.assertEqual({"worker-0": "Succeeded", "worker-1": "Running"}, self.phases())
            time.sleep(0.5)

    def test_all_workers_must_succeed_unless_told_otherwise(self):
        self.apply(container(FIRST_ENDS))
        self.wait_for(lambda: self.phases().get("worker-0") == "Succeeded", START, "0 succeeds")
        self.assertNotEqual("True", self.condition("Succeeded", "own")[0])

    def test_ttl_deletes_the_job_and_all_of_it(self):
        self.finish(container("true", ttlSecondsAfterFinished=2))
        self.wait_for(lambda: self.get("tj", "own") is None, START, "the job is gone")
        self.wait_for(lambda: not any(self.get(kind, selector="starling.dev/job=own") for kind in
                                      ("pods", "services", "secrets", "configmaps")), START,
                      "all of it is gone")

    def test_active_deadline(self):
        self.finish(container(FOREVER, activeDeadlineSeconds=3), "Failed", "DeadlineExceeded")
        self.wait_for(lambda: not self.living(name="own"), START, "nothing runs")

    def test_backoff_limit(self):
        message = self.finish(container("echo no use; exit 3", workers=1, backoffLimit=2),
                              "Failed", "BackoffLimitExceeded")
        self.assertIn("backoffLimit allows (2)", message)
        self.assertEqual(3, sum(incident.get("exitCode") == 3 for incident in
                                self.incidents("own")))

    def test_restart_policy_never(self):
        self.finish(container("exit 3", restart="Never", backoffLimit=5), "Failed", "PodFailed")
        self.assertEqual(1, self.status("own")["round"]["number"], "nothing was started again")

    def test_restart_policy_exit_code_restarts_signals_only(self):
        self.finish(container("exit 3", name="low", restart="ExitCode"), "Failed", "PodFailed")
        once = "if [ $STARLING_ROUND = 1 ]; then exit 143; fi"
        self.finish(container(once, name="high", restart="ExitCode"))

    def test_suspend_of_an_own_container(self):
        self.apply(container(FOREVER, suspend=True))
        self.await_condition("Suspended", "own")
        self.assertEqual({}, self.pods())
        self.suspend(False, "own")
        self.await_condition("Running", "own")
        self.suspend(True, "own")
        self.await_condition("Suspended", "own")
        self.assertEqual({}, self.pods())

    def led_to(self, name):
        """Where a living worker is led that looks for this one; "" while nobody knows it."""
        asks = min(self.living(name="own"))
        answer = self.execute(asks, "getent", "hosts", f"{name}.own", check=False).split()
        return answer[0] if answer else ""

    def await_names(self, former=()):
        """The addresses of both workers by name, once each name leads to its pod, and no pod is one of a
        former round, whose addresses these are."""
        def found():
            workers = self.living(name="own")
            led = {name: self.led_to(name) for name in workers}
            right = all(led[name] and led[name] == self.address_of(name) for name in workers)
            return led if right and len(led) == 2 and not set(led.values()) & set(former) else None
        return self.wait_for(found, START, lambda: f"names lead to pods\n{self.describe()}")

    def test_names_lead_to_the_pods_that_run_and_to_no_others(self):
        self.apply(container(FOREVER))
        first = self.await_names()
        self.kubectl("delete", "pod", "own-worker-1", "--wait=false")
        second = self.await_names(first.values())
        for name in first.keys() - second.keys():
            self.assertEqual("", self.led_to(name), f"{name} is gone")
        self.suspend(True, "own")
        self.wait_for(lambda: not self.get("endpointslices", selector="starling.dev/job=own"), START,
                      "nobody is to be found")
        self.assertTrue(self.get("service", "own"))

    def test_managed_by_another_is_left_alone(self):
        self.apply(container("true", name="theirs", managedBy="example.org/other"))
        self.finish(container("true", name="ours"))
        self.assertEqual({}, self.status("theirs"))
        self.assertEqual({}, self.roles("worker", "theirs"))


class Troubles(TrainingCase):
    def await_degraded(self, reason, name="digits"):
        return self.await_condition("Degraded", name, reason)

    def test_an_image_that_cannot_be_pulled(self):
        job = digits()
        trainer_of(job)["image"] = "127.0.0.1:1/nobody/nothing:1"
        self.apply(job)
        self.assertIn("imagePullSecrets", self.await_degraded("ImagePullFailed"))

    def test_a_quota(self):
        self.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"},
                    "spec": {"hard": {"pods": "2"}}})
        self.apply(digits())
        self.assertIn("ResourceQuota", self.await_degraded("QuotaExceeded"))
        self.await_condition("Running")
        self.kubectl("delete", "resourcequota", "small")
        self.members(2)

    def test_a_namespace_that_forbids_such_pods_until_the_template_is_mended(self):
        job = container("true", suspend=True)
        pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        mended = pod.pop("securityContext")
        self.apply(job)
        self.suspend(False, "own")
        self.assertIn("runAsNonRoot != true", self.await_degraded("PodForbidden", "own"))
        self.assertEqual({}, self.pods())
        self.suspend(True, "own")
        self.await_condition("Suspended", "own")
        pod["securityContext"] = mended
        self.apply(job)
        self.suspend(False, "own")
        self.await_condition("Succeeded", "own")

    def test_a_secret_that_is_not_there(self):
        job = digits()
        trainer_of(job)["env"] = [{"name": "X", "valueFrom": {"secretKeyRef": {
            "name": "absent", "key": "x"}}}]
        self.apply(job)
        self.assertIn("absent", self.await_degraded("ContainerNotCreated"))

    def test_a_worker_killed_for_memory_comes_back_with_more(self):
        job = digits(replicaSpecs__worker__onOutOfMemory={"factor": 4, "maximum": "1Gi"})
        trainer_of(job)["resources"] = {"requests": {"cpu": "50m", "memory": "24Mi"},
                                        "limits": {"memory": "24Mi"}}
        self.apply(job)
        self.await_condition("Running", deadline=120)
        self.members(2, deadline=120)
        self.assertIn("OOMKilled", {incident["reason"] for incident in self.incidents()})
        limits = {pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
                  for pod in self.roles("worker").values()
                  if pod["status"]["phase"] == "Running"}
        self.assertNotIn("24Mi", limits)

    def test_data_that_is_not_there_fails_at_once(self):
        job = digits(dataset__train__csv__uri="data/absent.csv")
        self.apply(job)
        self.assertIn("absent.csv", self.await_condition("Failed", reason="BadConfiguration"))


class Drained(TrainingCase):
    """No other job finds room on the node meanwhile."""

    def test_a_node_that_is_drained(self):
        self.start(digits())
        self.members(2)
        with self.watch_steps() as steps:
            steps.await_more(10)
            self.addCleanup(self.kubectl, "uncordon", "node2", namespace=None)
            self.kubectl("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data",
                         "--force", "--timeout=60s",
                         f"--pod-selector=starling.dev/job in (digits)", namespace=None)
            self.members(2)
            steps.await_more(10)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), 2)
        self.assertEqual({"node1"}, {pod["spec"]["nodeName"]
                                     for pod in self.roles("worker").values()
                                     if pod["status"]["phase"] == "Running"})


if __name__ == "__main__":
    run_tests()
