#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two controllers and one lease: a leader that stood still beyond its lease writes nothing when it
goes on, and one that is asked to end hands over at once."""
import signal
import time
import unittest

import case
from case import FAST_LEASE, FaultsCase, k
from controller import free_port

LEADS = 'leader_election_master_status{name="starling-controller"}'


class Leader(FaultsCase):
    def pair(self, *flags):
        """A leader, one that stands by, and the ports of their metrics."""
        made = []
        for name in ("first", "second"):
            port = free_port()
            made.append((self.controller(*flags, f"--metrics-bind-address=127.0.0.1:{port}",
                                         name=name), port))
            made[-1][0].start()
            if name == "first":
                self.wait(lambda: self.leads(made[0][1]), "the first one leads")
        self.wait(lambda: self.leads(made[1][1]) is False, "the second one stands by")
        return made

    def leads(self, port):
        try:
            value = self.metric(port, LEADS)
        except OSError:
            return None
        return None if value is None else value == 1

    def test_a_leader_that_was_stopped_beyond_its_lease_writes_nothing(self):
        (first, first_port), (second, second_port) = self.pair(*FAST_LEASE)
        for index in range(12):
            self.create(k.container(f"job-{index}", replicaSpecs={"worker": {
                "replicas": 4, "maxReplicas": 8,
                **k.container()["spec"]["replicaSpecs"]["worker"]}}))
        self.wait(lambda: len(self.pods()) >= 8, "it is in the middle of its work")
        first.send(signal.SIGSTOP)
        stopped = time.monotonic()
        in_the_middle = len(self.pods())
        self.wait(lambda: self.leads(second_port), "the second one takes over", 20)
        taken = time.monotonic()
        self.wait(lambda: len(self.pods()) == 48, "the second one does the rest")
        for index in range(12):  # so that the first has something to be wrong about
            self.scale(f"job-{index}", 2)
        # A round with another number of workers replaces those that stay.
        before = self.await_steady(24)
        first.send(signal.SIGCONT)
        went_on = time.monotonic()
        self.wait(lambda: first.process.poll() is not None, "the first one ends", 15)
        self.assertEqual(1, first.process.returncode)
        stale = [seen for seen in first.proxy.since(taken) if seen.is_write and seen.status < 300]
        asked = [seen for seen in first.proxy.since(went_on)]
        self.assertEqual([], stale, "a write of the former leader")
        self.assertEqual(before, self.pods(), "no pod was made or taken")
        self.check_no_orphan()
        self.assertLess(in_the_middle, 48, "the first one was stopped too late")
        self.assertEqual(1, self.metric(second_port, LEADS))
        self.assertTrue([seen for seen in first.proxy.since(0) if seen.of_a_job], "it had led")
        self.say(f"stopped with {in_the_middle} of 48 pods made; taken over after "
                 f"{taken - stopped:.1f} s; {len(asked)} requests after it went on, no write")

    def test_a_leader_that_is_asked_to_end_hands_over(self):
        (first, _), (second, second_port) = self.pair()  # leases of 15 s
        self.create(k.container("own"))
        self.wait(lambda: self.state("own") == "Running", "the job runs")
        before, holder = self.pods(), self.holder()
        began = time.monotonic()
        first.send(signal.SIGTERM)
        self.wait(lambda: self.leads(second_port), "the second one leads", 15)
        took = time.monotonic() - began
        self.assertEqual(0, first.end(signal.SIGTERM))
        self.assertNotIn(self.holder(), ("", holder))
        self.assertEqual(before, self.pods())
        self.say(f"handed over within {took:.2f} s")
        self.assertLess(took, 4)
        self.scale("own", 2)
        self.wait(lambda: len(self.pods()) == 2, "the second one acts")
        self.assertEqual(200, self.answered(second))

    @staticmethod
    def answered(controller):
        return max((seen.status for seen in controller.proxy.seen
                    if seen.method == "PUT" and "trainingjobs" in seen.path), default=0)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
