#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts a bad network between a command and the API server that KUBECONFIG names.

usage: fault_proxy.py [--seed N] -- COMMAND [ARGUMENT]...

The command finds a KUBECONFIG that leads through the proxy, over TLS, and STARLING_TEST_FAULTS. Of
its requests some are delayed, refused (429, 503), lost before they reach the server, carried out
while their answers are lost or cut in the middle, carried out twice, or carried out late, after the
sender was told that it failed, behind what was sent since. Late copies are made only of requests
with a precondition: nothing defends against a late create but a name that is never used again.
Watches trickle and break off in the middle of an event. At the end it prints what it did, and fails
if it did too little.
"""
import argparse
import collections
import http.client
import http.server
import json
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

SHARES = [("pass", 52), ("delay", 8), ("refuse", 5), ("lose", 6), ("lose-answer", 6), ("cut", 6),
          ("twice", 5), ("late", 12)]
BROKEN_WATCH = "watch broken in mid-event"
WATCHES_BROKEN = 0.7  # of those that are let through
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Upstream:
    """The API server, as the administrator."""

    def __init__(self, kubeconfig):
        def view(path):
            return subprocess.run(
                ["kubectl", "--kubeconfig", kubeconfig, "config", "view", "--minify", "--raw",
                 "--flatten", "-o", "json"], check=True, capture_output=True, text=True).stdout
        config = json.loads(view(kubeconfig))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.host, port = cluster["server"].removeprefix("https://").rsplit(":", 1)
        self.port = int(port.rstrip("/"))
        self.context = ssl.create_default_context(
            cadata=decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as both:
            both.write(decode(user["client-certificate-data"]) + decode(user["client-key-data"]))
            both.flush()
            self.context.load_cert_chain(both.name)

    def send(self, method, path, body, headers):
        connection = http.client.HTTPSConnection(self.host, self.port, context=self.context,
                                                 timeout=60)
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()


def decode(text):
    import base64
    return base64.b64decode(text)


class Faults:
    """Chooses what happens to each request, by a seed; counts it."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.counts = collections.Counter()
        self.lock = threading.Lock()

    def choose(self, may_be_late):
        with self.lock:
            kinds, weights = zip(*SHARES)
            kind = self.random.choices(kinds, weights)[0]
            if kind == "late" and not may_be_late:
                kind = "lose-answer"
            self.counts[kind] += 1
            return kind, self.random.random()

    def count(self, kind):
        with self.lock:
            self.counts[kind] += 1


def has_precondition(method, path, body):
    if method not in ("PUT", "PATCH", "DELETE"):
        return False
    try:
        value = json.loads(body)
        return bool(value.get("metadata", {}).get("resourceVersion")
                    or value.get("preconditions", {}).get("uid"))
    except (ValueError, AttributeError):
        return False


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = None
    faults = None

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except (OSError, ssl.SSLError):
            pass

    def sever(self, hard):
        self.close_connection = True
        if hard:  # a reset instead of an end
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                       struct.pack("ii", 1, 0))
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def answer(self, status, headers, body, cut_at=None):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if cut_at is None else body[:cut_at])
        self.wfile.flush()

    def forward(self, body):
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        connection, response = self.upstream.send(self.command, self.path, body, headers)
        try:
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def forward_late(self, body, wait):
        time.sleep(wait)
        try:
            self.forward(body)
        except (OSError, http.client.HTTPException):
            pass

    def do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        late = has_precondition(self.command, self.path, body)
        kind, share = self.faults.choose(late)
        if "watch=true" in self.path:
            return self.stream(kind, share)
        if kind == "refuse":
            status = 429 if share < 0.5 else 503
            return self.answer(status, [("Retry-After", "0"), ("Content-Type", "text/plain")],
                               b"busy")
        if kind == "lose":
            return self.sever(share < 0.5)
        if kind == "late":
            threading.Thread(target=self.forward_late, args=(body, 0.02 + 0.3 * share)).start()
            return self.sever(share < 0.5)
        if kind == "delay":
            time.sleep(0.3 * share)
        status, headers, content = self.forward(body)
        if kind == "twice":
            self.forward(body)
        if kind == "lose-answer":
            return self.sever(share < 0.5)
        if kind == "cut":
            self.answer(status, headers, content, cut_at=int(share * len(content)))
            return self.sever(share < 0.5)
        return self.answer(status, headers, content)

    def stream(self, kind, share):
        if kind in ("lose", "lose-answer", "late"):
            return self.sever(share < 0.5)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        connection, response = self.upstream.send("GET", self.path, None, headers)
        self.send_response_only(response.status)
        self.send_header("Content-Type", response.getheader("Content-Type", ""))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        breaks = share < WATCHES_BROKEN
        left = int(20 + share * 1200) if breaks else None  # bytes until it does
        try:
            while data := response.read1(97 if breaks else 65536):
                cut = left is not None and len(data) >= left
                data = data[:left] if cut else data
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()
                if cut:
                    self.faults.count(BROKEN_WATCH)
                    return self.sever(share < 0.5)
                left = None if left is None else left - len(data)
            self.wfile.write(b"0\r\n\r\n")
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a broken connection is what it is for


def make_certificate(folder):
    path = os.path.join(folder, "proxy")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=fault proxy",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path + ".key", "-out",
                    path + ".crt"], check=True, capture_output=True)
    return path + ".crt", path + ".key"


def main():
    at = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=4)
    options = parser.parse_args(sys.argv[1:at])
    Handler.upstream = Upstream(os.environ["KUBECONFIG"])
    Handler.faults = Faults(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = make_certificate(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = Server(("127.0.0.1", 0), Handler)
        # The handshake belongs to the connection's own thread: accept() must not wait for it.
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        kubeconfig = os.path.join(folder, "kubeconfig")
        with open(kubeconfig, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "faults",
                       "clusters": [{"name": "faults", "cluster": {
                           "server": f"https://127.0.0.1:{server.server_address[1]}",
                           "certificate-authority": certificate}}],
                       "contexts": [{"name": "faults", "context": {"cluster": "faults"}}]}, file)
        environment = dict(os.environ, KUBECONFIG=kubeconfig, STARLING_TEST_FAULTS="1")
        code = subprocess.run(sys.argv[at + 1:], env=environment, check=False).returncode
        print("requests:", dict(Handler.faults.counts), flush=True)
        kinds = [kind for kind, _ in SHARES] + [BROKEN_WATCH]
        missing = [kind for kind in kinds if not Handler.faults.counts[kind]]
        if code == 0 and missing:
            print("these faults never happened:", missing)
            return 1
        return code


if __name__ == "__main__":
    sys.exit(main())
