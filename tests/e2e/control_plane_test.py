# SPDX-License-Identifier: Apache-2.0
"""The control plane in the background: verbs, two jobs at once, suspension, deletion, clean-up."""
import json
import os
import signal
import time
import unittest

import jobs
from case import Case
from home import is_running, kill, until


def quick(name, **changes):
    return jobs.digits(name=name, epochs=1, experiment__stepDelay="0s", **changes)


class ControlPlane(Case):
    def setUp(self):
        super().setUp()
        self.home.run("up")

    def submit(self, job):
        name = job["metadata"]["name"]
        self.home.run("submit", self.home.write(f"{name}.yaml", job))

    def down(self):
        self.home.run("down")
        self.home.assert_nothing_runs()

    def await_condition(self, kind, name, timeout=60):
        until(lambda: self.home.condition(kind, name), timeout,
              lambda: f"{name} is {kind}: {self.home.job(name)}\n{self.home.describe()}")

    def test_deleting_one_of_two_jobs_leaves_the_other_untouched(self):
        self.submit(jobs.digits("first", epochs=60))
        self.submit(jobs.digits("second", epochs=10))
        self.home.await_step(20, "first")
        self.home.await_step(20, "second")
        other = self.home.pod_pid("second-worker-0")
        doomed = self.home.pod_pid("first-worker-0")
        folder = self.home.job_folder("first")

        self.home.run("delete", "tj/first")

        until(lambda: self.home.job("first") is None, 40, "the first job leaves")
        until(lambda: not [name for name in self.home.pods() if name.startswith("first-")], 40,
              lambda: f"its pods leave: {self.home.pods().keys()}")
        self.assertFalse(is_running(doomed))
        until(lambda: not os.path.exists(folder), 10, "its folder is removed")
        self.assertTrue(is_running(other) or self.home.condition("Succeeded", "second"))
        self.await_condition("Succeeded", "second")
        self.check_audit(10, "second")
        self.assertFalse(self.home.job("second")["status"].get("incidents"),
                         "the other job has noticed nothing")
        self.down()

    def test_job_is_deleted_when_its_time_to_live_is_over(self):
        self.submit(quick("brief", runPolicy={"ttlSecondsAfterFinished": 1}))

        until(lambda: self.home.job("brief") is None, 60, "the job is deleted")

        until(lambda: not self.home.pods(), 20, lambda: f"pods leave: {self.home.pods().keys()}")
        until(lambda: self.home.job_folder("brief") is None, 20, "its folder is removed")
        self.down()

    def test_pods_are_cleaned_up_as_the_policy_says(self):
        self.submit(quick("all", runPolicy={"cleanPodPolicy": "All"}))
        self.submit(quick("running", runPolicy={"cleanPodPolicy": "Running"}))
        self.await_condition("Succeeded", "all")
        self.await_condition("Succeeded", "running")

        until(lambda: not [name for name in self.home.pods() if name.startswith("all-")], 30,
              lambda: f"all pods are deleted: {self.home.pods().keys()}")
        until(lambda: not [pod for pod in self.home.pods().values()
                           if pod["status"].get("phase") == "Running"], 30, "none runs")
        self.assertEqual([], [item.command for item in self.home.processes()
                              if item.program != "starling-controller"])
        self.down()

    def test_a_checkpoint_that_is_asked_for_is_where_training_goes_on(self):
        epochs = 30
        self.submit(jobs.digits("digits", epochs=epochs, checkpoint__interval="1h"))
        self.home.await_step(30)

        said = self.home.run("checkpoint", "digits").stdout

        written = self.home.job()["status"]["requestedCheckpoint"]["checkpoint"]
        self.assertEqual(f"trainingjob.starling.dev/digits checkpoint {written['name']} written at "
                         f"step {written['step']}\n", said)
        self.assertGreaterEqual(written["step"], 30)
        self.assertTrue(os.path.isdir(written["uri"].removeprefix("file://")), written)
        # Where nobody survives, what is lost is known as far as the job's status tells it.
        until(lambda: self.home.job()["status"]["progress"]["step"] > written["step"] + 20, 30,
              self.home.describe)
        self.home.kill_everything()
        self.home.run("up")
        self.await_condition("Succeeded", "digits")
        self.check_audit(epochs)
        (lost,) = [incident for incident in self.home.job()["status"]["incidents"]
                   if incident["reason"] == "StepsLost"]
        self.assertEqual(written["step"], lost["resumedStep"])
        self.assertIn("is finished", self.home.run("checkpoint", "digits", code=1).stderr)
        self.down()

    def test_a_coordinator_that_dies_before_it_asks_leaves_the_request_to_its_successor(self):
        self.submit(jobs.digits("digits", epochs=200, checkpoint__interval="1h"))
        self.home.await_step(20)
        role = until(lambda: self.home.role_pid("digits-coordinator-0"), 30, "the coordinator runs")
        self.assertTrue(kill(role, signal.SIGSTOP))
        self.home.run("checkpoint", "digits", "--no-wait")
        said = self.home.run("checkpoint", "digits", "--timeout", "100ms", code=5).stderr
        self.assertIn("has not written a checkpoint within 100ms", said)
        self.assertTrue(kill(role))
        word = self.home.job()["metadata"]["annotations"]["starling.dev/checkpoint-requested-at"]
        until(lambda: self.home.job()["status"].get("requestedCheckpoint", {}).get("request") == word,
              60, self.home.describe)

        self.home.run("suspend", "digits")
        self.assertIn("resume it first", self.home.run("checkpoint", "digits", code=1).stderr)
        self.await_condition("Suspended", "digits")
        self.down()
        self.assertIn("is suspended", self.home.run("checkpoint", "digits", code=1).stderr)
        self.home.run("resume", "digits")
        self.assertIn("starling up", self.home.run("checkpoint", "digits", code=1).stderr)
        self.home.run("checkpoint", "nobody", code=3)

    def test_suspended_job_releases_its_pods_and_resumes_where_it_was(self):
        epochs = 5
        self.submit(jobs.digits("digits", epochs=epochs))
        self.home.await_step(30)

        self.home.run("suspend", "digits")
        self.await_condition("Suspended", "digits")
        until(lambda: not [item for item in self.home.processes()
                           if item.program != "starling-controller"], 40,
              lambda: "no pod runs\n" + self.home.describe())
        reached = self.home.steps()
        self.home.run("resume", "digits")

        self.await_condition("Succeeded", "digits")
        self.assertGreater(reached, 29)
        self.check_audit(epochs)
        self.down()

    def test_pods_whose_controller_is_gone_for_good_save_and_end(self):
        self.submit(jobs.digits("digits", epochs=5, experiment__stepDelay="150ms"))
        self.home.await_step(10)
        kill(self.home.controllers()[0])

        self.home.assert_nothing_runs(timeout=45)
        reached = self.home.steps()
        self.home.run("up")

        until(lambda: self.home.steps() > reached, 60,
              lambda: f"training goes on after step {reached}\n{self.home.describe()}")
        self.home.run("delete", "digits")
        self.down()

    def test_deadline_fails_a_job_that_takes_too_long(self):
        self.submit(jobs.digits("slow", epochs=200, runPolicy={"activeDeadlineSeconds": 2}))

        self.await_condition("Failed", "slow")

        conditions = self.home.job("slow")["status"]["conditions"]
        reason = [item["reason"] for item in conditions if item["type"] == "Failed"]
        self.assertEqual(["DeadlineExceeded"], reason)
        self.down()

    def test_verbs_answer_people_and_programs(self):
        self.submit(jobs.digits("digits", epochs=100))
        self.home.await_step(10)
        self.assertIn("digits", self.home.run("get", "jobs").stdout)
        self.assertIn("digits-worker-0", self.home.run("get", "pods").stdout)
        self.assertIn("digits", self.home.run("get", "jobs", "-o", "name").stdout)
        self.assertIn("seed: 7", self.home.run("get", "job", "digits", "-o", "yaml").stdout)
        self.home.run("get", "jobs", "-o", "wide")
        self.home.run("get", "events")
        self.assertIn("digits", self.home.run("describe", "job", "digits").stdout)
        self.home.run("logs", "digits")
        self.home.run("scale", "digits", "--replicas", 3)
        self.home.await_pod("digits-worker-2")
        self.home.run("scale", "digits", "--replicas", 100, code=2)
        self.home.run("get", "job", "nobody", code=3)
        self.home.run("logs", "nobody", code=3)
        self.home.run("delete", "nobody", code=3)
        self.home.run("delete", "digits")
        self.down()

    def test_words_without_a_control_plane(self):
        self.home.run("version")
        self.assertIn("momentum", self.home.run("explain", "spec.optimizer.sgd").stdout)
        self.assertIn("optimizer", self.home.run("explain", "spec.optimiser", code=3).stderr)
        self.assertIn("learningRate", self.home.run(
            "validate", self.home.write("job.yaml", jobs.digits())).stdout)
        self.home.run("completion", "bash")
        self.down()


