#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What people see of real jobs in the cluster. A Prometheus that finds its targets by the chart's
PodMonitors answers every panel of every dashboard; REST's pod and the leading controller are killed under
200 watchers, none of whom misses how a job ended; a job that is deleted while REST is away is in its
history. Exits with 77 where no cluster, or no Prometheus, can be.
"""
import json
import os
import sys
import tempfile
import time
import types

from kube_case import run_tests
from cluster import SYSTEM
from parameter_server_test import served
from pod_monitors import CRD, RIGHTS, scrape_configs
from training import TrainingCase, digits
from programs import REPOSITORY

for folder in ("tests/install", "tests/dashboards"):
    sys.path.append(os.path.join(REPOSITORY, folder))
from metric_names import names_in  # noqa: E402  pylint: disable=wrong-import-position
from prometheus import (  # noqa: E402  pylint: disable=wrong-import-position
    Prometheus, find_programs, panels, shipped_rules)
from rest_api import Client, Watcher, kubeconfig_with  # noqa: E402  pylint: disable=wrong-import-position

MONITORS = "podmonitors.monitoring.coreos.com"
EVERY = 2  # seconds
# A cluster without GPUs.
ELSEWHERE = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
WATCHERS = 200
ACCOUNTS = 4  # that watch: one may have 64 streams


class ServiceCase(TrainingCase):
    """The operator with a REST service of one replica that keeps a history."""

    FLAGS = []

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="starling-service-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.environ.update(KUBECONFIG=self.cluster.kubeconfig, PATH=self.cluster.programs.path())
        self.prepare()
        self.addCleanup(self.cluster.install_operator)
        self.assertTrue(self.cluster.install_operator(
            "--set", "api.replicas=1,api.history.store=sqlite",
            "--set", f"api.history.sqlite.existingClaim={self.namespace}", *self.FLAGS))

    def prepare(self):
        """Before the operator is installed: a volume of its own, so that nothing is left for others."""
        path = os.path.join(self.cluster.shared, self.namespace)
        os.makedirs(path)
        os.chmod(path, 0o777)
        common = {"storageClassName": self.namespace, "accessModes": ["ReadWriteOnce"]}
        self.addCleanup(self.kubectl, "delete", "pv", self.namespace, "--wait=false", namespace=None)
        self.addCleanup(self.kubectl, "delete", "pvc", self.namespace, "--wait=false", namespace=SYSTEM)
        self.kubectl("apply", "-f", "-", namespace=None, stdin=json.dumps({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.namespace},
            "spec": {**common, "capacity": {"storage": "1Gi"}, "hostPath": {"path": path}}}))
        self.kubectl("apply", "-f", "-", namespace=SYSTEM, stdin=json.dumps({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": self.namespace},
            "spec": {**common, "resources": {"requests": {"storage": "1Gi"}}}}))

    def account(self, name, role):
        """Its token; it has that role in the test's namespace."""
        self.kubectl("create", "serviceaccount", name)
        self.kubectl("create", "rolebinding", name, f"--clusterrole={role}",
                     f"--serviceaccount={self.namespace}:{name}")
        return self.kubectl("create", "token", name).strip()

    def client(self, token):
        """Of the one pod, wherever it is."""
        pod = self.wait_for(self.rest_pod, 60, "REST is ready")
        return Client(token, types.SimpleNamespace(address=pod["status"]["podIP"], port=8443))

    @property
    def jobs(self):
        return f"/v1/namespaces/{self.namespace}/jobs"

    def ok(self, answer, status=200):
        self.assertEqual(status, answer.status, answer)
        return answer.body


