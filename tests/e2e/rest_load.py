#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Load on a REST service: watchers that read server-sent events, and requests at a fixed rate.

Each kind of load is a process of its own, which is told on stdin what to do, one JSON object, and
says on stdout what came of it, so that neither waits for the other's Python. Only bytes are looked
at, so that a thousand watchers cost little beside what is measured.

Requests are those of one token, or of `tokens` in turn; with `host` and `authority` they are HTTPS.
"""
import collections
import http.client
import json
import queue
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import threading
import time

JOBS = "/v1/namespaces/default/jobs"
READ = 1 << 16
CONNECTING = 64  # at once: the others wait, as people do who do not all come in one millisecond


class Watcher:
    """One stream of one job. It counts events, and notices the text `mark`."""

    def __init__(self, port, token, job, mark):
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.connect_ex(("127.0.0.1", port))
        self._request = (f"GET {JOBS}/{job}?watch=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
                         f"Authorization: Bearer {token}\r\n\r\n").encode()
        self._mark = mark.encode()
        self._tail = b""
        self.began = time.monotonic()
        self.opened = None  # seconds to the first byte
        self.status = ""
        self.events = self.bytes = 0
        self.marked = False

    def send(self):
        self.sock.sendall(self._request)

    def read(self):
        """False: the stream is over."""
        try:
            piece = self.sock.recv(READ)
        except OSError:
            return False
        if not piece:
            return False
        if self.opened is None:
            self.opened = time.monotonic() - self.began
            self.status = piece[9:12].decode(errors="replace")
        text = self._tail + piece
        self.events += text.count(b"\nevent: ")
        self.bytes += len(piece)
        self.marked = self.marked or self._mark in text
        # What may be the beginning of an event or of the mark is looked at again, once it is whole.
        self._tail = text[-(max(len(self._mark), 8) - 1):]
        return True


class Watchers:
    """They come, say so, and say at each line on stdin what they have heard, until its end."""

    def __init__(self, order):
        self._order = order
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._all = []
        self._waiting = 0
        self.lost = 0
        self.all_marked = None

    def _come(self):
        order = self._order
        while len(self._all) < order["watchers"] and self._waiting < CONNECTING:
            job = order["jobs"][len(self._all) % len(order["jobs"])]
            watcher = Watcher(order["port"], order["token"], job, order["mark"])
            self._selector.register(watcher.sock, selectors.EVENT_WRITE, watcher)
            self._all.append(watcher)
            self._waiting += 1

    def _turn(self, key, mask):
        watcher = key.data
        if mask & selectors.EVENT_WRITE:
            self._selector.modify(watcher.sock, selectors.EVENT_READ, watcher)
            watcher.send()
            return
        waited = watcher.opened is None
        alive = watcher.read()
        self._waiting -= waited
        if not alive:
            self._selector.unregister(watcher.sock)
            self.lost += 1

    def run(self):
        ready = False
        while True:
            self._come()
            for key, mask in self._selector.select(0.5):
                if key.data is not None:
                    self._turn(key, mask)
                elif sys.stdin.readline():
                    self._say_all()
                else:
                    return
            if self.all_marked is None and all(one.marked for one in self._all):
                self.all_marked = time.time()
            if not ready and self._waiting == 0 and len(self._all) == self._order["watchers"]:
                ready = True
                opened = [one.opened for one in self._all if one.status == "200"]
                say({"opened": len(opened), "slowest": max(opened, default=0.0)})

    def _say_all(self):
        say({"events": sum(one.events for one in self._all),
             "bytes": sum(one.bytes for one in self._all), "lost": self.lost,
             "marked": sum(one.marked for one in self._all), "allMarkedAt": self.all_marked})


def connect(order):
    """To this machine, under the service's name where it has one."""
    if "host" not in order:
        return http.client.HTTPConnection("127.0.0.1", order["port"], timeout=30)
    connection = http.client.HTTPSConnection(
        order["host"], order["port"], timeout=30,
        context=ssl.create_default_context(cadata=order["authority"]))
    connection._create_connection = (  # pylint: disable=protected-access
        lambda address, *rest: socket.create_connection(("127.0.0.1", address[1]), *rest))
    return connection


