# SPDX-License-Identifier: Apache-2.0
"""Every second of workers and parameter servers has an activity: sums against an outside clock, the
kernel's and this test's, while processes come, go and stand still."""
import collections
import signal
import threading
import time
import unittest

import jobs
import parameter_server_test
from case import Case
from home import is_running, kill, until
from scrape import PORT, fetch, role_processes

WITHIN = 0.01
LOOK = 0.02
PROGRAMS = {"worker": "starling-worker", "parameter-server": "starling-server"}


class Lives:
    """How long each process of a role has lived, by the kernel's clock and by looking."""

    def __init__(self, home):
        self._home = home
        self._began, self._ended = {}, {}
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        next_search = 0
        while not self._done.wait(LOOK):
            if time.monotonic() > next_search:  # for new ones: it reads all of /proc
                next_search = time.monotonic() + 0.3
                found = role_processes(self._home)
                with self._lock:
                    for pid, known in found.items():
                        self._began.setdefault(pid, known)
            with self._lock:
                for pid in self._began:
                    if pid not in self._ended and not is_running(pid):
                        self._ended[pid] = time.time()

    def seconds(self, program):
        """Of all processes there have been, up to now."""
        with self._lock:
            return sum(self._ended.get(pid, time.time()) - began
                       for pid, (name, began) in self._began.items() if name == program)

    def close(self):
        self._done.set()
        self._thread.join()


