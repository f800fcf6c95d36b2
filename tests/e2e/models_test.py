# SPDX-License-Identifier: Apache-2.0
"""What networks of a job file are good for beside classes' accuracy; the how-to's commands."""
import csv
import io
import json
import math
import os
import random
import re
import struct
import subprocess
import tarfile
import unittest

import jobs
from case import Case
from home import DATA, REPOSITORY, kill, read, until
from tar_test import digits_of

PAGE = os.path.join(REPOSITORY, "docs/how-to/models.md")


class HowTo(Case):
    def test_the_commands_of_the_page_work_as_they_stand(self):
        blocks = re.findall(r"^```sh\n(.*?)^```", read(PAGE), re.DOTALL | re.MULTILINE)
        self.assertEqual(4, len(blocks))
        place = os.path.join(self.home.folder, "somebody")
        os.makedirs(place)
        environment = dict(os.environ, **self.home.environment, STARLING=REPOSITORY)
        environment["PATH"] = (os.path.dirname(self.home.program("starling")) + ":" +
                               os.environ["PATH"])
        done = subprocess.run(["bash", "-c", "set -eo pipefail\n" + "\n".join(blocks)], cwd=place,
                              env=environment, capture_output=True, text=True, timeout=300,
                              check=False)
        self.say(done.stdout)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^class +samples +recall +precision$")
        self.assertRegex(done.stdout, r"(?m)^p27,p28,p35,p36$")
        self.assertEqual(360, len(read(os.path.join(place, "errors.csv")).splitlines()))
        self.assertGreater(os.path.getsize(os.path.join(place, "rebuilt.onnx")), 4 * 64 * 48)


SERVERS = ("--set", 'spec.exchange={"parameterServer": {}}',
           "--set", "spec.replicaSpecs.parameterServer.replicas=2")
COLUMNS = ["p27", "p28", "p35", "p36"]
REGRESSION = os.path.join(REPOSITORY, "examples/digits-regression.yaml")
AUTOENCODER = os.path.join(REPOSITORY, "examples/digits-autoencoder.yaml")


def table(name, **columns):
    return {"csv": {"uri": os.path.join(DATA, name), **columns}}


class NumbersCase(Case):
    """Jobs whose networks give numbers, on digits."""

    def run_example(self, path, *flags):
        command = self.home.start("run", path, "-o", "json", *flags)
        result = self.result(self.finish(command, timeout=240))
        self.say(f"{result['metrics']}, {result['epochs']} epochs, {result['steps']} steps")
        return result

    def judge(self, result, *flags):
        """What `starling evaluate` says of the model, which must be what its job said."""
        judged = json.loads(self.home.run(
            "evaluate", "--model", result["model"]["uri"], "--data",
            os.path.join(DATA, "digits-test.csv"), "-o", "json", *flags).stdout)
        self.assertEqual(359, judged["samples"])
        for name, value in judged.items():
            if name != "samples":
                said = result["metrics"][f"validation/{name}"]
                self.assertAlmostEqual(said, value, delta=1e-4 * max(1, abs(said)), msg=name)
        return judged

    def predict(self, result, data, *flags):
        rows = list(csv.reader(self.home.run("predict", "--model", result["model"]["uri"], "--data",
                                             data, *flags).stdout.splitlines()))
        return rows[0], [[float(cell) for cell in row] for row in rows[1:]]

    def reproducible(self, name, workload, workers, **changes):
        job = jobs.digits(name, workers, 3, **{
            "workload": workload, "optimizer": {"adam": {"learningRate": 0.002}},
            "reproducible": True, "experiment__stepDelay": "40ms", **changes})
        self.path = self.home.write(f"{name}.yaml", job)
        return self.home.start("run", self.path, "-o", "json")

    def check_digests(self, workload, **changes):
        """One digest for one worker, and for three of which one is killed, and then everything."""
        baseline = self.digest(self.finish(self.reproducible(
            "baseline", workload, 1, **{**changes, "experiment__stepDelay": "0s"})))
        command = self.reproducible("killed", workload, 3, **changes)
        self.home.await_step(15, "killed", command=command)
        self.assertTrue(kill(until(lambda: self.home.pod_pid("killed-worker-1"), 30, "it runs")))
        self.home.await_step(40, "killed", command=command)
        self.home.kill_everything()
        command = self.home.start("run", self.path, "-o", "json")
        self.assertEqual(baseline, self.digest(self.finish(command)), self.home.describe())
        other = self.digest(self.finish(self.reproducible(
            "other", workload, 1, **{**changes, "seed": 8, "experiment__stepDelay": "0s"})))
        self.assertNotEqual(baseline, other, "or any digest would do")
        self.say(f"digest {baseline}")


