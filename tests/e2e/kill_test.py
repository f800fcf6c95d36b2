# SPDX-License-Identifier: Apache-2.0
"""kill -9 of anything: the job goes on, every sample is used once, nothing is left running.

Who survives holds all of the model: while one worker does, no incident repeats more than a step. Where
none does, training goes on from the newest checkpoint, and no incident repeats more than came after it.
"""
import signal
import unittest

import jobs
from case import Case
from home import is_running, is_stopped, kill, until


class KillCase(Case):
    EPOCHS = 10  # seconds after the last kill, also on a busy machine
    INTERVAL = "400ms"

    def setUp(self):
        super().setUp()
        job = jobs.digits(workers=2, epochs=self.EPOCHS, checkpoint__interval=self.INTERVAL)
        self.path = self.home.write("job.yaml", job)
        self.command = self.home.start("run", self.path, "-o", "json")

    def finish_whole(self, repeated=1):
        """The final object; no incident may have repeated more steps (None: from a checkpoint).

        What nobody has seen the end of has no number, rather than 0.
        """
        job = self.finish(self.command)
        self.check_audit(self.EPOCHS)
        self.assertGreater(self.result(job)["metrics"]["validation/accuracy"], 0.9)
        for incident in job["status"].get("incidents", []):
            self.say(f"{incident.get('pod')}: {incident.get('reason')}, repeated "
                     f"{incident.get('repeatedSteps')}")
            self.assertEqual("recoverySeconds" in incident, "repeatedSteps" in incident, incident)
            if repeated is not None and incident["reason"].startswith("Worker"):
                self.assertLessEqual(incident["repeatedSteps"], repeated, incident)
            if repeated == 1:
                self.assertNotEqual("StepsLost", incident["reason"], "somebody lived all the time")
        return job

    def kill_at(self, step, find, what):
        self.home.await_step(step, command=self.command)
        pid = until(find, 30, f"{what} runs")
        self.say(f"kill -9 {pid} ({what}) at step {self.home.steps()}")
        self.assertTrue(kill(pid))
        return pid


