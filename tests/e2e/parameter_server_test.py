# SPDX-License-Identifier: Apache-2.0
"""Jobs with parameter servers as real processes: kill -9 of anything, servers and workers that come
and go, suspension, and every consistency model. Whatever happens, every sample is used once in
every epoch: the audit is exact.
"""
import math
import os
import random
import re
import signal
import time
import unittest
import urllib.request

import jobs
from case import Case
from failpoint_test import check_redone
from home import REPOSITORY, is_running, kill, until

EPOCHS = 12


def job(name="digits", workers=2, servers=2, replication=2, consistency=None, **changes):
    """A digits job whose model lies on servers. Its workers step beside one another, each 50 ms."""
    changes.setdefault("experiment__stepDelay", "50ms")
    changes.setdefault("epochs", EPOCHS)
    changes.setdefault("optimizer", {"sgd": {"learningRate": 0.05, "momentum": 0.5}})
    made = jobs.digits(name, workers, exchange={"parameterServer": {
        "replication": replication,
        "consistency": consistency or {"staleSynchronous": {"staleness": 3}}}}, **changes)
    made["spec"]["replicaSpecs"]["parameterServer"] = {"replicas": servers, "maxReplicas": 4}
    return made


class Servers(Case):
    def start(self, made, *flags):
        self.path = self.home.write("job.yaml", made)
        self.command = self.home.start("run", self.path, "-o", "json", *flags)

    def finish_whole(self, epochs=EPOCHS, accuracy=0.9, timeout=180):
        done = self.finish(self.command, timeout)
        self.check_audit(epochs)
        reached = self.result(done)["metrics"]["validation/accuracy"]
        self.say(f"accuracy {reached:.4f}, {self.result(done)['steps']} steps")
        self.assertGreater(reached, accuracy)
        return done

    def kill_at(self, step, find, what):
        self.home.await_step(step, command=self.command)
        pid = until(find, 30, f"{what} runs")
        self.say(f"kill -9 {pid} ({what}) at step {self.home.steps()}")
        self.assertTrue(kill(pid))
        return pid

    def incidents(self, done, role):
        return [incident for incident in done["status"].get("incidents", [])
                if f"-{role}-" in incident.get("pod", "")]

    def await_size(self, role, count):
        """So many pods of the role run, and no other is there."""
        def there():
            pods = [pod for name, pod in self.home.pods().items() if f"-{role}-" in name]
            return len(pods) == count and all(
                pod["status"].get("phase") == "Running" for pod in pods)
        until(there, 60, lambda: f"{count} pods of {role}\n{self.home.describe()}")