class Regression(NumbersCase):
    def test_the_example_reaches_its_target_and_its_model_predicts_as_it_was_judged(self):
        result = self.run_example(REGRESSION)
        self.assertTrue(result["targetReached"], result["metrics"])
        self.assertEqual({"loss", "rmse", "r2", "validation/loss", "validation/rmse",
                          "validation/r2"}, set(result["metrics"]))
        judged = self.judge(result)
        self.assertAlmostEqual(judged["loss"], judged["rmse"] ** 2, delta=1e-6)
        head, rows = self.predict(result, os.path.join(DATA, "digits-test.csv"),
                                  "--label-column", ",".join(COLUMNS))
        self.assertEqual(COLUMNS, head)
        with open(os.path.join(DATA, "digits-test.csv"), encoding="ascii") as file:
            wanted = [[float(row[column]) for column in COLUMNS] for row in csv.DictReader(file)]
        self.assertEqual(len(wanted), len(rows))
        shares, squares = [], 0
        for column in range(4):
            mean = sum(row[column] for row in wanted) / len(wanted)
            all_of = sum((row[column] - mean) ** 2 for row in wanted)
            off = sum((row[column] - said[column]) ** 2 for row, said in zip(wanted, rows))
            shares.append(1 - off / all_of)
            squares += off
        self.assertAlmostEqual(sum(shares) / 4, judged["r2"], delta=1e-5)
        self.assertAlmostEqual(math.sqrt(squares / len(wanted) / 4), judged["rmse"], delta=1e-5)
        wrong = self.home.run("evaluate", "--model", result["model"]["uri"], "--data",
                              os.path.join(DATA, "digits-test.csv"), "--label-column", "p27", code=2)
        self.assertIn("[61] needs 61 features a row", wrong.stderr)

    def test_parameter_servers_reach_it_too(self):
        self.assertTrue(self.run_example(REGRESSION, *SERVERS)["targetReached"])

    def test_one_that_hardly_learns_does_not_reach_it(self):
        result = self.run_example(REGRESSION, "--set", "spec.stop.epochs=1",
                                  "--set", "spec.optimizer.adam.learningRate=0.00001")
        self.assertFalse(result["targetReached"])
        self.assertLess(result["metrics"]["validation/r2"], 0.3)

    def test_one_digest_whoever_is_killed(self):
        self.check_digests({"regression": {"model": {"mlp": {"hidden": [32]}}, "loss": "Huber"}},
                           dataset__train=table("digits-train.csv", labelColumns=COLUMNS),
                           dataset__validation=table("digits-test.csv", labelColumns=COLUMNS))


