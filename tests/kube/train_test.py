#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The path that everybody takes first, in pods: apply, watch, scale, suspend, resume, a model."""
import hashlib
import json
import os
import re
import subprocess
import tempfile
import threading
import time

from image import IMAGE
from kube_case import BIN, run_tests
from programs import REPOSITORY
from training import CLAIM, START, TrainingCase, digits, on_claim, results

EXAMPLE = os.path.join(REPOSITORY, "examples/digits.yaml")


class Train(TrainingCase):
    def test_the_example_trains_on_two_nodes(self):
        self.assertIn("violates PodSecurity", self.refusal(
            "run", "loose", "--image", IMAGE, "--dry-run=server"), "this namespace is restricted")
        began = time.monotonic()
        self.kubectl("apply", "-f", EXAMPLE)
        self.wait_for(lambda: len(self.pods()) == 3, START, "three pods")
        self.await_condition("Succeeded", reason="CheckpointNotDurable", deadline=120)
        self.say(f"apply to Succeeded: {time.monotonic() - began:.1f} s")

        nodes = {pod["spec"]["nodeName"] for pod in self.roles("worker").values()}
        self.assertEqual({"node1", "node2"}, nodes, "each worker has a node of its own")
        result = self.status()["result"]
        self.assertGreaterEqual(result["metrics"]["validation/accuracy"], 0.95)
        self.assertTrue(result["targetReached"])
        self.assertIn("sha256", result["model"])
        self.assertNotIn("uri", result["model"], "it went with the pods")
        self.assertIn("PersistentVolumeClaim", self.condition("Succeeded")[2])

    def test_an_undisturbed_job_warns_of_nothing_and_its_pods_end_with_it(self):
        self.start(digits())
        pods = [*self.roles("coordinator"), *self.roles("worker")]
        self.await_ready(*pods)
        self.kubectl("patch", "tj", "digits", "--type=merge", "-p", '{"spec":{"stop":{"epochs":1}}}')
        self.await_condition("Succeeded")
        ended = time.monotonic()
        self.wait_for(lambda: not self.living() | self.living("coordinator"), 5,
                      lambda: f"all pods end with the job\n{self.describe()}")
        self.say(f"Succeeded to the last pod's end: {time.monotonic() - ended:.1f} s")
        self.wait_for(lambda: not any(pod["status"].get("phase") == "Running"
                                      for pod in self.pods().values()), 10, "they do not linger")
        events = self.get("events")
        self.assertIn("Created", {event["reason"] for event in events}, "kubelets tell of pods here")
        # A kubelet without CPU gives up on its own cache of secrets, and succeeds at once thereafter. A
        # controller manager looks for new kinds every half minute, and until then knows no TrainingJob.
        self.assertEqual([], [(event["reason"], event["message"]) for event in events
                              if event["type"] == "Warning"
                              and "cache: timed out" not in event["message"]
                              and 'no matches for kind "TrainingJob"' not in event["message"]])

    def test_kubectl_watches_it_live(self):
        took = self.start(digits())
        watching, lines = self.start_kubectl("get", "tj", "digits", "-w"), []
        threading.Thread(target=lambda: lines.extend(watching.stdout), daemon=True).start()
        self.say(f"apply to Running: {took:.1f} s")
        # Progress is written every ten seconds, for the API server is not a metrics store.
        self.wait_for(lambda: self.status().get("progress", {}).get("step", 0) > 100, 60,
                      "progress is written")
        self.wait_for(lambda: self.status().get("replicaStatuses", {}).get("worker", {})
                      .get("ready") == 2, 30, "both workers are ready")
        self.kubectl("patch", "tj", "digits", "--type=merge", "-p", '{"spec":{"stop":{"epochs":1}}}')
        self.await_condition("Succeeded")
        # The watch tells what it sees in its own time.
        self.wait_for(lambda: any(" Succeeded " in line for line in lines), 30,
                      lambda: f"the watch tells of the end: {lines}")
        self.assertEqual(["NAME", "STATE", "WORKERS", "STEP", "PROGRESS", "RESTARTS", "AGE"],
                         lines[0].split())
        running = [line.split() for line in lines[1:] if " Running " in line]
        self.assertTrue(any(re.fullmatch(r"\d+", words[3]) and words[4] == "epoch"
                            for words in running if len(words) > 5), lines)

    def test_scaling_from_one_to_four_to_two_loses_no_step(self):
        self.start(digits(workers=1))
        with self.watch_steps() as steps:
            steps.await_more(20)
            for count in (4, 2):
                self.kubectl("scale", "tj/digits", f"--replicas={count}")
                self.members(count)
                self.wait_for(lambda: len(self.living()) == count, START, f"{count} workers")
                steps.await_more(20)
        self.say(f"longest time without a step while scaling: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), 2)
        self.assertEqual([], self.incidents(), "scaling is no incident")
        self.assertEqual(0, self.status().get("restarts", 0))

    def test_suspend_and_resume_from_a_checkpoint_on_a_claim(self):
        self.apply(CLAIM)
        self.start(on_claim(digits()))
        with self.watch_steps() as steps:
            steps.await_more(50)
        self.suspend(True)
        self.await_condition("Suspended", reason="JobSuspended")
        self.assertEqual({}, self.pods(), "a suspended job has no pod")
        saved = self.status()["lastCheckpoint"]["step"]
        self.assertGreaterEqual(saved, steps.step(), "what was trained is saved")
        self.suspend(False)
        self.await_condition("Running")
        with self.watch_steps() as steps:
            self.assertGreaterEqual(steps.step(), saved, "it goes on where it was")
            self.assertLess(steps.step(), saved + 1000)
            steps.await_more(10)
        self.kubectl("patch", "tj", "digits", "--type=merge", "-p",
                     json.dumps({"spec": {"stop": {"epochs": 1}}}))
        self.await_condition("Succeeded", reason="TrainingFinished")
        self.check_model_on_claim()

    def check_model_on_claim(self):
        """The model is on the volume under the job's UID, and stays when job and pods are gone."""
        job = self.get("tj", "digits")
        uid, model = job["metadata"]["uid"], job["status"]["result"]["model"]
        self.assertEqual(f"file:///checkpoints/{uid}/model.safetensors", model["uri"])
        volume = self.get("pvc", "checkpoints")["spec"]["volumeName"].removeprefix("shared-")
        self.kubectl("delete", "tj", "digits")
        self.wait_for(lambda: not self.pods(), START, "the job's pods go with it")
        path = os.path.join(self.cluster.shared, f"volume-{volume}", uid, "model.safetensors")
        with open(path, "rb") as file:
            self.assertEqual(hashlib.sha256(file.read()).hexdigest(), model["sha256"])

    def test_suspend_without_a_claim_says_what_is_lost(self):
        self.start(digits())
        with self.watch_steps() as steps:
            steps.await_more(50)
        self.suspend(True)
        message = self.await_condition("Suspended", reason="CheckpointNotDurable")
        self.assertIn("PersistentVolumeClaim", message)
        self.assertEqual({}, self.pods())
        self.suspend(False)
        self.await_condition("Running")
        with self.watch_steps() as again:
            self.assertLess(again.step(), steps.step(), "it begins again")

    def test_the_model_is_the_one_that_local_training_makes(self):
        job = digits(reproducible=True, stop__epochs=3, experiment__stepDelay="0s")
        self.apply(job)
        self.await_condition("Succeeded")
        here = self.status()["result"]["model"]["sha256"]
        there = locally(job)
        with results.judged():
            self.assertEqual(there, here)
        job["spec"]["seed"] = 8
        self.assertNotEqual(locally(job), here, "this check can fail")


def locally(job):
    """The digest of the model that `starling run` makes of the same job."""
    with tempfile.TemporaryDirectory(prefix="starling-local-") as folder:
        os.symlink(os.path.join(REPOSITORY, "examples/data"), os.path.join(folder, "data"))
        path = os.path.join(folder, "job.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        done = subprocess.run([os.path.join(BIN, "starling"), "run", path, "-o", "json"],
                              env=dict(os.environ, STARLING_HOME=os.path.join(folder, "home")),
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=120, check=True)
        return json.loads(done.stdout.strip().splitlines()[-1])["status"]["result"]["model"][
            "sha256"]


if __name__ == "__main__":
    run_tests()
