# SPDX-License-Identifier: Apache-2.0
"""A few requests to the API server, as JSON: what the test cluster itself needs of Kubernetes.

Tests of pods and jobs do with kubectl what a person does with it; this is for what is asked many
times a second, where a process for each look would take half a core. To look at another kind, add
it to KINDS.
"""
import base64
import http.client
import json
import ssl
import tempfile
import urllib.parse

# By the name that kubectl knows too: the group's path, the resource.
KINDS = {
    "configmap": ("api/v1", "configmaps"),
    "endpointslice": ("apis/discovery.k8s.io/v1", "endpointslices"),
    "event": ("api/v1", "events"),
    "lease": ("apis/coordination.k8s.io/v1", "leases"),
    "node": ("api/v1", "nodes"),
    "pod": ("api/v1", "pods"),
    "poddisruptionbudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "pvc": ("api/v1", "persistentvolumeclaims"),
    "secret": ("api/v1", "secrets"),
    "service": ("api/v1", "services"),
    "serviceaccount": ("api/v1", "serviceaccounts"),
    "tj": ("apis/starling.dev/v1alpha1", "trainingjobs"),
}


def path_of(kind, namespace=None, name=None, selector=None):
    """Where an object is, or those of a kind (its plural will do too) in a namespace, None: of no
    namespace."""
    group, resource = KINDS[kind if kind in KINDS else kind.removesuffix("s")]
    parts = [group, *(["namespaces", namespace] if namespace else []), resource]
    query = "?" + urllib.parse.urlencode({"labelSelector": selector}) if selector else ""
    return "/" + "/".join([*parts, *([name] if name else [])]) + query


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

    def find(self, path, timeout=10):
        """The object, or None."""
        try:
            return self.call("GET", path, timeout=timeout)
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