class Run(Case):
    def start(self, epochs=6, **changes):
        self.path = self.home.write("job.yaml", jobs.digits(epochs=epochs, **changes))
        return self.home.start("run", self.path, "-o", "json")

    def test_interrupt_saves_and_leaves_and_the_same_command_goes_on(self):
        command = self.start()
        self.home.await_step(40, command=command)
        uid = self.home.job()["metadata"]["uid"]
        started = time.monotonic()
        command.signal(signal.SIGINT)
        code = command.wait(40)
        self.say(f"left with {code} after {time.monotonic() - started:.1f} s")
        self.assertNotIn(code, (0, 2), "an unfinished job is no success")
        self.home.assert_nothing_runs()
        reached = self.home.steps()

        job = self.finish(self.home.start("run", self.path, "-o", "json"))

        self.assertEqual(uid, job["metadata"]["uid"])
        self.assertGreaterEqual(reached, 40)
        self.check_audit(6)

    def test_other_spec_for_an_unfinished_job_needs_replace(self):
        command = self.start(epochs=50)
        self.home.await_step(10, command=command)
        command.signal(signal.SIGINT)
        command.wait(40)
        self.home.assert_nothing_runs()
        other = self.home.write("other.yaml", jobs.digits(epochs=1, experiment__stepDelay="0s"))

        self.assertIn("--replace", self.home.run("run", other, code=2).stderr)
        self.home.assert_nothing_runs()
        job = self.home.run("run", other, "--replace", "-o", "json").result()

        self.assertEqual(1, self.result(job)["epochs"])

    def test_finished_job_runs_anew(self):
        path = self.home.write("job.yaml", quick("digits"))
        first = self.home.run("run", path, "-o", "json").result()
        second = self.home.run("run", path, "-o", "json").result()

        self.assertNotEqual(first["metadata"]["uid"], second["metadata"]["uid"])

    def test_failed_job_gives_exit_code_one(self):
        path = self.home.write("job.yaml", jobs.digits(
            epochs=200, runPolicy={"activeDeadlineSeconds": 1}))

        command = self.home.run("run", path, "-o", "json", code=1)

        self.assertEqual("Failed", command.result()["status"]["state"])
        self.home.assert_nothing_runs()

    def test_secrets_are_for_nobody_else(self):
        command = self.start(epochs=20)
        self.home.await_step(5, command=command)
        modes = {}
        for folder, _, names in os.walk(self.home.home):
            for name in names:
                path = os.path.join(folder, name)
                if name.startswith("store.db") or "secret" in path:
                    modes[path] = os.stat(path).st_mode & 0o077
        self.assertTrue(modes)
        self.assertEqual({0}, set(modes.values()), json.dumps(modes, indent=1))
        command.signal(signal.SIGINT)
        command.wait(40)


if __name__ == "__main__":
    unittest.main(verbosity=2)
