#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step time on emulated networks by the size of buckets, beside the size that is found while training.

Four workers train a perceptron of 16 layers of 1 MiB each on the digits, on cards of an emulated
network (spec.experiment.network). A step's time is the median time between the ends of two steps of
worker 0, of those behind the ones in which sizes are tried out.
"""
import argparse
import os
import statistics

import harness
from harness import DATA, read_steps

HIDDEN = [512] * 16
NETWORKS = {"1 Gbit/s, 0.1 ms": {"bandwidth": "1G", "delay": "100us"},
            "10 Gbit/s, 0.1 ms": {"bandwidth": "10G", "delay": "100us"},
            "10 Gbit/s, 2 ms": {"bandwidth": "10G", "delay": "2ms"}}
SIZES = [1 << 20, 4 << 20, 16 << 20, None]
TRIED = 60  # steps: more than sizes are tried in


def spec(size, network, steps):
    exchange = {"algorithm": "Ring"}
    if size:
        exchange["bucketBytes"] = size
    return {"seed": 7,
            "workload": {"classification": {"model": {"mlp": {"hidden": HIDDEN}}}},
            "dataset": {"train": {"csv": {"uri": os.path.join(DATA, "digits-train.csv"),
                                          "labelColumn": "label", "shape": [1, 8, 8]}},
                        "globalBatchSize": 32},
            "optimizer": {"sgd": {"learningRate": 0.01}},
            "exchange": {"allReduce": exchange},
            "experiment": {"network": network},
            "replicaSpecs": {"worker": {"replicas": 4, "minReplicas": 4, "maxReplicas": 4}},
            "stop": {"epochs": 1000000, "steps": steps},
            "checkpoint": {"interval": "24h"}}


def measure(size, network, steps):
    home = harness.Product()
    try:
        command = home.submit("buckets", spec(size, network, TRIED + steps))
        code = command.wait(900)
        if code != 0:
            raise AssertionError(f"exited with {code}:\n{command.tail()}")
        log = read_steps(home.prefix)
        metrics = command.result()["status"]["progress"]["metrics"]
    finally:
        home.close()
    first = min(step.source for step in log)
    times = [step.time for step in log if step.source == first][TRIED:]
    waits = [later - earlier for earlier, later in zip(times, times[1:])]
    return {"milliseconds": 1e3 * statistics.median(waits), "found": metrics.get("exchange/bucketBytes")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(harness.describe_machine(None), flush=True)
    print("| network | " + " | ".join(f"{size >> 20} MiB" if size else "found" for size in SIZES) + " |")
    print("| --- " * (1 + len(SIZES)) + "|", flush=True)
    results = {}
    for name, network in NETWORKS.items():
        runs = {size: [] for size in SIZES}
        for _ in range(options.rounds):  # in turns, so that a disturbance meets all of them
            for size in SIZES:
                runs[size].append(measure(size, network, options.steps))
        cells = [f"{statistics.median(run['milliseconds'] for run in some):.0f}"
                 for some in runs.values()]
        found = sorted(int(run["found"]) >> 20 for run in runs[None])
        cells[-1] += " (" + ", ".join(map(str, found)) + " MiB)"
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        results[name] = {str(size): some for size, some in runs.items()}
    harness.save("buckets", results)


if __name__ == "__main__":
    main()
