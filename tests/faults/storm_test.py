#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An API server that refuses, forgets, lags and breaks off: the controller converges, and what it
asks meanwhile stays bounded."""
import collections
import json
import os
import random
import threading
import time
import unittest
import urllib.error
import urllib.request

from case import FaultsCase, k
from proxy import Request

JOBS = 8
WORKERS = 2
STORM = 6.0


def etcd(path, body):
    request = urllib.request.Request(os.environ["STARLING_TEST_ETCD"] + path,
                                     json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.loads(answer.read())


def compact():
    """Forgets every version but the newest."""
    revision = etcd("/v3/kv/range", {"key": "Lw=="})["header"]["revision"]
    try:
        etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
    except urllib.error.HTTPError as error:
        if error.code != 400:  # nothing was written since the last time
            raise


class Storm(FaultsCase):
    def job(self, name, workers=WORKERS):
        return k.container(name, replicaSpecs={"worker": {
            "replicas": workers, "maxReplicas": 8,
            **k.container()["spec"]["replicaSpecs"]["worker"]}})

    def begin(self):
        controller = self.controller("--leader-elect=false", "--metrics-bind-address=0")
        controller.start()
        for index in range(JOBS):
            self.create(self.job(f"job-{index}"))
        self.wait(lambda: len(self.pods()) == JOBS * WORKERS, "the jobs have their pods")
        return controller

    def weather(self, controller, rule, most_a_second, calm_down=lambda: None):
        """Lets `rule` reign while jobs are scaled; then all is as wanted, and not by hammering.
        `calm_down` ends what the test does to the API server beside the rule."""
        began = time.monotonic()
        controller.proxy.rule = rule
        controller.proxy.break_watches()
        for index in range(JOBS):
            self.scale(f"job-{index}", WORKERS + 1)
        time.sleep(STORM)
        asked = controller.proxy.since(began)
        controller.proxy.rule = Request.pass_on
        self.wait(lambda: len(self.pods()) == JOBS * (WORKERS + 1), "the jobs have grown")
        calm = time.monotonic() - began - STORM
        rate = len(asked) / STORM
        statuses = dict(collections.Counter(seen.status for seen in asked))
        self.say(f"{rate:.0f} requests a second, answered {statuses}; as wanted {calm:.1f} s after")
        self.assertLess(rate, most_a_second)
        self.assertIsNone(controller.process.poll(), "the controller lives")
        self.check_no_orphan()
        calm_down()
        self.check_rest(controller)
        return statuses

    def check_rest(self, controller):
        """After the storm there is peace: no request but watches that begin again."""
        began = time.monotonic()
        time.sleep(2.0)
        asked = [seen for seen in controller.proxy.since(began + 1.0) if "leases" not in seen.path]
        self.assertLess(len(asked), 15, [seen.path for seen in asked][:15])

    def test_watches_that_always_expire(self):
        controller = self.begin()

        def expire(request):
            return request.expire_watch() if request.is_watch else request.pass_on()
        self.assertGreater(self.weather(controller, expire, 150).get(410, 0), 5)

    def test_compaction_while_watches_are_broken(self):
        controller = self.begin()
        ended = threading.Event()

        def keep_compacting():
            while not ended.wait(0.3):
                compact()
                controller.proxy.break_watches()
        compacting = threading.Thread(target=keep_compacting)
        compacting.start()

        def calm_down():  # each broken watch begins anew: that is no peace to be judged
            ended.set()
            compacting.join()
        try:
            began = time.monotonic()
            self.weather(controller, Request.pass_on, 150, calm_down)
            lists = [seen for seen in controller.proxy.since(began)
                     if seen.method == "GET" and "limit=" in seen.path]
            self.say(f"{len(lists)} lists were asked for anew")
            self.assertGreater(len(lists), 5, "watches met versions that are gone")
        finally:
            calm_down()

    def test_too_many_requests_with_a_time_to_wait(self):
        controller = self.begin()

        def refuse(request):
            if request.is_watch:
                return request.pass_on()
            return request.refuse(429, "TooManyRequests", Retry_After="1")
        self.assertGreater(self.weather(controller, refuse, 40).get(429, 0), 2)

    def test_errors_and_cut_connections(self):
        controller = self.begin()
        chance = random.Random(4)
        lock = threading.Lock()

        def break_it(request):
            with lock:
                roll = chance.random()
            if roll < 0.4:
                return request.refuse(500, "InternalError")
            if roll < 0.8:
                return request.cut()
            return request.pass_on()
        statuses = self.weather(controller, break_it, 150)
        self.assertTrue(statuses.get(500) and statuses.get(0), statuses)

    def test_a_list_from_before_the_pods_makes_no_second_pod(self):
        """A new controller is given lists as an API server gives that lags behind: without pods,
        services or specs, at the version of that time."""
        old = {}
        controller = self.controller("--leader-elect=false", "--metrics-bind-address=0")

        def keep_first(request):
            path = request.path.partition("?")[0]
            if request.command != "GET" or request.is_watch or path.endswith("trainingjobs"):
                return request.pass_on()
            answer = request.carry_out()
            if path.startswith(("/api/v1/", "/apis/policy")) and "/namespaces/" not in path:
                old.setdefault(path, answer)
            return request.give(*answer)
        controller.proxy.rule = keep_first
        controller.start()
        self.wait(lambda: len(old) >= 5, "the controller has its first lists")
        self.create(self.job("own", 4))
        self.wait(lambda: len(self.pods()) == 4 and self.state("own") == "Running", "it runs")
        pods = self.pods()
        controller.end()
        replayed = []
        silent = set()

        def lag(request):
            path = request.path.partition("?")[0]
            if request.command == "GET" and not request.is_watch and path in old:
                replayed.append(path)
                return request.give(*old[path])
            if request.is_watch and path in old and path not in silent:
                silent.add(path)  # and what has happened since comes later still
                return request.be_silent(3.0)
            return request.pass_on()
        controller.proxy.rule = lag
        began = time.monotonic()
        controller.start()
        self.wait(lambda: len(set(replayed)) >= 5, "it is given the old lists")
        time.sleep(6.0)
        self.assertEqual(pods, self.pods())
        taken = [seen for seen in controller.proxy.since(began) if seen.status == 409]
        made = [seen for seen in controller.proxy.since(began)
                if seen.created and seen.of_a_job and seen.status == 201]
        self.say(f"{len(taken)} creations met what was there, {len(made)} did not")
        self.assertGreater(len(taken), 0, "it believed the old lists")
        self.assertEqual([], [seen.path for seen in made])
        self.check_no_orphan()

    def test_a_foreign_object_with_a_name_of_ours_is_told_and_not_hammered(self):
        controller = self.begin()
        k.kubectl("create", "secret", "generic", "mine-secret", "--from-literal=a=b")
        self.addCleanup(k.kubectl, "delete", "secret", "mine-secret", "--ignore-not-found")
        began = time.monotonic()
        self.create(k.digits("mine"))
        self.wait(lambda: self.reason("mine", "Degraded") == "NameTaken", "it is said", 20)
        time.sleep(max(0.0, 7 - (time.monotonic() - began)))
        tried = [seen for seen in controller.proxy.since(began)
                 if seen.created == "secrets" and seen.of_a_job]
        self.say(f"{len(tried)} tries in {time.monotonic() - began:.0f} s")
        self.assertGreater(len(tried), 3)
        self.assertLessEqual(len(tried), 8)
        k.kubectl("delete", "secret", "mine-secret")
        self.wait(lambda: len(self.pods("mine")) == 3, "it goes on by itself", 40)
        self.wait(lambda: not self.reason("mine", "Degraded"), "nothing is wrong any more")


if __name__ == "__main__":
    unittest.main(warnings="ignore")
