#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command beside an object store of its own, and ends everything with it.

usage: with_object_store.py -- COMMAND [ARGUMENT]...

The store is versitygw over a folder: it speaks S3 and checks signatures. The command finds in its
environment AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION as any S3 tool
wants them, and in STARLING_TEST_BUCKET the name of a bucket. The exit code is the command's; 77 with
a reason where Go is missing.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kube"))
from processes import die_with_parent  # noqa: E402  (the path must come first)
from programs import Programs, run_main  # noqa: E402

BUCKET = "starling-test"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ObjectStore:
    """One server with one bucket; stop() and start() keep what is in it."""

    def __init__(self):
        self._program = Programs("versitygw")["versitygw"]
        self.folder = tempfile.mkdtemp(prefix="starling-object-store-")
        os.mkdir(os.path.join(self.folder, BUCKET))
        self.port = free_port()
        self._server = None
        self.start()

    def environment(self):
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_ACCESS_KEY_ID": "test-key",
                "AWS_SECRET_ACCESS_KEY": "test-secret", "AWS_REGION": "us-east-1",
                "no_proxy": "127.0.0.1,localhost"}

    def start(self):
        self._server = subprocess.Popen(
            [self._program, "--quiet", "--keep-alive", "--port", f"127.0.0.1:{self.port}",
             "--virtual-domain", f"localhost:{self.port}", "posix", self.folder],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=die_with_parent,
            env={**os.environ, "ROOT_ACCESS_KEY_ID": "test-key",
                 "ROOT_SECRET_ACCESS_KEY": "test-secret"})
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self._server.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise RuntimeError("versitygw does not start") from None
                time.sleep(0.05)

    def stop(self):
        """As a power cut would."""
        self._server.send_signal(signal.SIGKILL)
        self._server.wait()

    def names(self, prefix=""):
        """The keys of the bucket, by the files that they lie in."""
        root = os.path.join(self.folder, BUCKET)
        found = (os.path.relpath(os.path.join(folder, file), root)
                 for folder, _, files in os.walk(root) for file in files)
        return sorted(name for name in found
                      if name.startswith(prefix) and not name.startswith(".sgwtmp"))

    def close(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    if len(sys.argv) < 3 or sys.argv[1] != "--":
        sys.exit(__doc__)
    store = ObjectStore()
    try:
        environment = {**os.environ, **store.environment(), "STARLING_TEST_BUCKET": BUCKET}
        return subprocess.run(sys.argv[2:], env=environment, check=False).returncode
    finally:
        store.close()


if __name__ == "__main__":
    run_main(main)
