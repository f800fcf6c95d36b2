#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chart's rights are the least that work.

The controller runs as its service account against a real API server that writes down every
request, through jobs that make it use all it may. Then: no request was refused; every verb of
every rule was used; and with that verb taken out of its rule the same request is refused.

With --one-namespace all of it again for a controller of the namespace `default` alone; then, too:
jobs of another namespace are left alone, and nothing was asked about any other namespace.

usage: rbac_test.py AUDIT_LOG [--one-namespace]
"""
import copy
import json
import os
import sys
import tempfile
import unittest

import kubectl as k
from controller import NAMESPACE, Controller, install_chart

USER = f"system:serviceaccount:{NAMESPACE}:starling-controller"
WATCHED = "default"     # with --one-namespace
ELSEWHERE = "elsewhere"
FINALIZERS = ("starling.dev", "trainingjobs/finalizers", "update")

# Verbs that this run cannot bring about, each with what would use it.
NOT_DRIVEN = {
    FINALIZERS: "asked by admission where owner references are enforced; no request of its own",
    ("discovery.k8s.io", "endpointslices/restricted", "create"):
        "asked by admission where endpoints are restricted; no request of its own",
    ("", "configmaps", "delete"):
        "a timeline replaces the one before it; no coordinator runs here that would record one",
    # Nothing routes the webhook's Service here; webhook_test.py makes jobs that name templates.
    **{("starling.dev", plural, "get"): "read by the webhook"
       for plural in ("trainingtemplates", "clustertrainingtemplates")},
    # The API server serves no custom resources in a group of its own.
    **{("scheduling.k8s.io", "podgroups", verb): "Kubernetes' own gangs, of a newer release"
       for verb in ("get", "create", "patch")},
    **{("scheduling.k8s.io", "workloads", verb): "Kubernetes' own gangs, of a newer release"
       for verb in ("get", "create")},
}

# What gang schedulers and Kueue bring along, without any rules.
KINDS_OF_OTHERS = (
    ("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", "Namespaced"),
    ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", "Namespaced"),
    ("kueue.x-k8s.io", "v1beta1", "Workload", "workloads", "Namespaced"),
    ("kueue.x-k8s.io", "v1beta1", "ResourceFlavor", "resourceflavors", "Cluster"),
    ("kueue.x-k8s.io", "v1beta1", "WorkloadPriorityClass", "workloadpriorityclasses", "Cluster"))
QUEUED = "trainingjob-queued"


def install_kinds_of_others():
    for group, version, kind, plural, scope in KINDS_OF_OTHERS:
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        k.create({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}", "annotations": {
                "api-approved.kubernetes.io": "unapproved, of a test"}},
            "spec": {"group": group, "scope": scope,
                     "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                     "versions": [{"name": version, "served": True, "storage": True,
                                   "subresources": {"status": {}},
                                   "schema": {"openAPIV3Schema": anything}}]}})
    for group, _, _, plural, _ in KINDS_OF_OTHERS:
        k.eventually(lambda: k.refusal("get", f"{plural}.{group}") == "", f"{plural} are served")
    for kind, name, rest in (
            ("ResourceFlavor", "small", {"spec": {"nodeLabels": {"size": "small"}}}),
            ("WorkloadPriorityClass", "high", {"value": 7})):
        k.create({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind,
                  "metadata": {"name": name}, **rest})


def owned_pod():
    """A pod that blocks its owner's deletion, as every pod of a job does."""
    return json.dumps({
        "apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "owned", "namespace": WATCHED, "ownerReferences": [{
                "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "name": "any",
                "uid": "0", "controller": True, "blockOwnerDeletion": True}]},
        "spec": {"containers": [{"name": "a", "image": "a"}]}})


def refused_pod():
    """What the API server says when the controller makes such a pod; "" if nothing."""
    return k.refusal("create", f"--as={USER}", "--dry-run=server", "-f", "-", stdin=owned_pod())


