# SPDX-License-Identifier: Apache-2.0
"""What stands between one controller process and the API server: it writes down every request, and
a test may have something happen to each.

    proxy = Proxy()                        # to the API server that KUBECONFIG names
    proxy.rule = lambda request: request.answer(500) if request.is_write else request.forward()

A rule calls one of the request's methods. Requests are in `proxy.seen`, in the order of their
answers. Every controller of a test has a proxy of its own, so that what each did is known.
"""
import contextlib
import dataclasses
import json
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../contract/http"))
import fault_proxy  # noqa: E402  pylint: disable=wrong-import-position

WRITES = ("POST", "PUT", "PATCH", "DELETE")
# What a controller writes for itself and for people: no job depends on it.
OWN = re.compile(r"/(leases|events)(/|\?|$)|/namespaces/starling-system/|webhookconfigurations")


@dataclasses.dataclass
class Seen:
    """A request that was answered."""
    at: float
    method: str
    path: str
    status: int

    @property
    def is_write(self):
        return self.method in WRITES

    @property
    def created(self):
        """The kind, as in "pods", that it was to create an object of; or ""."""
        return self.path.partition("?")[0].rpartition("/")[2] if self.method == "POST" else ""

    @property
    def of_a_job(self):
        return self.is_write and not OWN.search(self.path)


class Request(fault_proxy.Handler):
    """One request, and what may be done with it."""
    proxy = None

    def do(self):
        self.content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.proxy.rule(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

    @property
    def is_watch(self):
        return "watch=true" in self.path or "watch=1" in self.path

    @property
    def is_write(self):
        return self.command in WRITES

    @property
    def of_a_job(self):
        return self.is_write and not OWN.search(self.path)

    def note(self, status):
        self.proxy.note(Seen(time.monotonic(), self.command, self.path, status))

    def pass_on(self):
        """To the server and back; watches too."""
        if not self.is_watch:
            return self.give(*self.carry_out())
        self.note(200)
        with self.proxy.watching(self):
            return self.stream("pass", 1.0)

    def carry_out(self):
        status, headers, body = self.forward(self.content)
        self.note(status)
        return status, headers, body

    def give(self, status, headers, body):
        self.answer(status, headers, body)

    def refuse(self, status, reason, **headers):
        """The API server's own form of an error."""
        self.note(status)
        text = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                           "reason": reason, "message": reason, "code": status})
        self.answer(status, [("Content-Type", "application/json"),
                             *((k.replace("_", "-"), v) for k, v in headers.items())],
                    text.encode())

    def expire_watch(self):
        """A watch that begins, and is told in its first event that its version is gone."""
        self.note(410)
        event = json.dumps({"type": "ERROR", "object": {
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired",
            "message": "too old resource version", "code": 410}}) + "\n"
        self.answer(200, [("Content-Type", "application/json")], event.encode())

    def be_silent(self, seconds):
        """A watch that begins, says nothing for so long, and breaks off."""
        self.note(200)
        self.send_response_only(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        time.sleep(seconds)
        self.sever(True)

    def cut(self):
        self.note(0)
        self.sever(True)


class Proxy:
    def __init__(self):
        self.rule = Request.pass_on
        self.seen = []
        self._watches = set()
        self._lock = threading.Lock()
        handler = type("Handler", (Request,), {
            "proxy": self, "upstream": fault_proxy.Upstream(os.environ["KUBECONFIG"])})
        self._server = fault_proxy.Server(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def note(self, seen):
        with self._lock:
            self.seen.append(seen)

    @contextlib.contextmanager
    def watching(self, request):
        with self._lock:
            self._watches.add(request)
        try:
            yield
        finally:
            with self._lock:
                self._watches.discard(request)

    def break_watches(self):
        """Cuts those that are open, from the next rule on."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.sever(True)

    def since(self, start):
        with self._lock:
            return [seen for seen in self.seen if seen.at >= start]

    def write_kubeconfig(self, folder):
        path = os.path.join(folder, f"kubeconfig-{self._server.server_address[1]}")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "it",
                       "clusters": [{"name": "it", "cluster": {
                           "server": f"http://127.0.0.1:{self._server.server_address[1]}"}}],
                       "contexts": [{"name": "it", "context": {"cluster": "it"}}]}, file)
        return path

    def close(self):
        self._server.shutdown()
        self._server.server_close()