class Training(Servers):
    def test_the_example_reaches_its_accuracy(self):
        command = self.home.start("run", os.path.join(REPOSITORY, "examples/digits-ps.yaml"),
                                  "-o", "json")
        done = self.finish(command, timeout=180)
        result = self.result(done)
        self.say(f"accuracy {result['metrics']['validation/accuracy']}, {result['steps']} steps, "
                 f"{result['seconds']} s")
        self.assertGreaterEqual(result["metrics"]["validation/accuracy"], 0.95)
        self.assertTrue(result["targetReached"])
        self.assertIn("parameterServer", done["status"]["replicaStatuses"])

    def test_every_consistency_model_trains_and_uses_each_sample_once(self):
        models = [{"bulkSynchronous": {}}, {"backupWorkers": {"backups": 1}}, {"asynchronous": {}},
                  {"boundedDelay": {"delay": 4}}, {"staleSynchronous": {"staleness": 1}},
                  {"eagerStaleSynchronous": {"staleness": 2}}, {"softSync": {"n": 1}}]
        for model in models:
            name = next(iter(model)).lower()
            with self.subTest(model=name):
                self.start(job(name, consistency=model, epochs=3, experiment__stepDelay="2ms"))
                done = self.finish(self.command)
                self.check_audit(3, name)
                accuracy = self.result(done)["metrics"]["validation/accuracy"]
                self.say(f"{name}: accuracy {accuracy:.4f}")
                self.assertGreater(accuracy, 0.5, "a tenth is by chance; three epochs are few")

    def test_rules_of_the_servers_train(self):
        for rule in ({"adagrad": {"learningRate": 0.05}}, {"adaRevision": {"learningRate": 0.05}},
                     {"delayCompensated": {"learningRate": 0.05}},
                     {"adam": {"learningRate": 0.002}}, {"rmsProp": {"learningRate": 0.002}}):
            name = next(iter(rule)).lower()
            with self.subTest(rule=name):
                self.start(job(name, optimizer=rule, consistency={"asynchronous": {}}, epochs=3,
                               experiment__stepDelay="0s"))
                done = self.finish(self.command)
                self.check_audit(3, name)
                self.assertGreater(self.result(done)["metrics"]["validation/accuracy"], 0.5)

    def test_layers_that_reach_the_servers_as_factors_train_as_others_do(self):
        reached = []
        for how in ("gradient", "activations"):
            made = job(how, workers=1, consistency={"asynchronous": {}}, epochs=3,
                       experiment__stepDelay="0s", dataset__globalBatchSize=8)
            made["spec"]["update"] = {how: {}}
            self.start(made)
            done = self.finish(self.command)
            self.check_audit(3, how, batch=8)
            reached.append(self.result(done)["metrics"]["validation/accuracy"])
        self.say(f"accuracy of gradients and of factors: {reached}")
        self.assertGreater(reached[0], 0.5)
        self.assertAlmostEqual(*reached, delta=0.02)


class Kill(Servers):
    def setUp(self):
        super().setUp()
        self.start(job())

    def test_of_a_servers_role_restarts_it_in_its_pod(self):
        pod = self.home.await_pod("digits-parameter-server-1")
        killed = self.kill_at(20, lambda: self.home.role_pid("digits-parameter-server-1"),
                              "server 1's role")
        until(lambda: self.home.role_pid("digits-parameter-server-1") not in (None, killed), 30,
              lambda: f"another role is in its place\n{self.home.describe()}")
        self.assertEqual(pod, self.home.pod_pid("digits-parameter-server-1"), "its pod is the same")

        done = self.finish_whole()
        self.assertTrue(self.incidents(done, "parameter-server"), "the incident is told")

    def test_of_either_servers_pod_replaces_it_and_loses_nothing(self):
        killed = self.kill_at(20, lambda: self.home.pod_pid("digits-parameter-server-0"),
                              "pod of server 0")
        until(lambda: self.home.pod_pid("digits-parameter-server-0") not in (None, killed), 30,
              "another is in its place")
        self.await_size("parameter-server", 2)
        self.home.await_step(self.home.steps() + 20, command=self.command)
        self.kill_at(0, lambda: self.home.pod_pid("digits-parameter-server-1"), "pod of server 1")

        done = self.finish_whole()
        told = self.incidents(done, "parameter-server")
        self.assertGreaterEqual(len(told), 2, told)
        self.assertIn(9, [incident.get("signal") for incident in told], told)
        self.assertEqual(0, sum(incident.get("repeatedSteps", 0) for incident in told), told)

    def test_of_a_workers_role_and_of_its_pod(self):
        self.kill_at(15, lambda: self.home.role_pid("digits-worker-0"), "role of worker 0")
        self.kill_at(50, lambda: self.home.pod_pid("digits-worker-1"), "pod of worker 1")

        self.assertTrue(self.incidents(self.finish_whole(), "worker"))

    def test_of_the_coordinator_lets_training_go_on(self):
        self.kill_at(20, lambda: self.home.role_pid("digits-coordinator-0"), "coordinator's role")
        self.kill_at(60, lambda: self.home.pod_pid("digits-coordinator-0"), "coordinator's pod")

        self.finish_whole()

    def test_of_the_controller_leaves_the_pods_alone(self):
        server = self.home.await_pod("digits-parameter-server-0")
        self.home.await_step(20, command=self.command)
        killed = self.home.controllers()[0]
        self.assertTrue(kill(killed))
        until(lambda: [pid for pid in self.home.controllers() if pid != killed], 10,
              "the controller is restarted")
        self.assertTrue(is_running(server), "pods outlive their controller")

        self.finish_whole()

    def test_of_a_server_a_worker_and_the_coordinator_at_once(self):
        self.home.await_step(40, command=self.command)
        for pod in ("digits-parameter-server-0", "digits-worker-0", "digits-coordinator-0"):
            kill(self.home.pod_pid(pod))

        self.finish_whole()

    def test_of_everything_and_the_same_command_again_goes_on_from_the_snapshots(self):
        self.home.await_step(70, command=self.command)
        self.home.kill_everything()

        self.start(job())
        until(lambda: self.home.steps() > 71, 60, "training goes on")
        self.finish_whole()

    def test_frozen_server_holds_nobody_up_for_long_and_may_wake(self):
        self.home.await_step(20, command=self.command)
        role = until(lambda: self.home.role_pid("digits-parameter-server-1"), 30, "server 1 runs")
        kill(role, signal.SIGSTOP)
        frozen = self.home.steps()
        self.home.await_step(frozen + 20, command=self.command)
        kill(role, signal.SIGCONT)  # perhaps it was replaced meanwhile

        self.finish_whole()


