# SPDX-License-Identifier: Apache-2.0
"""Wrong job files: exit code 2, the field's path, the remedy, at once, and no process left.

To add one: a line in files() with its name, the file, and what its message must hold: the place
first, then the reason and a word of the remedy.
"""
import gzip
import hashlib
import json
import os
import struct
import time
import unittest

import jobs
from case import Case
from home import DATA

# A second is promised; a machine that runs other tests at the same time gets some slack.
LIMIT = float(os.environ.get("STARLING_E2E_SLACK", "1"))


def changed(**changes):
    return jobs.digits(experiment__stepDelay="0s", **changes)


def without(job, *path):
    node = job
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    return job


def csv_job(test, text, **csv):
    """A job on a table of its own, and no other data that could be found wanting first."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = test.home.write(f"data-{digest}.csv", text)
    table = {"csv": {"uri": path, "labelColumn": "label", **csv}}
    return without(changed(dataset__train=table), "spec", "dataset", "validation")


def images(count=100):
    """MNIST's format of pictures, without pictures."""
    return struct.pack(">4i", 0x803, count, 28, 28) + os.urandom(count * 28 * 28)


def labels(count=100):
    return struct.pack(">2i", 0x801, count) + bytes(index % 10 for index in range(count))


def idx_job(test, name, image_file, label_file):
    return changed(dataset__train={"idx": {
        "imagesUri": test.home.write(f"{name}-images", image_file),
        "labelsUri": test.home.write(f"{name}-labels", label_file)}})


