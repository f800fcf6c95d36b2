#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of a cluster, from `helm install` to a curve that moves, in a real browser.

Exits with 77 where no cluster, or no browser, can be.
"""
import os
import subprocess
import sys
import time

from kube_case import run_tests
from cluster import SYSTEM
from programs import REPOSITORY
from training import TrainingCase

for folder in ("tests/install", "tests/e2e"):
    sys.path.append(os.path.join(REPOSITORY, folder))
from browser import find_tools  # noqa: E402  pylint: disable=wrong-import-position

WITHIN = 300  # seconds after `helm install` begins


class Page(TrainingCase):
    def test_a_job_trains_on_it_minutes_after_helm_install(self):
        self.addCleanup(self.cluster.install_operator)
        self.assertTrue(self.cluster.uninstall_operator())
        self.wait_for(lambda: not self.get("pods", namespace=SYSTEM), 60, "nothing is installed")
        began = time.monotonic()
        self.assertTrue(self.cluster.install_operator())
        installed = time.monotonic() - began
        self.kubectl("create", "serviceaccount", "portal")
        self.kubectl("create", "rolebinding", "portal", "--clusterrole=edit",
                     f"--serviceaccount={self.namespace}:portal")
        pod = self.wait_for(self.rest_pod, 60, "REST is ready")
        environment = dict(
            os.environ, STARLING_URL=f"https://{pod['status']['podIP']}:8443",
            STARLING_NAMESPACE=self.namespace, STARLING_TOKEN=self.kubectl("create", "token", "portal").strip(),
            STARLING_BROWSER=BROWSER, STARLING_WEB_TOOLS=TOOLS)
        done = subprocess.run(
            ["node", os.path.join(REPOSITORY, "tests/e2e/page_browser.mjs"), "trains"], env=environment,
            capture_output=True, text=True, timeout=WITHIN, cwd=REPOSITORY, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        trains = time.monotonic() - began
        self.assertLess(trains, WITHIN)
        self.say(f"installed {installed:.1f} s after `helm install` began; a job submitted on the page "
                 f"has a curve there that moves after {trains:.1f} s")


if __name__ == "__main__":
    BROWSER, TOOLS = find_tools()
    run_tests()
