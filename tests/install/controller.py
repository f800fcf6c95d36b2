# SPDX-License-Identifier: Apache-2.0
"""starling-controller beside a real API server, installed as the chart installs it."""
import json
import os
import signal
import socket
import subprocess

import kubectl as k
from programs import Programs

NAMESPACE = "starling-system"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def install_chart(*flags):
    """All objects of the chart: its Deployment makes no pods here, the tests start the program."""
    text = k.run(Programs("helm")["helm"], "template", "starling", k.CHART, "--namespace", NAMESPACE,
                 "--kube-version=v1.34.4", *flags)
    k.kubectl("create", "namespace", NAMESPACE)
    k.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    k.eventually(lambda: k.refusal("get", "tj") == "", "TrainingJobs are served")


class Controller:
    """starling-controller as the service account that the chart gives it."""

    def __init__(self, folder, *flags):
        self.flags = flags
        config = json.loads(k.kubectl("config", "view", "--raw", "-o", "json"))
        token = k.kubectl("create", "token", "starling-controller", "-n", NAMESPACE).strip()
        config["users"] = [{"name": "it", "user": {"token": token}}]
        config["contexts"] = [{"name": "it", "context": {
            "cluster": config["clusters"][0]["name"], "user": "it"}}]
        config["current-context"] = "it"
        self.kubeconfig = os.path.join(folder, "kubeconfig")
        with open(self.kubeconfig, "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.log = os.path.join(folder, "controller.log")
        self.port = free_port()
        self.process = None

    def start(self):
        """Again if it was stopped, at the same port."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(os.environ["STARLING_BIN"], "starling-controller"),
                 f"--kubeconfig={self.kubeconfig}", "--image=starling:dev",
                 f"--leader-election-namespace={NAMESPACE}", f"--webhook-port={self.port}",
                 "--metrics-bind-address=0", "--health-probe-bind-address=0", *self.flags],
                stderr=log, env=dict(os.environ, POD_NAMESPACE=NAMESPACE))

    def stop(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)
            self.process = None