class OneCopy(Servers):
    def test_a_killed_server_is_restored_from_its_snapshot_and_the_loss_is_told(self):
        self.start(job(servers=1, replication=1, checkpoint__interval="300ms"))
        self.home.await_step(70, command=self.command)
        saved = self.home.job()["status"]["lastCheckpoint"]["step"]
        self.kill_at(0, lambda: self.home.pod_pid("digits-parameter-server-0"), "the only server")
        reached = self.home.steps()

        done = self.finish_whole()
        check_redone(self, self.incidents(done, "parameter-server"), saved, reached)


class Measured(Servers):
    STALENESS = 2

    def scrape(self, pod):
        """Of starling_server_staleness_updates: the number of updates up to each bound."""
        address = self.home.pods()[pod]["status"]["podIP"]
        with urllib.request.urlopen(f"http://{address}:7073/metrics", timeout=5) as page:
            text = page.read().decode()
        found = re.findall(r'^starling_server_staleness_updates_bucket\{.*le="(.+)"\} (.+)$', text,
                           re.MULTILINE)
        return {float(bound): float(count) for bound, count in found}

    def most(self, consistency, enough):
        """The lowest bound that holds all updates that a server has counted, while one of three
        workers stands still now and then: the others come as far as they may. Seldom is that
        between its read and its push, so it is tried until there is one above `enough`."""
        name = next(iter(consistency)).lower()
        self.start(job(name, workers=3, servers=1, replication=1, consistency=consistency,
                       epochs=1000, experiment__stepDelay="1ms"))
        self.home.await_step(50, name, command=self.command)
        for _ in range(15):
            still = until(lambda: self.home.role_pid(f"{name}-worker-2"), 30, "worker 2 runs")
            kill(still, signal.SIGSTOP)
            time.sleep(0.3)  # less than what makes it silent
            kill(still, signal.SIGCONT)
            self.home.await_step(self.home.steps(name) + 20, name, command=self.command)
            buckets = self.scrape(f"{name}-parameter-server-0")
            most = min(bound for bound, count in buckets.items() if count == buckets[math.inf])
            if most > enough:
                break
        self.command.signal(signal.SIGINT)
        self.command.wait(60)
        self.say(f"{name}: updates up to each staleness {buckets}")
        self.assertGreater(buckets[math.inf], 200, "updates were counted")
        return most

    def test_a_servers_metrics_say_that_no_update_was_staler_than_the_model_allows(self):
        # Each of two others may be 2 clocks behind at the read, and 2 before it at the push.
        allowed = 2 * (2 * self.STALENESS + 1)
        bound = min(power for power in (1, 2, 4, 8, 16, 32) if power >= allowed)
        most = self.most({"staleSynchronous": {"staleness": self.STALENESS}}, enough=bound)
        self.assertLessEqual(most, bound)
        self.assertGreater(self.most({"asynchronous": {}}, enough=bound), bound,
                           "the control: without a bound")


