#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A pod of another job in the same namespace can neither join a job, nor read from it, nor stop it:
with all that its own job's Secret holds it is refused at every port."""
import base64
import os
import tempfile

import strangers
from kube_case import run_tests
from parameter_server_test import served
from training import TrainingCase

SECRET = "/etc/starling/secret"


class Strangers(TrainingCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="starling-stranger-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def secret(self, job):
        return {key: base64.b64decode(value)
                for key, value in self.get("secret", f"{job}-secret")["data"].items()}

    def leaf(self, job, role):
        """A folder with the certificate and the key that pods of this role have."""
        folder = os.path.join(self.folder, f"{job}-{role}")
        os.makedirs(folder, exist_ok=True)
        secret = self.secret(job)
        for name in ("crt", "key"):
            with open(f"{folder}/tls.{name}", "wb") as file:
                file.write(secret[f"{role}.{name}"])
        return folder

    def uid(self, job):
        return self.get("tj", job)["metadata"]["uid"]

    def uids(self):
        return {name: pod["metadata"]["uid"] for name, pod in self.pods().items()}

    def check_control(self):
        own = self.leaf("mine", "coordinator")
        theirs = {role: self.leaf("stray", role) for role in strangers.CONTROL}
        for role, port in strangers.CONTROL.items():
            address = self.address_of(f"mine-{role}-0")
            self.assertNotEqual(b"", strangers.speak(address, port, own),
                                f"the job's own coordinator is heard by the {role}")
            for other, leaf in theirs.items():
                self.assertEqual(b"", strangers.speak(address, port, leaf),
                                 f"another job's {other} is refused by the {role}")
            self.assertEqual(b"", strangers.speak(address, port, None), "so is who shows nothing")

    def check_data(self):
        keys = {job: self.secret(job)["data-plane"] for job in ("mine", "stray")}
        for role in ("worker", "parameter-server"):
            address = self.address_of(f"mine-{role}-0")
            self.assertEqual((True, strangers.WRONG_MEMBER),
                             strangers.shake_hands(address, keys["mine"], self.uid("mine")),
                             f"who knows the job's own key is answered by the {role}")
            for claimed in ("mine", "stray"):
                self.assertEqual(
                    (False, None),
                    strangers.shake_hands(address, keys["stray"], self.uid(claimed)),
                    f"another job's key, said to be of {claimed}, is worth nothing to the {role}")
            self.assertEqual(b"", strangers.babble(address))

    def check_api(self):
        """A pod holds nothing with which the API server would show it another job's Secret."""
        def files(folder):
            return self.execute("stray-worker-0", "sh", "-c", f"ls {folder} || true").split()
        self.assertEqual(["ca.crt", "data-plane", "tls.crt", "tls.key"], files(SECRET))
        self.assertEqual([], files("/var/run/secrets"), "no token of a service account")

    def test_a_pod_of_another_job_can_neither_join_nor_read_nor_stop_this_one(self):
        for name, count in (("stray", 1), ("mine", 2)):
            job = served(servers=count, replication=count, workers=count)
            job["metadata"]["name"] = name
            self.start(job)
        for name, count in (("stray", 1), ("mine", 2)):
            for role in ("worker", "parameter-server"):
                self.await_ready(*(f"{name}-{role}-{index}" for index in range(count)))
        before = self.uids()
        with self.watch_steps("mine") as steps:
            steps.await_more(10)
            self.check_control()
            self.check_data()
            self.check_api()
            steps.await_more(20)
        self.say(f"longest time without a step: {steps.gap():.2f} s")
        self.assertLess(steps.gap(), 2)
        self.assertEqual(before, self.uids())
        for name in ("mine", "stray"):
            self.assertEqual([], self.incidents(name))


if __name__ == "__main__":
    run_tests()
