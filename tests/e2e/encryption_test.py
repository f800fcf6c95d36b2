# SPDX-License-Identifier: Apache-2.0
"""Jobs whose members encrypt what they send one another, or send it in datagrams, as real processes, with
kill -9. They do not share memory here, for what stays in memory is neither; STARLING_SHARED_MEMORY sees to it."""
import unittest

import jobs
from case import Case
from home import kill, until

EPOCHS = 6


def without_shared_memory(made, *roles):
    for role in roles:
        made["spec"]["replicaSpecs"].setdefault(role, {})["template"] = {"spec": {"containers": [
            {"name": "trainer", "env": [{"name": "STARLING_SHARED_MEMORY", "value": "0"}]}]}}
    return made


class Encryption(Case):
    def start(self, made):
        self.command = self.home.start("run", self.home.write("job.yaml", made), "-o", "json")

    def transports(self, name):
        """By what updates travel now, as the job's status tells it."""
        status = self.home.job(name).get("status", {})
        return {path.get("transport") for path in status.get("progress", {}).get("exchanges", [])}

    def await_transport(self, expected, name):
        until(lambda: self.transports(name) == {expected}, 60,
              f"updates of {name} travel by {expected}")

    def train(self, name, data_plane, transport, victim=None):
        """The model's digest, after its transport was seen and the victim was killed."""
        self.start(without_shared_memory(
            jobs.digits(name, workers=3, epochs=EPOCHS, reproducible=True, experiment__stepDelay="50ms",
                        dataPlane=data_plane), "worker"))
        self.home.await_step(15, name, command=self.command)
        self.await_transport(transport, name)
        if victim:
            pid = until(lambda: self.home.pod_pid(victim), 30, f"{victim} runs")
            self.say(f"kill -9 {pid} ({victim}) at step {self.home.steps(name)}")
            self.assertTrue(kill(pid))
        final = self.finish(self.command)
        self.check_audit(EPOCHS, name)
        return self.digest(final)

    def test_same_model_with_encryption_and_in_datagrams_killed_workers_included(self):
        plain = self.train("plain", {}, "TCP")
        encrypted = self.train("encrypted", {"encryption": "Tls"}, "TCP with TLS", "encrypted-worker-1")
        self.assertEqual(plain, encrypted)
        datagrams = self.train("datagrams", {"protocol": "Udp"}, "UDP", "datagrams-worker-1")
        self.assertEqual(plain, datagrams)

    def test_parameter_servers_train_encrypted_with_one_of_them_killed(self):
        made = jobs.digits("served", workers=2, epochs=8, experiment__stepDelay="50ms",
                           optimizer={"sgd": {"learningRate": 0.05, "momentum": 0.5}},
                           exchange={"parameterServer": {"replication": 2}},
                           dataPlane={"encryption": "Tls"})
        made["spec"]["replicaSpecs"]["parameterServer"] = {"replicas": 2, "maxReplicas": 4}
        self.start(without_shared_memory(made, "worker", "parameterServer"))
        self.home.await_step(15, "served", command=self.command)
        self.await_transport("TCP with TLS", "served")
        pid = until(lambda: self.home.pod_pid("served-parameter-server-1"), 30, "server 1 runs")
        self.assertTrue(kill(pid))
        final = self.finish(self.command, 180)
        self.check_audit(8, "served")
        self.assertGreater(self.result(final)["metrics"]["validation/accuracy"], 0.9)


if __name__ == "__main__":
    unittest.main()
