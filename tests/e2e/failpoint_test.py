# SPDX-License-Identifier: Apache-2.0
"""A parameter server ends itself, as kill -9 would, at each place where that may hurt: before a push
is looked at, when it has been applied, before it is passed down the chain, before it is
acknowledged, while a copy is handed out, while a checkpoint is written.

With two copies nothing is lost and nothing is repeated; workers wait for less than a second. With
one, the shards come back from the newest checkpoint, and the incident tells how much is redone.
"""
import time
import unittest

import jobs
from case import Case
from home import until

EPOCHS = 5
FIRST = "digits-parameter-server-0"
SIXTEEN_SHARDS = {"workload__classification__model__mlp__hidden": [512, 128]}


def job(point, servers=2, replication=2, **changes):
    """A digits job whose first server has a failpoint."""
    made = jobs.digits(epochs=EPOCHS, optimizer={"sgd": {"learningRate": 0.05, "momentum": 0.5}},
                       exchange={"parameterServer": {
                           "replication": replication,
                           "consistency": {"staleSynchronous": {"staleness": 3}}}}, **changes)
    container = {"name": "trainer",
                 "env": [{"name": "STARLING_FAILPOINT", "value": f"{FIRST}/{point}"}]}
    made["spec"]["replicaSpecs"]["parameterServer"] = {
        "replicas": servers, "maxReplicas": 4, "template": {"spec": {"containers": [container]}}}
    return made


# How far the steps that are in the shards may be ahead of the audit, and of the run that a
# checkpoint counts: either is told at most every 50 ms, and each of two workers may have one step
# more in.
AHEAD = 6


def check_redone(test, told, saved, reached):
    """The one incident says how many steps are redone: no more than since the checkpoint."""
    test.assertEqual(1, len(told), told)
    test.assertEqual(9, told[0].get("signal"), "it was killed")
    redone = told[0].get("repeatedSteps", 0)
    test.say(f"at step {reached}, {saved} in the newest checkpoint, {redone} redone")
    test.assertGreater(saved, 0, "there was a checkpoint")
    test.assertGreater(redone, 0)
    test.assertLessEqual(redone, reached - saved + AHEAD, "what the checkpoint holds is not redone")


class Failpoints(Case):
    def start(self, made):
        self.command = self.home.start("run", self.home.write("job.yaml", made), "-o", "json")

    def watch(self, timeout=180):
        """The job's end, and the longest time in which no step was added once there was one."""
        longest, seen, since = 0.0, 0, None
        total = jobs.steps_of(EPOCHS)
        deadline = time.monotonic() + timeout
        while self.command.running() and time.monotonic() < deadline:
            step, now = self.home.steps(), time.monotonic()
            if step > seen:
                if seen > 0:
                    longest = max(longest, now - since)
                seen, since = step, now
            if seen >= total:
                break
            time.sleep(0.01)
        return self.finish(self.command, timeout), longest

    def killed(self, done):
        return [incident for incident in done["status"].get("incidents", [])
                if incident.get("pod") == FIRST]

    def check_nothing_lost(self, point):
        # The head of a chain hears pushes, its end acknowledges them: of sixteen it is some of both.
        self.start(job(point, **SIXTEEN_SHARDS))
        done, longest = self.watch()
        self.check_audit(EPOCHS)
        told = self.killed(done)
        self.say(f"{point}: longest wait {longest:.2f} s, incidents "
                 f"{[(one.get('reason'), one.get('recoverySeconds')) for one in told]}")
        self.assertIn(9, [one.get("signal") for one in told], "it killed itself")
        self.assertEqual(0, sum(one.get("repeatedSteps", 0) for one in told), told)
        self.assertLess(longest, 1.0, "workers wait at most a second")
        self.assertGreater(self.result(done)["metrics"]["validation/accuracy"], 0.85)

    def test_before_a_push_is_looked_at(self):
        self.check_nothing_lost("push:60")

    def test_when_a_push_has_been_applied(self):
        self.check_nothing_lost("apply:60")

    def test_before_a_push_is_passed_down_the_chain(self):
        self.check_nothing_lost("replicate:40")

    def test_before_a_push_is_acknowledged(self):
        self.check_nothing_lost("acknowledge:40")

    def test_while_a_checkpoint_is_written(self):
        self.check_nothing_lost("checkpoint:3")

    def scale_and_watch(self, servers):
        self.home.await_step(20, command=self.command)
        self.home.run("scale", "digits", "--role", "parameter-server", "--replicas", servers)
        done, longest = self.watch()
        self.check_audit(EPOCHS)
        told = self.killed(done)
        self.say(f"rebalance: longest wait {longest:.2f} s, {told}")
        self.assertIn(9, [one.get("signal") for one in told], "it killed itself")
        return told, longest

    def test_while_it_hands_out_a_copy_to_a_third(self):
        # It is the one that some of sixteen are copied from.
        self.start(job("rebalance:1", **SIXTEEN_SHARDS))
        told, longest = self.scale_and_watch(3)
        self.assertEqual(0, sum(one.get("repeatedSteps", 0) for one in told), told)
        self.assertLess(longest, 1.0, "workers wait at most a second")

    def test_while_the_only_server_hands_out_a_copy(self):
        self.start(job("rebalance:1", servers=1))
        self.scale_and_watch(2)


