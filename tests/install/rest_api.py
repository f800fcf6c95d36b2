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
import threading
import time

import kubectl as k
from controller import NAMESPACE, free_port

sys.path.insert(0, os.path.join(k.REPOSITORY, "tests/e2e"))
from rest_client import Answer, Stream  # noqa: E402  pylint: disable=wrong-import-position

JOBS = "/v1/namespaces/default/jobs"
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

    address = "127.0.0.1"

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
    """Of one replica, or of several in turn as a Service would choose: `apis`, each with the `address`
    and `port` at which it is reached."""

    def __init__(self, token, *apis):
        self.token = token
        self.apis = list(apis)
        self.tls = ssl.create_default_context(cadata=authority())

    def connect(self, timeout=30):
        for api in list(self.apis):
            connection = Connection(api, self.tls, timeout)
            try:
                connection.connect()
                return connection
            except OSError:
                self.apis = self.apis[1:] + self.apis[:1]
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
    """To a replica, under the Service's name."""

    def __init__(self, api, tls, timeout):
        super().__init__(HOST, api.port, context=tls, timeout=timeout)
        self._address = api.address
        self._tls = tls

    def connect(self):
        plain = socket.create_connection((self._address, self.port), timeout=self.timeout)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class Watcher(threading.Thread):
    """Follows all jobs as a portal would: comes back with the last number that it has heard."""

    def __init__(self, client, jobs=JOBS):
        super().__init__(daemon=True)
        self.client = client
        self.jobs = jobs
        self.states = {}     # by UID: the newest state; None: it is gone
        self.breaks = 0
        self.resumed = 0     # came back without hearing everything again
        self.failures = []
        self._last = None
        self._over = threading.Event()

    def stop(self):
        self._over.set()

    def run(self):
        while not self._over.is_set():
            headers = {"Last_Event_ID": self._last} if self._last else {}
            try:
                connection, response = self.client.begin("GET", f"{self.jobs}?watch=1", timeout=60,
                                                         **headers)
                if response.status in (429, 503):
                    time.sleep(float(response.headers.get("Retry-After", 1)))
                    raise ConnectionError("not now")
                assert response.status == 200, (response.status, response.read())
                self._follow(Stream(connection, response))
            except (OSError, http.client.HTTPException):
                self.breaks += 1
                time.sleep(0.05)
            except Exception as error:  # pylint: disable=broad-except
                self.failures.append(repr(error))
                return

    def _follow(self, stream):
        told = set()
        again = self._last is not None
        for event in stream.events():
            if self._over.is_set():
                return
            if event.name == "bookmark":
                # All that is has been told: what was not is gone.
                for uid in set(self.states) - told:
                    self.states[uid] = None
                again = False
            elif event.name in ("added", "modified", "deleted"):
                uid = event.data["uid"]
                told.add(uid)
                self.states[uid] = None if event.name == "deleted" \
                    else event.data["summary"]["state"]
            elif event.name == "end":
                break
            if event.id:
                if again:
                    self.resumed += 1
                    again = False
                self._last = event.id
        self.breaks += 1
