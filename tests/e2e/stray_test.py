#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program of another job, with that job's own certificates, is refused at every port of this one,
and training does not notice. The job's secrets are in no log, object or metric."""
import glob
import os
import sys
import unittest
import urllib.request

from case import Case
from home import read, until
from parameter_server_test import job

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "kube"))
import canaries  # pylint: disable=wrong-import-position
import strangers  # pylint: disable=wrong-import-position


class Stray(Case):
    def mounted(self, name, role):
        """The folder that a pod of this role mounts: certificates, and a member's data-plane key."""
        return os.path.dirname(next(
            path for path in glob.glob(f"{self.home.job_folder(name)}/**/tls.crt", recursive=True)
            if f"-{role}-" in path))

    def address(self, pod):
        return self.home.pods()[pod]["status"]["podIP"]

    def uid(self, name):
        return self.home.job(name)["metadata"]["uid"]

    def check_control(self):
        for role, port in strangers.CONTROL.items():
            address = self.address(f"mine-{role}-0")
            own = self.mounted("mine", "coordinator")
            self.assertNotEqual(b"", strangers.speak(address, port, own),
                                f"the job's own coordinator is heard by the {role}")
            for other in strangers.CONTROL:
                self.assertEqual(b"", strangers.speak(address, port, self.mounted("stray", other)),
                                 f"another job's {other} is refused by the {role}")
            self.assertEqual(b"", strangers.speak(address, port, None),
                             "who shows nothing is refused")

    def check_data(self):
        keys = {name: read(f"{self.mounted(name, 'worker')}/data-plane").strip().encode()
                for name in ("mine", "stray")}
        for role in ("worker", "parameter-server"):
            address = self.address(f"mine-{role}-0")
            self.assertEqual(
                (True, strangers.WRONG_MEMBER),
                strangers.shake_hands(address, keys["mine"], self.uid("mine")),
                f"who knows the job's own key is answered by the {role}")
            for claimed in ("mine", "stray"):
                self.assertEqual(
                    (False, None), strangers.shake_hands(address, keys["stray"], self.uid(claimed)),
                    f"the key of another job, said to be of {claimed}, is worth nothing")
            self.assertEqual(b"", strangers.babble(address), f"the {role} says nothing to nonsense")

    def test_a_program_of_another_job_is_refused(self):
        self.home.run("up")
        for name, count, copies in (("mine", 2, 2), ("stray", 1, 1)):
            self.home.run("submit", self.home.write(f"{name}.yaml", job(
                name, count, count, copies, epochs=4000)))
        for name in ("mine", "stray"):
            self.home.await_step(10, name)
        until(lambda: all(map(self.home.pod_pid, self.home.pods())), 30, self.home.describe)
        pids = {pod: self.home.pod_pid(pod) for pod in self.home.pods()}
        self.assertEqual(8, len(pids), pids)
        self.check_control()
        self.check_data()
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
        for name, least in (("tls.key", 8), ("data-plane", 6)):
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
        self.assertGreaterEqual(scraped, 8, "the metrics of the pods")
        self.assertEqual([], canaries.sightings(searched, places))
        found = canaries.sightings(searched, {path: key.decode() for path, key in held.items()})
        self.assertEqual(len(set(searched.values())), len({name for _, name in found}),
                         "the search finds what is there")


if __name__ == "__main__":
    unittest.main()
