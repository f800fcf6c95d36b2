#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch program under torchrun, in an image that knows nothing of Starling.

Two workers train on two nodes, one is deleted, the job is scaled to three; every time all workers
start again and go on from their checkpoint. The image is built from the example's own Dockerfile.
"""
import json
import os
import tempfile

from image import Builder
from kube_case import KubeCase, run_tests
from programs import REPOSITORY

IMAGE = "docker.io/library/pytorch-ddp:dev"
EXAMPLE = os.path.join(REPOSITORY, "examples/pytorch-ddp")
NAME = "pytorch-ddp"
FIRST = f"{NAME}-worker-0"
DEADLINE = 180

CLAIM = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "checkpoints"},
    "spec": {"storageClassName": "shared", "accessModes": ["ReadWriteMany"],
             "resources": {"requests": {"storage": "1Gi"}}}}


class PyTorch(KubeCase):
    def setUp(self):
        super().setUp()
        with tempfile.TemporaryDirectory(prefix="starling-ddp-") as folder:
            archive = os.path.join(folder, "pytorch-ddp.tar")
            builder = Builder()
            with builder.locked():
                builder.build_other(os.path.join(EXAMPLE, "Dockerfile"), REPOSITORY, IMAGE, archive)
            self.cluster.load(archive)

    def manifest(self):
        """The example's job, with its checkpoints on a claim and epochs that last."""
        job = json.loads(self.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                      os.path.join(EXAMPLE, "job.yaml")))
        del job["metadata"]["namespace"]
        pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        trainer = pod["containers"][0]
        trainer["args"] = ["--checkpoint=/checkpoints", "--epochs=60", "--pause=0.5"]
        trainer["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
        pod["volumes"] = [{"name": "checkpoints",
                           "persistentVolumeClaim": {"claimName": "checkpoints"}}]
        return job

    def round(self):
        return self.get("tj", NAME).get("status", {}).get("round", {}).get("number", 0)

    def uid(self, pod):
        return (self.get("pod", pod) or {}).get("metadata", {}).get("uid")

    def await_round(self, after, first, why):
        """Until rank 0 is another pod than `first`: what it logs is of the new round."""
        self.wait_for(lambda: self.round() > after and self.uid(FIRST) not in (None, first),
                      DEADLINE, why)

    def await_epochs(self, workers, count):
        """The epochs that rank 0's present pod finished with so many workers, once enough."""
        def finished():
            lines = self.logs(FIRST, check=False).splitlines()
            found = [int(line.split()[1].partition("/")[0]) for line in lines
                     if line.startswith("epoch ") and f" workers {workers} " in line]
            return found if len(found) >= count else None
        return self.wait_for(finished, DEADLINE,
                             lambda: f"{count} epochs with {workers} workers in the log of {FIRST}")

    def test_ddp_under_torchrun_is_elastic_by_restart(self):
        self.apply(CLAIM, self.manifest())
        first = self.await_epochs(workers=2, count=3)
        self.assertEqual(1, first[0])
        nodes = {pod["spec"]["nodeName"] for pod in self.pods(f"starling.dev/job={NAME}").values()}
        self.assertEqual(2, len(nodes), "each worker has a node of its own")

        before, pod = self.round(), self.uid(FIRST)
        self.kubectl("delete", "pod", f"{NAME}-worker-1", "--wait=false")
        self.await_round(before, pod, "a lost worker begins a new round")
        second = self.await_epochs(workers=2, count=2)
        self.assertGreater(second[0], first[-1], "they go on from the checkpoint")

        before, pod = self.round(), self.uid(FIRST)
        self.kubectl("scale", "tj", NAME, "--replicas=3")
        self.await_round(before, pod, "another size begins a new round")
        third = self.await_epochs(workers=3, count=2)
        self.assertGreater(third[0], second[-1], "they go on from the checkpoint")

        self.kubectl("wait", "--for=condition=Succeeded", f"tj/{NAME}", f"--timeout={DEADLINE}s",
                     timeout=DEADLINE + 10)


if __name__ == "__main__":
    run_tests()
