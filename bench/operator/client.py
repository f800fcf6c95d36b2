# SPDX-License-Identifier: Apache-2.0
"""The load of the operator measurements: creates many objects at once, and sees when all are done."""
import base64
import http.client
import json
import ssl
import tempfile
import threading
import time
import urllib.parse

CONNECTIONS = 8


class Client:
    """One connection that is kept, as a kubectl of many verbs would. Confined to one thread."""

    def __init__(self, kubeconfig):
        with open(kubeconfig, encoding="utf-8") as file:
            config = json.load(file)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        server = urllib.parse.urlsplit(cluster["server"])
        tls = ssl.create_default_context(cadata=_text(cluster["certificate-authority-data"]))
        with tempfile.NamedTemporaryFile("w") as certificate, tempfile.NamedTemporaryFile("w") as key:
            certificate.write(_text(user["client-certificate-data"]))
            certificate.flush()
            key.write(_text(user["client-key-data"]))
            key.flush()
            tls.load_cert_chain(certificate.name, key.name)
        self._connection = http.client.HTTPSConnection(server.hostname, server.port, context=tls,
                                                       timeout=600)

    def call(self, method, path, body=None):
        """The answer's JSON; an answer that is no success ends the measurement."""
        self._connection.request(method, path, json.dumps(body) if body is not None else None,
                                 {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return json.loads(text)


    def lines(self, path):
        """The lines of an answer that has no end."""
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        if answer.status >= 300:
            raise RuntimeError(f"GET {path}: {answer.status}")
        rest = b""
        while piece := answer.read1(1 << 16):
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole


def _text(data):
    return base64.b64decode(data).decode()


def create_all(kubeconfig, requests):
    """Makes every (path, body), over several connections at the same time."""
    failures = []

    def create(share):
        client = Client(kubeconfig)
        try:
            for path, body in share:
                client.call("POST", path, body)
        except (RuntimeError, OSError, http.client.HTTPException) as error:
            failures.append(error)

    threads = [threading.Thread(target=create, args=(requests[i::CONNECTIONS],))
               for i in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Watch:
    """Who is done, as the server tells it: each change once, so that looking costs all sides alike and
    no more at the end of many jobs than at their beginning."""

    def __init__(self, kubeconfig, path, done, selector=""):
        self._done = done
        self._client = Client(kubeconfig)
        self._path = path + "?watch=1&allowWatchBookmarks=true"
        if selector:
            self._path += "&fieldSelector=" + urllib.parse.quote(selector)
        self._version = self._client.call("GET", path + "?limit=1")["metadata"]["resourceVersion"]
        self._names = set()
        self._failure = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        try:
            while True:  # a server ends the watch of who reads too slowly; it goes on where it was
                for line in self._client.lines(f"{self._path}&resourceVersion={self._version}"):
                    self._take(json.loads(line))
        except Exception as error:  # whatever it is, the measurement is over
            self._failure = error

    def _take(self, event):
        if event["type"] == "ERROR":
            raise RuntimeError(str(event["object"]))
        self._version = event["object"]["metadata"]["resourceVersion"]
        if event["type"] in ("ADDED", "MODIFIED") and self._done(event["object"]):
            self._names.add(event["object"]["metadata"]["name"])

    def await_done(self, count, deadline, check=lambda: None):
        """Waits until `count` objects are done."""
        end = time.monotonic() + deadline
        while len(self._names) < count:
            if self._failure:
                raise RuntimeError(f"{self._path}: {self._failure}")
            if time.monotonic() > end:
                raise RuntimeError(
                    f"after {deadline} s {len(self._names)} of {count} are done: {self._path}")
            check()
            time.sleep(0.05)
