#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operator is upgraded, uninstalled and installed again while a job trains in the cluster: the
same pods train on, and no step waits for it, is lost or is made twice."""
import collections
import json
import os
import time

import layer
from image import IMAGE
from kube_case import BIN, SYSTEM, run_tests
from training import SAMPLES, START, TrainingCase, digits, results, steps_of

# The controller of the next version: a build of its own (target starling-controller-next).
NEXT = os.path.join(os.path.dirname(BIN), "next/starling-controller")
NEXT_IMAGE = IMAGE + "-next"
GAP = 2.0      # seconds
ALONE = 10     # seconds without any controller
AUDIT = "/var/lib/starling/job/audit/steps.jsonl"


class Operator(TrainingCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.install, IMAGE)

    def install(self, image):
        self.assertTrue(self.cluster.install_operator(image=image), f"{image} is installed")

    def train(self):
        """A job of two workers that trains; the UIDs of its pods."""
        self.start(digits(dataset__auditUse=True))
        self.members(2)
        return self.uids()

    def uids(self):
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def leads(self, image):
        """The controller pod of that image which leads; "" while there is none."""
        name = self.leader()
        pod = self.controllers().get(name)
        return name if pod and self.image_of(pod) == image else ""

    @staticmethod
    def image_of(pod):
        return pod["spec"]["containers"][0]["image"]

    def version(self, controller):
        for line in self.logs(controller, namespace=SYSTEM).splitlines():
            told = json.loads(line) if line.startswith("{") else {}
            if told.get("msg") == "controller started":
                return told["version"]
        raise AssertionError(f"{controller} tells no version")

    def audit(self, worker):
        text = self.execute(worker, "sh", "-c", f"cat {AUDIT} || true")
        return [json.loads(line) for line in text.split("\n")[:-1]]

    def check_audit(self, seen):
        """Of every step until now: none is missing or there twice, and each epoch that is over used
        every sample once. Each worker that was the first at some time has all of it until then;
        returns how many steps there are."""
        lines = max((self.audit(worker) for worker in self.living()), key=len)
        steps = [line["step"] for line in lines]
        self.assertGreaterEqual(len(steps), seen - 1)
        epochs = collections.defaultdict(collections.Counter)
        for line in lines:
            epochs[line["epoch"]].update(line["samples"])
        epochs.pop(max(epochs))  # this one may still go on
        with results.judged():
            self.assertTrue(steps == list(range(1, len(steps) + 1)),
                            f"{len(steps)} lines in disorder")
            for epoch, used in epochs.items():
                self.assertEqual((SAMPLES, {1}), (len(used), set(used.values())), f"epoch {epoch}")
        return len(steps)

    def finish(self, step):
        """The job ends some epochs after the one of this step, all of its steps made."""
        epochs = step // steps_of(1) + 5
        self.kubectl("patch", "tj", "digits", "--type=merge", "-p",
                     json.dumps({"spec": {"stop": {"epochs": epochs}}}))
        self.await_condition("Succeeded")
        self.assertEqual(steps_of(epochs), self.status()["result"]["steps"])
        self.assertEqual([], self.incidents())
        self.assertEqual(0, self.status().get("restarts", 0))

    def test_another_version_takes_over_while_a_job_trains(self):
        layer.add(self.cluster, IMAGE, NEXT_IMAGE, {"usr/local/bin/starling-controller": NEXT})
        before = self.train()
        old = self.version(self.wait_for(lambda: self.leads(IMAGE), START, "one of them leads"))
        with self.watch_steps() as steps:
            steps.await_more(10)
            at = steps.step()
            began = time.monotonic()
            self.install(NEXT_IMAGE)
            leader = self.wait_for(lambda: self.leads(NEXT_IMAGE), START, "the next version leads")
            took = time.monotonic() - began
            new = self.version(leader)
            self.assertNotEqual(old, new)
            steps.await_more(20)
            self.assertEqual(before, self.uids(), "the same pods train on")
            self.say(f"version {old} replaced by {new} within {took:.1f} s, at steps {at} to "
                     f"{steps.step()}; longest time without one {steps.gap():.2f} s")
            self.kubectl("scale", "tj/digits", "--replicas=3")
            self.members(3)
            self.assertEqual(NEXT_IMAGE, self.image_of(self.get("pod", "digits-worker-2")))
            steps.await_more(20)
        self.assertEqual(before, {name: uid for name, uid in self.uids().items() if name in before})
        self.assertLess(steps.gap(), GAP)
        self.finish(self.check_audit(steps.step()))

    def test_uninstalling_stops_nothing_and_the_next_installation_adopts_the_job(self):
        before = self.train()
        with self.watch_steps() as steps:
            steps.await_more(10)
            self.assertTrue(self.cluster.uninstall_operator())
            self.wait_for(lambda: not self.get("pods", namespace=SYSTEM), START,
                          "no controller is left")
            end = time.monotonic() + ALONE
            self.kubectl("scale", "tj/digits", "--replicas=3")
            while time.monotonic() < end:
                steps.await_more(20, deadline=10)
            self.assertEqual(before, self.uids(), "nobody touches the pods, nobody makes more")
            self.say(f"{ALONE} s without a controller; longest time without a step "
                     f"{steps.gap():.2f} s")
            began = time.monotonic()
            self.install(IMAGE)
            self.members(3)
            self.say(f"three workers {time.monotonic() - began:.1f} s after the new installation")
            self.kubectl("scale", "tj/digits", "--replicas=2")
            self.wait_for(lambda: len(self.living()) == 2, START, "two workers")
            self.members(2)
            steps.await_more(20)
        kept = self.uids()
        self.assertEqual(before, {name: uid for name, uid in kept.items() if name in before})
        self.assertLess(steps.gap(), GAP)
        self.finish(self.check_audit(steps.step()))


if __name__ == "__main__":
    run_tests()
