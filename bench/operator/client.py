# SPDX-License-Identifier: Apache-2.0
"""The load of the operator measurements: creates many objects at once, and waits until all are done."""
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
                                                       timeout=120)

    def call(self, method, path, body=None):
        """The answer's JSON; an answer that is no success ends the measurement."""
        self._connection.request(method, path, json.dumps(body) if body is not None else None,
                                 {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode(errors='replace')}")
        return json.loads(text)


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


def await_done(kubeconfig, path, done, count, deadline, check=lambda: None):
    """Lists `path` until `done(item)` holds for `count` items; the lists come from memory."""
    client = Client(kubeconfig)
    pause = max(0.25, count / 2000)
    end = time.monotonic() + deadline
    while True:
        items = client.call("GET", path + "?resourceVersion=0")["items"]
        finished = sum(map(done, items))
        if finished >= count:
            return
        if time.monotonic() > end:
            raise RuntimeError(f"after {deadline} s {finished} of {count} are done: {path}")
        check()
        time.sleep(pause)
