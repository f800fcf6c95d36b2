#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program of another job, with that job's own certificates, is refused at every port of this one,
and training does not notice. The job's secrets are in no log, object or metric."""
import glob
import os
import socket
import ssl
import sys
import unittest
import urllib.request

import jobs
from case import Case
from home import read

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kube"))
import canaries  # pylint: disable=wrong-import-position

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"  # and empty settings
CONTROL = {"coordinator": 7070, "worker": 7071}


class Stray(Case):
    def leaf(self, job, role):
        """The folder of certificates that a pod of this role mounts."""
        found = [os.path.dirname(path) for path in
                 glob.glob(f"{self.home.job_folder(job)}/**/tls.crt", recursive=True)
                 if f"-{role}-" in path]
        return found[0] if found else None

    def address(self, pod):
        return self.home.pods()[pod]["status"]["podIP"]

    @staticmethod
    def speak(address, port, folder):
        """What a gRPC server says first to the holder of these certificates; b"" if it refuses."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # it is the server's refusal that counts
        context.set_alpn_protocols(["h2"])
        if folder:
            context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
        try:
            with socket.create_connection((address, port), timeout=5) as plain, \
                    context.wrap_socket(plain) as connection:
                connection.sendall(PREFACE)
                return connection.recv(9)
        except (ssl.SSLError, ConnectionError):
            return b""

    def test_a_program_of_another_job_is_refused(self):
        self.home.run("up")
        for name in ("mine", "stray"):
            self.home.run("submit", self.home.write(f"{name}.yaml", jobs.digits(name, epochs=40)))
        for name in ("mine", "stray"):
            self.home.await_step(10, name)
        pids = {pod: self.home.pod_pid(pod) for pod in self.home.pods()}
        for role, port in CONTROL.items():
            address = self.address(f"mine-{role}-0")
            self.assertNotEqual(b"", self.speak(address, port, self.leaf("mine", "coordinator")),
                                f"the job's own coordinator is heard by the {role}")
            for other in CONTROL:
                self.assertEqual(b"", self.speak(address, port, self.leaf("stray", other)),
                                 f"another job's {other} is refused by the {role}")
            self.assertEqual(b"", self.speak(address, port, None), "who shows nothing is refused")
        with socket.create_connection((self.address("mine-worker-0"), 7072), timeout=10) as plain:
            plain.sendall(b"x" * 4096)
            try:
                answer = b"".join(iter(lambda: plain.recv(4096), b""))
            except ConnectionError:
                answer = b""
        self.assertLess(len(answer), 256, "the data plane tells nothing to who cannot prove itself")
        at = self.home.steps("mine")
        self.home.await_step(at + 20, "mine")
        self.assertEqual(pids, {pod: self.home.pod_pid(pod) for pod in pids})
        self.assertEqual([], self.home.job("mine")["status"].get("incidents", []))
        self.check_canaries()
        self.home.run("down")

    def check_canaries(self):
        """The keys of both jobs, searched for in all that people and other programs read."""
        held = {path: read(path).encode() for name in ("tls.key", "data-plane")
                for path in glob.glob(f"{self.home.home}/jobs/**/{name}", recursive=True)}
        searched = canaries.forms(held)
        for name, least in (("tls.key", 4), ("data-plane", 2)):
            self.assertGreaterEqual(sum(path.endswith(name) for path in held), least, name)
        places = {path: read(path) for pattern in ("**/log", "*.log", "**/*.jsonl")
                  for path in glob.glob(f"{self.home.home}/{pattern}", recursive=True)}
        for kind in ("jobs", "pods", "events"):
            places[kind] = str(self.home.get(kind))
        scraped = 0
        for pod in self.home.pods():
            try:
                with urllib.request.urlopen(f"http://{self.address(pod)}:7073/metrics",
                                            timeout=5) as answer:
                    places[f"metrics of {pod}"] = answer.read().decode()
                    scraped += 1
            except OSError:
                pass
        self.assertGreaterEqual(scraped, 4, "the metrics of the pods")
        self.assertEqual([], canaries.sightings(searched, places))
        found = canaries.sightings(searched, {path: key.decode() for path, key in held.items()})
        self.assertEqual(len(set(searched.values())), len({name for _, name in found}),
                         "the search finds what is there")


if __name__ == "__main__":
    unittest.main()
