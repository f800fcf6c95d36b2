#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch program under torchrun, in an image that knows nothing of Starling.

Two workers train on two nodes, one is deleted, the job is scaled to three; every time all workers
start again and go on from their checkpoint. The image is built from the example's own Dockerfile.
"""
import json
import os
import time

from kube_case import KubeCase, run_tests
from programs import REPOSITORY

EXAMPLE = os.path.join(REPOSITORY, "examples/pytorch-ddp")
NAME = "pytorch-ddp"
DEADLINE = 180

CLAIM = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "checkpoints"},
    "spec": {"storageClassName": "shared", "accessModes": ["ReadWriteMany"],
             "resources": {"requests": {"storage": "1Gi"}}}}


class PyTorch(KubeCase):
    def setUp(self):
        super().setUp()
        self.cluster.load_pytorch()

    def manifest(self):
        """The example's job, with its checkpoints on a claim and epochs that last."""
        job = json.loads(self.kubectl("create", "--dry-run=client", "-o", "json", "-f",
                                      os.path.join(EXAMPLE, "job.yaml")))
        del job["metadata"]["namespace"]
        pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
        trainer = pod["containers"][0]
        pod["topologySpreadConstraints"] = [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"starling.dev/job": NAME}}}]
        trainer["args"] = ["--checkpoint=/checkpoints", "--epochs=60", "--pause=0.5"]
        trainer["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
        pod["volumes"] = [{"name": "checkpoints",
                           "persistentVolumeClaim": {"claimName": "checkpoints"}}]
        return job

    def newest(self):
        """The newest round's number and the name of its pod of rank 0: pods that are on their way
        out keep their names, so that it may have any index."""
        rounds = {}
        for pod in self.pods(f"starling.dev/job={NAME}").values():
            notes = pod["metadata"].get("annotations", {})
            if "starling.dev/world" in notes:
                rounds[int(notes["starling.dev/round"])] = notes["starling.dev/world"]
        number = max(rounds, default=0)
        return number, f"{NAME}-worker-{rounds.get(number, '').partition(',')[0]}"

    def await_epochs(self, workers, count, after=0):
        """The epochs that rank 0 has finished with so many workers, in a round after that one, once
        there are enough; and that round."""
        def finished():
            number, first = self.newest()
            if number <= after:
                return None
            lines = self.logs(first, "--container=trainer", check=False).splitlines()
            found = [int(line.split()[1].partition("/")[0]) for line in lines
                     if line.startswith("epoch ") and f" workers {workers} " in line]
            return (found, number) if len(found) >= count else None
        return self.wait_for(finished, DEADLINE,
                             lambda: f"{count} epochs with {workers} workers after round {after}; "
                                     f"now {self.newest()}")

    def test_ddp_under_torchrun_is_elastic_by_restart(self):
        began = time.monotonic()
        self.apply(CLAIM, self.manifest())
        first, number = self.await_epochs(workers=2, count=3)
        self.say(f"apply to the third epoch: {time.monotonic() - began:.1f} s")
        self.assertEqual(1, first[0])
        nodes = {pod["spec"]["nodeName"] for pod in self.pods(f"starling.dev/job={NAME}").values()}
        self.assertEqual(2, len(nodes), "each worker has a node of its own")

        began = time.monotonic()
        self.kubectl("delete", "pod", f"{NAME}-worker-1", "--wait=false")
        second, number = self.await_epochs(workers=2, count=2, after=number)
        self.say(f"a lost worker to the next round's second epoch: {time.monotonic() - began:.1f} s")
        self.assertGreater(second[0], first[-1], "they go on from the checkpoint")

        began = time.monotonic()
        self.kubectl("scale", "tj", NAME, "--replicas=3")
        third, number = self.await_epochs(workers=3, count=2, after=number)
        self.say(f"another size to the next round's second epoch: {time.monotonic() - began:.1f} s")
        self.assertGreater(third[0], second[-1], "they go on from the checkpoint")

        self.kubectl("wait", "--for=condition=Succeeded", f"tj/{NAME}", f"--timeout={DEADLINE}s",
                     timeout=DEADLINE + 10)
        _, last = self.newest()
        self.assertIn("epoch 60/60 workers 3 ", self.logs(last, "--container=trainer"))


if __name__ == "__main__":
    run_tests()
