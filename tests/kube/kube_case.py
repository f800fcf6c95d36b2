# SPDX-License-Identifier: Apache-2.0
"""The base of the tests that need the whole cluster: pods, logs, power cuts, a silent API server.

    class Train(KubeCase):
        def test_...(self):
            self.kubectl("apply", "-f", path)
            self.wait_for(lambda: self.phase("digits-worker-0") == "Running", 60, "worker 0 runs")
            with self.power_cut("node1"):
                ...

A cluster that is up (.cluster) is used as it is and stays; else one is brought up for the test
program and taken down after it. Each test has a namespace of its own, deleted at its end. Run a
file with run_tests(), which skips with the reason where no cluster can be.
"""
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

from cluster import SYSTEM, Cluster
from image import IMAGE
from kube_api import path_of
from outcome import has_failed
from programs import REPOSITORY, SKIPPED, Skip
from waiting import wait_for

BIN = os.environ.get("STARLING_BIN", os.path.join(REPOSITORY, "build/release/bin"))
# Seconds until a node without power is NotReady, in a cluster that the tests bring up.
NODE_GRACE = 8
_CLUSTER = None


class KubectlError(Exception):
    def __init__(self, arguments, code, stderr):
        super().__init__(f"kubectl {' '.join(arguments)} exited with {code}: {stderr.strip()}")
        self.stderr = stderr