class Seconds(Case):
    def setUp(self):
        super().setUp()
        self.lives = Lives(self.home)

    def tearDown(self):
        self.lives.close()

    def start(self, job):
        self.command = self.home.start("run", self.home.write("job.yaml", job), "-o", "json")

    def activities(self, pod, metric):
        """By role (where there is one) and activity."""
        address = self.home.pods()[pod]["status"]["podIP"]
        _, samples = fetch(f"{address}:{PORT}")
        found = collections.defaultdict(dict)
        for name, labels, value in samples:
            if name == metric:
                labels = dict(labels)
                found[labels.get("role", "")][labels["activity"]] = value
        return found

    def of_job(self):
        return self.activities("digits-coordinator-0", "starling_job_activity_seconds_total")

    def assert_adds_up(self, roles=("worker",)):
        """The job's sum, as its coordinator knows it, is what the processes lived."""
        found = self.of_job()
        for role in roles:
            lived = self.lives.seconds(PROGRAMS[role])
            counted = {name: value for name, value in found[role].items() if name != "queueing"}
            summed = sum(counted.values())
            self.say(f"{role}: {summed:.2f} s counted, {lived:.2f} s lived "
                     f"({100 * (summed / lived - 1):+.2f} %): " +
                     ", ".join(f"{name} {value:.2f}" for name, value in sorted(counted.items())))
            self.assertLess(abs(summed - lived), WITHIN * lived)
            # Whatever takes more than what is allowed for is missed when it is left out.
            for name, value in counted.items():
                if value > 2 * WITHIN * lived:
                    self.assertGreater(abs(summed - value - lived), WITHIN * lived, name)
        return found

    def train_to(self, step):
        self.home.await_step(step, command=self.command, timeout=180)

    def leave(self):
        self.home.run("delete", "digits")
        self.command.wait(60)

    # Runs are long beside the tenth of a second by which reports are old.
    def test_of_a_calm_run(self):
        self.start(jobs.digits(workers=2, epochs=100))
        self.train_to(600)
        found = self.assert_adds_up()["worker"]
        self.assertGreater(found["compute"], 0)
        self.assertGreater(found["idle"], found["compute"], "steps are delayed by 20 ms")
        for pod in ("digits-worker-0", "digits-worker-1"):
            own = self.activities(pod, "starling_worker_activity_seconds_total")[""]
            (began,) = [value for name, _, value in
                        fetch(f"{self.home.pods()[pod]['status']['podIP']}:{PORT}")[1]
                        if name == "process_start_time_seconds"]
            self.assertLess(abs(sum(own.values()) - (time.time() - began)),
                            0.5 + WITHIN * sum(own.values()), pod)
        self.leave()

    def test_of_kills(self):
        self.start(jobs.digits(workers=3, epochs=100))
        for step, worker in ((40, 1), (80, 2), (120, 0)):
            self.train_to(step)
            kill(until(lambda: self.home.role_pid(f"digits-worker-{worker}"), 30, "it runs"))
        self.train_to(500)
        found = self.assert_adds_up()["worker"]
        self.assertGreater(found["recovery"], 0)
        self.assertGreater(found["joining"], 0)
        self.leave()

    def test_of_a_straggler(self):
        # Steps are computing rather than exchange: who is stopped comes late to the exchange, and does
        # not hold it up from inside.
        self.start(jobs.digits(workers=3, epochs=100000, experiment__stepDelay="0s",
                               dataset__globalBatchSize=192,
                               workload__classification__model__mlp__hidden=[1024, 1024]))
        self.train_to(10)
        before = {pod: self.activities(pod, "starling_worker_activity_seconds_total")[""]
                  for pod in ("digits-worker-0", "digits-worker-2")}
        slow = until(lambda: self.home.role_pid("digits-worker-2"), 30, "worker 2 runs")
        until_then = time.monotonic() + 12
        while time.monotonic() < until_then:
            kill(slow, signal.SIGSTOP)
            time.sleep(0.15)
            kill(slow, signal.SIGCONT)
            time.sleep(0.15)
        waited = {pod: self.activities(pod, "starling_worker_activity_seconds_total")[""]["waiting"]
                  - before[pod]["waiting"] for pod in before}
        told = self.home.job()["status"]["progress"].get("stragglers", [])
        page = self.home.run("describe", "digits").stdout
        self.say(f"waited: {waited}, told: {told}")
        self.assert_adds_up()
        self.assertGreater(waited["digits-worker-0"], 1, "it waits for the one that stands still")
        self.assertGreater(waited["digits-worker-0"], 2 * waited["digits-worker-2"])
        self.assertEqual(["digits-worker-2"], [one["pod"] for one in told])
        node = self.home.pods()["digits-worker-2"]["spec"]["nodeName"]
        self.assertEqual(node, told[0]["node"])
        self.assertIn(f"digits-worker-2 on {node} works ", page)
        self.leave()

    def test_of_parameter_servers(self):
        self.start(parameter_server_test.job(epochs=100))
        self.train_to(60)
        kill(until(lambda: self.home.role_pid("digits-parameter-server-1"), 30, "it runs"))
        self.train_to(600)
        found = self.assert_adds_up(("worker", "parameter-server"))
        self.assertGreater(found["parameter-server"]["optimizer"], 0)
        self.leave()

    def test_the_status_keeps_them_over_coordinators_and_suspensions(self):
        self.start(jobs.digits(workers=2, epochs=100))
        self.train_to(60)
        kill(until(lambda: self.home.role_pid("digits-coordinator-0"), 30, "it runs"))
        self.train_to(160)

        def summed():
            status = self.home.job()["status"]
            return sum(value for name, value in status.get("goodput", {}).items()
                       if name != "queueing")
        def missing():
            counted = summed()
            lived = self.lives.seconds(PROGRAMS["worker"])
            self.say(f"status: {counted:.2f} s of {lived:.2f} s")
            return abs(counted - lived)
        # Status and reports are a second old at most, older on a busy machine; a coordinator's last ones
        # are lost. What was lost before stays lost, so that no waiting would bring it back.
        until(lambda: missing() < 2.5, 20, "the status has what both coordinators counted")
        self.home.run("suspend", "digits")
        until(lambda: self.home.state() == "Suspended" and not role_processes(self.home), 60,
              "suspended")
        before = summed()
        self.home.run("resume", "digits")
        until(lambda: summed() > before + 3, 60, lambda: f"the sum goes on from {before}, and is "
              f"{summed()}")
        page = self.home.run("describe", "digits").stdout
        self.assertIn("Where the workers' time went:", page)
        self.leave()


if __name__ == "__main__":
    unittest.main(verbosity=2)
