#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch program plus three lines, in an image that knows nothing of Starling: a node's power is cut
while it trains, and not a bit of its model is another than that of one undisturbed process on this machine.

Program, lines and job are those of docs/how-to/pytorch.md. Debian's PyTorch is in the image as on this
machine, for the same bits need the same libraries. The image has 1.5 GB: `make prove` builds it.
"""
import copy
import hashlib
import json
import os
import subprocess
import sys
import tempfile

from faults_test import Faulty
from kube_case import run_tests
from programs import REPOSITORY, SKIPPED
from train_test import locally
from training import CLAIM, pages, results

PAGE = os.path.join(REPOSITORY, "docs/how-to/pytorch.md")
PLAIN = os.path.join(REPOSITORY, "examples/pytorch-elastic/plain.py")
DATA = os.path.join(REPOSITORY, "examples/data")
PYTHON = "/usr/bin/python3"
END = 240  # seconds that the job may take


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def with_data(job, folder):
    """The same job, its data in that folder."""
    job = copy.deepcopy(job)
    words = job["spec"]["workload"]["pytorch"]["args"]
    words[words.index("--data") + 1] = folder
    return job


class PyTorch(Faulty):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="starling-pytorch-")
        self.addCleanup(folder.cleanup)
        self.script = os.path.join(folder.name, "train.py")
        page = read(PAGE)
        diff, = pages.blocks(pages.section(page, "In ten minutes"), "diff")
        self.assertEqual(3, sum(line.startswith("+") for line in diff.splitlines()), "three lines")
        with open(self.script, "w", encoding="utf-8") as file:
            file.write(pages.changed(read(PLAIN), diff))
        self.commands, = pages.blocks(pages.section(page, "In a cluster"), "sh")
        self.job, = pages.blocks(pages.section(page, "In a cluster"), "yaml")
        self.image = self.cluster.load_pytorch()

    def paced(self, job):
        """Time for a power cut, and the coordinator on the node that stays."""
        job = copy.deepcopy(job)
        job["spec"]["experiment"] = {"stepDelay": "250ms"}
        job["spec"]["checkpoint"]["interval"] = "2s"
        job["spec"]["replicaSpecs"]["coordinator"] = {"template": {
            "spec": {"nodeSelector": {"kubernetes.io/hostname": "node1"}}}}
        return job

    def play(self, job):
        """The page's commands, with this job in its file."""
        folder = os.path.dirname(self.script)
        with open(os.path.join(folder, "job.yaml"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        kubectl = os.path.dirname(self.cluster.programs["kubectl"])
        environment = dict(os.environ, KUBECONFIG=self.cluster.kubeconfig,
                           PATH=f"{kubectl}:{os.environ['PATH']}")
        named = self.commands.replace("kubectl ", f"kubectl --namespace {self.namespace} ")
        done = subprocess.run(["bash", "-ec", named], cwd=folder, env=environment, capture_output=True,
                              text=True, check=False, timeout=60)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def undisturbed(self, job):
        """The digest of the model that one process makes of it on this machine."""
        job = with_data(job, DATA)
        job["spec"]["workload"]["pytorch"].update(script=self.script, python=PYTHON)
        job["spec"]["replicaSpecs"] = {"worker": {"replicas": 1}}
        del job["spec"]["checkpoint"]
        return locally(job)

    def test_a_power_cut_changes_no_bit_of_the_model(self):
        job = json.loads(self.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-",
                                      stdin=self.job))
        del job["metadata"]["namespace"]
        trainer = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
        self.assertEqual(self.image, trainer["image"])
        self.apply(CLAIM)
        self.lead_from("node1")
        self.play(self.paced(job))
        self.await_condition("Running", deadline=END)
        self.members(2, deadline=END)
        self.assertEqual({"node1", "node2"},
                         {pod["spec"]["nodeName"] for pod in self.roles("worker").values()})
        cut, = (name for name, pod in self.roles("worker").items() if pod["spec"]["nodeName"] == "node2")
        lost = self.uid(cut)
        with self.watch_steps() as steps:
            steps.await_more(10)
            with self.power_cut("node2") as began:
                steps.await_more(10)
                self.say(f"survivor's gap {steps.gap(began):.2f} s, at step {steps.step()}")
                self.await_replaced(lost)
                self.members(2)
                self.say(f"two workers again at step {steps.step()}")
        self.await_condition("Succeeded", reason="TrainingFinished", deadline=END)
        self.check(job, cut)

    def check(self, job, cut):
        """The model is the one that an undisturbed process makes, and stands on the claim."""
        told = [one for one in self.incidents() if one["reason"] == "WorkerLost"]
        self.assertEqual([cut], [one["pod"] for one in told], self.incidents())
        self.assertIn("Test set: Accuracy", "".join(self.logs(pod, check=False) for pod in self.roles("worker")))
        model = self.status()["result"]["model"]
        volume = self.get("pvc", "checkpoints")["spec"]["volumeName"].removeprefix("shared-")
        path = os.path.join(self.cluster.shared, f"volume-{volume}",
                            model["uri"].removeprefix("file:///checkpoints/"))
        with open(path, "rb") as file:
            self.assertEqual(model["sha256"], hashlib.sha256(file.read()).hexdigest())
        there = self.undisturbed(job)
        self.say(f"in the cluster {model['sha256'][:12]}, on this machine {there[:12]}")
        with results.judged():
            self.assertEqual(there, model["sha256"])
            self.assertLessEqual(sum(one.get("repeatedSteps", 0) for one in told), 1)
        job["spec"]["seed"] = 8
        self.assertNotEqual(self.undisturbed(job), model["sha256"], "this check can fail")


if __name__ == "__main__":
    if subprocess.run([PYTHON, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"],
                      check=False).returncode != 0:
        print(f"skipped: {PYTHON} has no torch; install the package python3-torch", file=sys.stderr)
        sys.exit(SKIPPED)
    run_tests()
