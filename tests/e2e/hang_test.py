# SPDX-License-Identifier: Apache-2.0
"""A process answers, but its step never ends: a failpoint stands still, or loops, in the loader, in
the arithmetic, in a parameter server.

The others go on within five seconds, it is one incident of its own kind with the stacks of the
process in its log, each sample counts once an epoch, and nobody else is replaced. A long validation
and a machine that stands still as a whole are no hangs.
"""
import glob
import signal
import time
import unittest

import jobs
from case import Case
from home import kill, read

EPOCHS = 8  # long enough for the next process to be there and tell how the one before ended
WORKER = "digits-worker-1"
SERVER = "digits-parameter-server-0"
HUNG = 200  # the exit code

ALLREDUCE = {"allReduce": {}}
SERVERS = {"parameterServer": {"replication": 2,
                               "consistency": {"staleSynchronous": {"staleness": 3}}}}
BOTH = {"parameterServer": {"replication": 2, "consistency": {"bulkSynchronous": {}},
                            "tensors": ["layers.0.*"]}}


def job(point, exchange=None, **changes):
    """A digits job of 50 ms a step, of which one process has this failpoint."""
    exchange = exchange or ALLREDUCE
    made = jobs.digits(epochs=EPOCHS, experiment__stepDelay="50ms", exchange=exchange, **changes)
    container = {"name": "trainer", "env": [{"name": "STARLING_FAILPOINT", "value": point}]}
    template = {"spec": {"containers": [container]}}
    made["spec"]["replicaSpecs"]["worker"]["template"] = template
    if "parameterServer" in exchange:
        made["spec"]["replicaSpecs"]["parameterServer"] = {"replicas": 2, "template": template}
    return made


class HangCase(Case):
    def start(self, made):
        self.command = self.home.start("run", self.home.write("job.yaml", made), "-o", "json")

    def watch(self, timeout=180):
        """The job's end, and the longest time in which no step was added once there was one."""
        longest, seen, since = 0.0, 0, None
        deadline = time.monotonic() + timeout
        while self.command.running() and time.monotonic() < deadline:
            step, now = self.home.steps(), time.monotonic()
            if step > seen:
                if seen > 0:
                    longest = max(longest, now - since)
                seen, since = step, now
            if seen >= jobs.steps_of(EPOCHS):
                break
            time.sleep(0.01)
        return self.finish(self.command, timeout), longest

    def log_of(self, pod):
        paths = glob.glob(f"{self.home.job_folder()}/pods/{pod}-*/log")
        return "".join(read(path) for path in paths)

    def check_hang(self, point, pod, where, frame, **changes):
        """One hangs and is replaced; what stands in its log and in the incident."""
        self.start(job(point, **changes))
        done, longest = self.watch()
        log = self.log_of(pod)
        told = done["status"].get("incidents", [])
        self.say(f"{point}: longest wait {longest:.2f} s, "
                 f"{[(one.get('reason'), one.get('message')) for one in told]}")
        self.check_audit(EPOCHS)
        self.assertEqual(1, len(told), f"nobody else is replaced: {told}")
        role = "Worker" if "worker" in pod else "ParameterServer"
        self.assertEqual(f"{role}Hung", told[0]["reason"])
        self.assertEqual(pod, told[0]["pod"])
        self.assertEqual(HUNG, told[0].get("exitCode"))
        self.assertIn(f'in "{where}"', told[0]["message"])
        self.assertGreaterEqual(told[0]["detectionSeconds"], 2)
        self.assertLess(longest, 5.0, "steps go on")
        self.assertIn(frame, log, "the stack of the thread that hangs")
        self.assertIn(frame, told[0].get("logTail", ""), "the incident shows it")
        self.assertGreater(self.result(done)["metrics"]["validation/accuracy"], 0.8)
        return longest


class Workers(HangCase):
    def test_in_the_arithmetic_of_a_step(self):
        self.check_hang(f"stop@{WORKER}/compute:30", WORKER, "compute", "StandStill")

    def test_in_a_loader_that_loops(self):
        self.check_hang(f"loop@{WORKER}/input:30", WORKER, "input", "Loop")

    def test_with_leases(self):
        self.check_hang(f"stop@{WORKER}/compute:20", WORKER, "compute", "StandStill",
                        exchange=SERVERS)

    def test_where_some_tensors_lie_on_servers(self):
        self.check_hang(f"loop@{WORKER}/compute:30", WORKER, "compute", "Loop", exchange=BOTH)


class Servers(HangCase):
    def test_while_it_applies_a_push(self):
        self.check_hang(f"stop@{SERVER}/apply:60", SERVER, "serving", "StandStill",
                        exchange=SERVERS)

    def test_that_loops_beside_workers_with_a_state(self):
        self.check_hang(f"loop@{SERVER}/apply:60", SERVER, "serving", "Loop", exchange=BOTH)


class NoHang(HangCase):
    def hangs(self, done):
        return [one for one in done["status"].get("incidents", []) if one["reason"].endswith("Hung")]

    def test_a_long_validation(self):
        self.start(job(f"pause@{WORKER}/validation:1"))
        done, longest = self.watch()
        self.check_audit(EPOCHS)
        self.say(f"longest wait {longest:.2f} s, {done['status'].get('incidents', [])}")
        self.assertGreater(longest, 7.0, "it took eight seconds")
        self.assertEqual([], done["status"].get("incidents", []))

    def test_a_machine_that_stands_still_for_a_while(self):
        self.start(job(""))
        self.home.await_step(20, command=self.command)
        everybody = [process.pid for process in self.home.processes()]
        for pid in everybody:
            kill(pid, signal.SIGSTOP)
        time.sleep(6)
        for pid in everybody:
            kill(pid, signal.SIGCONT)
        done, longest = self.watch()
        self.check_audit(EPOCHS)
        self.say(f"longest wait {longest:.2f} s, {done['status'].get('incidents', [])}")
        self.assertEqual([], self.hangs(done))

    def test_steps_that_take_much_longer_than_before(self):
        """Ten times as slow, and yet never standing still for two seconds."""
        made = job("", replicaSpecs__worker__replicas=4)
        self.start(made)
        self.home.await_step(20, command=self.command)
        workers = [self.home.role_pid(f"digits-worker-{index}") for index in range(4)]
        for _ in range(8):
            for pid in workers:
                kill(pid, signal.SIGSTOP)
            time.sleep(0.5)
            for pid in workers:
                kill(pid, signal.SIGCONT)
            time.sleep(0.2)
        done, longest = self.watch()
        self.check_audit(EPOCHS)
        self.say(f"longest wait {longest:.2f} s, {done['status'].get('incidents', [])}")
        self.assertEqual([], done["status"].get("incidents", []))


if __name__ == "__main__":
    unittest.main(verbosity=2)
