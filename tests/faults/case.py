# SPDX-License-Identifier: Apache-2.0
"""The base of these tests: controller processes beside a real API server, and a kubelet's part.

No node is there: pods are said to run by the test, which ends the ones it likes.
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(REPOSITORY, "tests/install"), os.path.join(REPOSITORY, "tests/kube")]

import kubectl as k  # noqa: E402  pylint: disable=wrong-import-position
from kube_api import Api, ApiError  # noqa: E402  pylint: disable=wrong-import-position
from outcome import has_failed  # noqa: E402  pylint: disable=wrong-import-position
from proxy import Proxy  # noqa: E402  pylint: disable=wrong-import-position

JOBS = "/apis/starling.dev/v1alpha1/namespaces/default/trainingjobs"
PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
MERGE = "application/merge-patch+json"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/starling-system/leases/starling-controller"
FAST_LEASE = ("--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s",
              "--leader-elect-retry-period=500ms")
OWNED = {"pods": "/api/v1", "secrets": "/api/v1", "configmaps": "/api/v1", "services": "/api/v1",
         "endpointslices": "/apis/discovery.k8s.io/v1", "poddisruptionbudgets": "/apis/policy/v1"}


class Controller:
    """One starling-controller that reaches the API server through a proxy of its own."""

    def __init__(self, folder, name, *flags):
        self.proxy = Proxy()
        self.log = os.path.join(folder, f"{name}.log")
        self._flags = [f"--kubeconfig={self.proxy.write_kubeconfig(folder)}", "--image=starling:dev",
                       "--webhook-port=0", "--health-probe-bind-address=0",
                       "--gang-scheduler=none", *flags]
        self.process = None
        self.starts = 0

    def start(self):
        self.starts += 1
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(os.environ["STARLING_BIN"], "starling-controller"), *self._flags],
                stderr=log, env=dict(os.environ, POD_NAMESPACE="starling-system"))

    def send(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGKILL):
        """Its exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(number)
            if number != signal.SIGKILL:
                return self.process.wait(timeout=30)
        return self.process.wait()

    def tail(self):
        with open(self.log, encoding="utf-8") as file:
            return "".join(file.readlines()[-30:])


class Kubelet(threading.Thread):
    """Says of every pod that it runs; of the job `finishing`, that it succeeded."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.api = api
        self.finishing = set()
        self._ended = threading.Event()

    def run(self):
        while not self._ended.wait(0.1):
            try:
                for pod in self.api.call("GET", PODS)["items"]:
                    self.treat(pod)
            except (OSError, ApiError):
                pass  # a pod that has gone meanwhile

    def treat(self, pod):
        name = pod["metadata"]["name"]
        job = pod["metadata"]["labels"].get("starling.dev/job", "")
        phase = pod["status"].get("phase")
        state = {"running": {}}
        if job in self.finishing and phase == "Running" and "-worker-" in name:
            phase, state = "Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}}
        elif phase == "Pending":
            phase = "Running"
        else:
            return
        self.api.call("PATCH", f"{PODS}/{name}/status", {"status": {
            "phase": phase, "podIP": "100::1",  # of the prefix where nobody answers
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "trainer", "image": "x", "imageID": "", "ready": True,
                                   "restartCount": 0, "state": state}]}}, MERGE)

    def stop(self):
        self._ended.set()
        self.join()


class FaultsCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = Api(os.environ["KUBECONFIG"])
        k.install_crd()
        if not k.exists("namespace", "starling-system"):
            k.kubectl("create", "namespace", "starling-system")

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="starling-faults-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.kubelet = Kubelet(self.api)
        self.kubelet.start()
        self.controllers = []
        self.addCleanup(self._close)

    def _close(self):
        for controller in self.controllers:
            if controller.process is not None and controller.process.poll() is None:
                controller.send(signal.SIGCONT)
            controller.end()
            if has_failed(self):
                print(controller.tail(), file=sys.stderr)
            controller.proxy.close()
        for job in self.api.call("GET", JOBS)["items"]:
            self.delete(job["metadata"]["name"])
        for pod in self.api.call("GET", PODS)["items"]:
            self.remove(f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        self.kubelet.stop()

    def controller(self, *flags, name=None):
        made = Controller(self.folder, name or f"controller-{len(self.controllers)}", *flags)
        self.controllers.append(made)
        return made

    # Jobs.

    def create(self, job):
        self.api.create(JOBS, job)

    def patch(self, name, spec):
        self.api.call("PATCH", f"{JOBS}/{name}", {"spec": spec}, MERGE)

    def scale(self, name, workers):
        self.patch(name, {"replicaSpecs": {"worker": {"replicas": workers}}})

    def delete(self, name):
        self.remove(f"{JOBS}/{name}")

    def remove(self, path):
        try:
            self.api.call("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def state(self, name):
        return (self.api.find(f"{JOBS}/{name}") or {}).get("status", {}).get("state")

    def reason(self, name, condition):
        """Of a condition that is True; else ""."""
        status = (self.api.find(f"{JOBS}/{name}") or {}).get("status", {})
        return next((found["reason"] for found in status.get("conditions", [])
                     if found["type"] == condition and found["status"] == "True"), "")

    def pods(self, job=""):
        """Name to UID of those that have not ended and are not leaving."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"]
                for pod in self.api.call("GET", PODS)["items"]
                if pod["metadata"]["name"].startswith(job + "-" if job else "")
                and pod["status"].get("phase") in ("Pending", "Running")
                and "deletionTimestamp" not in pod["metadata"]}

    def owned(self):
        """Every object that carries a job's label: kind/name, and its owner."""
        found = {}
        for kind, root in OWNED.items():
            path = f"{root}/namespaces/default/{kind}"
            for item in self.api.call("GET", path)["items"]:
                owners = item["metadata"].get("ownerReferences", [])
                if any(owner["kind"] == "TrainingJob" for owner in owners):
                    found[f"{kind}/{item['metadata']['name']}"] = owners[0]["uid"]
        return found

    def check_no_orphan(self):
        """In the end: what a deleted job owned is collected, which takes its time."""
        def orphans():
            jobs = {job["metadata"]["uid"] for job in self.api.call("GET", JOBS)["items"]}
            return [name for name, owner in self.owned().items() if owner not in jobs]
        self.wait(lambda: not orphans(), lambda: f"no orphans: {orphans()}", 90)

    def holder(self):
        return ((self.api.find(LEASE) or {}).get("spec") or {}).get("holderIdentity", "")

    def wait(self, holds, what, deadline=40):
        end = time.monotonic() + deadline
        while not holds():
            if time.monotonic() > end:
                raise AssertionError(f"not within {deadline} s: {what() if callable(what) else what}\n{self.describe()}")
            time.sleep(0.05)

    def await_steady(self, count, seconds=2):
        """The pods, once they have been the same `count` for so many seconds."""
        seen, since = {}, time.monotonic()

        def steady():
            nonlocal seen, since
            now = self.pods()
            if now != seen:
                seen, since = now, time.monotonic()
            return len(seen) == count and time.monotonic() - since >= seconds
        self.wait(steady, f"the same {count} pods for {seconds} s")
        return seen

    def describe(self):
        jobs = [(job["metadata"]["name"], job.get("status", {}))
                for job in self.api.call("GET", JOBS)["items"]][:3]
        return "\n".join([json.dumps(jobs)[:3000], json.dumps(self.pods())[:2000]])

    @staticmethod
    def metric(port, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(name):
                    return float(line.rsplit(" ", 1)[1])
        return None

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {self._testMethodName}: {text}", flush=True)
