#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Secrets appear in no log, event, object, metric or termination message of a cluster.

Jobs live, are killed, fail, are scaled and suspended; all that people and other programs can read of
them is searched for the keys that they hold, and for the controller's own.
"""
import base64
import json
import urllib.request

import canaries
from kube_case import run_tests
from training import START, TrainingCase, digits

SYSTEM = "starling-system"
# All but Secrets themselves.
KINDS = ("tj", "pods", "configmaps", "services", "endpointslices", "pdb", "events",
         "events.events.k8s.io", "leases", "replicasets", "deployments")
PORTS = {SYSTEM: (8080,)}
MEMBER_PORTS = (7073,)


class Canaries(TrainingCase):
    def setUp(self):
        super().setUp()
        self.places = {}
        self.secrets = {}

    def collect(self, moment):
        """Adds what there is to read now; pods that are gone later have left it here."""
        for namespace in (self.namespace, SYSTEM):
            listed = self.kubectl("get", ",".join(KINDS), "-o", "json", namespace=namespace)
            for found in json.loads(listed)["items"]:
                what = f"{found['apiVersion']} {found['kind']} {found['metadata']['name']}"
                self.places[f"{moment}: {what} of {namespace}"] = json.dumps(found)
            for pod in self.get("pods", namespace=namespace):
                self.collect_pod(moment, namespace, pod)
            for secret in self.get("secrets", namespace=namespace):
                for key, value in secret.get("data", {}).items():
                    name = f"{secret['metadata']['name']}/{key}"
                    if not name.startswith("sh.helm."):
                        self.secrets[name] = base64.b64decode(value)

    def collect_pod(self, moment, namespace, pod):
        name = pod["metadata"]["name"]
        for flag in ("--previous=false", "--previous"):
            self.places[f"{moment}: log of {name} {flag}"] = self.kubectl(
                "logs", name, "--all-containers", flag, check=False, namespace=namespace)
        for port in PORTS.get(namespace, MEMBER_PORTS):
            try:
                with urllib.request.urlopen(f"http://{pod['status'].get('podIP')}:{port}/metrics",
                                            timeout=5) as answer:
                    self.places[f"{moment}: metrics of {name}"] = answer.read().decode()
            except OSError:
                continue  # one that has ended

    def fail_job(self):
        """Its pods end with a termination message."""
        self.apply(digits("fails", dataset__train__csv__uri="data/absent.csv"))
        self.await_condition("Failed", "fails")
        messages = [status["state"]["terminated"].get("message", "")
                    for pod in self.roles("worker", "fails").values()
                    for status in pod["status"].get("containerStatuses", [])
                    if "terminated" in status["state"]]
        self.assertTrue(any("absent.csv" in message for message in messages), messages)

    def test_no_secret_is_seen_anywhere(self):
        self.start(digits())
        self.members(2)
        self.fail_job()
        self.collect("training")
        self.assertEqual(1, self.kill_in_pod("digits-worker-1", "starling-worker"))
        self.wait_for(self.incidents, START, "the kill is an incident")
        coordinator = max(self.living("coordinator"))  # -1 where the first fell silent
        self.assertEqual(1, self.kill_in_pod(coordinator, "starling-coordinator"))
        self.kubectl("delete", "pod", "digits-worker-0", "--wait=false")
        self.kubectl("scale", "tj/digits", "--replicas=3")
        # On a machine with much else to do a pod may seem silent: its node is avoided for two minutes.
        self.members(3, deadline=4 * START)
        self.kill_controller()
        self.collect("after kills")
        self.suspend(True)
        self.await_condition("Suspended")
        self.collect("suspended")

        searched = canaries.forms(self.secrets)
        names = set(searched.values())
        for name in ("digits-secret/data-plane", "fails-secret/data-plane"):
            self.assertIn(name, names)
        self.assertGreaterEqual(sum(name.startswith("digits-secret/") for name in names), 3, names)
        for owner in ("starling-controller-ca/", "starling-webhook-certificate/"):
            self.assertTrue(any(name.startswith(owner) for name in names), names)
        for kind in ("log of digits-worker-1", "log of starling-controller", "metrics of digits-",
                     "metrics of starling-controller", "log of fails-worker"):
            self.assertTrue(any(kind in place and text for place, text in self.places.items()),
                            f"{kind}: nothing was read of it")
        self.assertEqual([], canaries.sightings(searched, self.places))
        self.say(f"{len(names)} secrets in {len(searched)} forms searched for in "
                 f"{len(self.places)} places, "
                 f"{sum(map(len, self.places.values())) // 1024} KiB")
        # The search finds what is there: each of them in the objects that hold them.
        held = json.dumps([self.get("secrets"), self.get("secrets", namespace=SYSTEM)])
        self.assertEqual(names, {name for _, name in canaries.sightings(searched, {"held": held})})


if __name__ == "__main__":
    run_tests()
