#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain PyTorch program under torchrun, in an image that knows nothing of Starling.

usage: pytorch_ddp_test.py [--bin FOLDER] [--keep]

In the test cluster (brought up and taken down if none is up): two workers train, a pod is deleted,
the job is scaled to three; every time all workers start again and go on from their checkpoint.
"""
import argparse
import contextlib
import json
import os
import subprocess
import tempfile

from cluster import IMAGE, Cluster, install_operator
from image import Builder
from programs import REPOSITORY, run_main
from waiting import wait_for

DDP_IMAGE = "docker.io/library/pytorch-ddp:dev"
EXAMPLE = os.path.join(REPOSITORY, "examples/pytorch-ddp")
NAME = "pytorch-ddp"
DEADLINE = 180

CLAIM = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "checkpoints"},
    "spec": {"storageClassName": "shared", "accessModes": ["ReadWriteMany"],
             "resources": {"requests": {"storage": "1Gi"}}}}


class Kube:
    def __init__(self, cluster):
        self._kubectl = cluster.programs["kubectl"]
        self._config = cluster.kubeconfig

    def run(self, *arguments, given=None, check=True):
        done = subprocess.run([self._kubectl, f"--kubeconfig={self._config}", *arguments],
                              input=None if given is None else json.dumps(given), text=True,
                              capture_output=True, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments):
        return json.loads(self.run("get", *arguments, "-o", "json"))

    def job(self):
        return self.get("tj", NAME)

    def round(self):
        return self.job().get("status", {}).get("round", {}).get("number", 0)

    def logs(self, pod):
        return self.run("logs", pod, check=False)


def build_image(folder):
    """Built from the example's own Dockerfile, as a user would; returns the archive."""
    archive = os.path.join(folder, "pytorch-ddp.tar")
    builder = Builder()
    with builder.locked():
        builder.build_other(os.path.join(EXAMPLE, "Dockerfile"), REPOSITORY, DDP_IMAGE, archive)
    return archive


def manifest(kube):
    """The example's job, with its checkpoints on a claim and epochs that last."""
    job = json.loads(kube.run("create", "--dry-run=client", "-o", "json", "-f",
                              os.path.join(EXAMPLE, "job.yaml")))
    pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    trainer = pod["containers"][0]
    trainer["args"] = ["--checkpoint=/checkpoints", "--epochs=60", "--pause=0.5"]
    trainer["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
    pod["volumes"] = [{"name": "checkpoints",
                       "persistentVolumeClaim": {"claimName": "checkpoints"}}]
    return job


def epochs_of(log, workers):
    """The epochs that rank 0 finished with so many workers, from its log."""
    return [int(line.split()[1].partition("/")[0]) for line in log.splitlines()
            if line.startswith("epoch ") and f" workers {workers} " in line]


def await_epochs(kube, workers, count):
    def found():
        done = epochs_of(kube.logs(f"{NAME}-worker-0"), workers)
        return done if len(done) >= count else None
    return wait_for(found, DEADLINE, lambda: f"{count} epochs with {workers} workers; the log: "
                                             f"{kube.logs(f'{NAME}-worker-0')[-600:]}", every=0.5)


def check(holds, what):
    if not holds:
        raise AssertionError(what)
    print(f"ok  {what}", flush=True)


def play(kube):
    kube.run("apply", "-f", "-", given=CLAIM)
    kube.run("apply", "-f", "-", given=manifest(kube))
    first = await_epochs(kube, workers=2, count=3)
    check(first[0] == 1, "two workers train under torchrun, from the beginning")
    pods = kube.get("pods", "-l", f"starling.dev/job={NAME}")["items"]
    check(len(pods) == 2 and len({pod["spec"]["nodeName"] for pod in pods}) == 2,
          "each on a node of its own")

    before = kube.round()
    kube.run("delete", "pod", f"{NAME}-worker-1", "--wait=false")
    wait_for(lambda: kube.round() > before, DEADLINE, "a new round after a lost worker")
    second = await_epochs(kube, workers=2, count=2)
    check(second[0] > first[0], f"after the loss of one, both go on at epoch {second[0]}")

    before = kube.round()
    kube.run("scale", "tj", NAME, "--replicas=3")
    wait_for(lambda: kube.round() > before, DEADLINE, "a new round after scaling")
    third = await_epochs(kube, workers=3, count=2)
    check(third[0] > second[0], f"three workers go on at epoch {third[0]}")

    kube.run("wait", "--for=condition=Succeeded", f"tj/{NAME}", f"--timeout={DEADLINE}s")
    check(True, "the job succeeds, with the accuracy that it asks for")


@contextlib.contextmanager
def cluster_up(bin_folder, keep):
    cluster = Cluster()
    ours = not cluster.is_up()
    try:
        if ours:
            cluster.up(bin_folder)
            check(install_operator(cluster), f"the operator runs from {IMAGE}")
        yield cluster
    finally:
        if ours and not keep:
            cluster.down()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", default=os.path.join(REPOSITORY, "build/release/bin"))
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    options = parser.parse_args()
    with cluster_up(options.bin, options.keep) as cluster, \
            tempfile.TemporaryDirectory(prefix="starling-ddp-") as folder:
        cluster.load(build_image(folder))
        kube = Kube(cluster)
        try:
            play(kube)
        except BaseException:
            print(kube.run("describe", "tj", NAME, check=False)[-3000:])
            print(kube.run("get", "pods", "-o", "wide", check=False))
            raise
        finally:
            kube.run("delete", "tj", NAME, "--ignore-not-found", "--cascade=foreground",
                     "--timeout=90s", check=False)
            kube.run("delete", "pvc", "checkpoints", "--ignore-not-found", "--wait=false",
                     check=False)
    return 0


if __name__ == "__main__":
    run_main(main)
