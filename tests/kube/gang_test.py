#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gang scheduling by a real gang scheduler: kube-scheduler with the coscheduling plugin.

usage: gang_test.py [--bin FOLDER]

Two simulated nodes have room for six workers. A gang of eight starts nothing, for longer than the
scheduler lets its members wait for each other; the same eight workers without a gang of that size
fill the room; a gang of five starts whole. The pods never run: what counts is who gets a node.
"""
import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time

from control_plane import ControlPlane, Options
from programs import FOLDER, REPOSITORY, Programs, Skip, need_command, run_main
from waiting import wait_for

PERMIT_WAIT = 5   # seconds that the first member of a gang waits for the last
WATCHED = 12      # seconds in which a gang that does not fit must stay out
DEADLINE = 90

SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 1000, burst: 2000}}
profiles:
- schedulerName: default-scheduler
  plugins:
    queueSort: {{enabled: [{{name: Coscheduling}}], disabled: [{{name: "*"}}]}}
    multiPoint: {{enabled: [{{name: Coscheduling}}]}}
  pluginConfig:
  - name: Coscheduling
    args: {{permitWaitingTimeSeconds: {wait}}}
"""


def job(name, replicas, least):
    """A job of its own container: it has no coordinator, so its gang is its workers."""
    return {
        "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
        "spec": {
            "workload": {"container": {"framework": "Plain"}},
            "replicaSpecs": {"worker": {
                "replicas": replicas, "minReplicas": least, "template": {"spec": {
                    "containers": [{"name": "trainer", "image": "example.invalid/none:1",
                                    "command": ["run"],
                                    "resources": {"requests": {"cpu": "10"}}}]}}}}}}


class Bench:
    """A control plane with the gang scheduler and Starling's controller."""

    def __init__(self, folder, programs, bin_folder):
        self.plane = ControlPlane(folder, programs, Options(controller_manager=True, kwok_nodes=2))
        self._programs = programs
        self._bin = bin_folder

    def start(self):
        plane = self.plane
        plane.start()
        self._apply(_pod_group_crd())
        self._apply(os.path.join(REPOSITORY, "crds/starling.dev_trainingjobs.yaml"))
        for name in ("podgroups.scheduling.x-k8s.io", "trainingjobs.starling.dev"):
            self._kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
        plane.api.create("/api/v1/namespaces", {
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "starling-system"}})
        config = os.path.join(plane.folder, "scheduler.yaml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(SCHEDULER.format(kubeconfig=plane.kubeconfig, wait=PERMIT_WAIT))
        plane.processes.start("coscheduling", [
            self._programs["scheduler"], f"--config={config}", "--bind-address=127.0.0.1",
            f"--secure-port={plane.ports['scheduler']}",
            f"--authentication-kubeconfig={plane.kubeconfig}",
            f"--authorization-kubeconfig={plane.kubeconfig}"])
        plane.processes.start("starling-controller", [
            os.path.join(self._bin, "starling-controller"), "--kubeconfig", plane.kubeconfig,
            "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0",
            "--image=docker.io/library/starling:dev"])

    def _kubectl(self, *arguments):
        subprocess.run([self._programs["kubectl"], f"--kubeconfig={self.plane.kubeconfig}",
                        *arguments], check=True, stdout=subprocess.DEVNULL)

    def _apply(self, path):
        self._kubectl("apply", "--server-side", "-f", path)

    def submit(self, manifest):
        self.plane.api.create("/apis/starling.dev/v1alpha1/namespaces/default/trainingjobs",
                              manifest)

    def remove(self, name):
        self._kubectl("delete", "tj", name, "--wait=true", "--cascade=foreground",
                      "--timeout=60s")

    def pods(self, name):
        found = self.plane.api.call(
            "GET", f"/api/v1/namespaces/default/pods?labelSelector=starling.dev/job={name}")
        return found["items"]

    def bound(self, name):
        return [pod for pod in self.pods(name) if pod["spec"].get("nodeName")]

    def await_pods(self, name, count):
        return wait_for(lambda: len(self.pods(name)) == count, DEADLINE,
                        lambda: f"{name} has {len(self.pods(name))} of {count} pods")

    def gang(self, name):
        return self.plane.api.call(
            "GET", f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups/{name}")


def _pod_group_crd():
    go = need_command("go", "golang")
    module = subprocess.run([go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins"],
                            cwd=os.path.join(FOLDER, "tools/coscheduling"), check=True,
                            capture_output=True, text=True).stdout.strip()
    return os.path.join(module, "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml")


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def too_large_a_gang_starts_nothing(bench):
    bench.submit(job("whole", replicas=8, least=8))
    bench.await_pods("whole", 8)
    check(bench.gang("whole")["spec"]["minMember"] == 8, "the gang is of all eight workers")
    for pod in bench.pods("whole"):
        check(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "whole",
              f"{pod['metadata']['name']} is in its group")
    end = time.monotonic() + WATCHED
    while time.monotonic() < end:
        names = [pod["metadata"]["name"] for pod in bench.bound("whole")]
        check(not names, f"a gang that does not fit got nodes for {names}")
        time.sleep(0.2)
    bench.remove("whole")


def the_same_workers_without_a_gang_fill_the_room(bench):
    bench.submit(job("loose", replicas=8, least=1))
    bench.await_pods("loose", 8)
    wait_for(lambda: len(bench.bound("loose")) == 6, DEADLINE,
             lambda: f"6 of 8 have a node, not {len(bench.bound('loose'))}")
    bench.remove("loose")


def a_gang_that_fits_starts_whole(bench):
    bench.submit(job("fits", replicas=5, least=5))
    wait_for(lambda: bench.bound("fits"), DEADLINE, "the gang gets nodes")
    wait_for(lambda: len(bench.bound("fits")) == 5, 5,
             lambda: f"5 have a node, not {len(bench.bound('fits'))}")
    wait_for(lambda: sum(pod["status"]["phase"] == "Running" for pod in bench.pods("fits")) == 5,
             DEADLINE, "all five run")
    bench.remove("fits")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bin", default=os.path.join(REPOSITORY, "build/release/bin"))
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.bin, "starling-controller")):
        raise Skip(f"{options.bin} lacks starling-controller; run make build")
    programs = Programs("etcd", "kubernetes", "kwok", "coscheduling")
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    folder = tempfile.mkdtemp(prefix="starling-gang-")
    bench = None
    try:
        bench = Bench(folder, programs, options.bin)
        bench.start()
        for test in (too_large_a_gang_starts_nothing,
                     the_same_workers_without_a_gang_fill_the_room,
                     a_gang_that_fits_starts_whole):
            start = time.monotonic()
            test(bench)
            print(f"ok  {test.__name__.replace('_', ' ')} ({time.monotonic() - start:.1f} s)",
                  flush=True)
        return 0
    except BaseException:
        for name in ("starling-controller", "coscheduling"):
            log = os.path.join(folder, "processes", f"{name}.log")
            if os.path.exists(log):
                subprocess.run(["tail", "-n", "15", log], check=False)
        raise
    finally:
        if bench is not None:
            bench.plane.end()
        if not os.environ.get("STARLING_TEST_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run_main(main)
