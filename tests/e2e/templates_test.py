# SPDX-License-Identifier: Apache-2.0
"""Administrators' templates on one machine: a job is trained as its template says, whatever becomes of it."""
import os
import unittest

import jobs
from case import Case
from rest_client import Client

TEMPLATE = """apiVersion: starling.dev/v1alpha1
kind: ClusterTrainingTemplate
metadata: {{name: short}}
spec:
  defaults: {{stop: {{epochs: {epochs}}}, replicaSpecs: {{worker: {{maxReplicas: 2}}}}}}
  bounds: {{fields: [{{field: replicaSpecs.worker.maxReplicas, maximum: 2}}]}}
"""
REF = {"name": "short", "kind": "ClusterTrainingTemplate"}


class Templates(Case):
    def setUp(self):
        super().setUp()
        self.folder = os.path.join(self.home.home, "templates")
        os.makedirs(self.folder)
        self.write(1)

    def write(self, epochs):
        with open(os.path.join(self.folder, "short.yaml"), "w", encoding="utf-8") as file:
            file.write(TEMPLATE.format(epochs=epochs))

    def test_a_job_trains_as_its_template_said_when_it_was_made(self):
        self.home.run("up")
        rest = Client(self.home.home)
        job = jobs.digits(name="short", experiment__stepDelay="0s")
        job["spec"].pop("stop")
        job["spec"]["replicaSpecs"] = {"worker": {"replicas": 1}}
        job["spec"]["templateRef"] = REF
        listed = rest.ask("GET", "/v1/namespaces/default/templates").body["items"]
        self.assertEqual(["short"], [item["metadata"]["name"] for item in listed])
        checked = rest.ask("POST", "/v1/jobs:validate", job)
        self.assertEqual((200, 1), (checked.status, checked.body["spec"]["stop"]["epochs"]), checked)
        made = rest.ask("POST", "/v1/namespaces/default/jobs", job)
        self.assertEqual(201, made.status, made)
        self.write(7)
        ended = rest.stream("/v1/namespaces/default/jobs/short?watch=1").until("end")
        self.assertEqual("JobFinished", ended[-1].data["reason"])
        status = rest.ask("GET", "/v1/namespaces/default/jobs/short").body["status"]
        self.assertEqual(1, status["result"]["epochs"], self.home.describe())
        job["metadata"]["name"] = "wide"
        job["spec"]["replicaSpecs"] = {"worker": {"replicas": 1, "maxReplicas": 3}}
        refused = rest.ask("POST", "/v1/namespaces/default/jobs", job)
        self.assertEqual(422, refused.status, refused)
        self.assertEqual([("spec.replicaSpecs.worker.maxReplicas",
                           'is 3, and ClusterTrainingTemplate "short" allows at most 2')],
                         [(error["path"], error["detail"]) for error in refused.body["errors"]])
        self.home.run("down")


if __name__ == "__main__":
    unittest.main()
