# SPDX-License-Identifier: Apache-2.0
"""What hostile clients do to the REST service, and how long a normal one waits meanwhile.

Every figure is printed; the bounds are generous, for the machine may be busy with other things.
"""
import re
import resource
import socket
import unittest

import jobs
from home import read, until
from rest_test import JOBS, RestCase

SLOWEST = 1.0  # seconds
GROWTH = 96 << 20  # bytes

HEAD = "POST /v1/jobs:validate HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
# Each is one request to one reader and two, or another, to a second one.
SMUGGLING = [
    HEAD + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\n\r\n",
    HEAD + "Content-Length: 4\r\nContent-Length: 9\r\n\r\nabcdefghi",
    HEAD + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    HEAD + "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
    HEAD + "Transfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n0\r\n\r\n",
    HEAD + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nab\r\n0\r\n\r\n",
    HEAD + "Content-Length: +4\r\n\r\nabcd",
    HEAD + "Content-Length : 4\r\n\r\nabcd",
    "GET /v1/version HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET /v1/version HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 41\r\n\r\n"
    "GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET http://evil.example/v1/version HTTP/1.1\r\nHost: evil.example\r\n\r\n",
]


class Attacks(RestCase):
    def setUp(self):
        super().setUp()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        self.sockets = []
        self.addCleanup(lambda: [sock.close() for sock in self.sockets])
        self.rest.seconds()
        self.before = self.memory()

    def memory(self):
        status = read(f"/proc/{self.rest.ready['pid']}/status")
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def check(self, what):
        """A normal client is served, and the service has not grown."""
        slowest = max(self.rest.seconds() for _ in range(5))
        grown = self.memory() - self.before
        self.say(f"{what}: the slowest of 5 answers took {slowest * 1000:.1f} ms, "
                 f"memory grew by {grown >> 20} MiB")
        self.assertLess(slowest, SLOWEST, what)
        self.assertLess(grown, GROWTH, what)
        probe = self.rest.ready["metricsAddress"].rpartition(":")[2]
        sock = socket.create_connection(("127.0.0.1", int(probe)), timeout=5)
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        self.assertIn(b"200 OK", sock.recv(4096))
        sock.close()

    def hold(self, count, text):
        for _ in range(count):
            self.sockets.append(self.rest.raw(text))

    def test_connections_that_are_held(self):
        self.hold(900, "")
        self.check("900 idle connections")
        self.hold(300, "GET /v1/jobs HTTP/1.1\r\nHo")
        self.check("and 300 with half a head")
        body = HEAD.format(port=self.rest.port) + "Content-Length: 100000\r\n\r\n{"
        self.hold(300, body)
        self.check("and 300 with half a body")
        for sock in self.sockets[900:]:  # a byte now and then
            try:
                sock.sendall(b"a")
            except OSError:
                pass
        self.check("and a byte from each of those")
        self.down()

    def test_more_connections_than_there_may_be(self):
        self.hold(4600, "")
        self.check("4600 idle connections, of which 4096 are kept")
        self.down()

    def test_floods_and_bombs(self):
        for _ in range(20):
            answer = self.rest.say("GET /v1/jobs HTTP/1.1\r\nX: " + "a" * 200_000)
            self.assertIn(answer[:12], ("HTTP/1.1 431", ""))
        many = "GET /v1/jobs HTTP/1.1\r\n" + "".join(f"X-{i}: a\r\n" for i in range(20_000))
        self.assertIn(self.rest.say(many)[:12], ("HTTP/1.1 431", ""))
        self.check("20 heads of 200 kB and 20,000 headers")
        chunked = HEAD.format(port=self.rest.port) + "Transfer-Encoding: chunked\r\n\r\n"
        chunk = "10000\r\n" + "a" * 65536 + "\r\n"
        sock = self.rest.raw(chunked)
        with self.assertRaises(OSError):
            for _ in range(1 << 12):
                sock.sendall(chunk.encode())
        sock.close()
        self.check("a chunked body without an end")
        bomb = self.rest.ask("POST", JOBS, b"\x1f\x8b" + b"\0" * 1000, Content_Encoding="gzip",
                             Content_Type="application/json")
        self.refused(bomb, 415, "UnsupportedMediaType")
        deep = "[" * 900_000
        for _ in range(5):
            for kind, body, status, code in (
                    ("application/json", deep, 400, "MalformedRequest"),
                    ("application/yaml", deep, 413, "BodyTooLarge"),
                    ("application/yaml", deep[:32768], 400, "MalformedRequest")):
                self.refused(self.rest.ask("POST", JOBS, body, Content_Type=kind), status, code)
        self.check("compressed, and 900,000 levels deep")
        self.down()

    def test_requests_that_could_be_read_as_two(self):
        for text in SMUGGLING:
            with self.subTest(text=text):
                answer = self.rest.say(text.format(port=self.rest.port))
                self.assertTrue(answer.startswith("HTTP/1.1 400"), answer)
                self.assertEqual(["HTTP/1.1 400"], re.findall(r"HTTP/1\.1 \d{3}", answer))
                self.assertIn("MalformedRequest", answer)
        self.check("smuggled requests")
        self.down()

    def test_streams_that_nobody_reads(self):
        job = jobs.digits("big", epochs=1, runPolicy={"suspend": True})
        job["metadata"]["annotations"] = {"text": "x" * 50_000}
        self.ok(self.rest.ask("POST", JOBS, job), 201)
        request = (f"GET {JOBS}/big?watch=1 HTTP/1.1\r\nHost: 127.0.0.1:{self.rest.port}\r\n"
                   f"Authorization: Bearer {self.rest.token}\r\n\r\n")
        for _ in range(64):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", self.rest.port))
            sock.sendall(request.encode())
            self.sockets.append(sock)
            self.assertIn(b"200 OK", sock.recv(64))  # the rest stays unread
        refused = self.rest.ask("GET", f"{JOBS}/big?watch=1&timeoutSeconds=1")
        self.refused(refused, 429, "TooManyRequests")
        for number in range(60):
            change = {"metadata": {"labels": {"n": str(number)}}}
            until(lambda: self.rest.ask("PATCH", f"{JOBS}/big", change).status == 200, 20,
                  "the label is changed")
        self.check("64 streams of 60 states of 50 kB each, unread")
        for sock in self.sockets:
            sock.close()
        until(lambda: self.rest.ask("GET", f"{JOBS}/big?watch=1&timeoutSeconds=1").status == 200,
              30, "their places are free again")
        self.down()

    def test_more_requests_than_one_caller_may_send(self):
        statuses = [self.rest.ask("GET", "/v1/whoami").status for _ in range(150)]
        if 429 in statuses:
            answer = self.rest.ask("GET", "/v1/whoami")
            if answer.status == 429:
                self.assertTrue(int(answer.headers["Retry-After"]) >= 1)
        self.assertLessEqual(set(statuses), {200, 429})
        until(lambda: self.rest.ask("GET", "/v1/whoami").status == 200, 10, "it is served again")
        self.down()


if __name__ == "__main__":
    unittest.main(verbosity=2)
