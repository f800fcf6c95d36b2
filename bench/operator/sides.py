# SPDX-License-Identifier: Apache-2.0
"""What is measured: Starling's controller, Kubeflow's training operator, and pods without any operator.

Each side gives three pods a job, of one image and one request for CPU. On simulated nodes they
succeed as soon as they run; a job is done when its own status says so (of bare pods: when its pods
have succeeded). Starling's job brings its own container, as every job of Kubeflow's does: neither
has then anything to do but its objects. Each operator runs at settings that do not throttle it.
"""
import base64
import json
import os
import subprocess
import time
import urllib.request

from waiting import wait_for  # of tests/kube

PODS = 3
DONE = {"starling.dev/complete": "true"}  # tests/kube/kwok.py
QPS = ["--kube-api-qps=1000", "--kube-api-burst=2000"]


def container(name):
    return {"name": name, "image": "registry.invalid/training:1", "command": ["train"],
            "resources": {"requests": {"cpu": "100m"}}}


def is_true(item, condition):
    conditions = item.get("status", {}).get("conditions") or []
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


class Side:
    """One side. `process` is the operator's, None without one."""
    name = ""
    collection = ""
    done_selector = ""  # what the server itself can tell of who is done
    process = None
    metrics_port = None

    def __init__(self, plane, programs):
        self.plane = plane
        self.programs = programs

    def kubectl(self, *arguments, text=None):
        subprocess.run([self.programs["kubectl"], f"--kubeconfig={self.plane.kubeconfig}",
                        *arguments], input=text, text=True, check=True, stdout=subprocess.DEVNULL)

    def install_crds(self, *paths):
        for path in paths:
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", path)

        def established():
            crds = self.plane.api.call(
                "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
            return crds and all(is_true(crd, "Established") for crd in crds)
        wait_for(established, 60, lambda: "the CRDs are established")

    def start(self):
        """Installs it and waits until it is ready."""

    def requests(self, first, jobs):
        """(path, body) of what a user creates for these jobs."""
        return [(self.collection, self.job(f"job-{index}")) for index in range(first, first + jobs)]

    def job(self, name):
        raise NotImplementedError

    def done(self, item):
        return is_true(item, "Succeeded")

    def objects(self, jobs):
        """How many objects are done when so many jobs are."""
        return jobs

    def api_calls(self):
        """Requests that the operator has made so far, as its own metrics count them."""
        if self.metrics_port is None:
            return 0
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics",
                                    timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if line.startswith("rest_client_requests_total{"))

    def await_ready(self, port, path="/readyz", deadline=120):
        end = time.monotonic() + deadline
        while True:
            self.plane.processes.check_running()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except OSError as error:
                if time.monotonic() > end:
                    raise RuntimeError(f"{self.name} is not ready after {deadline} s") from error
            time.sleep(0.1)


class BarePods(Side):
    name = "bare pods"
    collection = "/api/v1/namespaces/default/pods"
    done_selector = "status.phase=Succeeded"

    def requests(self, first, jobs):
        return [(self.collection, self.job(f"job-{index}-{pod}"))
                for index in range(first, first + jobs) for pod in range(PODS)]

    def job(self, name):
        return {"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "annotations": DONE},
                "spec": {"restartPolicy": "Never", "containers": [container("trainer")]}}

    def done(self, item):
        return item.get("status", {}).get("phase") == "Succeeded"

    def objects(self, jobs):
        return jobs * PODS


class Starling(Side):
    name = "Starling"
    collection = "/apis/starling.dev/v1alpha1/namespaces/default/trainingjobs"

    def __init__(self, plane, programs, program, crd, port):
        super().__init__(plane, programs)
        self.program = program
        self.crd = crd
        self.metrics_port = port
        self.probe_port = port + 1

    def start(self):
        self.install_crds(self.crd)
        self.kubectl("create", "namespace", "starling-system")
        self.process = self.plane.processes.start("starling-controller", [
            self.program, f"--kubeconfig={self.plane.kubeconfig}", *QPS,
            "--concurrent-reconciles=8", "--log-level=warning", "--image=registry.invalid/starling:1",
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
            f"--health-probe-bind-address=127.0.0.1:{self.probe_port}"])
        self.await_ready(self.probe_port)

    def job(self, name):
        template = {"metadata": {"annotations": DONE}, "spec": {"containers": [container("trainer")]}}
        return {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": name},
                "spec": {"workload": {"container": {"framework": "PyTorch"}},
                         "replicaSpecs": {"worker": {"replicas": PODS, "template": template}}}}


