#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests made up from the OpenAPI document that the running REST service answers.

What must hold of every answer: no status, media type or body that the document does not name, no
500, no route that forgets to ask who is there. Whether each made-up job is taken is not asked: rules
between fields are more than a schema can say.

usage: tests/rest/fuzz.py [EXAMPLES-PER-OPERATION]
"""
import os
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPOSITORY, "tests/e2e"))

import jobs  # noqa: E402
from home import Home, until  # noqa: E402
from rest_client import Client  # noqa: E402

CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,"
          "response_headers_conformance,response_schema_conformance,ignored_auth,unsupported_method")
# Streams would go on for as long as they may.
BRIEF = '"query.watch" = "false"\n"query.follow" = "false"\n"query.timeoutSeconds" = 1\n'
PRESENT = '"path.namespace" = "default"\n"path.name" = "present"\n'


def fuzz(program, client, home, parameters, examples):
    config = home.write("schemathesis.toml", "[parameters]\n" + parameters)
    return subprocess.run(
        [program, "--config-file", config, "run", client.ready["restUrl"] + "/openapi.json",
         "-H", "Authorization: Bearer " + client.token, "--phases", "coverage,fuzzing",
         "--mode", "all", "--checks", CHECKS, "-n", str(examples), "--max-failures", "20",
         "--request-timeout", "10", "--seed", "1"], cwd=home.folder).returncode


def main():
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    program = subprocess.run([os.path.join(REPOSITORY, "cmake/setup/schemathesis.sh")], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    home = Home()
    controller = subprocess.Popen(
        [home.program("starling-controller"), "--home", home.home, "--rest-caller-reads", "0",
         "--rest-caller-writes", "0"], env=home.environment, stderr=subprocess.DEVNULL)
    try:
        ready = os.path.join(home.home, "controller.json")
        until(lambda: os.path.exists(ready), 30, "the controller is ready")
        client = Client(home.home)
        failed = fuzz(program, client, home, BRIEF, examples)
        job = jobs.digits("present", epochs=1, runPolicy={"suspend": True})
        client.ask("POST", "/v1/namespaces/default/jobs", job)
        failed = fuzz(program, client, home, BRIEF + PRESENT, examples) or failed
        assert controller.poll() is None, "the controller has ended"
        return failed
    finally:
        controller.terminate()
        controller.wait(60)
        home.close()


if __name__ == "__main__":
    sys.exit(main())
