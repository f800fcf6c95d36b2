#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The validating webhook asked by a real API server: its words, its certificates, its absence."""
import base64
import collections
import json
import tempfile
import unittest

import kubectl as k
from controller import NAMESPACE, Controller, install_chart

CREATED_BY = "starling.dev/created-by"
TEMPLATE = {"spec": {"restartPolicy": "Always"}}


def with_template(name, template, **spec):
    return k.digits(name, replicaSpecs={"worker": {"template": template}}, **spec)


def refused(job):
    return k.refusal("create", "-f", "-", stdin=json.dumps(job))


def bundle():
    webhook = k.get("validatingwebhookconfiguration", "starling")["webhooks"][0]
    return webhook["clientConfig"].get("caBundle", "")


class Webhook(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="starling-webhook-")
        install_chart()
        cls.controller = Controller(cls.folder.name)
        # Nothing routes a Service here: its name leads to this machine, the TLS name stays.
        k.kubectl("patch", "service", "starling-webhook", "-n", NAMESPACE, "--type=json", "-p",
                  json.dumps([{"op": "replace", "path": "/spec", "value": {
                      "type": "ExternalName", "externalName": "localhost"}}]))
        for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration"):
            k.kubectl("patch", kind, "starling", "--type=json", "-p", json.dumps(
                [{"op": "replace", "path": f"/webhooks/{i}/clientConfig/service/port",
                  "value": cls.controller.port} for i in range(2)]))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.controller.start()
        k.eventually(lambda: "must be Never" in k.refusal(
            "create", "--dry-run=server", "-f", "-",
            stdin=json.dumps(with_template("probe", TEMPLATE))), "the webhook answers")

    def tearDown(self):
        self.controller.stop()
        k.kubectl("delete", "tj", "--all")

    def test_a_template_gives_bounds_and_is_what_it_was_when_the_job_was_made(self):
        for kind, epochs in (("TrainingTemplate", 3), ("ClusterTrainingTemplate", 4)):
            k.create({"apiVersion": "starling.dev/v1alpha1", "kind": kind, "metadata": {"name": "short"},
                      "spec": {"defaults": {"stop": {"epochs": epochs}},
                               "podTemplate": {"spec": {"nodeSelector": {"pool": "small"}}},
                               "bounds": {"fields": [{"field": "stop.epochs", "maximum": 5}]}}})
        try:
            for name, kind, epochs in (("one", "TrainingTemplate", 3),
                                       ("two", "ClusterTrainingTemplate", 4)):
                k.create(k.digits(name, templateRef={"name": "short", "kind": kind}))
                job = k.get("tj", name)
                self.assertEqual(epochs, job["spec"]["stop"]["epochs"])
                self.assertEqual({"pool": "small"}, job["spec"]["replicaSpecs"]["worker"]["template"]
                                 ["spec"]["nodeSelector"])
            k.kubectl("patch", "trainingtemplate", "short", "--type=merge", "-p",
                      '{"spec":{"defaults":{"stop":{"epochs":1}},"bounds":null}}')
            # The file of before again, and an edit: the bounds of then hold.
            k.kubectl("apply", "-f", "-", stdin=json.dumps(
                k.digits("one", templateRef={"name": "short", "kind": "TrainingTemplate"})))
            self.assertEqual(3, k.get("tj", "one")["spec"]["stop"]["epochs"])
            self.assertIn('spec.stop.epochs: is 9, and TrainingTemplate "short" allows at most 5', k.refusal(
                "patch", "tj", "one", "--type=merge", "-p", '{"spec":{"stop":{"epochs":9}}}'))
            k.kubectl("annotate", "tj", "one", "--overwrite", "starling.dev/template={}")
            self.assertIn('"epochs":3', k.get("tj", "one")["metadata"]["annotations"]["starling.dev/template"])
            self.assertIn('there is no TrainingTemplate "none"',
                          refused(k.digits("three", templateRef={"name": "none"})))
            self.assertIn('a job\'s spec has no field "stop.epoch", did you mean "epochs"?', k.refusal(
                "patch", "trainingtemplate", "short", "--type=merge", "-p",
                '{"spec":{"bounds":{"fields":[{"field":"stop.epoch","maximum":5}]}}}'))
            self.controller.stop()
            self.assertIn("failed calling webhook",
                          refused(k.digits("four", templateRef={"name": "short"})))
            k.create(k.digits("five"))
        finally:
            k.kubectl("delete", "trainingtemplate,clustertrainingtemplate", "short")

    def test_says_what_cel_cannot_in_the_words_of_the_cli(self):
        self.assertIn("The request is invalid: "
                      "spec.replicaSpecs.worker.template.spec.restartPolicy: must be Never",
                      refused(with_template("a", TEMPLATE)))
        self.assertIn('did you mean "horovod"?', refused(k.digits("a", preset="horowod")))
        self.assertEqual(refused(k.digits("a")), "")

    def test_templates_change_only_while_suspended(self):
        k.create(k.digits("b"))
        change = json.dumps(with_template("b", {"spec": {"nodeName": "n"}}))
        self.assertIn("spec.replicaSpecs.worker.template: must not change while the job runs",
                      k.refusal("apply", "--server-side", "-f", "-", stdin=change))
        k.kubectl("patch", "tj", "b", "--type=merge", "-p",
                  '{"spec":{"runPolicy":{"suspend":true}}}')
        k.kubectl("patch", "tj", "b", "--type=merge", "-p", change)

    def test_who_made_a_job_is_noted_and_nobody_can_say_otherwise(self):
        k.eventually(lambda: self.makes(k.digits("probe"))[CREATED_BY], "the webhook answers")
        forged = k.digits("d")
        forged["metadata"]["annotations"] = {CREATED_BY: "somebody else", "a": "b"}
        self.assertEqual({CREATED_BY: "admin", "a": "b"}, self.makes(forged))
        k.create(forged)
        for change in ('{"metadata":{"annotations":{"%s":"me"}}}' % CREATED_BY,
                       '{"metadata":{"annotations":null}}',
                       '{"metadata":{"annotations":{"%s":null}}}' % CREATED_BY):
            k.kubectl("patch", "tj", "d", "--type=merge", "-p", change)
            self.assertEqual("admin", self.creator("d"), change)
        k.kubectl("label", "tj", "d", "c=d")
        # A deputy's change is the deputy's, the job is not.
        k.kubectl("annotate", "tj", "d", "e=f", "--as=deputy", "--as-group=system:masters")
        self.assertEqual("admin", self.creator("d"))

        self.controller.stop()
        said = "metadata.annotations[starling.dev/created-by]: is written by Starling alone"
        forged["metadata"]["name"] = "e"
        self.assertIn(said, refused(forged))
        self.assertIn(said, k.refusal("annotate", "tj", "d", "--overwrite", f"{CREATED_BY}=me"))
        k.create(k.digits("nobodys"))
        self.assertIn(said, k.refusal("annotate", "tj", "nobodys", f"{CREATED_BY}=admin"))
        k.kubectl("annotate", "tj", "nobodys", "e=f")

    @staticmethod
    def makes(job):
        """The annotations that the job would have."""
        made = k.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-",
                         stdin=json.dumps(job))
        return collections.defaultdict(str, json.loads(made)["metadata"].get("annotations", {}))

    @staticmethod
    def creator(name):
        return k.get("tj", name)["metadata"].get("annotations", {}).get(CREATED_BY)

    def test_what_slips_past_while_it_is_away_fails_with_the_same_words(self):
        self.controller.stop()
        self.assertEqual(refused(with_template("slipped", TEMPLATE)), "")
        self.controller.start()
        k.kubectl("wait", "tj/slipped", "--for=condition=Failed", "--timeout=60s")
        failed = [c for c in k.get("tj", "slipped")["status"]["conditions"] if c["type"] == "Failed"]
        self.assertEqual(failed[0]["reason"], "InvalidSpec")
        self.assertIn("restartPolicy: must be Never", failed[0]["message"])
        k.kubectl("label", "tj", "slipped", "a=b")
        k.kubectl("delete", "tj", "slipped")

    def test_lost_certificates_are_made_anew_and_the_api_server_told(self):
        before = bundle()
        self.controller.stop()
        k.kubectl("delete", "secret", "starling-webhook-certificate", "-n", NAMESPACE)
        self.controller.start()
        k.eventually(lambda: bundle() != before, "the new authority is published")
        self.assertIn("BEGIN CERTIFICATE", base64.b64decode(bundle()).decode())
        k.eventually(lambda: "must be Never" in refused(with_template("c", TEMPLATE)),
                     "the webhook answers under the new authority")


if __name__ == "__main__":
    k.helm_or_skip()
    unittest.main()
