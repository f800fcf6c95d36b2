# SPDX-License-Identifier: Apache-2.0
"""A client of the REST service with nothing but Python's standard library."""
import http.client
import json
import os
import socket
import time
from collections import namedtuple

from home import read

Answer = namedtuple("Answer", "status headers body")
Event = namedtuple("Event", "id name data")


class Stream:
    """Server-sent events as they come, until the server ends them."""

    def __init__(self, connection, response):
        self._connection = connection
        self.response = response

    def events(self):
        fields = {}
        for raw in self.response:
            line = raw.decode().rstrip("\n")
            if line.startswith(":"):
                continue
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                yield Event(fields.get("id"), fields.get("event"), json.loads(fields["data"]))
                fields = {}
            else:
                fields = {}

    def until(self, *names):
        """All events up to the first of one of these names, with it."""
        seen = []
        for event in self.events():
            seen.append(event)
            if event.name in names:
                return seen
        raise AssertionError(f"the stream ended without {names}: {seen[-3:]}")

    def close(self):
        self.response.close()
        self._connection.close()


class Client:
    def __init__(self, home):
        self.ready = json.loads(read(os.path.join(home, "controller.json")))
        self.token = read(os.path.join(home, "api.token")).strip()
        self.port = int(self.ready["restUrl"].rpartition(":")[2])

    def connect(self, timeout=30):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def _begin(self, method, path, body, headers, timeout):
        connection = self.connect(timeout)
        if isinstance(body, dict):
            body = json.dumps(body)
            headers = {"Content-Type": "application/json", **headers}
        sent = {"Authorization": "Bearer " + self.token, **headers}
        connection.request(method, path, body, {k: v for k, v in sent.items() if v is not None})
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, timeout=30, **headers):
        """One answer; a header's underscores stand for dashes, None leaves it out."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection, response = self._begin(method, path, body, headers, timeout)
        content = response.read()
        connection.close()
        if "json" in (response.headers.get("Content-Type") or "") and content:
            content = json.loads(content)
        return Answer(response.status, response.headers, content)

    def stream(self, path, timeout=60, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection, response = self._begin("GET", path, None, headers, timeout)
        assert response.status == 200, (response.status, response.read())
        return Stream(connection, response)

    def raw(self, text="", timeout=15):
        """A socket to the server that has said `text`."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        if text:
            sock.sendall(text if isinstance(text, bytes) else text.encode())
        return sock

    def say(self, text):
        """Everything that the server answers to `text` until it closes the connection."""
        sock = self.raw(text)
        answer = b""
        try:
            while True:
                piece = sock.recv(65536)
                if not piece:
                    break
                answer += piece
        except ConnectionResetError:
            pass
        sock.close()
        return answer.decode(errors="replace")

    def seconds(self, path="/v1/jobs"):
        """How long a normal client waits for an answer on a new connection."""
        began = time.monotonic()
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return time.monotonic() - began
