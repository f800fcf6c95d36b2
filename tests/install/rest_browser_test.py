#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of a cluster in a real browser, for somebody who has rights in one namespace."""
import http.client
import os
import ssl
import subprocess
import sys
import tempfile
import unittest

import kubectl as k
from controller import Controller, install_chart
from rest_api import RestApi, bind, make_account, token_of

sys.path.insert(0, os.path.join(k.REPOSITORY, "tests/e2e"))
from browser import find_tools  # noqa: E402  (the path must come first)


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="starling-browser-")
        cls.addClassCleanup(folder.cleanup)
        install_chart("--set=webhook.enabled=false")
        make_account("editor")
        bind("edit", "editor")
        k.eventually(lambda: "trainingjobs" in k.kubectl("get", "clusterrole", "edit", "-o", "json"),
                     "edit has Starling's rights")
        controller = Controller(folder.name, "--webhook-port=0")
        controller.start()
        cls.addClassCleanup(controller.stop)
        cls.api = RestApi(folder.name).await_ready()
        cls.addClassCleanup(cls.api.end)

    def test_a_job_is_submitted_and_seen_in_ones_own_namespace(self):
        environment = dict(os.environ, STARLING_URL=f"https://{self.api.address}:{self.api.port}",
                           STARLING_TOKEN=token_of("editor", "default"), STARLING_BROWSER=BROWSER,
                           STARLING_WEB_TOOLS=TOOLS)
        done = subprocess.run(["node", os.path.join(k.REPOSITORY, "tests/e2e/page_browser.mjs"), "cluster"],
                              env=environment, capture_output=True, text=True, timeout=240,
                              cwd=k.REPOSITORY, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertTrue(k.exists("tj", "first"))

    def test_the_page_itself_needs_no_token_and_loads_nothing_from_elsewhere(self):
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(self.api.address, self.api.port, context=tls, timeout=30)
        self.addCleanup(connection.close)
        connection.request("GET", "/")
        answer = connection.getresponse()
        self.assertEqual(200, answer.status)
        self.assertIn("default-src 'none'", answer.headers["Content-Security-Policy"])
        self.assertIn(b"<title>Starling", answer.read())
        connection.request("GET", "/v1/jobs")
        self.assertEqual(401, connection.getresponse().status)


if __name__ == "__main__":
    BROWSER, TOOLS = find_tools()
    k.helm_or_skip()
    unittest.main()
