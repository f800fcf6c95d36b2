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
# How long a busy machine may take until reports, which are a tenth of a second old, are no older.
CALM = 15
FIND = 0.3
LOOK = 0.02
# Seconds by which the status of two workers may lag: it is a second old at most.
LATE = 2.0
OF_JOB = "starling_job_activity_seconds_total"
OF_WORKER = "starling_worker_activity_seconds_total"
PROGRAMS = {"worker": "starling-worker", "parameter-server": "starling-server"}


class Lives:
    """How long each process of a role has lived, by the kernel's clock and by looking."""

    def __init__(self, home):
        self._home = home
        self._began, self._ended, self._killed = {}, {}, set()
        self._lock = threading.Lock()
        self._done = threading.Event()
        # Two, for who looks for new ones reads all of /proc: an end would be seen later, and count.
        self._threads = [threading.Thread(target=run, daemon=True)
                         for run in (self._find, self._look)]
        for thread in self._threads:
            thread.start()

    def _find(self):
        while not self._done.wait(FIND):
            found = role_processes(self._home)
            with self._lock:
                for pid, known in found.items():
                    self._began.setdefault(pid, known)

    def _look(self):
        while not self._done.wait(LOOK):
            with self._lock:
                living = [pid for pid in self._began if pid not in self._ended]
            for pid in living:
                if not is_running(pid):
                    with self._lock:
                        self._ended[pid] = time.time()

    def seconds(self, program):
        """Of all processes there have been, up to now."""
        with self._lock:
            return sum(self._ended.get(pid, time.time()) - began
                       for pid, (name, began) in self._began.items() if name == program)

    def kill(self, pid):
        """As the test wants it; who else ends is replaced, by whoever found it silent."""
        self._killed.add(pid)
        kill(pid)

    def replaced(self, program):
        """Seconds of those that ended though no test has killed them: on a busy machine a process may
        be given up while it starts."""
        with self._lock:
            return sum(ended - self._began[pid][1] for pid, ended in self._ended.items()
                       if pid not in self._killed and self._began[pid][0] == program)

    def describe(self):
        with self._lock:
            return "\n".join(f"  {pid} {name}: began {began:.2f}, ended {self._ended.get(pid, 0.0):.2f}"
                             for pid, (name, began) in sorted(self._began.items()))

    def close(self):
        self._done.set()
        for thread in self._threads:
            thread.join()


def by_role(samples, metric):
    """By role (where there is one) and activity."""
    found = collections.defaultdict(dict)
    for name, labels, value in samples:
        if name == metric:
            labels = dict(labels)
            found[labels.get("role", "")][labels["activity"]] = value
    return found