class Autoencoder(NumbersCase):
    def test_the_example_reaches_its_target_and_what_is_no_digit_comes_back_badly(self):
        result = self.run_example(AUTOENCODER)
        self.assertTrue(result["targetReached"], result["metrics"])
        judged = self.judge(result)
        head, errors = self.predict(result, os.path.join(DATA, "digits-test.csv"))
        self.assertEqual(["error"], head)
        self.assertAlmostEqual(sum(error for error, in errors) / len(errors), judged["loss"],
                               delta=1e-5)
        draw = random.Random(1)
        with open(os.path.join(DATA, "digits-test.csv"), encoding="ascii") as file:
            digits = [[row[f"p{i}"] for i in range(64)] for row in csv.DictReader(file)]
        for row in digits:
            draw.shuffle(row)  # as bright as a digit, and none
        noise = self.home.write("noise.csv", "\n".join(",".join(row) for row in digits) + "\n")
        _, shuffled = self.predict(result, noise)
        usual, strange = (sorted(error for error, in rows) for rows in (errors, shuffled))
        self.say(f"errors: of digits {usual[len(usual) // 2]:.3f}, of what is none "
                 f"{strange[len(strange) // 2]:.3f}")
        above = sum(error > usual[int(0.95 * len(usual))] for error in strange)
        self.assertGreater(above / len(strange), 0.95)

    def test_parameter_servers_reach_it_too(self):
        self.assertTrue(self.run_example(AUTOENCODER, *SERVERS)["targetReached"])

    def test_one_digest_whoever_is_killed(self):
        self.check_digests({"autoencoder": {"model": {"autoencoder": {"hidden": [16, 4]}}}},
                           dataset__train=table("digits-train.csv"),
                           dataset__validation=table("digits-test.csv"))

    def test_shares_by_cross_entropy_and_what_is_none_is_refused(self):
        job = jobs.digits("shares", 2, 3, workload={"autoencoder": {
            "model": {"autoencoder": {"hidden": [16]}}, "loss": "BinaryCrossEntropy"}},
            optimizer={"adam": {"learningRate": 0.003}}, dataset__normalize=False,
            dataset__train=table("digits-train.csv"), dataset__validation=None,
            experiment__stepDelay="0s")
        said = (r"digits-train\.csv: line 2, column 3 \(\"p2\"\): \"5\" is not from 0 to 1, but the loss "
                r"BinaryCrossEntropy is of such numbers; divide")
        refused = self.home.run("run", self.home.write("shares.yaml", job), code=2)
        self.assertRegex(refused.stderr, said)
        self.assertIsNone(self.home.job("shares"), "nothing is started")
        with open(os.path.join(DATA, "digits-train.csv"), encoding="ascii") as file:
            rows = [[int(row[f"p{i}"]) / 16 for i in range(64)] for row in csv.DictReader(file)]
        shares = "\n".join(",".join(format(value, "g") for value in row) for row in rows) + "\n"
        # Only a beginning of a large file is looked at before; a worker reads all of it.
        row = ",".join(["0", "1"] * 32) + "\n"
        late = self.home.write("late.csv", row * 70000 + row.replace("1", "2", 1))
        job["spec"]["dataset"]["train"] = {"csv": {"uri": late, "header": "Absent"}}
        job["metadata"]["name"] = "late"
        failed = self.home.run("run", self.home.write("late.yaml", job), code=1)
        self.assertRegex(failed.stdout + failed.stderr,
                         r"late\.csv: line 70001, column 2: \"2\" is not from 0 to 1")
        job["metadata"]["name"] = "again"
        job["spec"]["dataset"]["train"] = {"csv": {"uri": self.home.write("shares.csv", shares)}}
        result = self.result(self.run_job(job))
        self.say(f"{result['metrics']}")
        self.assertLess(result["metrics"]["loss"], 0.5)
        model = ("--model", result["model"]["uri"], "--data", os.path.join(DATA, "digits-train.csv"))
        self.assertRegex(self.home.run("evaluate", *model, code=2).stderr, "--data: .*" + said)
        self.home.run("predict", *model)


