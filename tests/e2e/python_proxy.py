# SPDX-License-Identifier: Apache-2.0
"""A way to the REST server that breaks when a test says so, and servers that are none."""
import os
import re
import socket
import ssl
import struct
import subprocess
import threading


class Proxy:
    """Forwards to 127.0.0.1:`port`, one request a connection; all requests are kept as text.

    `cut(number, head)` says after how many bytes of its answer a connection is cut: it gets the
    request's number and its head, None is never. `change(piece)` may alter bytes on their way.
    """

    def __init__(self, port, cut=lambda number, head: None, change=lambda piece: piece, tls=None):
        self.requests = []
        self._port, self._cut, self._change, self._tls = port, cut, change, tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client):
        try:
            if self._tls:
                client = self._tls.wrap_socket(client, server_side=True)
            with client, socket.create_connection(("127.0.0.1", self._port), 10) as server:
                request = _read_request(client)
                head = request.partition(b"\r\n\r\n")[0].decode()
                number = len(self.requests)
                self.requests.append(head)
                request = re.sub(rb"\r\nConnection: [^\r]*", b"", request, count=1)
                server.sendall(re.sub(rb"\r\nHost: [^\r]*", b"\r\nHost: 127.0.0.1:%d"
                                      b"\r\nConnection: close" % self._port, request, count=1))
                self._pump(server, client, self._cut(number, head))
        except (OSError, ssl.SSLError):
            client.close()  # whoever has left has left

    def _pump(self, server, client, most):
        server.settimeout(60)
        sent = 0
        while piece := server.recv(4096):
            if most is not None and sent + len(piece) > most:
                client.sendall(self._change(piece[:most - sent]))
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return  # with a reset, as a cable that is pulled and put back
            client.sendall(self._change(piece))
            sent += len(piece)


def _read_request(client):
    client.settimeout(30)
    request = b""
    while b"\r\n\r\n" not in request:
        piece = client.recv(65536)
        if not piece:
            raise OSError("the client has left")
        request += piece
    length = re.search(rb"\r\nContent-Length: (\d+)", request)
    whole = request.index(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
    while len(request) < whole:
        request += client.recv(65536)
    return request


def certified(folder):
    """A server's side of TLS for 127.0.0.1, and the file of the authority that vouches for it."""
    certificate, key = os.path.join(folder, "server.pem"), os.path.join(folder, "server.key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=test",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


class Talker:
    """A server that answers every connection by calling `talk(connection)`, whatever it is asked."""

    def __init__(self, talk):
        self._talk = talk
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with client:
                try:
                    self._talk(client)
                except OSError:
                    pass  # the client did not wait for the end
