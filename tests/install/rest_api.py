# SPDX-License-Identifier: Apache-2.0
"""starling-controller serve beside a real API server, as the service account of the chart, and a
client of it: HTTPS, one token, nothing but Python's standard library."""
import base64
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys

import kubectl as k
from controller import NAMESPACE, free_port

sys.path.insert(0, os.path.join(k.REPOSITORY, "tests/e2e"))
from rest_client import Answer, Stream  # noqa: E402  pylint: disable=wrong-import-position

HOST = f"starling-api.{NAMESPACE}.svc"  # as its certificate says


def token_of(account, namespace=NAMESPACE, *flags):
    return k.kubectl("create", "token", account, "-n", namespace, *flags).strip()


def make_account(name, namespace="default"):
    k.kubectl("create", "serviceaccount", name, "-n", namespace)


def bind(role, account, namespace="default"):
    """The account of `namespace` gets the cluster's role there."""
    k.kubectl("create", "rolebinding", f"{account}-{role}", "-n", namespace,
              f"--clusterrole={role}", f"--serviceaccount={namespace}:{account}")


def kubeconfig_with(token, folder, name):
    config = json.loads(k.kubectl("config", "view", "--raw", "-o", "json"))
    config["users"] = [{"name": "it", "user": {"token": token}}]
    config["contexts"] = [{"name": "it", "context": {
        "cluster": config["clusters"][0]["name"], "user": "it"}}]
    config["current-context"] = "it"
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return path


class RestApi:
    """One replica. Its certificate is its own, from the Secret that the chart makes."""

    def __init__(self, folder, *flags, name="api"):
        self.port = free_port()
        kubeconfig = kubeconfig_with(token_of("starling-api"), folder, f"{name}.kubeconfig")
        self.start(folder, name, kubeconfig, f"--rest-bind-address=127.0.0.1:{self.port}",
                   "--secret=starling-api", *flags)

    def start(self, folder, name, kubeconfig, *flags):
        self.probes = free_port()
        self.log = os.path.join(folder, f"{name}.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(os.environ["STARLING_BIN"], "starling-controller"), "serve",
                 f"--kubeconfig={kubeconfig}",
                 f"--health-probe-bind-address=127.0.0.1:{self.probes}",
                 "--metrics-bind-address=0", "--log-level=debug", *flags],
                stderr=log, env=dict(os.environ, POD_NAMESPACE=NAMESPACE))

    def probe(self, path):
        """The status; 0: nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.probes, timeout=5)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def is_ready(self):
        return self.probe("/readyz") == 200

    def await_ready(self):
        k.eventually(self.is_ready, lambda: f"ready; it says:\n{self.read_log()}")
        return self

    def read_log(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def end(self, number=signal.SIGTERM):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=60)


def authority():
    """What clients must believe, as an administrator would hand it out."""
    secret = k.get("secret", "starling-api", "-n", NAMESPACE)
    return base64.b64decode(secret["data"]["ca.crt"]).decode()


class Client:
    """Of one replica, or of several in turn as a Service would choose: `apis`."""

    def __init__(self, token, *apis):
        self.token = token
        self.apis = list(apis)
        self.tls = ssl.create_default_context(cadata=authority())

    def connect(self, timeout=30):
        for api in list(self.apis):
            connection = Connection(HOST, api.port, self.tls, timeout)
            try:
                connection.connect()
                return connection
            except OSError:
                self.apis.append(self.apis.pop(0))
        raise ConnectionError("no replica answers")

    def begin(self, method, path, body=None, timeout=30, **headers):
        connection = self.connect(timeout)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", "Bearer " + self.token)
        if isinstance(body, dict):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, sent)
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, timeout=30, **headers):
        connection, response = self.begin(method, path, body, timeout, **headers)
        content = response.read()
        connection.close()
        if re.search(r"\bjson\b|\+json", response.headers.get("Content-Type") or "") and content:
            content = json.loads(content)
        return Answer(response.status, response.headers, content)

    def stream(self, path, timeout=60, **headers):
        connection, response = self.begin("GET", path, None, timeout, **headers)
        assert response.status == 200, (response.status, response.read())
        return Stream(connection, response)


class Connection(http.client.HTTPSConnection):
    """To this machine, under the Service's name."""

    def __init__(self, host, port, tls, timeout):
        super().__init__(host, port, context=tls, timeout=timeout)
        self._tls = tls

    def connect(self):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=self.timeout)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
