#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The CRD before a real API server: what it takes, refuses with which path, fills in and shows."""
import glob
import json
import os
import unittest

import kubectl as k

RUNNING = "must not change while the job runs; suspend it first"


def patch(name, change, subresource=None):
    more = [f"--subresource={subresource}"] if subresource else []
    return k.kubectl("patch", "tj", name, "--type=merge", "-p", json.dumps(change), *more)


def refused_patch(name, change):
    return k.refusal("patch", "tj", name, "--type=merge", "-p", json.dumps(change))


class Crd(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        k.install_crd()

    def setUp(self):
        k.kubectl("delete", "tj", "--all")

    def test_is_established_structural_and_small(self):
        crd = k.get("crd", "trainingjobs.starling.dev")
        conditions = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
        self.assertEqual(conditions, {"NamesAccepted": "True", "Established": "True"})
        # A client-side apply keeps the whole object, as JSON, in an annotation of at most 256 KiB.
        k.kubectl("apply", "-f", k.CRD)
        annotations = k.get("crd", "trainingjobs.starling.dev")["metadata"]["annotations"]
        kept = annotations["kubectl.kubernetes.io/last-applied-configuration"]
        self.assertLess(len(kept), 224 * 1024, "there is to be room for others' annotations")

    def test_every_example_is_taken(self):
        files = glob.glob(os.path.join(k.REPOSITORY, "examples", "*.yaml"))
        self.assertGreater(len(files), 3)
        for file in files:
            k.kubectl("apply", "-f", file)

    def test_defaults_appear_only_where_no_preset_may_set_the_field(self):
        k.create(k.digits(replicaSpecs=None))
        spec = k.get("tj", "digits")["spec"]
        self.assertEqual(spec["runPolicy"],
                         {"suspend": False, "cleanPodPolicy": "Running", "backoffLimit": 6})
        self.assertEqual(spec["replicaSpecs"]["worker"],
                         {"replicas": 1, "minReplicas": 1, "restartPolicy": "OnFailure"})
        for name in ("seed", "optimizer", "exchange", "stop", "checkpoint", "validation"):
            self.assertNotIn(name, spec)

    def test_wrong_files_are_refused_with_the_path_of_the_field(self):
        worker = {"worker": {"replicas": 9, "maxReplicas": 8}}
        unit = {"train": {"synthetic": {}}}
        for job, says in (
                (k.digits(dataset=None), "spec.dataset: Required value: is required and missing"),
                (k.digits(workload={}), "spec.workload: Invalid value"),
                (k.digits(workload={"classification": {"model": {"mlp": {}, "lenet5": {}}}}),
                 "must hold exactly one of mlp, lenet5"),
                (k.digits(replicaSpecs=worker), "spec.replicaSpecs.worker.replicas"),
                (k.digits(replicaSpecs={"worker": {"minReplicas": 5, "maxReplicas": 4}}),
                 "spec.replicaSpecs.worker.minReplicas"),
                (k.digits(replicaSpecs={"worker": {"minReplicas": 3, "replicas": 2}}),
                 "must be at least minReplicas"),
                (k.digits(replicaSpecs={"worker": {"replicas": 0}}), "spec.runPolicy.suspend: true"),
                (k.digits(replicaSpecs={"worker": {"replicas": 2000}}), "less than or equal to 1024"),
                (k.digits(exchange={"none": {}}), "must be 1 with spec.exchange.none"),
                (k.digits(reproducible=True, replicaSpecs={"worker": {"maxReplicas": 17}}),
                 "must be at most 16 with spec.reproducible"),
                (k.digits(stop={"target": {"metric": "validation/loss", "atMost": 1}}),
                 "spec.stop: Forbidden: target needs spec.dataset.validation"),
                (k.digits(dataset={**unit, "validation": {"synthetic": {}}},
                          stop={"target": {"metric": "validation/loss", "atLeast": 1}}),
                 "spec.stop.target.atLeast"),
                (k.digits(optimizer={"sgd": {"learningRate": 0}}),
                 "spec.optimizer.sgd.learningRate"),
                (k.digits(optimizer={"sgd": {}, "adam": {}}), "must hold at most one of"),
                (k.digits(checkpoint={"interval": "10ms"}),
                 "spec.checkpoint.interval: Invalid value: \"string\": must be at least 100ms"),
                (k.digits(checkpoint={"interval": "soon"}), "spec.checkpoint.interval"),
                (k.digits(runPolicy={"successPolicy": "AllWorkers"}),
                 "spec.runPolicy.successPolicy: Forbidden"),
                (k.digits(runPolicy={"managedBy": "nobody"}), "spec.runPolicy.managedBy"),
                (k.digits(runPolicy={"cleanPodPolicy": "Some"}), "spec.runPolicy.cleanPodPolicy"),
                (k.container(optimizer={"sgd": {}}), "spec.optimizer: Forbidden"),
                (k.container(dataset=unit), "spec.dataset: Forbidden"),
                (k.digits("Digits"), "metadata.name"),
                (k.digits("x" * 41), "metadata.name")):
            text = k.refusal("create", "-f", "-", stdin=json.dumps(job))
            self.assertIn(says, text)
        self.assertFalse(k.exists("tj", "-A"))

    def test_unknown_fields_are_all_named(self):
        job = k.digits(sed=1, replicaSpecs={"worker": {"replcas": 2}})
        text = k.refusal("create", "-f", "-", stdin=json.dumps(job))
        self.assertIn('unknown field "spec.sed"', text)
        self.assertIn('unknown field "spec.replicaSpecs.worker.replcas"', text)

    def test_what_may_not_change_changes_only_while_suspended(self):
        k.create(k.digits(checkpoint={"uri": "/a"}))
        changes = {
            "seed": 7, "reproducible": True, "preset": "horovod",
            "optimizer": {"adam": {}}, "exchange": {"allReduce": {"bucketBytes": 2048}},
            "dataset": {"globalBatchSize": 32}, "checkpoint": {"uri": "/b"},
            "experiment": {"stepDelay": "1s"}, "runPolicy": {"backoffLimit": 1},
            "replicaSpecs": {"worker": {"restartPolicy": "Never"}}}
        for name, value in changes.items():
            text = refused_patch("digits", {"spec": {name: value}})
            self.assertIn(RUNNING, text, name)
            self.assertIn(f"spec.{name}", text)
        patch("digits", {"spec": {"runPolicy": {"suspend": True}}})
        patch("digits", {"spec": changes})
        patch("digits", {"spec": {"runPolicy": {"suspend": False}}})
        self.assertIn(RUNNING, refused_patch("digits", {"spec": {"seed": 8}}))

    def test_what_is_mutable_changes_while_the_job_runs(self):
        k.create(k.digits(stop={"epochs": 2}))
        patch("digits", {"spec": {
            "stop": {"epochs": 3}, "checkpoint": {"interval": "1s", "keep": 5},
            "runPolicy": {"ttlSecondsAfterFinished": 1, "activeDeadlineSeconds": 9},
            "replicaSpecs": {"worker": {"replicas": 3, "minReplicas": 2, "maxReplicas": 4}}}})
        self.assertEqual(k.get("tj", "digits")["spec"]["stop"]["epochs"], 3)

    def test_parameter_servers_are_scaled_whether_or_not_the_file_names_them(self):
        servers = {"parameterServer": {"replication": 2}}
        k.create(k.digits(exchange=servers))
        self.assertNotIn("parameterServer", k.get("tj", "digits")["spec"]["replicaSpecs"])
        patch("digits", {"spec": {"replicaSpecs": {"parameterServer": {"replicas": 3}}}})
        self.assertEqual("OnFailure", k.get("tj", "digits")["spec"]["replicaSpecs"]
                         ["parameterServer"]["restartPolicy"])
        for change, path, message in (
                ({"replicas": 0}, "replicas", "must be at least 1, not 0"),
                ({"minReplicas": 4}, "replicas", "must be at least minReplicas"),
                ({"maxReplicas": 2}, "replicas", "must be at most maxReplicas"),
                ({"maxReplicas": 1, "replicas": 1}, "maxReplicas", "replication"),
                ({"restartPolicy": "Never"}, "restartPolicy", RUNNING)):
            text = refused_patch("digits", {"spec": {"replicaSpecs": {"parameterServer": change}}})
            self.assertIn(message, text)
            self.assertIn(f"spec.replicaSpecs.parameterServer.{path}", text)
        self.assertIn(RUNNING, refused_patch("digits", {"spec": {"exchange": {
            "parameterServer": {"replication": 3}}}}))
        k.kubectl("delete", "tj", "digits")

        def refusal(**spec):
            return k.refusal("create", "-f", "-", stdin=json.dumps(k.digits(**spec)))
        self.assertIn("needs spec.exchange.parameterServer",
                      refusal(replicaSpecs={"parameterServer": {"replicas": 2}}))
        self.assertIn("does not go with spec.exchange.parameterServer",
                      refusal(exchange=servers, reproducible=True))

    def test_managed_by_never_changes(self):
        for before in (None, {"managedBy": "a.b/c"}):
            k.create(k.digits(runPolicy={"suspend": True, **(before or {})}))
            for after in ("x.y/z", None) if before else ("x.y/z",):
                self.assertIn("spec.runPolicy.managedBy: Forbidden: never changes",
                              refused_patch("digits", {"spec": {"runPolicy": {"managedBy": after}}}))
            k.kubectl("delete", "tj", "digits")

    def test_scale_sets_the_workers_and_is_held_to_the_same_rules(self):
        k.create(k.digits())
        k.kubectl("scale", "tj/digits", "--replicas=4")
        self.assertEqual(k.get("tj", "digits")["spec"]["replicaSpecs"]["worker"]["replicas"], 4)
        self.assertIn("must be at most maxReplicas",
                      k.refusal("scale", "tj/digits", "--replicas=9"))
        self.assertIn("must be at least 1", k.refusal("scale", "tj/digits", "--replicas=0"))
        patch("digits", {"status": {"replicas": 3, "selector": "starling.dev/job=digits"}}, "status")
        scale = json.loads(k.kubectl(
            "get", "--raw",
            "/apis/starling.dev/v1alpha1/namespaces/default/trainingjobs/digits/scale"))
        self.assertEqual(scale["spec"], {"replicas": 4})
        self.assertEqual(scale["status"], {"replicas": 3, "selector": "starling.dev/job=digits"})

    def test_status_and_spec_are_written_apart(self):
        k.create(k.digits())
        patch("digits", {"status": {"state": "Running"}, "spec": {"seed": 9}}, "status")
        job = k.get("tj", "digits")
        self.assertEqual(job["status"]["state"], "Running")
        self.assertNotIn("seed", job["spec"])
        patch("digits", {"status": {"state": "Failed"}, "metadata": {"labels": {"a": "b"}}})
        self.assertEqual(k.get("tj", "digits")["status"]["state"], "Running")

    def test_columns_show_how_it_fares(self):
        k.create(k.digits())
        patch("digits", {"status": {
            "state": "Running", "restarts": 2, "replicaStatuses": {"worker": {"ready": 4}},
            "progress": {"step": 120, "summary": "epoch 3/20", "loss": 0.5}}}, "status")
        head, row = k.kubectl("get", "tj").splitlines()
        self.assertEqual(head.split(),
                         ["NAME", "STATE", "WORKERS", "STEP", "PROGRESS", "RESTARTS", "AGE"])
        self.assertEqual(row.split()[:7], ["digits", "Running", "4", "120", "epoch", "3/20", "2"])
        self.assertIn("0.5", k.kubectl("get", "tj", "-o", "wide"))
        self.assertIn("trainingjob.starling.dev/digits", k.kubectl("get", "all"))

    def test_explain_tells_what_the_proto_says(self):
        self.assertIn("Seed of everything random", k.kubectl("explain", "tj.spec.seed"))
        self.assertIn("PyTorch", k.kubectl("explain", "tj.spec.workload.container.framework"))

    def test_conditions_of_two_writers_are_merged_by_type(self):
        k.create(k.digits())
        base = {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
                "metadata": {"name": "digits"}}
        for who in ("Running", "Audited"):
            k.kubectl("apply", "--server-side", "--subresource=status", f"--field-manager={who}",
                      "-f", "-", stdin=json.dumps(
                          {**base, "status": {"conditions": [{"type": who, "status": "True"}]}}))
        types = {c["type"] for c in k.get("tj", "digits")["status"]["conditions"]}
        self.assertEqual(types, {"Running", "Audited"})


if __name__ == "__main__":
    unittest.main()