class Scraped(ServiceCase):
    FLAGS = ["--set", f"monitoring.enabled=true,monitoring.interval={EVERY}s"]

    def prepare(self):
        super().prepare()
        # The chart's objects are refused until their kind is known.
        self.addCleanup(self.kubectl, "delete", "crd", MONITORS, namespace=None)
        self.kubectl("apply", "-f", "-", namespace=None, stdin=json.dumps(CRD))
        self.kubectl("wait", "--for=condition=Established", f"crd/{MONITORS}", namespace=None)

    def setUp(self):
        super().setUp()
        monitors = json.loads(self.kubectl("get", MONITORS, "-A", "-o", "json", namespace=None))["items"]
        self.assertEqual({"starling-jobs", "starling-controller", "starling-api"},
                         {monitor["metadata"]["name"] for monitor in monitors})
        self.prometheus = Prometheus(
            PROGRAMS, scrape_configs(monitors, self.scrapers_kubeconfig()), shipped_rules(), f"{EVERY}s")
        self.addCleanup(self.prometheus.close)
        self.began = time.monotonic()

    def scrapers_kubeconfig(self):
        """Of an account that may look for pods, and nothing else."""
        role = f"scraper-{self.namespace}"
        for kind in ("clusterrole", "clusterrolebinding"):
            self.addCleanup(self.kubectl, "delete", kind, role, "--ignore-not-found", namespace=None)
        self.apply({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                    "metadata": {"name": role}, "rules": RIGHTS})
        self.kubectl("create", "serviceaccount", "scraper")
        self.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}",
                     f"--serviceaccount={self.namespace}:scraper", namespace=None)
        return kubeconfig_with(self.kubectl("create", "token", "scraper").strip(), self.folder, "scraper")

    def counts(self, expression):
        """Prometheus has this. A counter that it sees for the first time has counted nothing by then."""
        return self.prometheus.ask("query", query=expression)["result"]

    def play(self):
        """Jobs of both kinds that train and lose a worker, one that fails, one that finds no node."""
        # What a controller that has been replaced counts at its end is never scraped.
        self.wait_for(lambda: all("deletionTimestamp" not in pod["metadata"] for pod in
                                  self.get("pods", namespace=SYSTEM)), 120, "those before are gone")
        self.wait_for(lambda: self.counts("leader_election_master_status == 1"), 60,
                      "one of the new ones leads")
        self.apply(digits(), served(name="servers"),
                   digits("wrong", dataset__train__csv__uri="data/absent.csv"))
        nowhere = digits("nowhere")
        nowhere["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["nodeSelector"] = {"no": "where"}
        self.apply(nowhere)
        for name in ("digits", "servers"):
            self.await_condition("Running", name, deadline=90)
        self.wait_for(lambda: self.counts('starling_job_incidents_total{job_name="digits"} == 0'), 60,
                      "incidents are counted")
        self.wait_for(lambda: self.kill_in_pod("digits-worker-1", "starling-worker"), 30,
                      "a worker's process is killed")
        self.rest = self.client(self.account("reader", "view"))

    def use_rest(self):
        """As people do: what is there, what is not, a stream."""
        for path in ("", "/digits", "/absent"):
            self.rest.ask("GET", self.jobs + path)
        self.rest.stream(f"{self.jobs}?watch=1&timeoutSeconds=1").until("end")

    def silent(self):
        """The panels' queries that have found no number since the beginning."""
        variables = {"$__rate_interval": f"{4 * EVERY}s", "$ns": self.namespace, "$job": ".*"}
        found = set()
        for board, title, expression in panels():
            for variable, value in variables.items():
                expression = expression.replace(variable, value)
            if not names_in(expression) & ELSEWHERE and not self.prometheus.samples(
                    expression, time.monotonic() - self.began):
                found.add(f"{board}: {title}: {expression}")
        return found

    def test_every_panel_answers(self):
        self.play()

        def answers():
            self.use_rest()
            return not self.silent()
        self.wait_for(answers, 180, lambda: "these do not: " + "\n".join(sorted(self.silent())) + "\n"
                      + json.dumps([(target["labels"], target["lastError"]) for target in
                                    self.prometheus.ask("targets")["activeTargets"]
                                    if target["health"] != "up"]))
        up = {(target["labels"].get("role"), target["health"])
              for target in self.prometheus.ask("targets")["activeTargets"]}
        self.assertLessEqual({(role, "up") for role in (
            "coordinator", "worker", "parameter-server", "controller", "api")}, up)
        # One leads, and its standby does not count the jobs a second time.
        (counted,) = self.prometheus.ask("query", query=(
            f'sum(starling_controller_jobs{{job_namespace="{self.namespace}"}})'))["result"]
        self.assertEqual("4", counted["value"][1])
        self.say(f"{len(panels())} queries; all answer but {sorted(ELSEWHERE)}")


class Watched(ServiceCase):
    def test_nobody_misses_an_end_whoever_is_killed(self):
        names = [f"job-{number}" for number in range(4)]
        clients = [self.client(self.account(f"watcher-{number}", "view")) for number in range(ACCOUNTS)]
        for name in names:
            self.apply(digits(name, workers=1, stop__epochs=60))
        ends = {self.get("tj", name)["metadata"]["uid"]: "Succeeded" for name in names}
        self.apply(digits("deleted", workers=1))
        deleted = self.get("tj", "deleted")["metadata"]["uid"]
        ends[deleted] = None
        watchers = [Watcher(clients[number % ACCOUNTS], self.jobs) for number in range(WATCHERS)]
        for watcher in watchers:
            watcher.start()
        self.addCleanup(lambda: [watcher.stop() for watcher in watchers])
        self.wait_for(lambda: all(set(ends) <= set(watcher.states) for watcher in watchers), 60,
                      "all have heard of all jobs")
        for name in names:
            self.await_condition("Running", name, deadline=120)
        pod, leader = self.rest_pod()["metadata"]["name"], self.leader()
        self.assertEqual(1, self.kill_in_pod(leader, "starling-controller", namespace=SYSTEM))
        self.assertEqual(1, self.kill_in_pod(pod, "starling-controller", namespace=SYSTEM))
        self.kubectl("delete", "tj", "deleted", "--wait=false")

        def missed():
            return [(uid, watcher.states.get(uid, "unheard")) for watcher in watchers
                    for uid, end in ends.items() if watcher.states.get(uid, "unheard") != end]
        self.wait_for(lambda: not missed(), 180, lambda: f"all know all ends: {missed()[:5]}")
        for watcher in watchers:
            watcher.stop()
        self.assertEqual([], [watcher.failures for watcher in watchers if watcher.failures])
        self.assertTrue(all(watcher.breaks for watcher in watchers), "all were cut")
        self.say(f"{WATCHERS} watchers were cut {sum(watcher.breaks for watcher in watchers)} times")

    def test_a_job_that_is_deleted_while_nobody_listens_is_in_the_history(self):
        token = self.account("reader", "view")
        self.start(digits(workers=1))
        rest = self.client(token)
        uid = self.ok(rest.ask("GET", f"{self.jobs}/digits"))["metadata"]["uid"]
        with self.watch_steps() as steps:
            steps.await_more(10)
        # Until the status has told of steps, which are in the history then.
        self.wait_for(lambda: self.ok(rest.ask("GET", f"{self.jobs}/digits"))["status"].get(
            "progress", {}).get("step", 0) > 0, 60, "its progress is told")
        self.kubectl("scale", "deployment/starling-api", "--replicas=0", namespace=SYSTEM)
        self.wait_for(lambda: self.rest_pod() is None, 60, "REST is away")
        self.kubectl("delete", "tj", "digits")
        self.kubectl("scale", "deployment/starling-api", "--replicas=1", namespace=SYSTEM)
        rest = self.client(token)
        kept = self.wait_for(lambda: [item for item in self.ok(rest.ask(
            "GET", f"{self.jobs}?include=history"))["items"] if item["uid"] == uid], 60,
            "it is in the history")
        self.assertTrue(kept[0]["deleted"])
        self.assertGreater(self.ok(rest.ask("GET", f"{self.jobs}/digits"))["status"]["progress"]["step"],
                           0)


if __name__ == "__main__":
    PROGRAMS = find_programs()
    run_tests()