class Elastic(Servers):
    def scale(self, role, count):
        self.home.run("scale", "digits", "--role", role, "--replicas", count)

    def test_servers_one_three_two_while_workers_one_four_two(self):
        self.start(job(workers=1, servers=1, replication=1, epochs=16))
        self.home.await_step(10, command=self.command)
        self.scale("parameter-server", 3)
        self.scale("worker", 4)
        self.await_size("parameter-server", 3)
        self.await_size("worker", 4)
        self.home.await_step(self.home.steps() + 25, command=self.command)
        self.scale("parameter-server", 2)
        self.scale("worker", 2)
        self.await_size("parameter-server", 2)
        self.await_size("worker", 2)

        done = self.finish_whole(epochs=16)
        told = self.incidents(done, "parameter-server")
        self.assertEqual(0, sum(incident.get("repeatedSteps", 0) for incident in told), told)

    def kill_anybody(self, choice):
        """Kills a random server or worker, ten steps on."""
        self.home.await_step(self.home.steps() + 10, command=self.command)
        program = choice.choice(("starling-server", "starling-worker"))
        found = until(lambda: [item for item in self.home.processes() if item.program == program],
                      30, f"{program} runs")
        victim = choice.choice(found)
        self.say(f"kill -9 {victim.program} at step {self.home.steps()}")
        kill(victim.pid)

    def test_the_same_with_random_kills(self):
        seed = int(os.environ.get("STARLING_E2E_SEED", "1"))
        choice = random.Random(seed)
        self.start(job(workers=1, servers=1, epochs=36))
        sizes = [("parameter-server", 3), ("worker", 4), ("parameter-server", 2), ("worker", 2)]
        for role, count in sizes:
            for _ in range(choice.randint(1, 2)):
                self.kill_anybody(choice)
            self.say(f"seed {seed}: {role} scaled to {count} at step {self.home.steps()}")
            self.scale(role, count)
            self.await_size(role, count)
        self.kill_anybody(choice)
        self.await_size("parameter-server", 2)
        self.await_size("worker", 2)
        self.assertTrue(self.command.running(), "all of that was in mid-training")

        self.finish_whole(epochs=36)

    def test_suspended_job_releases_all_pods_and_resumes_where_it_was(self):
        self.home.run("up")
        self.home.run("submit", self.home.write("job.yaml", job(epochs=5)))
        self.home.await_step(30)

        self.home.run("suspend", "digits")
        until(lambda: self.home.condition("Suspended"), 60, self.home.describe)
        until(lambda: not self.home.pods(), 40, lambda: "no pod is left\n" + self.home.describe())
        reached = self.home.steps()
        self.home.run("resume", "digits")

        until(lambda: self.home.condition("Succeeded"), 120, self.home.describe)
        self.assertGreater(reached, 29)
        self.check_audit(5)
        steps = [line["step"] for line in self.home.audit()]
        self.assertEqual(sorted(steps), steps)
        self.home.run("down")

    def test_a_place_that_takes_no_checkpoint_keeps_no_job_from_its_suspension(self):
        """A file stands where a folder should: nobody can write there, not even root."""
        place = self.home.write("occupied", "by a file")
        self.home.run("up")
        self.home.run("submit", self.home.write("job.yaml", job(
            epochs=100000, checkpoint__uri=f"file://{place}/checkpoints")))
        self.home.await_step(30)

        self.home.run("suspend", "digits")
        began = time.monotonic()
        until(lambda: self.home.condition("Suspended"), 90, self.home.describe)
        self.say(f"suspended after {time.monotonic() - began:.0f} s")
        self.assertEqual({}, self.home.pods())
        condition = next(found for found in self.home.job()["status"]["conditions"]
                         if found["type"] == "Suspended")
        self.assertEqual("CheckpointNotWritten", condition["reason"])
        for words in (f"{place}/checkpoints", "step 0", "make room"):
            self.assertIn(words, condition["message"])
        self.home.run("delete", "digits")
        self.home.run("down")

    def test_interrupt_saves_and_leaves_and_the_same_command_goes_on(self):
        self.start(job(checkpoint__interval="10m"))
        self.home.await_step(60, command=self.command)
        self.command.signal(signal.SIGINT)
        self.assertNotIn(self.command.wait(60), (0, 2), "an unfinished job is no success")
        self.home.assert_nothing_runs()
        reached = self.home.steps()
        saved = self.home.job()["status"]["lastCheckpoint"]["step"]
        self.assertGreaterEqual(saved, 60, "nothing else has saved it")

        self.start(job(checkpoint__interval="10m"))
        done = self.finish_whole()
        self.assertGreaterEqual(reached, 60)
        self.assertEqual([], self.incidents(done, "parameter-server"))


