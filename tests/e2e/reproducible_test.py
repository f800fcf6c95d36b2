# SPDX-License-Identifier: Apache-2.0
"""reproducible: true gives the same bytes for any number of workers, kills and scaling included."""
import os
import random
import unittest

import jobs
from case import Case
from home import DATA, kill, until

EPOCHS = 4
SIZES = (1, 2, 3, 4)


def job(workers, name="digits", reproducible=True, **changes):
    return jobs.digits(name, workers=workers, epochs=EPOCHS, reproducible=reproducible, **changes)


class Reproducible(Case):
    baseline = None  # of one undisturbed worker, the same for every test of this file

    def setUp(self):
        super().setUp()
        if Reproducible.baseline is None:
            Reproducible.baseline = self.digest(
                self.run_job(job(1, "baseline", experiment__stepDelay="0s")))
            self.say(f"baseline {Reproducible.baseline}")

    def start(self, workers, name="digits", **changes):
        self.path = self.home.write("job.yaml", job(workers, name, **changes))
        return self.home.start("run", self.path, "-o", "json")

    def check(self, command, name="digits"):
        final = self.finish(command)
        self.assertEqual(self.baseline, self.digest(final), self.home.describe())
        self.check_audit(EPOCHS, name)

    def test_number_of_workers_does_not_matter(self):
        for workers in SIZES[1:]:
            with self.subTest(workers=workers):
                name = f"digits-{workers}"
                command = self.start(workers, name, experiment__stepDelay="0s")
                self.check(command, name)

    def test_other_seeds_give_other_models_so_the_check_can_fail(self):
        final = self.run_job(job(1, experiment__stepDelay="0s", seed=8))
        self.assertNotEqual(self.baseline, self.digest(final))

    def each_size(self, kills):
        """A job of 1, 2, 3 and 4 workers each; kills(name, workers, command) kills what it must
        survive, and returns the command whose end is the job's."""
        for workers in SIZES:
            name = f"digits-{workers}"
            with self.subTest(workers=workers):
                command = self.start(workers, name)
                self.check(kills(name, workers, command), name)

    def kill_at(self, step, name, command, find, what):
        self.home.await_step(step, name, command=command)
        pid = until(find, 30, f"{what} runs")
        self.say(f"{name}: kill -9 {pid} ({what}) at step {self.home.steps(name)}")
        self.assertTrue(kill(pid))

    def test_killed_workers_do_not_matter(self):
        def kills(name, workers, command):
            last, first = f"{name}-worker-{workers - 1}", f"{name}-worker-0"
            self.kill_at(20, name, command, lambda: self.home.pod_pid(last), f"pod of {last}")
            self.kill_at(50, name, command, lambda: self.home.role_pid(first), f"role of {first}")
            return command
        self.each_size(kills)

    def test_a_killed_coordinator_does_not_matter(self):
        def kills(name, _, command):
            pod = f"{name}-coordinator-0"
            self.kill_at(20, name, command, lambda: self.home.role_pid(pod), f"role of {pod}")
            self.kill_at(50, name, command, lambda: self.home.pod_pid(pod), f"pod of {pod}")
            return command
        self.each_size(kills)

    def test_a_killed_controller_does_not_matter(self):
        def kills(name, _, command):
            for step in (20, 50):
                self.kill_at(step, name, command, lambda: next(iter(self.home.controllers()), None),
                             "the controller")
            return command
        self.each_size(kills)

    def test_killing_everything_does_not_matter(self):
        def kills(name, _, command):
            self.home.await_step(45, name, command=command)
            self.home.kill_everything()
            self.say(f"{name}: kill -9 of everything at step {self.home.steps(name)}")
            return self.home.start("run", self.path, "-o", "json")
        self.each_size(kills)

    def test_scaling_from_one_to_four_to_two_does_not_matter(self):
        command = self.start(1)
        self.home.await_step(15, command=command)
        self.home.run("scale", "digits", "--replicas", 4)
        until(lambda: self.home.pod_pid("digits-worker-3"), 30, "worker 3 runs")
        self.home.await_step(50, command=command)
        self.home.run("scale", "tj/digits", "--replicas", 2)
        self.check(command)


class Layers(Case):
    """What depends on more than a sample (batch normalization) or is drawn for each (dropout)."""

    MODEL = {"layers": [{"convolution": {"channels": 8, "kernel": 3}}, {"batchNorm": {}}, {"relu": {}},
                        {"flatten": {}}, {"dropout": {"rate": 0.3}}, {"dense": {}}]}

    def start(self, workers, name, **changes):
        self.path = self.home.write("job.yaml", job(
            workers, name, workload__classification__model=self.MODEL, **changes))
        return self.home.start("run", self.path, "-o", "json")

    def test_one_digest_for_any_number_of_workers_and_kills(self):
        baseline = self.digest(self.finish(self.start(1, "baseline", experiment__stepDelay="0s")))
        self.say(f"baseline {baseline}")
        for workers in (2, 3, 4):
            with self.subTest(workers=workers):
                name = f"layers-{workers}"
                command = self.start(workers, name)
                self.home.await_step(20, name, command=command)
                self.assertTrue(kill(until(lambda name=name: self.home.pod_pid(f"{name}-worker-1"),
                                           30, "worker 1 runs")))
                if workers == 3:
                    self.home.await_step(50, name, command=command)
                    self.home.kill_everything()
                    command = self.home.start("run", self.path, "-o", "json")
                self.assertEqual(baseline, self.digest(self.finish(command)), self.home.describe())
                self.check_audit(EPOCHS, name)

    def test_without_it_the_number_of_workers_shows_so_the_check_can_fail(self):
        digests = {self.digest(self.finish(self.start(
            workers, f"layers-{workers}", reproducible=False, experiment__stepDelay="0s")))
            for workers in (1, 2)}
        self.assertEqual(2, len(digests))


