# SPDX-License-Identifier: Apache-2.0
"""The base of the tests that train in the cluster: jobs, their status, and a watch over their steps.

A job of these tests is paced (experiment.stepDelay), so that there is time to break things. How
training fares is read from the workers' own metrics, which go on when the API server does not:

    self.start(job)
    with self.watch_steps() as steps:
        self.kubectl("delete", "pod", "digits-worker-1")
        steps.await_more(20)
    self.assertLess(steps.gap(), 5)
"""
import copy
import os
import sys
import threading
import time
import urllib.request

from image import IMAGE
from kube_case import KubeCase
from outcome import has_failed

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import pages  # noqa: E402,F401  (the path must come first)
import results  # noqa: E402

DATA = "data"          # relative URIs start at /opt/starling in the image
METRICS_PORT = 7073
SAMPLES = 1438         # rows of digits-train.csv
BATCH = 64
START = 60             # seconds that a busy machine may take to start a job's pods

CLAIM = {
    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "checkpoints"},
    "spec": {"storageClassName": "shared", "accessModes": ["ReadWriteMany"],
             "resources": {"requests": {"storage": "1Gi"}}}}


def steps_of(epochs):
    return epochs * ((SAMPLES + BATCH - 1) // BATCH)


def source(name):
    return {"csv": {"uri": f"{DATA}/{name}", "labelColumn": "label", "shape": [1, 8, 8]}}


def put(node, path, value):
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = copy.deepcopy(value)


def digits(name="digits", workers=2, **changes):
    """A digits job that would train for hours, a step every 40 ms; `changes` are paths below spec
    with __ for the dot: stop__epochs=2."""
    job = {
        "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
        "spec": {
            "seed": 7,
            "workload": {"classification": {"model": {"mlp": {"hidden": [128, 64]}}}},
            "dataset": {"train": source("digits-train.csv"),
                        "validation": source("digits-test.csv"), "globalBatchSize": BATCH},
            "optimizer": {"sgd": {"learningRate": 0.05, "momentum": 0.9}},
            "stop": {"epochs": 100000},
            # Two small nodes have room for all workers of these tests.
            "replicaSpecs": {"worker": {
                "replicas": workers, "minReplicas": 1, "maxReplicas": 8,
                "template": {"spec": {"containers": [{"name": "trainer", "resources": {
                    "requests": {"cpu": "50m", "memory": "64Mi"}}}]}}}},
            "checkpoint": {"interval": "1s"},
            "experiment": {"stepDelay": "40ms"}}}
    for path, value in changes.items():
        put(job["spec"], path.split("__"), value)
    return job


def on_claim(job):
    """The same job with its checkpoints on the claim."""
    job["spec"]["checkpoint"]["uri"] = "file:///checkpoints"
    pod = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/checkpoints"}]
    pod["volumes"] = [{"name": "kept", "persistentVolumeClaim": {"claimName": "checkpoints"}}]
    return job


def container(script, name="own", workers=2, restart="OnFailure", **policy):
    """A job whose workers run a shell script, with that run policy."""
    return {
        "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
        "spec": {
            "workload": {"container": {"framework": "PyTorch"}}, "runPolicy": policy,
            "replicaSpecs": {"worker": {
                "replicas": workers, "restartPolicy": restart,
                "template": {"spec": {
                    "terminationGracePeriodSeconds": 1,
                    # All that Pod Security `restricted` asks for and the controller leaves to them.
                    "securityContext": {"runAsNonRoot": True},
                    "containers": [{
                        "name": "trainer", "image": IMAGE, "imagePullPolicy": "Never",
                        "command": ["bash", "-c", script],
                        "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}}}]}}}}}}


class StepWatch:
    """The newest step that any of a job's workers has, with the time when it was first seen."""

    def __init__(self, case, name):
        self._case = case
        self._name = name
        self._seen = []          # (time, step), steps ascending
        self._lock = threading.Lock()
        self._addresses = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True)
                         for work in (self._find, self._sample)]

    def __enter__(self):
        self._addresses = self._listed()
        for thread in self._threads:
            thread.start()
        self._case.wait_for(lambda: self._seen, START, "a worker tells its step")
        return self

    def __exit__(self, *_):
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _listed(self):
        pods = self._case.pods(f"starling.dev/job={self._name},starling.dev/role=worker")
        return [pod["status"]["podIP"] for pod in pods.values() if pod["status"].get("podIP")]

    def _find(self):
        """Workers come and go; while the API server is away the known ones are asked."""
        while not self._over.wait(0.5):
            try:
                self._addresses = self._listed() or self._addresses
            except Exception:  # pylint: disable=broad-except
                continue

    def _sample(self):
        while not self._over.wait(0.05):
            asked = [threading.Thread(target=self._ask, args=(address,), daemon=True)
                     for address in list(self._addresses)]
            for thread in asked:
                thread.start()
            for thread in asked:
                thread.join(0.1)

    def _ask(self, address):
        step = metric(address, "starling_worker_step")
        if step is None:
            return
        with self._lock:
            if not self._seen or step > self._seen[-1][1]:
                self._seen.append((time.monotonic(), step))

    def step(self):
        with self._lock:
            return self._seen[-1][1]

    def await_more(self, count, deadline=60):
        """Until that many more steps were made; the step then."""
        first = self.step()
        self._case.wait_for(lambda: self.step() >= first + count, deadline,
                            lambda: f"{count} steps after {first}, not only up to {self.step()}\n"
                                    f"{self._case.describe()}")
        return self.step()

    def gap(self, since=None):
        """The longest time between two new steps, of those that ended after `since`."""
        with self._lock:
            times = [at for at, _ in self._seen]
        return max((after - before for before, after in zip(times, times[1:])
                    if since is None or after >= since), default=0.0)


def metric(address, name):
    """What the pod at this address tells under that name; None: it tells nothing."""
    try:
        with urllib.request.urlopen(f"http://{address}:{METRICS_PORT}/metrics", timeout=0.5) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(f"{name} "):
                    return int(float(line.split()[1]))
    except OSError:
        return None
    return None


class TrainingCase(KubeCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self._end_jobs)

    def _end_jobs(self):
        """What goes with the namespace anyway, without the pods' time to save their work."""
        if not has_failed(self) and not os.environ.get("STARLING_TEST_KEEP"):
            self.kubectl("delete", "tj", "--all", "--wait=false")
            self.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")

    def status(self, name="digits"):
        return (self.get("tj", name) or {}).get("status", {})

    def condition(self, kind, name="digits"):
        """(status, reason, message), all empty while there is none."""
        for found in self.status(name).get("conditions", []):
            if found["type"] == kind:
                return found["status"], found["reason"], found.get("message", "")
        return "", "", ""

    def await_condition(self, kind, name="digits", reason=None, deadline=START, status="True"):
        """Its message, once it has that status, and that reason if one is given."""
        def found():
            seen = self.condition(kind, name)
            return seen[0] == status and reason in (None, seen[1])
        self.wait_for(found, deadline, lambda: f"{name} is {kind}/{reason}: "
                      f"{self.status(name).get('conditions')}\n{self.describe()}")
        return self.condition(kind, name)[2]

    def incidents(self, name="digits"):
        return self.status(name).get("incidents", [])

    def roles(self, role, name="digits"):
        return self.pods(f"starling.dev/job={name},starling.dev/role={role}")

    def living(self, role="worker", name="digits"):
        """Names of the pods that neither have ended nor are about to."""
        return {pod for pod, found in self.roles(role, name).items()
                if found["status"].get("phase") in ("Pending", "Running")
                and "deletionTimestamp" not in found["metadata"]}

    def start(self, job):
        """Applies a job and waits until it trains; seconds that took."""
        began = time.monotonic()
        self.apply(job)
        self.await_condition("Running", job["metadata"]["name"])
        return time.monotonic() - began

    def watch_steps(self, name="digits"):
        return StepWatch(self, name)

    def coordinators_node(self):
        """Where the coordinator is, whichever pod that is by now: on a node that has just come back
        the first one may fall silent and be replaced before a test looks."""
        def found():
            nodes = [pod["spec"].get("nodeName") for pod in self.roles("coordinator").values()
                     if "deletionTimestamp" not in pod["metadata"]]
            return nodes[0] if len(nodes) == 1 else None
        return self.wait_for(found, START, "the job has one coordinator, on a node")

    def members(self, count, name="digits", deadline=START):
        """Waits until so many workers train together, as they tell themselves."""
        def found():
            addresses = [pod["status"].get("podIP") for pod in self.roles("worker", name).values()
                         if pod["status"].get("phase") == "Running"]
            told = [metric(address, "starling_worker_view_members") for address in addresses if address]
            return told.count(count) == count
        self.wait_for(found, deadline,
                      lambda: f"{count} workers train together\n{self.describe()}")

    def check_nothing_repeated(self):
        """No incident has cost a step."""
        told = self.incidents()
        with results.judged():
            self.assertEqual(0, sum(one.get("repeatedSteps", 0) for one in told), told)

    def suspend(self, value, name="digits"):
        self.kubectl("patch", "tj", name, "--type=merge", "-p",
                     '{"spec":{"runPolicy":{"suspend":%s}}}' % ("true" if value else "false"))

    def describe(self):
        return self.kubectl("get", "tj", "-o", "yaml", check=False)[-6000:] + super().describe()
