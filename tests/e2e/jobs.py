# SPDX-License-Identifier: Apache-2.0
"""Job files of the tests: small variations of the digits job."""
import copy
import os

from home import DATA

SAMPLES = 1438  # rows of digits-train.csv


def source(name):
    return {"csv": {"uri": os.path.join(DATA, name), "labelColumn": "label", "shape": [1, 8, 8]}}


def digits(name="digits", workers=2, epochs=6, **changes):
    """A digits job whose steps take 20 ms, so that kills hit it, with an audit of its samples.

    `changes` are dotted paths below spec, with __ for the dot: checkpoint__interval="1s".
    """
    job = {
        "apiVersion": "starling.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "seed": 7,
            "workload": {"classification": {"model": {"mlp": {"hidden": [128, 64]}}}},
            "dataset": {
                "train": source("digits-train.csv"),
                "validation": source("digits-test.csv"),
                "globalBatchSize": 64,
                "auditUse": True,
            },
            "optimizer": {"sgd": {"learningRate": 0.05, "momentum": 0.9}},
            "stop": {"epochs": epochs},
            "replicaSpecs": {"worker": {"replicas": workers, "maxReplicas": 8}},
            "checkpoint": {"interval": "400ms"},
            "experiment": {"stepDelay": "20ms"},
        },
    }
    for path, value in changes.items():
        put(job["spec"], path.split("__"), value)
    return job


def put(node, path, value):
    for key in path[:-1]:
        node = node.setdefault(key, {})
    node[path[-1]] = copy.deepcopy(value)


def steps_of(epochs, batch=64):
    return epochs * ((SAMPLES + batch - 1) // batch)