class LanguageModels(Case):
    """A text's samples, by a transformer with dropout."""

    EPOCHS = 3

    def start(self, workers, name, **changes):
        text = os.path.join(DATA, "shakespeare.txt")
        model = {"transformer": {"blocks": 1, "width": 32, "heads": 2}}
        spec = {"workload": {"languageModel": {"model": model, "contextLength": 32}},
                "dataset": {"train": {"text": {"uri": text, "end": 0.2}},
                            "validation": {"text": {"uri": text, "begin": 0.95}},
                            "globalBatchSize": 32, "auditUse": True},
                "optimizer": {"adam": {"learningRate": 0.003}, "clipNorm": 1},
                "stop": {"epochs": self.EPOCHS}, "experiment__stepDelay": "50ms"}
        self.path = self.home.write("job.yaml", job(workers, name, **{**spec, **changes}))
        return self.home.start("run", self.path, "-o", "json")

    def test_one_digest_for_any_number_of_workers_and_kills(self):
        first = self.finish(self.start(1, "baseline", experiment__stepDelay="0s"))
        baseline = self.digest(first)
        self.say(f"baseline {baseline}, {self.result(first)['metrics']}")
        self.assertLess(self.result(first)["metrics"]["validation/perplexity"], 25)
        for workers in (2, 3, 4):
            with self.subTest(workers=workers):
                name = f"text-{workers}"
                command = self.start(workers, name)
                self.home.await_step(20, name, command=command)
                self.assertTrue(kill(until(lambda name=name: self.home.pod_pid(f"{name}-worker-1"),
                                           30, "worker 1 runs")))
                if workers == 3:
                    self.home.await_step(50, name, command=command)
                    self.home.kill_everything()
                    command = self.home.start("run", self.path, "-o", "json")
                self.assertEqual(baseline, self.digest(self.finish(command)), self.home.describe())

    def test_parameter_servers_learn_the_text_too_with_a_server_killed(self):
        command = self.start(2, "served", reproducible=False,
                             exchange={"parameterServer": {"replication": 2}},
                             optimizer={"adam": {"learningRate": 0.003}},
                             replicaSpecs__parameterServer={"replicas": 2})
        self.home.await_step(20, "served", command=command)
        self.assertTrue(kill(until(lambda: self.home.pod_pid("served-parameter-server-1"), 30,
                                   "server 1 runs")))
        metrics = self.result(self.finish(command))["metrics"]
        self.say(f"{metrics}")
        self.assertLess(metrics["validation/perplexity"], 25)


class Chaos(Case):
    """Random kills, again and again: STARLING_E2E_REPEAT rounds, each with a seed that is told."""

    def victims(self):
        names = ["starling-worker", "starling-coordinator", "starling-supervisor",
                 "starling-controller"]
        return [item for item in self.home.processes() if item.program in names]

    def round(self, seed, name):
        choice = random.Random(seed)
        workers = choice.randint(1, 4)
        path = self.home.write("job.yaml", job(workers, name, seed=11))
        command = self.home.start("run", path, "-o", "json")
        at = 0
        for _ in range(choice.randint(2, 4)):
            at += choice.randint(5, 25)
            if at > jobs.steps_of(EPOCHS) - 15:
                break
            self.home.await_step(at, name, command=command)
            if choice.random() < 0.25:
                replicas = choice.randint(1, 4)
                self.say(f"seed {seed}: scale to {replicas} at step {self.home.steps(name)}")
                self.home.run("scale", name, "--replicas", replicas, code=None)
            elif choice.random() < 0.15:
                self.say(f"seed {seed}: kill -9 of all at step {self.home.steps(name)}")
                self.home.kill_everything()
                command = self.home.start("run", path, "-o", "json")
            else:
                victim = choice.choice(until(self.victims, 30, "something runs"))
                self.say(f"seed {seed}: kill -9 {victim.program} "
                         f"at step {self.home.steps(name)}")
                kill(victim.pid)
        return self.finish(command)

    def test_random_kills_never_change_the_model(self):
        first = self.digest(
            self.run_job(job(1, "baseline", seed=11, experiment__stepDelay="0s")))
        base = int(os.environ.get("STARLING_E2E_SEED", "1000"))
        for repeat in range(int(os.environ.get("STARLING_E2E_REPEAT", "2"))):
            name = f"digits-{base + repeat}"
            with self.subTest(seed=base + repeat):
                self.assertEqual(first, self.digest(self.round(base + repeat, name)),
                                 self.home.describe())
                self.check_audit(EPOCHS, name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
