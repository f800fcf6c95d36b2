#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a training step beside PyTorch DDP: of the digits and MNIST jobs, and with --network of large ones.

Both sides train the same network on the same files with the same batch, one compute thread a
process; batches are cut evenly over the processes. A step's time is the time between the ends of
two steps of one process: reading, computing, exchanging, applying, everything. Without exchange is the
same work by as many jobs of one worker at the same time, and the slower of them what would be left of a step
if its exchange took no time: step by step the longest of theirs, for who exchanges waits for the others.
mlp10m is a perceptron of 10.5 million weights on the digits. AlexNet and VGG-16 (57 and 134 million
weights) see made-up images of 64 by 64, which either side makes for itself, and the sides take turns,
--rounds times each.
"""
import argparse
import collections
import copy
import os
import statistics
import subprocess

import harness
from harness import DATA, SYSTEM_PYTHON, read_steps, spread
from step_time_sizes import BATCH, HIDDEN, SAMPLES

GROUPS = 5  # the spread is that of the medians of five stretches of the run


def digits(name):
    return {"workload": {"classification": {"model": {"mlp": {"hidden": HIDDEN[name]}}}},
            "dataset": {"train": {"csv": {"uri": os.path.join(DATA, "digits-train.csv"),
                                          "labelColumn": "label", "shape": [1, 8, 8]}},
                        "globalBatchSize": BATCH[name]},
            "optimizer": {"sgd": {"learningRate": 0.05, "momentum": 0.9}}}


def mnist():
    return {"workload": {"classification": {"model": {"lenet5": {}}}},
            "dataset": {"train": {"idx": {
                "imagesUri": os.path.join(DATA, "mnist10k-images-idx3-ubyte.gz"),
                "labelsUri": os.path.join(DATA, "mnist10k-labels-idx1-ubyte.gz"), "count": 8000}},
                "globalBatchSize": 64},
            "optimizer": {"sgd": {"learningRate": 0.05, "momentum": 0.9}}}


def made_up(model, batch):
    return {"workload": {"classification": {"model": model}},
            "dataset": {"train": {"synthetic": {"samples": SAMPLES, "shape": [3, 64, 64],
                                                "classes": 10}}, "globalBatchSize": batch},
            "optimizer": {"sgd": {"learningRate": 0.001, "momentum": 0.9}}}


Network = collections.namedtuple("Network", "spec steps rounds")
NETWORKS = {"digits": Network(lambda: digits("digits"), 4000, 1), "mnist": Network(mnist, 1200, 1),
            "mlp10m": Network(lambda: digits("mlp10m"), 100, 3),
            "alexnet64": Network(lambda: made_up({"alexnet": {}}, BATCH["alexnet64"]), 60, 3),
            "vgg16-64": Network(lambda: made_up({"vgg16": {}}, BATCH["vgg16-64"]), 30, 3)}
LEAST = 2 * GROUPS  # steps


def waits_between(times):
    return [later - earlier for earlier, later in zip(times, times[1:])]


def stretches(waits):
    """Medians of `waits` over GROUPS stretches, the first tenth left out."""
    waits = waits[len(waits) // 10:]
    size = max(1, len(waits) // GROUPS)
    return [statistics.median(waits[i * size:(i + 1) * size]) for i in range(GROUPS)]


def measure_starling(name, spec, workers, steps):
    return [stretches(measure_jobs(name, [spec], workers, steps)[0])]


def measure_without_exchange(name, spec, workers, steps):
    """As many jobs of one worker at the same time, each with a worker's share of the batch."""
    spec["dataset"]["globalBatchSize"] //= workers
    jobs = measure_jobs(name, [copy.deepcopy(spec) for _ in range(workers)], 1, steps)
    return [stretches(jobs[0]), stretches([max(step) for step in zip(*jobs)])]


def measure_jobs(name, specs, workers, steps):
    """The time of each step of each of these jobs, which run at the same time, at one of its workers."""
    homes = [harness.Product() for _ in specs]
    try:
        commands = []
        for home, spec in zip(homes, specs):
            spec["stop"] = {"epochs": 1000000, "steps": steps}
            spec["replicaSpecs"] = {"worker": {"replicas": workers, "minReplicas": workers,
                                               "maxReplicas": workers}}
            spec["checkpoint"] = {"interval": "24h"}
            commands.append(home.submit(name, spec))
        for command in commands:
            code = command.wait(900)
            if code != 0:
                raise AssertionError(f"{command.describe()} exited with {code}:\n{command.tail()}")
        logs = [read_steps(home.prefix) for home in homes]
    finally:
        for home in homes:
            home.close()
    firsts = [min(step.source for step in log) for log in logs]
    return [waits_between([step.time for step in log if step.source == first])
            for log, first in zip(logs, firsts)]


def measure_ddp(name, workers, steps, core_type):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("OPENBLAS_CORETYPE", None)
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    output = subprocess.run(
        [SYSTEM_PYTHON, os.path.join(harness.BENCH, "ddp_step_time.py"), name, str(workers),
         str(steps), DATA], env=environment, capture_output=True, text=True, timeout=900,
        check=True).stdout
    return [stretches(waits_between([float(line) for line in output.split()]))]


def sides(peer, name, spec, workers, steps):
    """What is measured in turns: (sides, how); that gives the stretches of each."""
    side_of_peer = "PyTorch DDP" if workers > 1 else "PyTorch"
    rows = [(["Starling"], lambda: measure_starling(name, spec(), workers, steps))]
    if workers > 1:
        rows += [(["without exchange", "without exchange, the slower of both"],
                  lambda: measure_without_exchange(name, spec(), workers, steps))]
    if peer:
        rows += [([f"{side_of_peer}, as it comes"], lambda: measure_ddp(name, workers, steps, ""))]
        if harness.core_type():
            rows += [([f"{side_of_peer}, OPENBLAS_CORETYPE={harness.core_type()}"],
                      lambda: measure_ddp(name, workers, steps, harness.core_type()))]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-peer", action="store_true", help="measure Starling alone")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps")
    parser.add_argument("--network", action="append", choices=NETWORKS,
                        help="may be given several times; by default digits and mnist")
    parser.add_argument("--rounds", type=int, help="of all sides in turns (large networks 3, others 1)")
    options = parser.parse_args()
    peer = None if options.no_peer else harness.require_torch()
    print("Step time in milliseconds, median [lowest, highest] of the medians of five stretches")
    print(harness.describe_machine(peer), flush=True)
    results = {}
    for name in options.network or ("digits", "mnist"):
        network = NETWORKS[name]
        least = 100 if network.rounds == 1 else LEAST
        steps = max(least, int(network.steps * options.scale))
        for workers in (1, 2):
            rows = sides(peer, name, network.spec, workers, steps)
            for _ in range(options.rounds or network.rounds):
                for names, measure in rows:
                    for side, waits in zip(names, measure()):
                        key = f"{name}, {workers} worker{'s' * (workers > 1)}, {side}"
                        results.setdefault(key, []).extend(waits)
            for key in list(results)[-sum(len(names) for names, _ in rows):]:
                print(f"{key:64} {spread(results[key], 1e3)}", flush=True)
    harness.save("step_time" if options.network is None else "step_time_networks", results)


if __name__ == "__main__":
    main()
