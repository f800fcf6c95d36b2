# SPDX-License-Identifier: Apache-2.0
"""Every example trains as it stands in the tree, and `make demo` tells its story.

To add one: an example of its own test file is named in ELSEWHERE, any other gets a test here.
"""
import csv
import json
import math
import os
import re
import subprocess
import time
import unittest

from case import Case
from home import BIN, REPOSITORY, read, sha256

EXAMPLES = os.path.join(REPOSITORY, "examples")
ELSEWHERE = {"digits.yaml": "train_test.py", "digits-ps.yaml": "parameter_server_test.py",
             "digits-hybrid.yaml": "hybrid_test.py", "sparse-ps.yaml": "sparse_test.py",
             "digits-regression.yaml": "models_test.py",
             "digits-autoencoder.yaml": "models_test.py"}
HERE = ("mnist.yaml", "digits-reproducible.yaml", "synthetic.yaml", "linear-regression.yaml",
        "digits-layers.yaml", "shakespeare.yaml")
SERVERS = ("--set", 'spec.exchange={"parameterServer": {}}',
           "--set", "spec.replicaSpecs.parameterServer.replicas=2")


class Examples(Case):
    def train(self, example, *flags, accuracy=0.95):
        """Runs it to its end, as its own comment says; returns its result."""
        began = time.monotonic()
        command = self.home.start("run", os.path.join(EXAMPLES, example), "-o", "json", *flags)
        result = self.result(self.finish(command, timeout=180))
        reached = result["metrics"]["validation/accuracy"]
        self.say(f"{example}: accuracy {reached}, {result['steps']} steps, {result['epochs']} "
                 f"epochs, {time.monotonic() - began:.1f} s")
        self.assertGreaterEqual(reached, accuracy)
        path = result["model"]["uri"].removeprefix("file://")
        self.assertEqual(result["model"]["sha256"], sha256(path))
        return result

    def test_mnist(self):
        result = self.train("mnist.yaml", accuracy=0.98)
        self.assertEqual((8, 1000), (result["epochs"], result["steps"]))

    def test_digits_by_layers_of_ones_own(self):
        self.assertEqual(30, self.train("digits-layers.yaml", accuracy=0.98)["epochs"])

    def test_synthetic(self):
        self.assertEqual(5, self.train("synthetic.yaml")["epochs"])

    def test_shakespeare_and_what_its_model_is_good_for(self):
        """Trains it, measures the model as the job did, and has it write."""
        command = self.home.start("run", os.path.join(EXAMPLES, "shakespeare.yaml"), "-o", "json")
        result = self.result(self.finish(command, timeout=240))
        metrics = result["metrics"]
        self.say(f"shakespeare: {metrics}, {result['steps']} steps")
        self.assertTrue(result["targetReached"], metrics)
        self.assertAlmostEqual(math.exp(metrics["validation/loss"]),
                               metrics["validation/perplexity"], delta=1e-6)
        model = result["model"]["uri"]
        with open(os.path.join(EXAMPLES, "data/shakespeare.txt"), encoding="ascii") as file:
            text = file.read()
        rest = self.home.write("rest.txt", text[int(0.9 * len(text)):])
        judged = json.loads(self.home.run("evaluate", "--model", model, "--data", rest, "-o",
                                          "json").stdout)
        self.assertAlmostEqual(metrics["validation/loss"], judged["loss"], delta=1e-4)
        write = ("predict", "--model", model, "--prompt", "ROMEO:", "--symbols", "120")
        one, again, other = (self.home.run(*write, "--seed", seed).stdout for seed in "112")
        self.say(f"it writes {one!r}")
        self.assertTrue(one.startswith("ROMEO:"))
        self.assertEqual(len("ROMEO:") + 121, len(one))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)
        wrong = self.home.run("predict", "--model", model, "--prompt", "1", code=2)
        self.assertIn("does not occur in the training text", wrong.stderr)

    def test_a_model_of_digits_classifies_rows_as_its_job_judged_it(self):
        result = self.train("digits-reproducible.yaml")
        table = os.path.join(EXAMPLES, "data/digits-test.csv")
        model = ("--model", result["model"]["uri"], "--data", table)
        judged = json.loads(self.home.run("evaluate", *model, "-o", "json").stdout)
        self.assertAlmostEqual(result["metrics"]["validation/accuracy"], judged["accuracy"])
        self.assertAlmostEqual(result["metrics"]["validation/loss"], judged["loss"], delta=1e-5)
        top = result["metrics"]["validation/top5Accuracy"]
        self.assertGreater(top, judged["accuracy"])
        self.assertAlmostEqual(top, judged["top5Accuracy"])
        rows = self.home.run("predict", *model, "--label-column", "label").stdout.splitlines()
        self.assertEqual("class,probability", rows[0])
        with open(table, encoding="utf-8") as file:
            labels = [row["label"] for row in csv.DictReader(file)]
        right = sum(row.split(",")[0] == label for row, label in zip(rows[1:], labels))
        self.assertEqual(len(labels), len(rows) - 1)
        self.assertAlmostEqual(judged["accuracy"], right / len(labels))
        told = [row.split(",")[0] for row in rows[1:]]
        for one in judged["classes"]:
            both = sum(label == tell == one["class"] for label, tell in zip(labels, told))
            self.assertEqual(labels.count(one["class"]), one["samples"])
            self.assertAlmostEqual(both / labels.count(one["class"]), one["recall"])
            self.assertAlmostEqual(both / told.count(one["class"]), one["precision"])
        self.assertEqual(sorted(set(labels)), [one["class"] for one in judged["classes"]])
        text = self.home.run("evaluate", *model).stdout
        self.assertRegex(text, r"(?m)^class +samples +recall +precision$")
        self.assertEqual(10, len(re.findall(r"(?m)^\d +\d+ +[01]\.\d{4} +[01]\.\d{4}$", text)), text)
        wrong = self.home.run("predict", *model, code=2)  # the label is no feature
        self.assertIn("[1, 8, 8] needs 64 features a row", wrong.stderr)

    def regress(self, *flags):
        """Runs the linear regression; returns its result."""
        command = self.home.start("run", os.path.join(EXAMPLES, "linear-regression.yaml"),
                                  "-o", "json", *flags)
        result = self.result(self.finish(command, timeout=180))
        self.say(f"linear regression: {result['metrics']}, {result['steps']} steps")
        return result

    def test_linear_regression_reaches_its_error_over_either_exchange(self):
        for flags in ((), SERVERS):
            result = self.regress(*flags)
            self.assertTrue(result["targetReached"], result["metrics"])
            self.assertEqual({"loss", "meanAbsoluteError", "validation/loss",
                              "validation/meanAbsoluteError"}, set(result["metrics"]))

    def test_a_regression_that_hardly_learns_does_not_reach_it(self):
        result = self.regress("--set", "spec.stop.epochs=1",
                              "--set", "spec.optimizer.sgd.learningRate=0.00001")
        self.assertFalse(result["targetReached"], result["metrics"])

    def test_digits_reproducible_gives_the_same_bytes_with_four_workers_as_with_two(self):
        models = [self.train("digits-reproducible.yaml", *flags)["model"]["sha256"] for flags in (
            (), ("--set", "spec.replicaSpecs.worker.replicas=4"))]
        self.assertEqual(models[0], models[1])

    def test_no_example_is_left_out(self):
        there = {name for name in os.listdir(EXAMPLES) if name.endswith(".yaml")}
        self.assertEqual(there, {*HERE, *ELSEWHERE})
        for example, file in ELSEWHERE.items():
            text = read(os.path.join(os.path.dirname(os.path.abspath(__file__)), file))
            self.assertIn(f'examples/{example}"', text, f"{file} runs {example}")


