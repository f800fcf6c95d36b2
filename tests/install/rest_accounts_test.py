#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One account asks REST for ten times what it may: it is told so by its name, what it is refused costs the
API server nothing, and the others notice nothing. bench/service_accounts.py says how little."""
import json
import signal
import tempfile
import unittest

import kubectl as k
from controller import install_chart
from rest_accounts import GREED, GREEDY, RATES, Accounts
from rest_api import RestApi
from rest_load import quantile

COUNT = 20
SECONDS = 8
READS = 50        # a second of one caller, and twice that at once
SLOWEST = 2.0     # seconds, of 99 of a hundred: in a queue behind the greedy one all would take longer


class Greed(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="starling-accounts-")
        self.addCleanup(folder.cleanup)
        install_chart("--set=webhook.enabled=false")
        self.accounts = Accounts(COUNT)
        self.api = RestApi(folder.name)
        self.addCleanup(self.api.end, signal.SIGKILL)
        self.api.await_ready()
        self.jobs = [f"job-{number}" for number in range(10)]
        for name in self.jobs:
            k.create(k.digits(name, runPolicy={"suspend": True}))

    def test_it_is_limited_by_its_name_and_nobody_else_waits(self):
        alone, _ = self.accounts.load(self.api.port, self.jobs, SECONDS, "alone-")
        before = self.accounts.reviews()
        beside, greedy = self.accounts.load(self.api.port, self.jobs, SECONDS, "beside-", greedy=True)
        reviews = self.accounts.reviews() - before
        self.assertEqual(({}, {}), (alone["failed"], beside["failed"]), "the others are all served")
        for kind in RATES:
            was, now = (sorted(one["seconds"][kind]) for one in (alone, beside))
            print(f"  {kind}: median {1000 * quantile(was, 0.5):.0f} ms, with the greedy one "
                  f"{1000 * quantile(now, 0.5):.0f}; p99 {1000 * quantile(was, 0.99):.0f} and "
                  f"{1000 * quantile(now, 0.99):.0f}", flush=True)
            self.assertLess(quantile(now, 0.99), SLOWEST, kind)
        refused, served = (greedy["failed"].get(f"guess: {status}", 0) for status in (429, 404))
        print(f"  greedy: {served} served, {refused} refused; the API server made {reviews:.0f} reviews",
              flush=True)
        # The last one may have come when the time was over.
        self.assertGreater(refused + served, 0.9 * GREED["guess"] * SECONDS, greedy["failed"])
        problem = json.loads(greedy["refusal"])
        self.assertIn(f'"system:serviceaccount:default:{GREEDY}" asks for more than {READS} reads',
                      problem["detail"])
        # It had what is its own, of a stretch that may have been longer, and not more.
        self.assertGreaterEqual(served, READS * SECONDS)
        self.assertLessEqual(served, READS * (SECONDS + 2) * 1.5)
        # A name that nobody has asked about costs a review, and only if it may be asked about.
        others = sum(len(one) for one in beside["seconds"].values()) + 10 * COUNT
        self.assertLess(reviews, served + others)
        self.assertGreater(refused, 3 * others, "or this would say nothing")


if __name__ == "__main__":
    k.helm_or_skip()
    unittest.main()