class StarlingPods(Starling):
    """The pods that Starling makes, made by nobody: what is between them and its rate is its own, what
    is between them and bare pods' is due to what a pod of a job must say."""
    name = "its pods"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._models = []

    def start(self):
        super().start()
        api, pods = self.plane.api, BarePods.collection
        api.create(self.collection, self.job("model"))
        wait_for(lambda: len(api.call("GET", pods)["items"]) == PODS, 60,
                 lambda: "Starling has made its pods")
        self.plane.processes.end("starling-controller")
        self.process = self.metrics_port = None
        for pod in api.call("GET", pods)["items"]:
            api.call("DELETE", f"{pods}/{pod['metadata']['name']}?gracePeriodSeconds=0")
            self._models.append(self._given(pod))
        self.collection, self.done_selector = pods, BarePods.done_selector

    @staticmethod
    def _given(pod):
        """As it was created: without what the server and the scheduler said."""
        spec = {key: value for key, value in pod["spec"].items()
                if key not in ("nodeName", "tolerations", "priority", "preemptionPolicy")}
        metadata = {key: pod["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def requests(self, first, jobs):
        return [(self.collection, dict(model, metadata=dict(model["metadata"], name=f"job-{index}-{pod}")))
                for index in range(first, first + jobs) for pod, model in enumerate(self._models)]

    done, objects = BarePods.done, BarePods.objects


class Kubeflow(Side):
    """Kubeflow's training operator 1.9.2, with what it wants before it starts."""
    name = "Kubeflow"
    collection = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"

    def __init__(self, plane, programs, port):
        super().__init__(plane, programs)
        self.metrics_port = port
        self.probe_port = port + 1
        self.webhook_port = port + 2
        self.folder = os.path.join(plane.folder, "kubeflow")

    def start(self):
        module = self._module()
        crds = os.path.join(module, "manifests/base/crds")
        self.install_crds(*(os.path.join(crds, file) for file in sorted(os.listdir(crds))
                            if file.startswith("kubeflow.org_")))
        self.kubectl("create", "namespace", "kubeflow")
        self.kubectl("create", "-f", "-", text=json.dumps(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {
                "name": "training-operator-webhook-cert", "namespace": "kubeflow"}}))
        self.kubectl("create", "-f", "-", text=json.dumps(
            {"apiVersion": "admissionregistration.k8s.io/v1",
             "kind": "ValidatingWebhookConfiguration",
             "metadata": {"name": "validator.training-operator.kubeflow.org"}}))
        self._run()
        self._install_certificates()
        self.plane.processes.end("training-operator")
        self._run()
        self.await_ready(self.probe_port)

    def _module(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                              "../../tests/kube/tools/training-operator")
        subprocess.run(["go", "mod", "download", "github.com/kubeflow/training-operator"],
                       cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return subprocess.run(
            ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubeflow/training-operator"],
            cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def _run(self):
        temporary = os.path.join(self.folder, "tmp")
        os.makedirs(temporary, exist_ok=True)
        environment = dict(os.environ, KUBECONFIG=self.plane.kubeconfig, TMPDIR=temporary)
        # It looks for its certificates there, whatever TMPDIR says: a view of its own of that place.
        mount = ('mkdir -p /tmp/k8s-webhook-server && '
                 'mount --bind "$0" /tmp/k8s-webhook-server && exec "$@"')
        certificates = os.path.join(temporary, "k8s-webhook-server")
        os.makedirs(certificates, exist_ok=True)
        self.process = self.plane.processes.start("training-operator", [
            "unshare", "--mount", "sh", "-c", mount, certificates,
            self.programs["training-operator"], *QPS, "--controller-threads=8",
            "--zap-log-level=error", f"--webhook-server-port={self.webhook_port}",
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}",
            f"--health-probe-bind-address=127.0.0.1:{self.probe_port}"], environment)

    def _install_certificates(self, deadline=60):
        """The operator makes them, but only a mounted Secret brings them to where it reads them."""
        path = "/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert"
        end = time.monotonic() + deadline
        while not (data := self.plane.api.call("GET", path).get("data")):
            self.plane.processes.check_running()
            if time.monotonic() > end:
                raise RuntimeError("Kubeflow's operator made no certificates")
            time.sleep(0.1)
        folder = os.path.join(self.folder, "tmp/k8s-webhook-server/serving-certs")
        os.makedirs(folder, exist_ok=True)
        for name, text in data.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(base64.b64decode(text))

    def job(self, name):
        template = {"metadata": {"annotations": DONE}, "spec": {"containers": [container("pytorch")]}}

        def replicas(count):
            return {"replicas": count, "restartPolicy": "OnFailure", "template": template}
        return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
                "spec": {"pytorchReplicaSpecs": {"Master": replicas(1),
                                                 "Worker": replicas(PODS - 1)}}}
