#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same as fuzz.py for REST in a cluster, beside a real API server.

usage: tests/kube/with_api_server.py --controller-manager -- tests/rest/fuzz_cluster.py [EXAMPLES]
"""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(REPOSITORY, "tests/install")]
os.environ.setdefault("STARLING_BIN", os.path.join(REPOSITORY, "build/release/bin"))

import kubectl as k  # noqa: E402
from controller import free_port, install_chart  # noqa: E402
from fuzz import BRIEF, PRESENT, fuzz  # noqa: E402
from home import Home  # noqa: E402
from rest_api import RestApi, kubeconfig_with, make_account, token_of  # noqa: E402


class Service:
    """What fuzz() needs to know of a service. Plain HTTP, as it is spoken on this machine alone."""

    def __init__(self, folder):
        install_chart("--set=webhook.enabled=false")
        make_account("fuzzer")
        k.kubectl("create", "clusterrolebinding", "fuzzer", "--clusterrole=cluster-admin",
                  "--serviceaccount=default:fuzzer")
        self.token = token_of("fuzzer", "default", "--duration=3h")
        port = free_port()
        self.ready = {"restUrl": f"http://127.0.0.1:{port}"}
        self.api = RestApi.__new__(RestApi)
        self.api.start(folder, "api", kubeconfig_with(token_of("starling-api"), folder, "api.json"),
                       f"--rest-bind-address=127.0.0.1:{port}", "--rest-caller-reads=0",
                       "--rest-caller-writes=0", "--kube-api-qps=0")
        self.api.await_ready()


def main():
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    k.helm_or_skip()
    program = subprocess.run([os.path.join(REPOSITORY, "cmake/setup/schemathesis.sh")], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    home = Home()
    service = Service(home.folder)
    try:
        failed = fuzz(program, service, home, BRIEF, examples)
        k.create(k.digits("present", runPolicy={"suspend": True}))
        failed = fuzz(program, service, home, BRIEF + PRESENT, examples) or failed
        assert service.api.process.poll() is None, "the service has ended"
        assert service.token not in service.api.read_log(), "a token is in the log"
        return failed
    finally:
        service.api.end(signal.SIGTERM)
        home.close()


if __name__ == "__main__":
    sys.exit(main())
