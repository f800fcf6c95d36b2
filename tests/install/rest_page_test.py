#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/how-to/rest.md for a cluster, as they stand there, against a real API server.

No node runs the Service, so that the one port of it that the page forwards is that of the program."""
import os
import re
import subprocess
import tempfile
import unittest

import kubectl as k
from controller import install_chart
from rest_api import RestApi

PAGE = os.path.join(k.REPOSITORY, "docs/how-to/rest.md")


class Page(unittest.TestCase):
    def test_every_command_does_what_it_says(self):
        with open(PAGE, encoding="utf-8") as file:
            blocks = re.findall(r"^```sh cluster\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertEqual(2, len(blocks))
        with tempfile.TemporaryDirectory(prefix="starling-page-") as folder:
            install_chart("--set=webhook.enabled=false")
            # Aggregation into `edit` takes a moment.
            k.eventually(lambda: "trainingjobs" in k.kubectl(
                "get", "clusterrole", "edit", "-o", "json"), "edit has Starling's rights")
            api = RestApi(folder).await_ready()
            try:
                os.symlink(os.path.join(k.REPOSITORY, "examples"), os.path.join(folder, "examples"))
                script = "shopt -s expand_aliases\nset -euxo pipefail\n" + \
                    "\n".join(blocks).replace("8443", str(api.port))
                done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True,
                                      text=True, check=False, timeout=120)
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            finally:
                api.end()
        self.assertIn('{"name":"system:serviceaccount:default:portal"}', done.stdout)
        self.assertIn("event: added\n", done.stdout)
        self.assertIn('"replicas":3', done.stdout)
        self.assertIn('"name":"digits"', done.stdout)
        self.assertFalse(k.exists("tj", "digits"))


if __name__ == "__main__":
    k.helm_or_skip()
    unittest.main()