class Seconds(Case):
    def setUp(self):
        super().setUp()
        self.lives = Lives(self.home)

    def tearDown(self):
        self.lives.close()

    def start(self, job):
        self.command = self.home.start("run", self.home.write("job.yaml", job), "-o", "json")

    def address(self, pod):
        return f"{self.home.pods()[pod]['status']['podIP']}:{PORT}"

    def activities(self, pod, metric=OF_WORKER):
        return by_role(fetch(self.address(pod), CALM)[1], metric)

    def counted(self):
        """By the job's status, which lags."""
        status = self.home.job()["status"]
        return sum(value for name, value in status.get("goodput", {}).items() if name != "queueing")

    def assert_adds_up(self, roles=("worker",)):
        """The job's sum, as its coordinator knows it, is what the processes lived. What is allowed
        for is fixed beforehand: seconds that are not counted stay missing however often one looks."""
        coordinator = self.address("digits-coordinator-0")
        found = {}
        for role in roles:
            allowed = WITHIN * self.lives.seconds(PROGRAMS[role])
            found[role] = until(lambda: self.look(coordinator, role, allowed), CALM,
                                lambda: f"the seconds add up within {allowed:.2f} s: {self.seen}\n"
                                        f"{self.lives.describe()}\n{self.home.describe()}")
            self.say(self.seen)
        return found

    def look(self, coordinator, role, allowed):
        """What is counted by activity, if it is what was lived between question and answer."""
        asked = self.lives.seconds(PROGRAMS[role])
        _, samples = fetch(coordinator, CALM)
        answered = self.lives.seconds(PROGRAMS[role])
        counted = {name: value for name, value in by_role(samples, OF_JOB)[role].items()
                   if name != "queueing"}
        # Of a process that ends before it has told anything the job knows only that it was missing.
        silent = self.lives.replaced(PROGRAMS[role])
        summed = sum(counted.values())
        self.seen = (f"{role}: {summed:.2f} s counted, {asked:.2f} to {answered:.2f} s lived, "
                     f"of which {silent:.2f} s silent ({100 * (summed / answered - 1):+.2f} %): " +
                     ", ".join(f"{name} {value:.2f}" for name, value in sorted(counted.items())))

        def adds_up(seconds):
            return asked - silent - allowed < seconds < answered + allowed
        if answered - asked > allowed or not adds_up(summed):
            return None
        # Whatever takes more than what is allowed for is missed when it is left out.
        for name, value in counted.items():
            if value > silent + 3 * allowed:
                self.assertFalse(adds_up(summed - value), name)
        return counted

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
            address = self.address(pod)
            asked = time.time()
            _, samples = fetch(address, CALM)
            answered = time.time()
            own = sum(by_role(samples, OF_WORKER)[""].values())
            (began,) = [value for name, _, value in samples if name == "process_start_time_seconds"]
            allowed = 0.5 + WITHIN * own
            self.assertGreater(own, asked - began - allowed, pod)
            self.assertLess(own, answered - began + allowed, pod)
        self.leave()

    def test_of_kills(self):
        self.start(jobs.digits(workers=3, epochs=100))
        for step, worker in ((40, 1), (80, 2), (120, 0)):
            self.train_to(step)
            self.lives.kill(until(lambda: self.home.role_pid(f"digits-worker-{worker}"), 30,
                                  "it runs"))
        self.train_to(500)
        found = self.assert_adds_up()["worker"]
        self.assertGreater(found["recovery"], 0)
        self.assertGreater(found["joining"], 0)
        self.leave()

    @staticmethod
    def limp(pid, seconds):
        """It stands still half of that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            kill(pid, signal.SIGSTOP)
            time.sleep(0.15)
            kill(pid, signal.SIGCONT)
            time.sleep(0.15)

    def test_of_a_straggler(self):
        # Steps are computing rather than exchange: who is stopped comes late to the exchange, and does
        # not hold it up from inside.
        self.start(jobs.digits(workers=3, epochs=100000, experiment__stepDelay="0s",
                               dataset__globalBatchSize=192,
                               workload__classification__model__mlp__hidden=[1024, 1024]))
        self.train_to(10)
        before = {pod: self.activities(pod)[""]
                  for pod in ("digits-worker-0", "digits-worker-2")}
        slow = until(lambda: self.home.role_pid("digits-worker-2"), 30, "worker 2 runs")
        self.limp(slow, 12)

        # On a busy machine the others are late too, and the status later: it limps on until then.
        def told():
            self.limp(slow, 1)
            found = self.home.job()["status"]["progress"].get("stragglers", [])
            return found if [one["pod"] for one in found] == ["digits-worker-2"] else None
        told = until(told, 40, lambda: f"one is told\n{self.home.job()['status']}")
        waited = {pod: self.activities(pod)[""]["waiting"]
                  - before[pod]["waiting"] for pod in before}
        page = self.home.run("describe", "digits").stdout
        self.say(f"waited: {waited}, told: {told}")
        self.assert_adds_up()
        self.assertGreater(waited["digits-worker-0"], 1, "it waits for the one that stands still")
        self.assertGreater(waited["digits-worker-0"], 2 * waited["digits-worker-2"])
        node = self.home.pods()["digits-worker-2"]["spec"]["nodeName"]
        self.assertEqual(node, told[0]["node"])
        self.assertIn(f"digits-worker-2 on {node} works ", page)
        self.leave()

    def test_of_parameter_servers(self):
        self.start(parameter_server_test.job(epochs=100))
        self.train_to(60)
        self.lives.kill(until(lambda: self.home.role_pid("digits-parameter-server-1"), 30, "it runs"))
        self.train_to(600)
        found = self.assert_adds_up(("worker", "parameter-server"))
        self.assertGreater(found["parameter-server"]["optimizer"], 0)
        self.leave()

    def test_the_status_keeps_them_over_coordinators_and_suspensions(self):
        self.start(jobs.digits(workers=2, epochs=100))
        self.train_to(60)
        coordinator = until(lambda: self.home.role_pid("digits-coordinator-0"), 30, "it runs")
        # More than may be missing below: a successor that does not know of it is noticed.
        until(lambda: self.counted() > 2 * LATE, 60, "the status has what is to be kept")
        told = self.counted()
        kill(coordinator)
        # What the status lacks when its coordinator dies nobody else knows: a second of each worker,
        # more on a busy machine. It stays lost, so that no waiting would bring it back.
        lost = self.lives.seconds(PROGRAMS["worker"]) - told
        self.train_to(160)

        def kept():
            lived = self.lives.seconds(PROGRAMS["worker"])
            counted = self.counted()
            self.say(f"status: {counted:.2f} s of {lived:.2f} s, of which {lost:.2f} s may be lost")
            self.assertLess(counted, (1 + WITHIN) * self.lives.seconds(PROGRAMS["worker"]),
                            "no second counts twice")
            silent = self.lives.replaced(PROGRAMS["worker"])
            return lived - counted < lost + silent + LATE
        until(kept, 20, "the status has what both coordinators counted")
        self.home.run("suspend", "digits")
        until(lambda: self.home.state() == "Suspended" and not role_processes(self.home), 60,
              "suspended")
        before = self.counted()
        self.home.run("resume", "digits")
        until(lambda: self.counted() > before + 3, 60,
              lambda: f"the sum goes on from {before}, and is {self.counted()}\n"
                      f"{self.home.describe()}")
        page = self.home.run("describe", "digits").stdout
        self.assertIn("Where the workers' time went:", page)
        self.leave()


if __name__ == "__main__":
    unittest.main(verbosity=2)
