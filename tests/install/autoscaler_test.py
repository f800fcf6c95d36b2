#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scale subresource as others use it: what the controller tells there, and a real
HorizontalPodAutoscaler that raises a job to its own bound by it. It reads no metric."""
import json
import tempfile
import unittest

import kubectl as k
from controller import Controller, install_chart

LEAST = 3
SCALE = "/apis/starling.dev/v1alpha1/namespaces/default/trainingjobs/digits/scale"
# No metrics server is here: the metric cannot be read, and only the bounds count.
AUTOSCALER = {
    "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "digits", "namespace": "default"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
                           "name": "digits"},
        "minReplicas": LEAST, "maxReplicas": 4,
        "metrics": [{"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}


def scale():
    return json.loads(k.kubectl("get", "--raw", SCALE))


class Autoscaler(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="starling-autoscaler-")
        install_chart("--set=webhook.enabled=false")
        cls.controller = Controller(cls.folder.name, "--webhook-port=0")
        cls.controller.start()

    @classmethod
    def tearDownClass(cls):
        cls.controller.stop()
        cls.folder.cleanup()

    def test_an_autoscaler_raises_a_job_to_its_bound_by_what_the_controller_tells(self):
        k.create(k.digits(replicaSpecs={"worker": {"replicas": 1, "maxReplicas": 8}}))
        k.create(AUTOSCALER)
        k.eventually(lambda: k.exists("pod", "digits-worker-0"), "the job has its first worker")
        k.eventually(lambda: scale()["status"].get("replicas") == 1, "the controller tells one")

        # The selector that the autoscaler finds the pods by is the controller's, and is right.
        selector = scale()["status"]["selector"]
        pods = [pod["metadata"]["name"] for pod in k.get("pods", "-l", selector)["items"]]
        self.assertEqual([f"digits-worker-{i}" for i in range(max(1, len(pods)))], pods)
        k.eventually(lambda: k.exists("pod", "digits-coordinator-0"), "and a coordinator")

        k.eventually(lambda: scale()["spec"]["replicas"] == LEAST, "the autoscaler raises it", 90)
        worker = k.get("tj", "digits")["spec"]["replicaSpecs"]["worker"]
        self.assertEqual(LEAST, worker["replicas"])
        k.eventually(lambda: k.exists("pod", f"digits-worker-{LEAST - 1}"), "the job has grown")
        k.eventually(lambda: scale()["status"]["replicas"] == LEAST, "the controller tells three")
        events = [event["message"] for event in k.get("events")["items"]
                  if event["reason"] == "SuccessfulRescale"]
        self.assertEqual(1, len(events), events)
        conditions = {c["type"]: c for c in k.get("hpa", "digits")["status"]["conditions"]}
        self.assertEqual("True", conditions["AbleToScale"]["status"], conditions)


if __name__ == "__main__":
    k.helm_or_skip()
    unittest.main()