def roles_of_the_chart(one_namespace):
    install_chart(*([f"--set=watchNamespace={WATCHED}"] if one_namespace else []))
    of_jobs = ("role", WATCHED) if one_namespace else ("clusterrole", None)
    mine = [(of_jobs[0], "starling-controller-jobs", of_jobs[1]),
            ("clusterrole", "starling-controller", None),
            ("role", "starling-controller", NAMESPACE)]
    return [(kind, name, ns, k.get(kind, name, *(["-n", ns] if ns else []))["rules"])
            for kind, name, ns in mine]


def grants(rules):
    """Each single right of some rules: its rule's place, group, resource, name, verb."""
    for at, rule in enumerate(rules):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [None]):
                        yield at, group, resource, name, verb


class Rights(unittest.TestCase):
    audit = ""
    one_namespace = False

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="starling-rbac-")
        cls.offset = os.path.getsize(cls.audit) if os.path.exists(cls.audit) else 0
        cls.roles = roles_of_the_chart(cls.one_namespace)
        k.eventually(lambda: k.refusal("get", "tj") == "", "TrainingJobs are served")
        install_kinds_of_others()
        # The part that looks at owner references may learn of a new kind half a minute later.
        k.eventually(lambda: refused_pod() == "", "owners of pods are known")
        flags = [f"--namespace={WATCHED}"] if cls.one_namespace else []
        cls.controller = Controller(cls.folder.name, *flags)
        try:
            cls.drive()
        finally:
            cls.controller.stop()
        cls.requests = cls.read_audit()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def drive(cls):
        """Lets the controller do all that it ever does."""
        controller = cls.controller
        k.kubectl("create", "namespace", ELSEWHERE)
        job = k.digits("theirs")
        job["metadata"]["namespace"] = ELSEWHERE
        k.create(job)
        controller.start()
        k.create(k.digits(replicaSpecs={"worker": {"replicas": 3}}))
        k.eventually(lambda: k.exists("pod", "digits-worker-2"), "the job has its pods")
        cls.take_names()
        cls.publish_names()
        cls.resize_gang("scheduling.x-k8s.io")
        cls.queue()
        ended = k.container("ended", runPolicy={"ttlSecondsAfterFinished": 0})
        ended["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
        k.create(ended)
        k.eventually(lambda: k.exists("pod", "ended-worker-0"), "the container job has its pod")
        k.kubectl("patch", "pod", "ended-worker-0", "--subresource=status", "--type=merge", "-p",
                  json.dumps({"status": {"phase": "Failed", "containerStatuses": [{
                      "name": "trainer", "image": "x", "imageID": "", "ready": False,
                      "restartCount": 0,
                      "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}}))
        k.eventually(lambda: not k.exists("tj", "ended"), "a failed job goes after its time")
        k.kubectl("scale", "tj/digits", "--replicas=1")
        cls.suspend("digits", True)
        k.eventually(lambda: not k.exists("pod", "digits-worker-2"), "a suspended job has no pod")
        # Another seed, and certificates that are of no use: both are made anew.
        controller.stop()
        k.kubectl("delete", "secret", "-n", NAMESPACE, "starling-controller-ca")
        k.kubectl("patch", "secret", "-n", NAMESPACE, "starling-webhook-certificate",
                  "--type=merge", "-p", '{"data":{"tls.crt":null}}')
        before = k.uid("secret", "digits-secret")
        cls.suspend("digits", False)
        controller.flags = (*controller.flags, "--gang-scheduler=volcano")
        controller.start()
        k.eventually(lambda: k.uid("secret", "digits-secret") not in ("", before),
                     "a job of another seed gets a new secret")
        k.eventually(lambda: k.exists("pod", "digits-worker-0"), "the job goes on")
        cls.resize_gang("scheduling.volcano.sh")
        k.eventually(cls.repeated, "an event is told twice")
        k.eventually(cls.read_again, "a write is refused for an edit that came before it")
        if not cls.one_namespace:
            k.eventually(lambda: k.exists("pod", "theirs-worker-0", "-n", ELSEWHERE),
                         "jobs of all namespaces have their pods")

    @staticmethod
    def suspend(name, value):
        k.kubectl("patch", "tj", name, "--type=merge", "-p",
                  json.dumps({"spec": {"runPolicy": {"suspend": value}}}))

    @classmethod
    def repeated(cls):
        """What is told again within minutes is one event, if it is told in the same words: which pods were
        made at once differs from time to time, so the job is suspended and resumed until it is."""
        cls.suspend("digits", True)
        k.eventually(lambda: not k.exists("pod", "digits-worker-0"), "it has no pod again")
        cls.suspend("digits", False)
        k.eventually(lambda: k.exists("pod", "digits-worker-0"), "it goes on again")
        return any(event.get("series", {}).get("count", 0) > 1
                   for event in k.get("events.events.k8s.io")["items"])

    @classmethod
    def read_again(cls):
        """Edits faster than the controller's answers: what it may not overwrite it reads again."""
        for suspended in (True, False):
            cls.suspend("digits", suspended)
        with open(cls.audit, encoding="utf-8") as file:
            file.seek(cls.offset)
            return any('"resource":"trainingjobs"' in line and '"verb":"get"' in line
                       for line in file)

    @classmethod
    def resize_gang(cls, group):
        """Its group is read, made, and changed with the number that the job needs."""
        def least():
            return k.get(f"podgroups.{group}", "digits")["spec"]["minMember"]
        k.eventually(lambda: k.exists(f"podgroups.{group}", "digits"), "the job is a gang")
        before = least()
        for workers in ({"replicas": 3, "minReplicas": 2}, {"minReplicas": 1}):
            k.kubectl("patch", "tj", "digits", "--type=merge", "-p",
                      json.dumps({"spec": {"replicaSpecs": {"worker": workers}}}))
            wanted = before + workers["minReplicas"] - 1
            k.eventually(lambda: least() == wanted, f"the gang is of {wanted}")

    @classmethod
    def queue(cls):
        """A job that Kueue, which this test plays, lets in."""
        def workload():
            return k.get("workloads.kueue.x-k8s.io", QUEUED)
        job = k.digits("queued")
        job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "a",
                                     "kueue.x-k8s.io/priority-class": "high"}
        k.create(job)
        k.eventually(lambda: k.exists("workloads.kueue.x-k8s.io", QUEUED), "the job is queued")
        assert workload()["spec"]["priority"] == 7, workload()
        # The other priority is that of the pods, of a class that every cluster has.
        by_pods = k.digits("by-pods")
        by_pods["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "a"}
        by_pods["spec"].setdefault("runPolicy", {})["schedulingPolicy"] = {
            "priorityClass": "system-cluster-critical"}
        k.create(by_pods)
        k.eventually(lambda: k.exists("workloads.kueue.x-k8s.io", "trainingjob-by-pods"),
                     "the other job is queued")
        assert k.get("workloads.kueue.x-k8s.io", "trainingjob-by-pods")["spec"]["priority"] > 7
        for suspended in (True, False):
            cls.suspend("queued", suspended)
            k.eventually(lambda: workload()["spec"]["active"] is not suspended,
                         "the Workload follows the job")
        now = "2026-01-01T00:00:00Z"
        k.kubectl("patch", "workloads.kueue.x-k8s.io", QUEUED, "--subresource=status",
                  "--type=merge", "-p", json.dumps({"status": {
                      "admission": {"clusterQueue": "a", "podSetAssignments": [
                          {"name": role, "count": count, "flavors": {"cpu": "small"}}
                          for role, count in (("coordinator", 1), ("worker", 2))]},
                      "conditions": [
                          {"type": kind, "status": "True", "reason": "Test", "message": "",
                           "lastTransitionTime": now}
                          for kind in ("QuotaReserved", "Admitted")]}}))
        k.eventually(lambda: k.exists("pod", "queued-worker-0"), "the job is let in")
        assert k.get("pod", "queued-worker-0")["spec"]["nodeSelector"]["size"] == "small"
        k.eventually(lambda: any(c["type"] == "PodsReady"
                                 for c in workload()["status"]["conditions"]), "Kueue is told")

    @classmethod
    def take_names(cls):
        """Jobs each of which finds one of its names taken by somebody else's object."""
        pod = {"containers": [{"name": "a", "image": "a"}]}
        budget = {"selector": {"matchLabels": {"a": "b"}}}
        for job, version, kind, suffix, rest in (
                ("a", "v1", "ConfigMap", "-resolved-1", {}),
                ("b", "v1", "Secret", "-secret", {}),
                ("c", "v1", "Service", "", {"spec": {"clusterIP": "None"}}),
                ("d", "v1", "Pod", "-coordinator-0", {"spec": pod}),
                ("e", "policy/v1", "PodDisruptionBudget", "", {"spec": budget}),
                ("named", "discovery.k8s.io/v1", "EndpointSlice", "-ipv6-0",
                 {"addressType": "IPv6", "endpoints": []})):
            k.create({"apiVersion": version, "kind": kind,
                      "metadata": {"namespace": "default", "name": job + suffix}, **rest})
            k.create(k.digits(job))

    @classmethod
    def publish_names(cls):
        """Pods of which one has an address after the other, of the prefix where nobody answers."""
        def run(pod, address):
            k.eventually(lambda: k.exists("pod", pod), f"{pod} is made")
            k.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps(
                {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}))

        def hosts():
            slices = [s for s in k.get("endpointslices")["items"]
                      if s["metadata"]["name"] == "digits-ipv6-0"]
            return [e["hostname"] for s in slices for e in s["endpoints"]]
        pods = ["digits-coordinator-0", "digits-worker-0", "digits-worker-1"]
        for at, pod in enumerate(pods):
            run(pod, f"100::{at + 1}")
            k.eventually(lambda: hosts() == pods[:at + 1], f"{pod} has its name")
        run("named-coordinator-0", "100::9")
        k.eventually(lambda: "named-ipv6-0" in json.dumps(k.get("tj", "named").get("status", {})),
                     "the job says whose the name is")

    @classmethod
    def read_audit(cls):
        with open(cls.audit, encoding="utf-8") as file:
            file.seek(cls.offset)
            return [json.loads(line) for line in file if line.strip()]

    def test_no_request_was_refused(self):
        refused = {(r["verb"], r["requestURI"]) for r in self.requests
                   if r.get("responseStatus", {}).get("code") == 403
                   and r["annotations"].get("authorization.k8s.io/decision") == "forbid"}
        self.assertGreater(len(self.requests), 50)
        self.assertEqual(refused, set())

    def test_a_controller_of_one_namespace_touches_no_other(self):
        if not self.one_namespace:
            self.assertIn(ELSEWHERE, self.namespaces(), "this check can fail")
            return
        theirs = k.get("tj", "theirs", "-n", ELSEWHERE)
        self.assertNotIn("status", theirs)
        self.assertEqual(1, theirs["metadata"]["generation"])
        for kind in ("pods", "secrets", "services", "endpointslices", "configmaps", "events", "pdb"):
            names = [item["metadata"]["name"] for item in k.get(kind, "-n", ELSEWHERE)["items"]]
            self.assertEqual([name for name in names if name.startswith("theirs")], [], kind)
        # Kinds of the whole cluster have none.
        self.assertEqual(self.namespaces() - {None}, {WATCHED, NAMESPACE})
        everywhere = {(r["objectRef"].get("apiGroup", ""), r["objectRef"]["resource"])
                      for r in self.requests
                      if "objectRef" in r and "namespace" not in r["objectRef"]}
        self.assertEqual(everywhere - {
            ("", "nodes"), ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
            ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
            ("kueue.x-k8s.io", "resourceflavors"),
            ("kueue.x-k8s.io", "workloadpriorityclasses"),
            ("scheduling.k8s.io", "priorityclasses")}, set())

    def namespaces(self):
        return {request["objectRef"].get("namespace") for request in self.requests
                if "objectRef" in request}

    def used(self, ns):
        """Rights that requests made use of, outside the controller's namespace or in it."""
        rights = set()
        for request in self.requests:
            ref = request.get("objectRef")
            if ref is None or (ref.get("namespace") == NAMESPACE) != (ns == NAMESPACE):
                continue
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
            rights.add((ref.get("apiGroup", ""), resource, request["verb"]))
        return rights

    def test_every_right_was_used(self):
        for kind, role, ns, rules in self.roles:
            used = self.used(ns)
            for _, group, resource, _, verb in grants(rules):
                if (group, resource, verb) in NOT_DRIVEN:
                    continue
                with self.subTest(role=role, right=f"{verb} {group}/{resource}"):
                    self.assertIn((group, resource, verb), used)

    def test_what_is_called_not_driven_is_a_right_and_was_not_used(self):
        rights = {(g, r, v) for _, _, _, rules in self.roles for _, g, r, _, v in grants(rules)}
        self.assertEqual(set(NOT_DRIVEN) - rights, set())
        self.assertEqual(set(NOT_DRIVEN) & (self.used(None) | self.used(NAMESPACE)), set())

    def test_without_the_right_over_finalizers_no_pod_blocks_its_jobs_deletion(self):
        self.assertEqual("", refused_pod())
        kind, role, ns, rules = self.roles[0]
        scope = ["-n", ns] if ns else []
        less = [rule for rule in rules if rule["resources"] != [FINALIZERS[1]]]
        self.assertEqual(len(rules) - 1, len(less))
        self.replace(kind, role, scope, less)
        try:
            k.eventually(lambda: "cannot set blockOwnerDeletion" in refused_pod(),
                         "admission asks for it", 10)
        finally:
            self.replace(kind, role, scope, rules)
        k.eventually(lambda: refused_pod() == "", "it is back", 10)

    def test_without_any_one_right_its_request_is_refused(self):
        checked = 0
        for kind, role, ns, rules in self.roles:
            scope = ["-n", ns] if ns else []
            for at, group, resource, name, verb in grants(rules):
                less = copy.deepcopy(rules)
                less[at]["verbs"].remove(verb)
                if not less[at]["verbs"]:
                    del less[at]
                self.replace(kind, role, scope, less)
                with self.subTest(role=role, right=f"{verb} {group}/{resource}"):
                    k.eventually(lambda: not self.may(verb, group, resource, name, ns),
                                 "the right is gone", 3)
                self.replace(kind, role, scope, rules)
                checked += 1
            for _, group, resource, name, verb in grants(rules):
                k.eventually(lambda: self.may(verb, group, resource, name, ns), "it is back", 10)
        self.assertGreater(checked, 40)

    @staticmethod
    def replace(kind, role, scope, rules):
        k.kubectl("patch", kind, role, *scope, "--type=merge", "-p", json.dumps({"rules": rules}))

    @staticmethod
    def may(verb, group, resource, name, ns):
        attributes = {"verb": verb, "group": group, "resource": resource.split("/")[0],
                      "subresource": resource.partition("/")[2], "name": name or "",
                      # The cluster's kinds and lists of everything have no namespace.
                      "namespace": ns or ""}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                  "spec": {"user": USER, "resourceAttributes": attributes}}
        return json.loads(k.kubectl("create", "-f", "-", "-o", "json",
                                    stdin=json.dumps(review)))["status"]["allowed"]


if __name__ == "__main__":
    k.helm_or_skip()
    Rights.audit = sys.argv.pop(1)
    if "--one-namespace" in sys.argv:
        sys.argv.remove("--one-namespace")
        Rights.one_namespace = True
    unittest.main()
