#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What techniques need and do not go with, before a real API server: of jobs with two of them it refuses
those that the CLI refuses, for the same field, in the CLI's words.

The server knows less: not what a preset sets, nor which default a field has that is left out. It
speaks of the field above (spec.compression) and names in its words the one at fault (codec.topK)."""
import concurrent.futures
import copy
import json
import os
import re
import subprocess
import unittest

import kubectl as k
from kube_api import Api, ApiError, path_of

STARLING = os.path.join(os.environ["STARLING_BIN"], "starling")
EVERY = int(os.environ.get("STARLING_TEST_EVERY", "6"))  # of all pairs each sixth; 1: all, a minute

SERVERS = {"exchange.parameterServer.replication": 1}
SPARSE = {"train": {"libsvm": {"uri": "a"}}}


def each(path, names):
    return [{f"{path}.{name}": {}} for name in names.split()]


# Fields of the spec; {} where the technique has none that must be given. None takes one out.
TECHNIQUES = [
    {"workload": {"linearRegression": {}}, "dataset": SPARSE},
    {"workload": {"linearRegression": {"hashedFeatures": 2}}},
    {**SERVERS, "workload": {"sparseLogisticRegression": {}}, "dataset": SPARSE},
    {"workload": {"container": {}}, "dataset": None},
    {"workload": {"pytorch": {"script": "a"}}, "dataset": None},
    {"workload": {"classification": {"model": {"transformer": {}}}}},
    {"runPolicy.successPolicy": "AllWorkers"}, {"dataset.normalize": True},
    {"validation.patience": 3}, {"validation.keepBest": True},
    {"stop.target": {"metric": "validation/loss", "atMost": 1}},
    {"preset": "pytorchDdp"}, {"reproducible": True},
    {"exchange": {"none": {}}}, {"exchange": {"allReduce": {"algorithm": "Ring"}}}, SERVERS,
    {"exchange.parameterServer.tensors": ["first*"]},
    {"replicaSpecs.parameterServer": {"replicas": 1}}, {"replicaSpecs.coordinator.standby": True},
    *each("exchange.parameterServer.consistency",
          "bulkSynchronous asynchronous boundedDelay staleSynchronous eagerStaleSynchronous "
          "backupWorkers softSync"),
    *each("exchange.parameterServer.topology", "tree hostReduce"),
    *each("update", "localSgd activations hogwild"),
    *each("compression.codec",
          "bfloat16 float16 oneBit topK ternGrad int8 threshold deepGradientCompression "
          "sparseBinary entropyTopK logarithmic"),
    {"compression.codec.int8.sharedScale": True}, {"compression.codec.ternGrad.sharedScale": True},
    {"compression.warmupSteps": 5}, {"compression.errorFeedback": True},
    {"compression.keyCache": False}, {"compression.kktFilter": True},
    {"experiment.network": {"delay": "1ms"}}, {"experiment.network.podsPerHost": 2},
    {"optimizer.sgd.momentum": 0.9}, {"optimizer.sgd.nesterov": True},
    {"optimizer.sgd.weightDecay": 0.1}, {"optimizer.clipNorm": 1},
    *each("optimizer", "adam adamW rmsProp lars adagrad adaRevision delayCompensated ftrl "
                       "proximalGradient"),
    {"numerics": {"mixedPrecision": {}}}, {"checkpoint": {}}, {"export": {}}, {"dataPlane": {}},
    {"dataset.train": {"text": {"uri": "a"}}}, {"dataset.train": {"imageFolder": {"uri": "a"}}},
    {"dataset.augmentation": {"flip": True}}, {"dataset.cache": {"uri": "a"}},
    {"dataset.onBadRecord": "Skip"}, {"dataset.microBatchSize": 8}]


def job_with(*techniques):
    job = k.digits()
    for path, value in (item for technique in techniques for item in technique.items()):
        *above, last = path.split(".")
        at = job["spec"]
        for name in above:
            if at.get(name) is None:
                at[name] = {}
            at = at[name]
        if value is None:
            at.pop(last, None)
        elif not above or value != {} or last not in at:
            at[last] = copy.deepcopy(value)
    return job


def jobs():
    """Each technique by itself, and each EVERY-th pair."""
    pairs = [(a, b) for i, a in enumerate(TECHNIQUES) for b in TECHNIQUES[:i]]
    return [job_with(*some) for some in [(one,) for one in TECHNIQUES] + pairs[::EVERY]]


def known_to_server(job, words):
    """Whether it comes of what the job says itself, rather than of a preset or a default."""
    if "preset" in job["spec"]:
        return False
    at, excluded = job, re.match(r"does not go with (\S+),", words)
    for name in excluded[1].split(".") if excluded else []:
        if name not in at:
            return False
        at = at[name]
    return True


class Techniques(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        k.install_crd()
        cls.api = Api(os.environ["KUBECONFIG"])

    def refusals_of_server(self, job):
        """All, as (field, message, reason)."""
        try:
            self.api.create(path_of("tj", "default") + "?dryRun=All", job)
            return []
        except ApiError as error:
            answer = json.loads(str(error)[str(error).index("{"):])
            return [(cause["field"], cause["message"], cause["reason"])
                    for cause in answer["details"]["causes"]]

    @staticmethod
    def refusals_of_cli(job):
        done = subprocess.run([STARLING, "validate", "/dev/stdin"], input=json.dumps(job),
                              capture_output=True, text=True, check=False, timeout=60)
        return re.findall(r"^(?:error: )?(spec\S+): (.*)$", done.stderr, re.MULTILINE)

    def compare(self, job):
        """How many words of the server are the CLI's own."""
        server, cli = self.refusals_of_server(job), self.refusals_of_cli(job)
        says = f"{json.dumps(job['spec'])}: the server {server}, the CLI {cli}"
        about_techniques = [field for field, words in cli
                            if words.startswith(("needs spec.", "does not go with"))]
        if any(known_to_server(job, words) for field, words in cli if field in about_techniques):
            self.assertTrue(server, says)
        same = 0
        for field, message, reason in server:
            if reason != "FieldValueForbidden":
                continue
            found = re.fullmatch(r"Forbidden: (?:([\w.]+) )?((?:needs|does not go with) .*)", message)
            self.assertTrue(found, says)
            path = f"{field}.{found[1]}" if found[1] else field
            # A file of two workloads, or without data, is not looked at any further by the CLI.
            if cli and not about_techniques:
                continue
            # Where a field is refused, the CLI says nothing of those below it.
            self.assertTrue(any(f"{path}.".startswith(f"{other}.") for other in about_techniques), says)
            same += (path, found[2]) in cli
        return same

    def test_the_server_refuses_what_the_cli_refuses(self):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            same = list(pool.map(self.compare, jobs()))
        self.assertGreater(sum(map(bool, same)), len(same) / 3)


if __name__ == "__main__":
    unittest.main()