class Requests:
    """Requests of several kinds, each so many a second, sent when they are due and not when the one
    before is answered: a service that is slow is not asked more slowly."""

    def __init__(self, order):
        self._order = order
        self._due = queue.Queue()
        self._answers = []  # kind, seconds from when it was due, status
        self._refusal = ""  # what a caller was told that asked for too much

    def _serve(self):
        connection = connect(self._order)
        while (item := self._due.get()) is not None:
            token, kind, due, method, path, content_type, body = item
            try:
                connection.request(method, path, body, {
                    "Authorization": "Bearer " + token, "Content-Type": content_type})
                response = connection.getresponse()
                content = response.read()
                status = response.status
                if status == 429:
                    self._refusal = content.decode(errors="replace")
            except (OSError, http.client.HTTPException) as error:
                status = f"{type(error).__name__} {error}"
                connection.close()
            self._answers.append((kind, time.monotonic() - due, status))
        connection.close()

    def _request(self, kind, number):
        """Method, path, content type and body of request `number` of this kind."""
        watched = f"{JOBS}/{self._order['jobs'][number % len(self._order['jobs'])]}"
        name = f"{self._order['prefix']}{number}"
        label = json.dumps({"metadata": {"labels": {"change": name}}})
        return {
            "submit": ("POST", JOBS, "application/json",
                       self._order["submitted"].replace("NAME", name)),
            "change": ("PATCH", watched, "application/merge-patch+json", label),
            "get": ("GET", watched, "", None),
            "list": ("GET", f"{JOBS}?limit=50", "", None),
            # Each time of another name, which nobody has been asked about before.
            "guess": ("GET", f"{JOBS}/{name}", "", None),
        }[kind]

    def run(self):
        order = self._order
        threads = [threading.Thread(target=self._serve) for _ in range(order["connections"])]
        for thread in threads:
            thread.start()
        tokens = order.get("tokens") or [order["token"]]
        began = time.monotonic()
        plan = sorted((number / rate, kind, number) for kind, rate in order["rates"].items()
                      for number in range(int(rate * order["seconds"])))
        for at, kind, number in plan:
            time.sleep(max(0.0, began + at - time.monotonic()))
            self._due.put((tokens[number % len(tokens)], kind, began + at,
                           *self._request(kind, number)))
        for _ in threads:
            self._due.put(None)
        for thread in threads:
            thread.join()
        say(self._summary())

    def _summary(self):
        by_kind = collections.defaultdict(list)
        failed = collections.Counter()
        for kind, seconds, status in self._answers:
            by_kind[kind].append(seconds)
            if status not in (200, 201):
                failed[f"{kind}: {status}"] += 1
        return {"seconds": dict(by_kind), "failed": dict(failed), "refusal": self._refusal}


def say(what):
    used = time.process_time()
    print(json.dumps({**what, "cpu": used}), flush=True)


class Load:
    """One of the two, as its starter sees it."""

    def __init__(self, kind, order):
        self._process = subprocess.Popen([sys.executable, "-B", __file__, kind], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._say(json.dumps(order))

    def _say(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self):
        line = self._process.stdout.readline()
        assert line, "the load has ended without a word"
        return json.loads(line)

    def ask(self):
        """What watchers have heard so far."""
        self._say("?")
        return self.hear()

    def ask_until(self, holds, timeout):
        """The first answer for which holds(answer), or the last one in time."""
        deadline = time.monotonic() + timeout
        while True:
            said = self.ask()
            if holds(said) or time.monotonic() > deadline:
                return said
            time.sleep(0.02)

    def close(self):
        if self._process.stdin.closed:
            return
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def quantile(values, share):
    """The smallest value that `share` of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    order = json.loads(sys.stdin.readline())
    {"watch": Watchers, "request": Requests}[sys.argv[1]](order).run()


if __name__ == "__main__":
    main()
