# SPDX-License-Identifier: Apache-2.0
"""Jobs on an emulated network: no faster than it, and as good."""
import collections
import os
import unittest

import jobs
from case import Case

EPOCHS = 3
PARAMETERS = 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
LIMIT = 2.5e6  # bytes a second: 20 Mbit/s
SLOW = {"bandwidth": "20M", "delay": "1ms"}


class Network(Case):
    def train(self, name, network=None, **changes):
        """The final object, and the seconds of each step of worker 0."""
        prefix = os.path.join(self.home.folder, f"steps-{name}")
        job = jobs.digits(name, epochs=EPOCHS, experiment__stepDelay="0s", **changes)
        if network:
            job["spec"]["experiment"]["network"] = network
        worker = job["spec"]["replicaSpecs"]["worker"]
        worker["minReplicas"] = worker["replicas"]  # or whoever is there first trains alone
        worker["template"] = {"spec": {"containers": [
            {"name": "trainer", "env": [{"name": "STARLING_STEP_LOG", "value": prefix}]}]}}
        final = self.run_job(job, name=f"{name}.json", timeout=300)
        with open(f"{prefix}.{name}-worker-0", encoding="ascii") as file:
            lines = [line.split() for line in file.read().splitlines()]
        times = [float(words[2]) for words in lines if words[0] == "step"]
        self.assertEqual(jobs.steps_of(EPOCHS), len(times))
        self.assertGreater(self.result(final)["metrics"]["validation/accuracy"], 0.8)
        seconds = (times[-1] - times[0]) / (len(times) - 1)
        self.say(f"{name}: {1e3 * seconds:.2f} ms a step, {self.path(final)}")
        return final, seconds

    @staticmethod
    def path(final):
        (path,) = final["status"]["progress"]["exchanges"]
        return path["transport"]

    def sent(self, final):
        """Bytes that a worker has sent of updates, a step."""
        return final["status"]["progress"]["metrics"]["exchange/sentBytes"] / jobs.steps_of(EPOCHS)

    def test_workers_send_no_faster_than_their_cards(self):
        slow, seconds = self.train("slow", SLOW)
        self.assertEqual("TCP, emulated 20 Mbit/s, 1 ms", self.path(slow))
        self.assertGreaterEqual(self.sent(slow), 4 * PARAMETERS)
        self.assertLess(self.sent(slow) / seconds, LIMIT)

        fast, seconds = self.train("fast")
        self.assertEqual("shared memory", self.path(fast))
        self.assertGreater(self.sent(fast) / seconds, LIMIT, "the control: nothing is emulated")

    def test_servers_receive_no_faster_than_theirs(self):
        exchange = {"parameterServer": {"consistency": {"bulkSynchronous": {}}}}
        slow, seconds = self.train("slow", SLOW, exchange=exchange)
        self.assertEqual("TCP, emulated 20 Mbit/s, 1 ms", self.path(slow))
        # Both workers' updates come in at the one server.
        self.assertLess(2 * 4 * PARAMETERS / seconds, LIMIT)

        _, seconds = self.train("fast", exchange=exchange)
        self.assertGreater(2 * 4 * PARAMETERS / seconds, LIMIT, "the control: nothing is emulated")

    def test_a_link_is_slower_than_the_cards_at_its_ends(self):
        links = [{"from": "worker-0", "to": "worker-1", **SLOW}]
        slow, seconds = self.train("slow", {"links": links})
        self.assertEqual("TCP, emulated a link of its own", self.path(slow))
        self.assertLess(self.sent(slow) / seconds, LIMIT)

        links[0]["from"] = "parameter-server-0"
        fast, seconds = self.train("fast", {"links": links})
        self.assertGreater(self.sent(fast) / seconds, LIMIT, "the control: another link is slow")

    def test_workers_of_a_host_share_its_card(self):
        exchange = {"allReduce": {"algorithm": "RecursiveDoubling"}}
        shared, seconds = self.train("shared", {**SLOW, "podsPerHost": 2}, workers=4,
                                     exchange=exchange)
        self.assertEqual("TCP, emulated 20 Mbit/s, 1 ms, 2 pods on a card", self.path(shared))
        # One of two rounds is inside a host; in the other both send their arrays through one card.
        self.assertLess(2 * 4 * PARAMETERS / seconds, LIMIT)
        cards = collections.Counter(
            name for _, _, names in os.walk(self.home.folder) for name in names
            if name.startswith("network-card-of-"))
        self.assertEqual({"network-card-of-shared-worker-0": 1,
                          "network-card-of-shared-worker-1": 1}, dict(cards))


if __name__ == "__main__":
    unittest.main(verbosity=2)
