# SPDX-License-Identifier: Apache-2.0
"""The path that everybody takes first: one command, a trained model, nothing left running."""
import json
import os
import re
import unittest

import jobs
from case import Case
from home import REPOSITORY, read, sha256

REFERENCE = os.path.join(REPOSITORY, "docs/reference/trainingjob.md")


class Train(Case):
    def test_digits_example_reaches_its_accuracy(self):
        command = self.home.start("run", os.path.join(REPOSITORY, "examples/digits.yaml"),
                                  "-o", "json")
        job = self.finish(command, timeout=180)

        result = self.result(job)
        accuracy = result["metrics"]["validation/accuracy"]
        self.say(f"accuracy {accuracy}, {result['steps']} steps, {result['seconds']} s")
        self.assertGreaterEqual(accuracy, 0.95)
        self.assertTrue(result["targetReached"])
        self.assertEqual(1, len(command.stdout.strip().splitlines()),
                         "with -o json stdout has the object alone; progress goes to stderr")

    def test_model_file_is_what_the_result_says(self):
        job = self.run_job(jobs.digits(epochs=2, experiment__stepDelay="0s"))

        model = self.result(job)["model"]
        path = model["uri"].removeprefix("file://")
        self.assertTrue(os.path.isfile(path), model)
        self.assertEqual(model["sha256"], sha256(path))
        self.home.assert_nothing_runs()

    def test_each_sample_is_used_once_an_epoch(self):
        self.run_job(jobs.digits(epochs=2, experiment__stepDelay="0s"))

        self.check_audit(epochs=2)

    def test_flag_overrides_the_file_under_the_same_checks(self):
        path = self.home.write("job.yaml", jobs.digits(epochs=2, experiment__stepDelay="0s"))

        command = self.home.run("run", path, "-o", "json", "--set", "spec.stop.epochs=1")
        self.assertEqual(1, self.result(command.result())["epochs"])

        wrong = self.home.run("run", path, "--set", "spec.stop.epochs=-1", code=2)
        self.assertIn("spec.stop.epochs", wrong.stderr)

    def test_each_preset_trains_with_what_it_sets(self):
        plain = self.result(self.run_job(jobs.digits(epochs=1, experiment__stepDelay="0s")))
        presets = re.findall(r"^\| `(\w+)` \| `(\{.*\})` \|$", read(REFERENCE), re.MULTILINE)
        self.assertIn("horovod", dict(presets))
        for name, gives in presets:
            with self.subTest(preset=name):
                made = jobs.digits(name.lower(), epochs=1, experiment__stepDelay="0s", preset=name)
                named = self.run_job(made)
                self.check_audit(1, name.lower())
                self.assertEqual(plain["steps"], self.result(named)["steps"])
                self.assertAlmostEqual(plain["metrics"]["validation/loss"],
                                       self.result(named)["metrics"]["validation/loss"], delta=0.05)
                given = self.home.run("validate", self.home.write("named.json", made), "-o", "json")
                resolved = json.loads(given.stdout)["spec"]
                self.assertEqual(json.loads(gives)["exchange"], resolved["exchange"])

    def test_one_batch_of_adam_and_all_schedules_train(self):
        job = jobs.digits(epochs=2, experiment__stepDelay="0s",
                          optimizer={"adamW": {"learningRate": 0.002, "weightDecay": 0.01},
                                     "schedule": {"cosine": {"steps": 60}, "warmupSteps": 5}})
        result = self.result(self.run_job(job))
        self.assertGreater(result["metrics"]["validation/accuracy"], 0.5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
