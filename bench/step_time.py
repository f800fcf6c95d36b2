#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of a training step of the digits and MNIST jobs, beside PyTorch DDP.

Both sides train the same network on the same files with the same batch, one compute thread a
process; batches are cut evenly over the processes. A step's time is the time between the ends of
two steps of one process: reading, computing, exchanging, applying, everything.
"""
import argparse
import os
import statistics
import subprocess

import harness
from harness import DATA, SYSTEM_PYTHON, read_steps, spread

GROUPS = 5  # the spread is that of the medians of five stretches of the run


def digits():
    return {"workload": {"classification": {"model": {"mlp": {"hidden": [128, 64]}}}},
            "dataset": {"train": {"csv": {"uri": os.path.join(DATA, "digits-train.csv"),
                                          "labelColumn": "label", "shape": [1, 8, 8]}},
                        "globalBatchSize": 64},
            "optimizer": {"sgd": {"learningRate": 0.05, "momentum": 0.9}}}


def mnist():
    return {"workload": {"classification": {"model": {"lenet5": {}}}},
            "dataset": {"train": {"idx": {
                "imagesUri": os.path.join(DATA, "mnist10k-images-idx3-ubyte.gz"),
                "labelsUri": os.path.join(DATA, "mnist10k-labels-idx1-ubyte.gz"), "count": 8000}},
                "globalBatchSize": 64},
            "optimizer": {"sgd": {"learningRate": 0.05, "momentum": 0.9}}}


def stretches(times):
    """Medians of the differences of `times` over GROUPS stretches, the first tenth left out."""
    waits = [later - earlier for earlier, later in zip(times, times[1:])]
    waits = waits[len(waits) // 10:]
    size = max(1, len(waits) // GROUPS)
    return [statistics.median(waits[i * size:(i + 1) * size]) for i in range(GROUPS)]


def measure_starling(name, spec, workers, steps):
    home = harness.Product()
    try:
        spec["stop"] = {"epochs": 1000000, "steps": steps}
        spec["replicaSpecs"] = {"worker": {"replicas": workers, "minReplicas": workers,
                                           "maxReplicas": workers}}
        spec["checkpoint"] = {"interval": "24h"}
        command = home.submit(name, spec)
        code = command.wait(300)
        if code != 0:
            raise AssertionError(f"{command.describe()} exited with {code}:\n{command.tail()}")
        log = read_steps(home.prefix)
    finally:
        home.close()
    first = min(step.source for step in log)
    return stretches([step.time for step in log if step.source == first])


def measure_ddp(name, workers, steps, core_type):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("OPENBLAS_CORETYPE", None)
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    output = subprocess.run(
        [SYSTEM_PYTHON, os.path.join(harness.BENCH, "ddp_step_time.py"), name, str(workers),
         str(steps), DATA], env=environment, capture_output=True, text=True, timeout=600,
        check=True).stdout
    return stretches([float(line) for line in output.split()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-peer", action="store_true", help="measure Starling alone")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of steps")
    options = parser.parse_args()
    peer = None if options.no_peer else harness.require_torch()
    print("Step time in milliseconds, median [lowest, highest] of the medians of five stretches")
    print(harness.describe_machine(peer), flush=True)
    results = {}
    for name, spec, steps in (("digits", digits, 4000), ("mnist", mnist, 1200)):
        steps = max(100, int(steps * options.scale))
        for workers in (1, 2):
            side_of_peer = "PyTorch DDP" if workers > 1 else "PyTorch"
            rows = [("Starling", lambda: measure_starling(name, spec(), workers, steps))]
            if peer:
                rows += [(f"{side_of_peer}, as it comes",
                          lambda: measure_ddp(name, workers, steps, ""))]
                if harness.core_type():
                    rows += [(f"{side_of_peer}, OPENBLAS_CORETYPE={harness.core_type()}",
                              lambda: measure_ddp(name, workers, steps, harness.core_type()))]
            for side, measure in rows:
                key = f"{name}, {workers} worker{'s' * (workers > 1)}, {side}"
                results[key] = measure()
                print(f"{key:64} {spread(results[key], 1e3)}", flush=True)
    harness.save("step_time", results)


if __name__ == "__main__":
    main()