class KubeCase(unittest.TestCase):
    """One test in one namespace; `self.cluster` is the cluster, `self.namespace` the namespace."""

    # What the namespace lets pods be: the API server refuses all others.
    POD_SECURITY = "restricted"

    def setUp(self):
        assert _CLUSTER is not None, "run this file with run_tests()"
        self.cluster = _CLUSTER
        words = re.sub(r"[^a-z0-9]+", "-", self._testMethodName.removeprefix("test_").lower())
        self.namespace = f"t-{words[:40].strip('-')}-{os.getpid()}"
        self.kubectl("create", "-f", "-", namespace=None, stdin=json.dumps({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": self.namespace,
                "labels": {"pod-security.kubernetes.io/enforce": self.POD_SECURITY}}}))
        # A pod is refused until its namespace has its service account, which comes late after an outage.
        self.wait_for(lambda: self.get("serviceaccount", "default"), 180, "the service account")
        self.addCleanup(self._close)

    def _close(self):
        if has_failed(self):
            print(self.describe(), file=sys.stderr)
        if not os.environ.get("STARLING_TEST_KEEP"):
            self.kubectl("delete", "namespace", self.namespace, "--wait=false", namespace=None)

    # kubectl.

    def kubectl(self, *arguments, stdin=None, timeout=90, check=True, **options):
        """Its stdout; `namespace` is the test's own unless another, or None, is given."""
        namespace = options.pop("namespace", self.namespace)
        assert not options, options
        command = [*(["--namespace", namespace] if namespace else []), *map(str, arguments)]
        done = subprocess.run([self.cluster.programs["kubectl"], *command], input=stdin,
                              capture_output=True, text=True, timeout=timeout, check=False,
                              env=dict(os.environ, KUBECONFIG=self.cluster.kubeconfig))
        if check and done.returncode != 0:
            raise KubectlError(command, done.returncode, done.stderr)
        return done.stdout

    def refusal(self, *arguments, **options):
        """What kubectl says on stderr instead of doing it."""
        with self.assertRaises(KubectlError) as caught:
            self.kubectl(*arguments, **options)
        return caught.exception.stderr

    def start_kubectl(self, *arguments):
        """One that goes on (`get -w`, `port-forward`) with its output in .stdout; ended at the end."""
        process = subprocess.Popen(
            [self.cluster.programs["kubectl"], "--namespace", self.namespace, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=dict(os.environ, KUBECONFIG=self.cluster.kubeconfig))
        self.addCleanup(_end, process)
        return process

    def apply(self, *objects):
        """Applies objects (dicts), or YAML text, in the test's namespace."""
        for item in objects:
            self.kubectl("apply", "-f", "-",
                         stdin=item if isinstance(item, str) else json.dumps(item))

    def get(self, kind, name=None, selector=None, **options):
        """The object, or None; without a name the list's items, all or those of `selector`."""
        path = path_of(kind, options.pop("namespace", self.namespace), name, selector)
        assert not options, options
        found = self.cluster.plane.api.find(path, timeout=60)
        return found if name else found["items"]

    # Pods.

    def pods(self, selector=None):
        """By name; those of the test's namespace."""
        return {pod["metadata"]["name"]: pod for pod in self.get("pods", selector=selector)}

    def phase(self, pod):
        """Pending, Running, Succeeded, Failed; None if there is no such pod."""
        return (self.get("pod", pod) or {}).get("status", {}).get("phase")

    def is_ready(self, pod):
        found = self.get("pod", pod) or {}
        return any(condition["type"] == "Ready" and condition["status"] == "True"
                   for condition in found.get("status", {}).get("conditions", []))

    def await_ready(self, *pods, deadline=60):
        for pod in pods:
            self.wait_for(lambda: self.is_ready(pod), deadline,
                          lambda: f"pod {pod} is Ready\n{self.describe()}")

    def node_of(self, pod):
        return (self.get("pod", pod) or {}).get("spec", {}).get("nodeName")

    def address_of(self, pod):
        return (self.get("pod", pod) or {}).get("status", {}).get("podIP")

    def execute(self, pod, *command, check=True, timeout=60):
        """A command in the pod's first container; its stdout."""
        return self.kubectl("exec", pod, "--", *command, check=check, timeout=timeout)

    def logs(self, pod, *flags, **options):
        return self.kubectl("logs", pod, *flags, **options)

    # Faults.

    @contextlib.contextmanager
    def power_cut(self, node):
        """Cuts a node's power; at the end it is on again and Ready."""
        self.cluster.power_off(node)
        try:
            yield time.monotonic()
        finally:
            if not self.cluster.nodes[node].is_on():
                self.cluster.power_on(node)
            self.cluster.await_ready(node)

    @contextlib.contextmanager
    def api_server_down(self):
        """Kills the API server; at the end it is ready again."""
        self.cluster.plane.stop_api_server()
        try:
            yield time.monotonic()
        finally:
            self.cluster.plane.start_api_server()

    def kill_in_pod(self, pod, program, number=9, namespace=None):
        """Signals the processes of a pod that run `program`, but for keepers of their memory, from its
        node; how many there were."""
        found = self.get("pod", pod, namespace=namespace or self.namespace)
        assert found, f"there is no pod {pod}"
        node = self.cluster.nodes[found["spec"]["nodeName"]]
        uid = found["metadata"]["uid"]
        killed = 0
        for pid in node.run("sh", "-c", f"grep -lsF {uid} /proc/[0-9]*/cgroup",
                            check=False).split():  # processes end while it looks
            pid = pid.split("/")[2]
            name = os.path.basename(node.run("readlink", f"/proc/{pid}/exe", check=False).strip())
            task = node.run("cat", f"/proc/{pid}/comm", check=False).strip()
            if name == program and task != "memory-keeper":
                node.run("kill", f"-{number}", pid)
                killed += 1
        return killed

    def kill_controller(self, number=9):
        """Signals every controller process; how many there were. Their pods restart them."""
        return sum(self.kill_in_pod(pod["metadata"]["name"], "starling-controller", number,
                                    SYSTEM)
                   for pod in self.get("pods", namespace=SYSTEM)
                   if self.component(pod) == "controller" and pod["status"].get("phase") == "Running")

    # The operator.

    @staticmethod
    def component(pod):
        """controller, or api (REST's, which is the same program)."""
        return pod["metadata"].get("labels", {}).get("app.kubernetes.io/component")

    def operator_pods(self, component):
        """Its pods that are ready and stay."""
        return [pod for pod in self.get("pods", namespace=SYSTEM)
                if self.component(pod) == component and "deletionTimestamp" not in pod["metadata"]
                and any(found["type"] == "Ready" and found["status"] == "True"
                        for found in pod["status"].get("conditions", []))]

    def controllers(self):
        """Its pods, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.operator_pods("controller")}

    def rest_pod(self):
        """One of REST's pods, or None."""
        return next(iter(self.operator_pods("api")), None)

    def leader(self):
        """The name of the controller pod that leads."""
        lease = self.get("lease", "starling-controller", namespace=SYSTEM)
        return lease["spec"].get("holderIdentity", "").partition("_")[0]

    # Words.

    @staticmethod
    def wait_for(holds, deadline, what):
        return wait_for(holds, deadline, what, every=0.1)

    def describe(self):
        """What a failed test needs: pods, events, the last lines of every log."""
        parts = [self.kubectl("get", "nodes,pods", "-o", "wide", check=False),
                 self.kubectl("get", "events", "--sort-by=.lastTimestamp", check=False)[-4000:]]
        for pod in self.pods():
            parts.append(f"--- {pod}\n{self.kubectl('logs', pod, '--tail=15', check=False)}")
        return "\n".join(parts)

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {self._testMethodName}: {text}", flush=True)


def sleeper(name, node, script="sleep infinity", **metadata):
    """A pod of the project's image that runs a shell script on a node: something to try things on."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata},
            "spec": {"nodeName": node, "hostname": name, "terminationGracePeriodSeconds": 0,
                     "securityContext": {"runAsNonRoot": True,
                                         "seccompProfile": {"type": "RuntimeDefault"}},
                     "containers": [{
                         "name": "main", "image": IMAGE, "imagePullPolicy": "Never",
                         "command": ["bash", "-c", script],
                         "securityContext": {"readOnlyRootFilesystem": True,
                                             "allowPrivilegeEscalation": False,
                                             "capabilities": {"drop": ["ALL"]}}}]}}


@contextlib.contextmanager
def a_cluster(operator=True):
    """The cluster that is up, or one brought up for as long as this lasts."""
    cluster = Cluster()
    if cluster.is_up():
        yield cluster
        return
    folder = tempfile.mkdtemp(prefix="starling-cluster-")
    os.rmdir(folder)
    cluster = Cluster(folder)
    try:
        cluster.up(BIN, NODE_GRACE)
        if operator:
            cluster.install_operator()
        yield cluster
    finally:
        cluster.down()


def run_tests(operator=True):
    """unittest.main() beside a cluster, with the operator installed if there is a chart."""
    global _CLUSTER  # pylint: disable=global-statement
    try:
        with a_cluster(operator) as cluster:
            _CLUSTER = cluster
            program = unittest.main(exit=False, verbosity=2)
            sys.exit(0 if program.result.wasSuccessful() else 1)
    except Skip as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)


def _end(process):
    process.kill()
    process.wait()
    process.stdout.close()
