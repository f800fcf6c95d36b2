#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line against a real API server: every verb, and the exit codes that scripts rely on.

Run it under tests/kube/with_api_server.py and with_crds.py; no controller is there, so what a
controller would write this test writes with kubectl.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
STARLING = sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/release/bin/starling"
DIGITS = str(ROOT / "examples/digits.yaml")


def kubectl(*arguments, text=None):
    return subprocess.run(["kubectl", *arguments], check=True, capture_output=True, text=True,
                          input=text).stdout


class Cli(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)

    def run_cli(self, *arguments, cluster=("--cluster",), code=0, **environment):
        environment = dict(os.environ, STARLING_HOME=self.home.name, **environment)
        done = subprocess.run([STARLING, *arguments, *cluster], env=environment, text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def name(self, name):
        self.addCleanup(subprocess.run, ["kubectl", "delete", "tj", name, "--ignore-not-found"],
                        capture_output=True, check=False)
        return f"metadata.name={name}"

    def submit(self, name, *more):
        return self.run_cli("submit", DIGITS, "--set", self.name(name), *more)

    def job(self, name):
        return json.loads(kubectl("get", "tj", name, "-o", "json"))

    def test_submit_is_apply(self):
        self.assertIn("created", self.submit("applied", "--set", "spec.seed=3"))
        self.assertIn("unchanged", self.submit("applied", "--set", "spec.seed=3"))
        self.assertIn("configured", self.submit("applied", "--set", "spec.seed=3", "--set",
                                                "spec.replicaSpecs.worker.replicas=3"))
        self.assertEqual(self.job("applied")["spec"]["replicaSpecs"]["worker"]["replicas"], 3)
        uri = self.job("applied")["spec"]["dataset"]["train"]["csv"]["uri"]
        self.assertFalse(uri.startswith("/"), "in the image relative URIs begin elsewhere")

    def test_a_change_that_may_not_be_is_refused_by_the_server(self):
        self.submit("frozen", "--set", "spec.seed=3")
        environment = {"cluster": ("--cluster", "--set", "spec.seed=4")}
        text = self.run_cli("submit", DIGITS, "--set", "metadata.name=frozen", code=2,
                            **environment)
        self.assertIn("spec.seed", text)
        self.assertIn("must not change", text)

    def test_edits(self):
        self.submit("edited")
        self.run_cli("scale", "edited", "--replicas", "4")
        self.assertEqual(self.job("edited")["spec"]["replicaSpecs"]["worker"]["replicas"], 4)
        self.run_cli("suspend", "tj/edited")
        self.assertTrue(self.job("edited")["spec"]["runPolicy"]["suspend"])
        self.run_cli("resume", "edited")
        self.assertFalse(self.job("edited")["spec"]["runPolicy"]["suspend"])
        asked = self.run_cli("checkpoint", "edited", "--timeout", "1s", code=5)
        self.assertIn("has not written a checkpoint within 1s", asked)
        word = self.job("edited")["metadata"]["annotations"]["starling.dev/checkpoint-requested-at"]
        self.assertRegex(word, r"^20\d\d-.*Z$")
        self.run_cli("suspend", "edited", "--wait", "--timeout", "1s", code=5)
        self.assertIn("is suspended", self.run_cli("checkpoint", "edited", code=1))
        self.run_cli("delete", "edited")
        self.run_cli("get", "job", "edited", code=3)

    def test_what_there_is(self):
        self.submit("shown")
        self.assertIn("shown", self.run_cli("get", "jobs"))
        self.assertIn("trainingjob.starling.dev/shown", self.run_cli("get", "jobs", "-o", "name"))
        self.assertEqual(json.loads(self.run_cli("get", "job", "shown", "-o", "json"))["kind"],
                         "TrainingJob")
        self.assertIn("Conditions:", self.run_cli("describe", "shown"))
        self.run_cli("get", "pods")
        self.run_cli("get", "events")

    def test_watch_tells_the_end(self):
        self.submit("watched")
        now = "2026-01-01T00:00:00Z"
        kubectl("patch", "tj", "watched", "--subresource=status", "--type=merge", "-p", json.dumps(
            {"status": {"state": "Failed", "conditions": [
                {"type": "Failed", "status": "True", "reason": "Test", "message": "enough",
                 "lastTransitionTime": now}]}}))
        self.assertIn("enough", self.run_cli("watch", "watched", code=1))

    def test_validate_asks_the_server_and_stores_nothing(self):
        self.run_cli("validate", DIGITS, "--set", "metadata.name=dry")
        self.run_cli("get", "job", "dry", code=3)
        self.submit("dry")
        text = self.run_cli("validate", DIGITS, "--set", "metadata.name=dry", "--set",
                            "spec.seed=99", code=2)
        self.assertIn("must not change", text)

    def test_logs_of_what_has_not_started(self):
        self.submit("quiet")
        self.run_cli("logs", "quiet")
        self.run_cli("logs", "nobody", code=3)

    def test_how_a_cluster_is_chosen(self):
        self.submit("chosen")
        path = os.environ["KUBECONFIG"]
        here = "no trainingjobs"
        self.assertIn(here, self.run_cli("get", "jobs", cluster=()), "KUBECONFIG alone is no choice")
        self.assertIn("chosen", self.run_cli("get", "jobs", cluster=("--kubeconfig", path)))
        self.assertIn("chosen", self.run_cli("get", "jobs", cluster=(), STARLING_KUBECONFIG=path))
        self.assertIn(here, self.run_cli("get", "jobs", cluster=("--home", self.home.name),
                                         STARLING_KUBECONFIG=path))
        self.run_cli("get", "jobs", cluster=("--home", self.home.name, "--cluster"), code=2)
        self.run_cli("get", "jobs", cluster=("--context", "nowhere"), code=3)
        self.run_cli("up", code=2)

    def test_namespaces(self):
        self.assertIn("no trainingjobs in namespace kube-public",
                      self.run_cli("get", "jobs", "-n", "kube-public"))

    def test_a_user_who_may_not_is_told_so(self):
        view = json.loads(kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
        for user in view["users"]:
            user["user"] = {"token": "nonsense"}
        path = os.path.join(self.home.name, "kubeconfig")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(view, file)
        text = self.run_cli("get", "jobs", cluster=("--kubeconfig", path), code=1)
        self.assertIn("Unauthorized", text)


if __name__ == "__main__":
    unittest.main(verbosity=1)