def files(test):
    """Name, content, and the words of which the message must hold every one: place, and remedy."""
    train = "spec.dataset.train.csv"
    rows = ["a,b,label", "1,2,0", "3,4,1", "5,6,0", "7,8,1"]
    return [
        ("typo", changed(replicaSpecs__worker={"replcas": 2}),
         ["spec.replicaSpecs.worker.replcas", "unknown field", "did you mean \"replicas\""]),
        ("wrong type", changed(seed="first"), ["spec.seed", "must be a whole number"]),
        ("text for a list", changed(workload__classification__model={"mlp": {"hidden": "128"}}),
         ["spec.workload.classification.model.mlp.hidden", "must be a list"]),
        ("two exchanges", changed(exchange={"allReduce": {}, "none": {}}),
         ["spec.exchange", "allReduce and none", "leave one of them"]),
        ("no workload", without(changed(), "spec", "workload"),
         ["spec.workload", "is required"]),
        ("no dataset", without(changed(), "spec", "dataset", "train"),
         ["spec.dataset.train", "is required"]),
        ("negative batch", changed(dataset__globalBatchSize=-4),
         ["spec.dataset.globalBatchSize", "must be at least 1"]),
        ("fraction of an epoch", changed(stop={"epochs": 1.5}),
         ["spec.stop.epochs", "must be a whole number"]),
        ("min above max", changed(replicaSpecs__worker={"replicas": 2, "minReplicas": 3,
                                                        "maxReplicas": 2}),
         ["spec.replicaSpecs.worker.minReplicas", "lower it or raise maxReplicas"]),
        ("more than max", changed(replicaSpecs__worker={"replicas": 9, "maxReplicas": 2}),
         ["spec.replicaSpecs.worker.replicas", "lower it or raise maxReplicas"]),
        ("too many for reproducible", changed(reproducible=True, replicaSpecs__worker={
            "replicas": 2, "maxReplicas": 17}),
         ["spec.replicaSpecs.worker.maxReplicas", "must be at most 16"]),
        ("bad duration", changed(checkpoint__interval="soon"),
         ["spec.checkpoint.interval", "such as 500ms"]),
        ("bad enum", changed(exchange={"allReduce": {"algorithm": "Star"}}),
         ["spec.exchange.allReduce.algorithm", "must be one of", "Ring"]),
        ("bad name", {**changed(), "metadata": {"name": "Bad_Name"}},
         ["metadata.name", "lower-case letters"]),
        ("long name", {**changed(), "metadata": {"name": "x" * 41}},
         ["metadata.name", "must be at most 40"]),
        ("other kind", {**changed(), "kind": "Job"}, ["kind: ", "write TrainingJob"]),
        ("nesterov without momentum",
         changed(optimizer={"sgd": {"learningRate": 0.1, "nesterov": True}}),
         ["spec.optimizer.sgd.nesterov", "set momentum"]),
        ("servers without their exchange",
         changed(replicaSpecs__parameterServer={"replicas": 2}),
         ["spec.replicaSpecs.parameterServer: ", "leave it out, or write exchange"]),
        ("more copies than servers can be", changed(
            exchange={"parameterServer": {"replication": 3}},
            replicaSpecs__parameterServer={"replicas": 2, "maxReplicas": 2}),
         ["spec.replicaSpecs.parameterServer.maxReplicas", "raise it or lower replication"]),
        ("five copies", changed(exchange={"parameterServer": {"replication": 5}}),
         ["spec.exchange.parameterServer.replication", "must be at most 3"]),
        ("two consistency models", changed(exchange={"parameterServer": {"consistency": {
            "asynchronous": {}, "softSync": {}}}}),
         ["spec.exchange.parameterServer.consistency", "leave one of them"]),
        ("threads that share a dense model", changed(
            exchange={"parameterServer": {"consistency": {"asynchronous": {}}}},
            update={"hogwild": {}}),
         ["spec.update.hogwild", "needs spec.workload.sparseLogisticRegression"]),
        ("names of rows for a dense model", changed(
            exchange={"parameterServer": {}}, compression={"keyCache": True}),
         ["spec.compression.keyCache", "leave it out"]),
        ("negative staleness", changed(exchange={"parameterServer": {"consistency": {
            "staleSynchronous": {"staleness": -1}}}}),
         ["spec.exchange.parameterServer.consistency.staleSynchronous.staleness",
          "must be at least 0"]),
        ("all are backups", changed(exchange={"parameterServer": {"consistency": {
            "backupWorkers": {"backups": 2}}}}),
         ["spec.exchange.parameterServer.consistency.backupWorkers.backups",
          "lower it or ask for more workers"]),
        ("reproducible with servers", changed(reproducible=True,
                                              exchange={"parameterServer": {}}),
         ["spec.reproducible", "leave it out, or write exchange: {allReduce"]),
        ("a server's rule without servers", changed(optimizer={"adagrad": {}}),
         ["spec.optimizer.adagrad", "use sgd, adam, adamW or rmsProp, or write exchange"]),
        ("sparse model on dense data", changed(workload={"sparseLogisticRegression": {}},
                                               exchange={"parameterServer": {}}),
         ["spec.dataset.train", "write libsvm"]),
        ("unknown preset", changed(preset="horrovod"), ["spec.preset", "did you mean \"horovod\""]),
        ("duplicate key", json.dumps(changed()).replace('"seed": 7', '"seed": 7, "seed": 8'),
         ["job.yaml: line 1", "\"seed\"", "leave one of them"]),
        ("not YAML", "spec: [1, 2\nkind: }", ["job.yaml: line 2, column 5", "not valid YAML"]),
        ("empty file", "", ["job.yaml", "nothing in it", "write a job"]),
        ("list", "- a\n- b\n", ["job.yaml", "must be an object, not a list", "write apiVersion, kind"]),
        ("binary", bytes(range(256)) * 4, ["job.yaml", "not UTF-8", "save the file as UTF-8"]),
        ("alias bomb", "a: &a [x, x, x]\n" + "".join(
            f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
            for old, new in zip("abcdefghi", "bcdefghij")),
         ["job.yaml: line 1", "anchor", "write the value out"]),
        ("10 MB of nesting", "[" * 10_000_000,
         ["job.yaml", "10000000 bytes", "at most 1048576"]),
        ("10 MB of deep blocks", "spec: " + "{a: " * 2_500_000,
         ["job.yaml", "10000006 bytes", "at most 1048576"]),
        ("300 kB of nesting", "[" * 300_000, ["job.yaml: line 1", "never closed"]),
        ("1 MB of deep lists", "- " * 500_000, ["job.yaml: line 1", "nested more than 64 deep"]),
        ("deep blocks", "".join(" " * deep + "a:\n" for deep in range(1400)),
         ["job.yaml: line 65", "nested more than 64 deep"]),
        ("missing data", changed(dataset__train={"csv": {"uri": "no/such.csv"}}),
         [train + ".uri", "no/such.csv", "check the path"]),
        ("folder for data", changed(dataset__train={"csv": {"uri": DATA}}),
         [train + ".uri", "name the file itself"]),
        ("empty data", csv_job(test, ""),
         [train + ".uri", "data-", "it must hold samples"]),
        ("header alone", csv_job(test, "a,b,label\n"),
         [train + ".uri", "data-", "no row of data", "add rows"]),
        ("ragged", csv_job(test, "\n".join([*rows, "9,1", "2,3,1"])),
         [train + ".uri", "data-", "line 6", "complete or remove the line"]),
        ("text in a cell", csv_job(test, "\n".join([*rows, "9,many,1"])),
         [train + ".uri", "line 6, column 2", "\"many\"", "every feature must be one"]),
        ("label out of range", csv_job(test, "\n".join([*rows, "9,1,7"]), classes=2),
         [train + ".uri", "line 6, column 3", "label 7", "it must be 0 to 1"]),
        ("negative label", csv_job(test, "\n".join([*rows, "9,1,-1"])),
         [train + ".uri", "line 6, column 3", "label -1", "it must be 0 to"]),
        ("no such label column", csv_job(test, "\n".join(rows), labelColumn="klass"),
         [train + ".labelColumn", "klass", "its 3 columns are \"a\", \"b\", \"label\""]),
        ("shape does not fit", without(changed(dataset__train={"csv": {
            "uri": os.path.join(DATA, "digits-train.csv"), "labelColumn": "label",
            "shape": [1, 8, 9]}}), "spec", "dataset", "validation"),
         [train + ".shape", "needs 72 features a row", "has 64"]),
        ("other shape to validate with", changed(dataset__validation={"csv": {
            "uri": os.path.join(DATA, "digits-test.csv"), "labelColumn": "label",
            "shape": [64]}}), ["spec.dataset.validation.csv.shape", "must be [1, 8, 8]"]),
        ("image too small", changed(workload__classification__model={"lenet5": {}}),
         [train + ".shape", "lenet5", "at least 20 by 20"]),
        ("layer that does not fit",
         changed(workload__classification__model={"layers": [{"relu": {}}, {"dense": {}}]}),
         ["spec.workload.classification.model.layers[1].dense", "is given [1, 8, 8]",
          "put flatten: {}"]),
        ("first model that is not there",
         changed(workload__classification__initialModel={"uri": "/no/such.safetensors"}),
         ["spec.workload.classification.initialModel.uri", "there is no such file"]),
        ("wrong magic", idx_job(test, "magic", b"\0" * 64, labels()),
         ["spec.dataset.train.idx.imagesUri", "magic-images", "MNIST's format",
          "get the file again"]),
        ("truncated gzip of images",
         idx_job(test, "cut", gzip.compress(images())[:1000], gzip.compress(labels())),
         ["spec.dataset.train.idx.imagesUri", "cut-images is truncated", "get the file again"]),
        ("truncated gzip of labels",
         idx_job(test, "short", images(), gzip.compress(labels())[:-9]),
         ["spec.dataset.train.idx.labelsUri", "short-labels is truncated", "get the file again"]),
    ]