class Kill(KillCase):
    def window_access(self, pod):
        """What this worker's process may do to the gradients that it maps, its own and the other's."""
        pid = self.home.role_pid(pod)
        if pid is None:
            return []
        with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
            return sorted(line.split()[1] for line in maps if "starling-window" in line)

    def test_of_a_workers_role_restarts_it_in_its_pod(self):
        pod = self.home.await_pod("digits-worker-1")
        (keeper,) = until(lambda: self.home.keepers("digits-worker-1"), 30, "its memory is kept")
        killed = self.kill_at(20, lambda: self.home.role_pid("digits-worker-1"),
                              "role of worker 1")
        until(lambda: self.home.role_pid("digits-worker-1") not in (None, killed), 30,
              lambda: f"another role is in its place\n{self.home.describe()}")
        self.assertEqual(pod, self.home.pod_pid("digits-worker-1"), "its pod is the same")
        self.assertFalse(is_running(keeper), "memory is freed before another role is started")
        for worker in ("digits-worker-0", "digits-worker-1"):
            until(lambda: self.window_access(worker) == ["r--s", "rw-s"], 30,
                  lambda: f"{worker} reads the other's gradients: {self.window_access(worker)}")

        job = self.finish_whole()
        self.assertTrue(job["status"]["incidents"], "the incident is told")

    def test_of_a_workers_pod_replaces_it(self):
        self.kill_at(20, lambda: self.home.pod_pid("digits-worker-0"), "pod of worker 0")

        job = self.finish_whole()
        incidents = job["status"]["incidents"]
        self.assertIn(9, [incident.get("signal") for incident in incidents], incidents)

    def test_of_the_coordinator_lets_training_go_on(self):
        self.home.await_step(20, command=self.command)
        self.train_without_coordinator(self.home.role_pid, "its role")
        self.home.await_step(60, command=self.command)
        self.train_without_coordinator(self.home.pod_pid, "its pod")

        self.finish_whole()

    def train_without_coordinator(self, find, what):
        """Freezes it, so that it is away for as long as that takes, and then kills `what`."""
        pod = "digits-coordinator-0"
        role = until(lambda: self.home.role_pid(pod), 30, "the coordinator runs")
        self.assertTrue(kill(role, signal.SIGSTOP))
        until(lambda: is_stopped(role), 10, "it stands still")
        frozen = self.home.steps()
        self.home.await_step(frozen + 10, command=self.command)
        self.assertEqual(role, self.home.role_pid(pod), "no other was in its place meanwhile")
        killed = find(pod)
        self.say(f"frozen at step {frozen}, kill -9 {killed} ({what}) at {self.home.steps()}")
        self.assertTrue(kill(killed))
        until(lambda: find(pod) not in (None, killed), 30,
              lambda: f"another is in its place\n{self.home.describe()}")

    def test_of_the_controller_has_it_restarted_and_pods_adopted(self):
        worker = self.home.await_pod("digits-worker-0")
        self.home.await_step(20, command=self.command)
        self.assertEqual(1, len(self.home.controllers()))
        killed = self.home.controllers()[0]
        self.assertTrue(kill(killed))
        until(lambda: [pid for pid in self.home.controllers() if pid != killed], 10,
              "the controller is restarted")
        self.assertTrue(is_running(worker), "pods outlive their controller")

        self.finish_whole()

    def test_of_everything_and_the_same_command_again_goes_on_from_a_checkpoint(self):
        uid = self.home.job()["metadata"]["uid"] if self.home.job() else None
        self.home.await_step(70, command=self.command)
        uid = uid or self.home.job()["metadata"]["uid"]
        self.home.kill_everything()
        reached = self.home.steps()

        self.command = self.home.start("run", self.path, "-o", "json")
        until(lambda: self.home.steps() < reached or self.home.steps() > reached + 2, 30,
              "training goes on")
        self.assertGreater(self.home.steps(), 20, "it starts from a checkpoint, not from step 0")
        job = self.finish_whole(repeated=None)
        self.assertEqual(uid, job["metadata"]["uid"], "it is the same job")

    def test_of_both_workers_and_the_coordinator_at_once(self):
        self.home.await_step(50, command=self.command)
        for pod in ("digits-worker-0", "digits-worker-1", "digits-coordinator-0"):
            self.assertTrue(kill(self.home.pod_pid(pod)))

        self.finish_whole(repeated=None)

    def test_frozen_worker_holds_nobody_up_and_may_wake(self):
        self.home.await_step(20, command=self.command)
        role = until(lambda: self.home.role_pid("digits-worker-1"), 30, "worker 1 runs")
        kill(role, signal.SIGSTOP)
        frozen = self.home.steps()
        self.home.await_step(frozen + 20, command=self.command)
        kill(role, signal.SIGCONT)  # perhaps it was replaced meanwhile

        self.finish_whole()


class FarFromACheckpoint(KillCase):
    """One checkpoint is written, when the test asks for it, and steps that the coordinator knows of
    come after it: where a checkpoint may be as new as what was settled, nothing need be lost."""
    INTERVAL = "1h"

    def test_both_workers_at_once_repeat_what_no_checkpoint_has(self):
        self.home.await_step(10, command=self.command)
        self.home.run("checkpoint", "digits")
        saved = self.home.job()["status"]["requestedCheckpoint"]["checkpoint"]["step"]
        pods = ("digits-worker-0", "digits-worker-1")
        roles = [until(lambda: self.home.role_pid(pod), 30, f"{pod} runs") for pod in pods]
        firsts = [self.home.pod_pid(pod) for pod in pods]
        self.home.await_step(saved + 40, command=self.command)
        # A worker that lives on while the other is looked for takes steps alone, of a few ms each:
        # more than the limit below allows. So both stand still before their step is read.
        for role in roles:
            self.assertTrue(kill(role, signal.SIGSTOP))
        until(lambda: all(is_stopped(role) for role in roles), 10, "both stand still")
        reached = self.home.steps()
        for first in firsts:
            self.assertTrue(kill(first))
        self.say(f"killed at step {reached}; the checkpoint of step {saved} was there")

        job = self.finish_whole(repeated=reached + 2 - saved)
        costs = [incident["repeatedSteps"] for incident in job["status"]["incidents"]
                 if incident["reason"].startswith("Worker")]
        self.assertGreater(max(costs), 0, "steps that nobody holds are not there")
        (lost,) = [incident for incident in job["status"]["incidents"]
                   if incident["reason"] == "StepsLost"]
        self.assertEqual(saved, lost["resumedStep"])
        self.assertTrue(0 < lost["repeatedSteps"] <= reached + 2 - saved, lost)
        told = f"training went on from step {saved}"
        self.assertIn(told, self.command.stderr)
        self.assertIn(told, self.home.run("describe", "digits").stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
