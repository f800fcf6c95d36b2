#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Step time on emulated networks with each codec beside none: bytes, time, loss and accuracy.

Two workers train a perceptron of 4.3 million parameters on the digits, on cards of 1 and 10 Gbit/s
with a delay of 0.1 ms (spec.experiment.network). A step's time is the median time between the ends
of two steps of worker 0, of those behind the ones in which sizes of buckets are tried. Bytes are
those of updates that a worker sends in a step. The plain run without an emulated network, over
shared memory, shows what computing takes, and the one with buckets of 25 MiB what PyTorch DDP's
schedule would.
"""
import argparse
import os
import statistics

import harness
from harness import DATA, read_steps

HIDDEN = [1024, 2048, 1024]
NETWORKS = {"1 Gbit/s": {"bandwidth": "1G", "delay": "100us"},
            "10 Gbit/s": {"bandwidth": "10G", "delay": "100us"}}
# With error feedback where what a codec leaves out would be lost, as docs/design/compression.md has it.
CODECS = {"identity": False, "float16": False, "bfloat16": False, "int8": True,
          "int8 sharedScale": True, "ternGrad": False, "ternGrad sharedScale": False,
          "logarithmic": True, "oneBit": True, "threshold": True, "topK": True,
          "sparseBinary": True, "deepGradientCompression": False, "entropyTopK": False}
DDP_BUCKETS = 25 << 20  # bytes
TRIED = 60  # steps: more than sizes of buckets are tried in


def spec(codec, feedback, network, steps, buckets=None):
    name, *options = codec.split()
    made = {"seed": 7,
            "workload": {"classification": {"model": {"mlp": {"hidden": HIDDEN}}}},
            "dataset": {**{use: {"csv": {"uri": os.path.join(DATA, f"digits-{file}.csv"),
                                         "labelColumn": "label", "shape": [1, 8, 8]}}
                           for use, file in (("train", "train"), ("validation", "test"))},
                        "globalBatchSize": 32},
            "optimizer": {"sgd": {"learningRate": 0.1}},
            "exchange": {"allReduce": {"algorithm": "Ring"}},
            "compression": {"codec": {name: dict.fromkeys(options, True)}},
            "replicaSpecs": {"worker": {"replicas": 2, "minReplicas": 2, "maxReplicas": 2}},
            "stop": {"epochs": 1000000, "steps": steps},
            "checkpoint": {"interval": "24h"}}
    if feedback:
        made["compression"]["errorFeedback"] = True
    if buckets:
        made["exchange"]["allReduce"]["bucketBytes"] = buckets
    if network:
        made["experiment"] = {"network": network}
    return made


def measure(codec, feedback, network, steps, buckets=None):
    home = harness.Product()
    try:
        command = home.submit("codecs", spec(codec, feedback, network, TRIED + steps, buckets))
        code = command.wait(600)
        if code != 0:
            raise AssertionError(f"{codec}: exited with {code}:\n{command.tail()}")
        log = read_steps(home.prefix)
        status = command.result()["status"]
    finally:
        home.close()
    first = min(step.source for step in log)
    times = [step.time for step in log if step.source == first]
    waits = [later - earlier for earlier, later in zip(times, times[1:])][TRIED:]
    progress = status["progress"]
    return {"milliseconds": 1e3 * statistics.median(waits),
            "sentBytes": progress["metrics"]["exchange/sentBytes"] / (TRIED + steps),
            "denseBytes": progress["metrics"]["exchange/denseBytes"] / (TRIED + steps),
            "loss": progress["loss"], "transport": progress["exchanges"][0]["transport"],
            "accuracy": status["result"]["metrics"]["validation/accuracy"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--codec", action="append", choices=list(CODECS), help="default: all")
    options = parser.parse_args()
    print(harness.describe_machine(None), flush=True)
    plain = measure("identity", False, None, options.steps)
    print(f"no network emulated: {plain['milliseconds']:.0f} ms a step over {plain['transport']}, "
          f"loss after {TRIED + options.steps} steps {plain['loss']:.3f}")
    results = {"steps": options.steps, "hidden": HIDDEN, "plain": plain, "codecs": {}}
    print("| codec | sent, KB a step | of dense | " + " | ".join(
        f"{name}: ms a step" for name in NETWORKS) + " | loss | accuracy, % |")
    print("| --- " * (5 + len(NETWORKS)) + "|", flush=True)

    def row(title, codec, buckets=None):
        runs = {name: measure(codec, CODECS[codec], network, options.steps, buckets)
                for name, network in NETWORKS.items()}
        results["codecs"][title] = runs
        *_, last = runs.values()
        times = " | ".join(f"{run['milliseconds']:.0f}" for run in runs.values())
        print(f"| {title} | {last['sentBytes'] / 1e3:.0f} | "
              f"{last['sentBytes'] / last['denseBytes']:.4f} | {times} | {last['loss']:.3f} | "
              f"{100 * last['accuracy']:.1f} |", flush=True)

    if not options.codec:
        row("`identity`, buckets of 25 MiB", "identity", DDP_BUCKETS)
    for codec in options.codec or CODECS:
        name, *more = codec.split()
        feedback = ["error feedback"] if CODECS[codec] else []
        row(", ".join([f"`{name}`", *(f"`{one}`" for one in more), *feedback]), codec)
    harness.save("codecs", results)


if __name__ == "__main__":
    main()