class Chaos(Servers):
    """Random jobs and random faults: STARLING_E2E_REPEAT rounds, each with a seed that is told."""

    MODELS = [{"bulkSynchronous": {}}, {"backupWorkers": {"backups": 1}}, {"asynchronous": {}},
              {"boundedDelay": {"delay": 4}}, {"staleSynchronous": {"staleness": 3}},
              {"eagerStaleSynchronous": {"staleness": 2}}, {"softSync": {"n": 2}}]
    PROGRAMS = ("starling-server", "starling-worker", "starling-coordinator",
                "starling-supervisor", "starling-controller")

    def fault(self, choice, name):
        """One random thing that happens; what, for people."""
        kind = choice.random()
        if kind < 0.2:
            role, count = choice.choice(["worker", "parameter-server"]), choice.randint(1, 4)
            self.home.run("scale", name, "--role", role, "--replicas", count, code=None)
            return f"{role} scaled to {count}"
        if kind < 0.3:
            self.home.kill_everything()
            self.command = self.home.start("run", self.path, "-o", "json")
            return "kill -9 of everything, and the same command again"
        victims = [item for item in self.home.processes() if item.program in self.PROGRAMS]
        if not victims:
            return "nobody is there to be killed"
        victim = choice.choice(victims)
        if kind < 0.4 and victim.program != "starling-controller":
            kill(victim.pid, signal.SIGSTOP)
            self.frozen.append(victim.pid)
            return f"freeze {victim.program}"
        kill(victim.pid)
        return f"kill -9 {victim.program}"

    def round(self, seed):
        choice = random.Random(seed)
        name = f"digits-{seed}"
        model = choice.choice(self.MODELS)
        # With two workers a backup stays behind the number of workers.
        made = job(name, workers=choice.randint(2, 3), servers=choice.randint(1, 3),
                   replication=choice.randint(1, 2), consistency=model,
                   checkpoint__interval=choice.choice(["200ms", "1s"]))
        made["spec"]["runPolicy"] = {"backoffLimit": 50}
        self.say(f"seed {seed}: {model}, {made['spec']['exchange']}")
        self.frozen = []
        self.start(made)
        at = 5
        for _ in range(choice.randint(3, 7)):
            self.home.await_step(at, name, command=self.command)
            told = self.fault(choice, name)
            self.say(f"seed {seed}: {told} at step {self.home.steps(name)}")
            at = min(self.home.steps(name) + choice.randint(1, 30), 240)
            for pid in self.frozen:
                kill(pid, signal.SIGCONT)
        self.finish(self.command, 240)
        self.check_audit(EPOCHS, name)

    def test_random_faults_lose_and_repeat_nothing(self):
        base = int(os.environ.get("STARLING_E2E_SEED", "1000"))
        for seed in range(base, base + int(os.environ.get("STARLING_E2E_REPEAT", "2"))):
            with self.subTest(seed=seed):
                self.round(seed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
