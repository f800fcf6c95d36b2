# SPDX-License-Identifier: Apache-2.0
"""Wrong job files: exit code 2, the field's path, the remedy, at once, and no process left.

To add one: a method that returns (file content, what the message must name).
"""
import gzip
import hashlib
import json
import os
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


def files(test):
    """Name, content of the file, and the words of which the message must hold every one."""
    train = "spec.dataset.train.csv"
    rows = ["a,b,label", "1,2,0", "3,4,1", "5,6,0", "7,8,1"]
    return [
        ("typo", changed(replicaSpecs__worker={"replcas": 2}),
         ["spec.replicaSpecs.worker.replcas", "replicas"]),
        ("wrong type", changed(seed="first"), ["spec.seed"]),
        ("text for a list", changed(workload__classification__model={"mlp": {"hidden": "128"}}),
         ["spec.workload.classification.model.mlp.hidden"]),
        ("two exchanges", changed(exchange={"allReduce": {}, "none": {}}), ["spec.exchange"]),
        ("no workload", without(changed(), "spec", "workload"), ["spec.workload"]),
        ("no dataset", without(changed(), "spec", "dataset", "train"), ["spec.dataset.train"]),
        ("negative batch", changed(dataset__globalBatchSize=-4), ["spec.dataset.globalBatchSize"]),
        ("fraction of an epoch", changed(stop={"epochs": 1.5}), ["spec.stop.epochs"]),
        ("min above max", changed(replicaSpecs__worker={"replicas": 2, "minReplicas": 3,
                                                        "maxReplicas": 2}),
         ["spec.replicaSpecs.worker", "minReplicas"]),
        ("more than max", changed(replicaSpecs__worker={"replicas": 9, "maxReplicas": 2}),
         ["spec.replicaSpecs.worker", "maxReplicas"]),
        ("too many for reproducible", changed(reproducible=True, replicaSpecs__worker={
            "replicas": 2, "maxReplicas": 17}), ["spec.replicaSpecs.worker.maxReplicas", "16"]),
        ("bad duration", changed(checkpoint__interval="soon"), ["spec.checkpoint.interval"]),
        ("bad enum", changed(exchange={"allReduce": {"algorithm": "Star"}}),
         ["spec.exchange.allReduce.algorithm", "Ring"]),
        ("bad name", {**changed(), "metadata": {"name": "Bad_Name"}}, ["metadata.name"]),
        ("long name", {**changed(), "metadata": {"name": "x" * 41}}, ["metadata.name", "40"]),
        ("other kind", {**changed(), "kind": "Job"}, ["kind", "TrainingJob"]),
        ("nesterov without momentum",
         changed(optimizer={"sgd": {"learningRate": 0.1, "nesterov": True}}),
         ["spec.optimizer.sgd", "momentum"]),
        ("servers without their exchange",
         changed(replicaSpecs__parameterServer={"replicas": 2}),
         ["spec.replicaSpecs.parameterServer", "spec.exchange.parameterServer"]),
        ("more copies than servers can be", changed(
            exchange={"parameterServer": {"replication": 3}},
            replicaSpecs__parameterServer={"replicas": 2, "maxReplicas": 2}),
         ["spec.replicaSpecs.parameterServer.maxReplicas", "replication"]),
        ("five copies", changed(exchange={"parameterServer": {"replication": 5}}),
         ["spec.exchange.parameterServer.replication"]),
        ("two consistency models", changed(exchange={"parameterServer": {"consistency": {
            "asynchronous": {}, "hogwild": {}}}}), ["spec.exchange.parameterServer.consistency"]),
        ("threads that share a dense model", changed(exchange={"parameterServer": {
            "consistency": {"hogwild": {}}}}),
         ["spec.exchange.parameterServer.consistency.hogwild", "asynchronous"]),
        ("negative staleness", changed(exchange={"parameterServer": {"consistency": {
            "staleSynchronous": {"staleness": -1}}}}),
         ["spec.exchange.parameterServer.consistency.staleSynchronous.staleness"]),
        ("all are backups", changed(exchange={"parameterServer": {"consistency": {
            "backupWorkers": {"backups": 2}}}}),
         ["spec.exchange.parameterServer.consistency.backupWorkers.backups", "workers"]),
        ("reproducible with servers", changed(reproducible=True,
                                              exchange={"parameterServer": {}}),
         ["spec.reproducible", "allReduce"]),
        ("a server's rule without servers", changed(optimizer={"adagrad": {}}),
         ["spec.optimizer.adagrad", "parameterServer"]),
        ("sparse model on dense data", changed(workload={"sparseLogisticRegression": {}},
                                               exchange={"parameterServer": {}}),
         ["spec.dataset.train", "libsvm"]),
        ("unknown preset", changed(preset="horrovod"), ["spec.preset", "horovod"]),
        ("duplicate key", json.dumps(changed()).replace('"seed": 7', '"seed": 7, "seed": 8'),
         ["line 1", "seed"]),
        ("not YAML", "spec: [1, 2\nkind: }", ["line"]),
        ("empty file", "", ["nothing in it"]),
        ("list", "- a\n- b\n", ["object"]),
        ("binary", bytes(range(256)) * 4, []),
        ("alias bomb", "a: &a [x, x, x]\n" + "".join(
            f"{new}: &{new} [*{old}, *{old}, *{old}, *{old}, *{old}, *{old}, *{old}]\n"
            for old, new in zip("abcdefghi", "bcdefghij")), ["line 1", "anchor"]),
        ("10 MB of nesting", "[" * 10_000_000, []),
        ("10 MB of deep blocks", "spec: " + "{a: " * 2_500_000, []),
        ("missing data", changed(dataset__train={"csv": {"uri": "no/such.csv"}}),
         [train + ".uri", "no/such.csv"]),
        ("folder for data", changed(dataset__train={"csv": {"uri": DATA}}), [train]),
        ("empty data", csv_job(test, ""), [train, "data-"]),
        ("header alone", csv_job(test, "a,b,label\n"), [train, "data-"]),
        ("ragged", csv_job(test, "\n".join([*rows, "9,1", "2,3,1"])), [train, "data-", "6"]),
        ("text in a cell", csv_job(test, "\n".join([*rows, "9,many,1"])), [train, "6"]),
        ("label out of range", csv_job(test, "\n".join([*rows, "9,1,7"]), classes=2),
         [train, "7"]),
        ("negative label", csv_job(test, "\n".join([*rows, "9,1,-1"])), [train, "-1"]),
        ("no such label column", csv_job(test, "\n".join(rows), labelColumn="klass"),
         [train + ".labelColumn", "klass"]),
        ("shape does not fit", changed(dataset__train={"csv": {
            "uri": os.path.join(DATA, "digits-train.csv"), "shape": [1, 8, 9]}}),
         [train + ".shape"]),
        ("image too small", changed(workload__classification__model={"lenet5": {}}),
         ["lenet5", "20"]),
        ("wrong magic", changed(dataset__train={"idx": {
            "imagesUri": test.home.write("images", b"\0" * 64),
            "labelsUri": test.home.write("labels", b"\0" * 64)}}), ["spec.dataset.train.idx"]),
        ("truncated gzip", changed(dataset__train={"idx": {
            "imagesUri": test.home.write("cut.gz", gzip.compress(os.urandom(4096))[:1000]),
            "labelsUri": test.home.write("cut2.gz", gzip.compress(os.urandom(4096))[:1000])}}),
         ["spec.dataset.train.idx"]),
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