class AutoencoderOfImages(NumbersCase):
    """The other kinds of data that it takes, whoever is killed; none of them has classes that it needs."""
    WORKLOAD = {"autoencoder": {"model": {"autoencoder": {"hidden": [24, 8]}}}}
    SHAPE = [1, 8, 8]

    def images(self, name):
        """(name, content) of each digit of a table, as PNG files."""
        return [(key, image) for key, image, _ in digits_of(name)]

    def check(self, train, validation, data, names):
        """A job is judged by its metrics, which evaluate and predict must say too of the same data at
        `data`; rows of predict begin with `names` (None: with the error). Then one digest comes out
        whatever is killed."""
        result = self.result(self.run_job(jobs.digits(
            "rebuilt", 2, 6, workload=self.WORKLOAD, optimizer={"adam": {"learningRate": 0.003}},
            dataset__train=train, dataset__validation=validation, experiment__stepDelay="0s",
            validation={"everyEpochs": 1})))
        self.say(f"{result['metrics']}")
        # Of data of variance 1: whoever gives the mean back is off by 1.
        self.assertLess(result["metrics"]["validation/rmse"], 0.75)
        model = ("--model", result["model"]["uri"], "--data", data)
        judged = json.loads(self.home.run("evaluate", *model, "-o", "json").stdout)
        for name in ("loss", "rmse"):
            self.assertAlmostEqual(result["metrics"][f"validation/{name}"], judged[name], delta=1e-4)
        rows = list(csv.reader(self.home.run("predict", *model).stdout.splitlines()))
        self.assertEqual(["error"] if names is None else ["image", "error"], rows[0])
        self.assertEqual(judged["samples"], len(rows) - 1)
        if names is not None:
            self.assertEqual(names, [row[0] for row in rows[1:]])
        self.assertAlmostEqual(sum(float(row[-1]) for row in rows[1:]) / judged["samples"],
                               judged["loss"], delta=1e-4)
        self.check_digests(self.WORKLOAD, dataset__train=train, dataset__validation=validation)

    def test_a_folder_of_images(self):
        folders = {}
        for part in ("train", "test"):
            folders[part] = os.path.join(self.home.folder, part)
            for key, image in self.images(f"digits-{part}.csv"):
                os.makedirs(folders[part], exist_ok=True)
                with open(os.path.join(folders[part], key.replace("/", "-") + ".png"), "wb") as file:
                    file.write(image)
        names = sorted(os.listdir(folders["test"]))
        self.check({"imageFolder": {"uri": folders["train"], "shape": self.SHAPE}},
                   {"imageFolder": {"uri": folders["test"], "shape": self.SHAPE}},
                   folders["test"], names)

    def test_archives(self):
        for part in ("train", "test"):
            with tarfile.open(os.path.join(self.home.folder, f"{part}.tar"), "w") as archive:
                for key, image in self.images(f"digits-{part}.csv"):
                    member = tarfile.TarInfo(f"{key}.png")
                    member.size = len(image)
                    archive.addfile(member, io.BytesIO(image))
        names = [f"{key}.png" for key, _ in self.images("digits-test.csv")]
        path = os.path.join(self.home.folder, "{}.tar").format
        self.check({"tar": {"uri": path("train"), "shape": self.SHAPE}},
                   {"tar": {"uri": path("test"), "shape": self.SHAPE}}, path("test"), names)

    def test_files_in_mnists_format(self):
        def source(part):
            with open(os.path.join(DATA, f"digits-{part}.csv"), encoding="ascii") as table:
                rows = [[min(255, 16 * int(row[f"p{i}"])) for i in range(64)]
                        for row in csv.DictReader(table)]
            images = struct.pack(">4I", 0x803, len(rows), 8, 8) + b"".join(map(bytes, rows))
            labels = struct.pack(">2I", 0x801, len(rows)) + bytes(len(rows))
            return {"idx": {"imagesUri": self.home.write(f"{part}-images-idx3-ubyte", images),
                            "labelsUri": self.home.write(f"{part}-labels-idx1-ubyte", labels)}}
        validation = source("test")
        self.check(source("train"), validation, validation["idx"]["imagesUri"], None)


class Parts(NumbersCase):
    """A batch that is computed in parts."""
    MODEL = {"classification": {"model": {"layers": [
        {"flatten": {}}, {"dense": {"units": 32}}, {"relu": {}}, {"dropout": {"rate": 0.3}}, {"dense": {}}]}}}

    def test_a_batch_in_parts_trains_as_the_whole_does(self):
        losses = []
        for number, parts in enumerate(({}, {"dataset__microBatchSize": 5})):
            job = jobs.digits(f"parts-{number}", 2, 3, workload=self.MODEL,
                              experiment__stepDelay="0s", **parts)
            losses.append(self.result(self.run_job(job))["metrics"]["validation/loss"])
        self.say(f"{losses}")
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-4)
        self.assertLess(losses[0], 1.5, "it has learnt")

    def test_one_digest_whoever_is_killed(self):
        self.check_digests(self.MODEL, dataset__microBatchSize=3)


class TopFive(Case):
    def test_a_job_ends_when_its_class_is_often_enough_among_the_five_most_likely(self):
        target = {"metric": "validation/top5Accuracy", "atLeast": 0.97}
        result = self.result(self.run_job(jobs.digits(
            epochs=20, experiment__stepDelay="0s", stop={"epochs": 20, "target": target})))
        metrics = result["metrics"]
        self.say(f"{metrics} after {result['epochs']} epochs")
        self.assertTrue(result["targetReached"])
        self.assertLess(result["epochs"], 20)
        self.assertGreaterEqual(metrics["validation/top5Accuracy"], 0.97)
        self.assertLess(metrics["validation/accuracy"], metrics["validation/top5Accuracy"])

    def test_where_it_would_always_be_there_is_no_such_metric(self):
        path = self.home.write("job.yaml", jobs.digits(
            epochs=1, dataset__train={"synthetic": {"classes": 5}},
            dataset__validation={"synthetic": {"classes": 5}},
            stop={"epochs": 1, "target": {"metric": "validation/top5Accuracy", "atLeast": 0.5}}))
        done = self.home.run("run", path, code=1)
        self.assertIn("the workload has no metric validation/top5Accuracy; it has validation/loss, "
                      "validation/accuracy", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
