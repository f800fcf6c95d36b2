# SPDX-License-Identifier: Apache-2.0
"""Jobs whose members encrypt what they send one another, as real processes, with kill -9. They do not
share memory here, for what stays in memory is not encrypted; STARLING_SHARED_MEMORY sees to it."""
import unittest

import jobs
from case import Case
from home import kill, until

EPOCHS = 6


def over_tcp(made, *roles):
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

    def train(self, name, encryption, transport, victim=None):
        """The model's digest, after its transport was seen and the victim was killed."""
        self.start(over_tcp(jobs.digits(name, workers=3, epochs=EPOCHS, reproducible=True, experiment__stepDelay="50ms",
                                        dataPlane={"encryption": encryption}), "worker"))
        self.home.await_step(15, name, command=self.command)
        self.await_transport(transport, name)
        if victim:
            pid = until(lambda: self.home.pod_pid(victim), 30, f"{victim} runs")
            self.say(f"kill -9 {pid} ({victim}) at step {self.home.steps(name)}")
            self.assertTrue(kill(pid))
        final = self.finish(self.command)
        self.check_audit(EPOCHS, name)
        return self.digest(final)

    def test_same_model_with_encryption_as_without_a_killed_worker_included(self):
        plain = self.train("plain", "None", "TCP")
        encrypted = self.train("encrypted", "Tls", "TCP with TLS", victim="encrypted-worker-1")
        self.assertEqual(plain, encrypted)

    def test_parameter_servers_train_encrypted_with_one_of_them_killed(self):
        made = jobs.digits("served", workers=2, epochs=8, experiment__stepDelay="50ms",
                           optimizer={"sgd": {"learningRate": 0.05, "momentum": 0.5}},
                           exchange={"parameterServer": {"replication": 2}},
                           dataPlane={"encryption": "Tls"})
        made["spec"]["replicaSpecs"]["parameterServer"] = {"replicas": 2, "maxReplicas": 4}
        self.start(over_tcp(made, "worker", "parameterServer"))
        self.home.await_step(15, "served", command=self.command)
        self.await_transport("TCP with TLS", "served")
        pid = until(lambda: self.home.pod_pid("served-parameter-server-1"), 30, "server 1 runs")
        self.assertTrue(kill(pid))
        final = self.finish(self.command, 180)
        self.check_audit(8, "served")
        self.assertGreater(self.result(final)["metrics"]["validation/accuracy"], 0.9)


if __name__ == "__main__":
    unittest.main()