class OneCopy(Case):
    """The kill comes 5 s after the first checkpoint: a job's status tells of progress once a second, and
    on a busy machine later."""
    EPOCHS = 15
    start = Failpoints.start
    killed = Failpoints.killed

    def test_what_is_gone_comes_back_from_the_newest_checkpoint_and_is_told(self):
        # At step 280 or so, half way between two checkpoints.
        self.check_restored("apply:1300")

    def test_a_half_written_checkpoint_is_passed_over_for_the_one_before(self):
        # Of four shards: in the midst of the ninth.
        self.check_restored("checkpoint:34")

    def check_restored(self, point):
        self.start(job(point, servers=1, replication=1, checkpoint__interval="600ms",
                       experiment__stepDelay="40ms", stop__epochs=self.EPOCHS))
        saved, reached = self.until_told()
        done = self.finish(self.command, 180)
        self.check_audit(self.EPOCHS)
        check_redone(self, self.killed(done), saved, reached)
        self.assertGreater(self.result(done)["metrics"]["validation/accuracy"], 0.85)

    def until_told(self):
        """The newest checkpoint that the job knew of before it told of the kill, and the step that
        was reached then: with its only server away nothing goes on."""
        saved = 0
        while True:
            status = (self.home.job() or {}).get("status", {})
            reached = self.home.steps()
            if self.killed({"status": status}):
                return saved, reached
            self.assertTrue(self.command.running(), "it killed itself before the end")
            time.sleep(0.01)
            saved = status.get("lastCheckpoint", {}).get("step", saved)


class Alone(Case):
    def test_a_lone_server_saves_when_it_is_suspended_and_goes_on_from_there(self):
        self.home.run("up")
        made = job("push:1000000", servers=1, replication=1, checkpoint__interval="1h")
        made["spec"]["replicaSpecs"]["worker"]["replicas"] = 1
        self.home.run("submit", self.home.write("job.yaml", made))
        self.home.await_step(30)
        self.home.run("suspend", "digits")
        until(lambda: self.home.condition("Suspended"), 60, self.home.describe)
        until(lambda: not self.home.pods(), 40, self.home.describe)
        self.home.run("resume", "digits")
        until(lambda: self.home.condition("Succeeded"), 120, self.home.describe)
        self.check_audit(EPOCHS)
        self.assertEqual([], self.home.job()["status"].get("incidents", []))
        self.home.run("down")


if __name__ == "__main__":
    unittest.main(verbosity=2)
