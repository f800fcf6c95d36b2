#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The controller dies after its n-th write, again and again, through the life of two jobs; another
takes up what it finds. The end is that of an undisturbed run, and nothing is left over.

A proxy lets the write reach the API server, kills the process with signal 9 before the answer does,
and starts the next one. STARLING_CRASH_AFTER lists the numbers n ("1 2 3"); of the writes only those
to jobs and what they consist of are counted, for a process that dies over its lease does nothing.
"""
import collections
import os
import signal
import threading
import unittest

import case
from case import FaultsCase, k

EVERY = [int(n) for n in os.environ.get("STARLING_CRASH_AFTER", "1").split()]


class Killer:
    """A rule of the proxy: kills the controller after each n-th write, and starts another."""

    def __init__(self, controller, every):
        self.controller, self.every = controller, every
        self.writes = collections.Counter()  # of each process
        self.kills = 0
        self.lock = threading.Lock()

    def __call__(self, request):
        if not request.of_a_job or not self.every:
            return request.pass_on()
        with self.lock:  # one write at a time, so that "after the n-th" has a meaning
            process = self.controller.process
            answer = request.carry_out()
            self.writes[process.pid] += 1
            if self.writes[process.pid] != self.every:
                return request.give(*answer)
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.kills += 1
            self.controller.start()
        return request.cut()


class Crash(FaultsCase):
    def live(self, every):
        """Two jobs from beginning to end; how all objects stand at certain moments."""
        controller = self.controller("--leader-elect=false", "--metrics-bind-address=0")
        killer = Killer(controller, every)
        controller.proxy.rule = killer
        controller.start()
        moments = []
        own = {"worker": {"replicas": 2, "maxReplicas": 8,
                          **k.container()["spec"]["replicaSpecs"]["worker"]}}
        self.create(k.container("own", replicaSpecs=own))
        self.create(k.digits("digits"))
        self.reach(moments, {"own": 2, "digits": 3}, ["Running", None])
        self.scale("own", 3)
        self.scale("digits", 3)
        self.reach(moments, {"own": 3, "digits": 4}, ["Running", None])
        leader = self.pods("digits")["digits-coordinator-0"]
        self.api.call("DELETE", f"{case.PODS}/digits-coordinator-0?gracePeriodSeconds=0")
        self.wait(lambda: self.pods("digits").get("digits-coordinator-0", leader) != leader,
                  "another coordinator")
        self.patch("own", {"runPolicy": {"suspend": True}})
        self.reach(moments, {"own": 0, "digits": 4}, ["Suspended", None])
        self.patch("own", {"runPolicy": {"suspend": False}})
        self.reach(moments, {"own": 3, "digits": 4}, ["Running", None])
        self.kubelet.finishing.add("own")
        self.wait(lambda: self.state("own") == "Succeeded" and
                  not any(name.startswith("endpointslices/own-") for name in self.owned()),
                  "the job ends, and its pods' names with it")
        self.kubelet.finishing.clear()
        moments.append((sorted(self.owned()), self.reason("own", "Succeeded"), self.told("own")))
        for name in ("own", "digits"):
            self.delete(name)
        self.wait(lambda: not self.owned(), lambda: f"all objects go: {self.owned()}", 90)
        self.check_pods_were_made_once(controller)
        self.assertEqual(controller.process.poll(), None, "the last process lives")
        killer.every = 0
        self.assertEqual(0, controller.end(signal.SIGTERM))
        return moments, killer.kills, len([s for s in controller.proxy.seen if s.of_a_job and s.status])

    def reach(self, moments, counts, states):
        """Waits until there are so many pods of each job, and as many names, and keeps how things stand."""
        def there():
            return (all(len(self.pods(name)) == count == self.names_of(name)
                        for name, count in counts.items())
                    and states[0] == self.state("own"))
        self.wait(there, f"pods {counts}, states {states}")
        moments.append(([name for name in sorted(self.owned()) if "configmaps" not in name
                         and "pods/" not in name], sorted(self.pods()), self.state("own")))

    def names_of(self, job):
        """How many of its pods can be found by their names."""
        slices = self.api.call("GET", case.SLICES)["items"]
        return sum(len(item["endpoints"]) for item in slices
                   if item["metadata"]["labels"].get("starling.dev/job") == job)

    def told(self, name):
        status = self.api.find(f"{case.JOBS}/{name}")["status"]
        return {c["type"]: c["status"] for c in status["conditions"]}, status.get("failures", 0)

    def check_pods_were_made_once(self, controller):
        """Between two deletions of a pod there was one creation that succeeded: names are unique,
        so a second pod would carry a name that nobody wants."""
        posts = [seen for seen in controller.proxy.seen
                 if seen.created == "pods" and seen.status == 201]
        # own: 2, a third or a new round of 3, 3 after the suspension; digits: 3, 1, 1.
        self.assertLessEqual(len(posts), 2 + 3 + 3 + 5)

    def test_it_may_die_after_any_write(self):
        undisturbed, kills, writes = self.live(0)
        self.assertEqual(0, kills)
        self.say(f"undisturbed: {writes} writes")
        for every in EVERY:
            with self.subTest(every=every):
                moments, kills, disturbed = self.live(every)
                self.say(f"died after every {every} writes: {kills} times, {disturbed} writes")
                self.assertGreater(kills, 0)
                self.assertEqual(undisturbed, moments)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
