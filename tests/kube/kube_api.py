# SPDX-License-Identifier: Apache-2.0
"""A few requests to the API server, as JSON: what the test cluster itself needs of Kubernetes.

Tests of pods and jobs use kubectl (cluster.Cluster); this is for what is asked many times a second.
"""
import base64
import http.client
import json
import ssl
import tempfile
import urllib.parse


class ApiError(Exception):
    def __init__(self, method, path, status, body):
        super().__init__(f"{method} {path}: {status} {body}")
        self.status = status


class Api:
    """Thread-compatible; one connection for each request."""

    def __init__(self, kubeconfig):
        with open(kubeconfig, encoding="utf-8") as file:
            config = json.load(file)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        server = urllib.parse.urlsplit(cluster["server"])
        self._host, self._port = server.hostname, server.port
        self._tls = ssl.create_default_context(
            cadata=_text(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w") as certificate, tempfile.NamedTemporaryFile("w") as key:
            certificate.write(_text(user["client-certificate-data"]))
            certificate.flush()
            key.write(_text(user["client-key-data"]))
            key.flush()
            self._tls.load_cert_chain(certificate.name, key.name)

    def call(self, method, path, body=None, content_type="application/json", timeout=10):
        """The answer's JSON (text where it is none); ApiError unless it is a success."""
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls,
                                                 timeout=timeout)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None,
                               {"Content-Type": content_type, "Accept": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(method, path, answer.status, text)
        try:
            return json.loads(text)
        except ValueError:
            return text

    def find(self, path):
        """The object, or None."""
        try:
            return self.call("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def create(self, path, body):
        return self.call("POST", path, body)

    def apply(self, path, body, manager="starling-tests"):
        return self.call("PATCH", f"{path}?fieldManager={manager}&force=true", body,
                         "application/apply-patch+yaml")

    def ready(self):
        try:
            return self.call("GET", "/readyz", timeout=2) == "ok"
        except (OSError, http.client.HTTPException, ApiError):
            return False


def _text(data):
    return base64.b64decode(data).decode()