class Demo(Case):
    """`make demo`: what a person sees of a worker's death."""

    VICTIM = "digits-worker-1"

    def test_tells_who_died_how_soon_that_was_noticed_and_that_the_job_went_on(self):
        began = time.monotonic()
        done = subprocess.run([os.path.join(EXAMPLES, "demo.sh"), BIN], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=180, check=False,
                              env=self.home.environment)
        self.home.assert_nothing_runs(timeout=5)
        told, page = done.stderr, done.stdout
        shown = f"{told}\n{page}"
        self.say(f"{time.monotonic() - began:.1f} s\n{shown}")
        self.assertEqual(0, done.returncode, shown)

        killed = re.search(r"kill -9 (\d+) ", told)
        self.assertTrue(killed, shown)
        after = told[killed.end():]
        self.assertIn(f"{self.VICTIM} was killed by signal 9", after)
        # Who looks between a loss and the next step is told twice, and the second line has the cost.
        self.check_cost(re.search(self.VICTIM + r".*: noticed after .*, training went on .*", after), after)
        self.assertRegex(after, r"(?s)now with 1 worker.*now with 2 workers", "it was replaced")
        before = max(self.steps(told[:killed.start()]), default=0)
        self.assertGreater(max(self.steps(after)), before, "training went on")
        self.check_page(page)

    def check_cost(self, line, shown):
        """How soon, how long, how much again; the limits leave a busy machine some room."""
        self.assertTrue(line, shown)
        cost = re.search(r"noticed after ([\d.]+) (m?s), training went on after ([\d.]+) (m?s), "
                         r"(\d+) steps? repeated", line.group(0))
        self.assertTrue(cost, line.group(0))
        unit = {"ms": 0.001, "s": 1.0}
        self.assertLess(float(cost.group(1)) * unit[cost.group(2)], 2)
        self.assertLess(float(cost.group(3)) * unit[cost.group(4)], 5)
        self.assertLessEqual(int(cost.group(5)), 1)

    def check_page(self, page):
        """The numbers at the end."""
        numbers = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", page, re.MULTILINE))
        self.assertIn("digits: Succeeded", page)
        self.assertGreaterEqual(float(numbers["validation accuracy"]), 0.95)
        self.assertEqual("20", numbers["epochs"])
        self.assertEqual("460", numbers["steps"])
        self.assertEqual("28 760", numbers["samples"], "each sample once an epoch")
        self.assertEqual("1", numbers["incidents"])
        self.check_cost(re.search(self.VICTIM + " was killed by signal 9: noticed.*", page), page)
        self.assertEqual(numbers["model's SHA-256"], sha256(numbers["model"]))
        for name in ("training loss", "time", "samples a second", "last checkpoint"):
            self.assertIn(name, numbers)

    @staticmethod
    def steps(text):
        return [int(step) for step in re.findall(r"epoch \d+, step (\d+)", text)]


if __name__ == "__main__":
    unittest.main(verbosity=2)