class WrongFiles(Case):
    def test_each_is_refused_with_its_path_at_once(self):
        for name, content, words in files(self):
            with self.subTest(name):
                path = self.home.write("job.yaml", content)
                started = time.monotonic()
                command = self.home.run("run", path, code=None)
                seconds = time.monotonic() - started
                message = command.stderr.strip()
                self.say(f"{name}: {seconds * 1000:.0f} ms, {message.splitlines()[:1]}")
                self.assertEqual(2, command.process.returncode, command.tail())
                self.assertGreaterEqual(len(words), 2, "a place, and a reason or remedy")
                for word in words:
                    self.assertIn(word, message)
                self.assertLess(len(message), 4000, "a message is for people")
                self.assertLess(seconds, LIMIT)
                self.assertEqual([], self.home.processes())

    def test_file_that_is_not_there_and_unknown_verbs_are_usage_errors(self):
        self.assertIn("no-such.yaml", self.home.run("run", "no-such.yaml", code=2).stderr)
        self.home.run("fly", code=2)
        self.home.run("run", code=2)

    def test_all_errors_are_told_at_once(self):
        job = changed(seed="first", dataset__globalBatchSize=-4)
        job["spec"]["sed"] = 1
        message = self.home.run("validate", self.home.write("job.yaml", job), code=2).stderr
        for word in ("spec.seed", "spec.dataset.globalBatchSize", "spec.sed"):
            self.assertIn(word, message)

    def test_right_file_is_not_refused_so_the_check_can_fail(self):
        self.home.run("validate", self.home.write("job.yaml", changed()), code=0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
