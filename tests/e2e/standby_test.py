# SPDX-License-Identifier: Apache-2.0
"""Loss in company: controller, coordinator and half of the workers are killed together, as with the
node that they are on, and no controller comes back meanwhile.

With a coordinator that stands by, the others go on within five seconds; without one they wait for a
controller (the control). When there is a controller again it finds who leads, starts the next
standby, and the job ends with each sample used once an epoch.
"""
import signal
import time
import unittest

import jobs
from case import Case
from home import kill, until

WORKERS = 4
EPOCHS = 60
WITHIN = 5.0  # seconds
LOST = ("digits-coordinator-0", "digits-worker-0", "digits-worker-1")
SERVERS = {"parameterServer": {"replication": 2, "consistency": {"bulkSynchronous": {}}}}


class LossInCompany(Case):
    def train(self, standby, lost=LOST, **changes):
        self.home.run("up")
        self.home.run("submit", self.home.write("digits.yaml", jobs.digits(
            workers=WORKERS, epochs=EPOCHS, experiment__stepDelay="30ms",
            replicaSpecs__coordinator={"standby": standby}, **changes)))
        self.home.await_step(20)
        self.await_members(WORKERS)
        self.doomed = self.pids_of(lost)

    def await_members(self, count):
        until(lambda: self.ready("worker") == count, 60,
              lambda: f"{count} workers\n{self.home.describe()}")

    def ready(self, role):
        status = (self.home.job() or {}).get("status", {})
        return status.get("replicaStatuses", {}).get(role, {}).get("ready", 0)

    def pids_of(self, pods):
        """The first process of each pod and what it has started."""
        first = [self.home.await_pod(pod) for pod in pods]
        return first + [one.pid for one in self.home.processes() if one.parent in first]

    def lose(self):
        """Returns the step that was reached."""
        for pid in self.home.controllers() + self.doomed:
            self.assertTrue(kill(pid), "all of them lived")
        until(lambda: not self.home.controllers(), 5, "no controller is there")
        return self.home.steps()

    def seconds_until(self, step, timeout):
        """None: it is not reached in time."""
        began = time.monotonic()
        while time.monotonic() < began + timeout:
            if self.home.steps() >= step:
                return time.monotonic() - began
            time.sleep(0.01)
        return None

    def coordinator(self):
        return self.home.job()["status"]["coordinator"]

    def test_with_a_standby_steps_go_on_while_no_controller_is_there(self):
        self.train(standby=True)
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)
        before = self.coordinator()
        self.assertEqual(before["incarnation"], before["standby"]["follows"])

        reached = self.lose()
        # One step may have been under way.
        seconds = self.seconds_until(reached + 5, 9)
        self.assertEqual([], self.home.controllers())
        self.assertIsNotNone(seconds, self.home.describe())
        self.say(f"steps went on {seconds:.2f} s after the loss")
        self.assertLess(seconds, WITHIN)

        self.home.run("up")
        until(lambda: self.coordinator()["incarnation"] >= before["standby"]["incarnation"], 30,
              self.home.describe)
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)
        self.assertGreater(self.coordinator()["standby"]["incarnation"],
                           self.coordinator()["incarnation"])
        until(lambda: self.home.condition("Succeeded"), 180, self.home.describe)
        incidents = self.home.job()["status"]["incidents"]
        reasons = [incident["reason"] for incident in incidents]
        self.assertIn("CoordinatorTakenOver", reasons)
        self.assertNotIn("StepsAtRisk", reasons)
        self.check_audit(EPOCHS)
        self.end()

    def test_of_a_job_with_parameter_servers_half_of_these_goes_as_well(self):
        self.train(True, (*LOST, "digits-parameter-server-0"), exchange=SERVERS,
                   replicaSpecs__parameterServer={"replicas": 2})
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)

        reached = self.lose()
        seconds = self.seconds_until(reached + 5, 9)
        self.assertIsNotNone(seconds, self.home.describe())
        self.say(f"steps went on {seconds:.2f} s after the loss")
        self.assertLess(seconds, WITHIN)

        self.home.run("up")
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)
        self.home.run("delete", "digits")
        self.end()

    def test_without_one_they_wait_for_a_controller(self):
        self.train(standby=False)

        reached = self.lose()
        self.assertIsNone(self.seconds_until(reached + 5, WITHIN), "nobody was there to lead")

        self.home.run("up")
        until(lambda: self.home.steps() >= reached + 5, 60, self.home.describe)
        self.home.run("delete", "digits")
        self.end()

    def test_a_standby_that_is_killed_costs_nobody_a_step(self):
        self.train(standby=True)
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)
        granted = self.coordinator()["incarnation"]
        for pid in self.pids_of(["digits-coordinator-1"]):
            kill(pid)
        self.await_steps(60)
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)
        self.assertGreater(self.coordinator()["incarnation"], granted,
                           "whoever has had a standby goes on under another number")
        self.home.run("delete", "digits")
        self.end()

    def test_a_coordinator_that_stood_still_finds_that_it_leads_no_more(self):
        self.train(standby=True)
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)
        before = self.coordinator()
        stopped = until(lambda: self.home.role_pid("digits-coordinator-0"), 30, "it runs")
        self.assertTrue(kill(stopped, signal.SIGSTOP))
        until(lambda: self.coordinator()["incarnation"] == before["standby"]["incarnation"], 30,
              self.home.describe)
        kill(stopped, signal.SIGCONT)
        self.await_steps(60)
        until(lambda: self.home.condition("StandbyReady"), 60, self.home.describe)
        self.assertEqual(before["standby"]["podUid"], self.coordinator()["podUid"])
        reasons = [one["reason"] for one in self.home.job()["status"]["incidents"]]
        self.assertIn("CoordinatorTakenOver", reasons)
        self.assertNotIn("WorkerLost", reasons)
        self.home.run("delete", "digits")
        self.end()

    def await_steps(self, count):
        """So many more, none of which takes long."""
        reached = self.home.steps()
        longest, seen, since = 0.0, reached, time.monotonic()
        while seen < reached + count:
            step, now = self.home.steps(), time.monotonic()
            if step > seen:
                longest, seen, since = max(longest, now - since), step, now
            self.assertLess(now - since, WITHIN, self.home.describe())
            time.sleep(0.01)
        self.say(f"longest time without a step {longest:.2f} s")

    def end(self):
        until(lambda: not [name for name in self.home.pods()
                           if self.home.pod_pid(name)], 40, self.home.describe)
        self.home.run("down")
        self.home.assert_nothing_runs()


if __name__ == "__main__":
    unittest.main(verbosity=2)
