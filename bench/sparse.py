#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sparse logistic regression on a parameter server, beside liblinear on the same machine.

usage: bench/sparse.py --data FOLDER [--bin FOLDER] [--rule adagrad] [--rate 0.1]

The set is not part of this tree: lines of UCI's HIGGS, cut into train.tsv and test.tsv. The figures
in docs/benchmarks.md are of 7,000 collisions to train and 500 to test. Every one of their 28 numbers
is put into one of 32 steps, and every pair of numbers into one of 32 x 32: 406 features a sample out
of 400,000, hashed to a million weights. liblinear (Debian's, L2-regularised logistic regression,
solver 0) reads the same file without hashing. Both are timed from reading the file on; compared are
the accuracy on the test set, and the time until the product's mean loss on the training set is down
to what liblinear ends with.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

import harness
from harness import REPOSITORY

STEPS = 32
COSTS = (0.1, 1, 10)
COLUMNS = 28
LAYOUT = (f"a folder with train.tsv and test.tsv, lines of UCI's HIGGS: the label, 1 or 0, and "
          f"{COLUMNS} numbers, with tabs between them")


def rows(path):
    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if len(words) not in (0, COLUMNS + 1):
                sys.exit(f"bench/sparse.py: {path}: line {number} has {len(words)} columns, not "
                         f"{COLUMNS + 1}; --data names {LAYOUT}")
            if words:
                yield int(float(words[0])), [float(word) for word in words[1:]]


def quantiles(samples):
    """For each column the bounds between its steps, from the training set alone."""
    columns = list(zip(*(values for _, values in samples)))
    bounds = []
    for column in columns:
        ordered = sorted(column)
        bounds.append(sorted({ordered[len(ordered) * i // STEPS] for i in range(1, STEPS)}))
    return bounds


def step(value, bounds):
    low, high = 0, len(bounds)
    while low < high:
        middle = (low + high) // 2
        if value < bounds[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def write(samples, bounds, path):
    count = len(bounds)
    with open(path, "w", encoding="ascii") as file:
        for label, values in samples:
            steps = [step(value, bounds[i]) for i, value in enumerate(values)]
            numbers = [i * STEPS + one + 1 for i, one in enumerate(steps)]
            pair = 0
            for i in range(count):
                for j in range(i + 1, count):
                    numbers.append(count * STEPS + (pair * STEPS + steps[i]) * STEPS + steps[j] + 1)
                    pair += 1
            file.write(("1 " if label else "-1 ")
                       + " ".join(f"{number}:0.05" for number in numbers) + "\n")


def liblinear(cost, train, test, folder):
    """Seconds, mean training loss and test accuracy of one run."""
    model = os.path.join(folder, "model")
    begin = time.monotonic()
    subprocess.run(["liblinear-train", "-q", "-s", "0", "-c", str(cost), train, model], check=True)
    seconds = time.monotonic() - begin
    with open(model, encoding="ascii") as file:
        lines = file.read().split("\n")
    first = lines.index("w") + 1
    weights = [float(line) for line in lines[first:] if line.strip()]
    labels = next(line for line in lines if line.startswith("label")).split()[1:]
    sign = 1 if labels[0] == "1" else -1

    def look(path):
        loss, right, count = 0.0, 0, 0
        with open(path, encoding="ascii") as file:
            for line in file:
                words = line.split()
                score = sign * sum(
                    weights[int(pair.partition(":")[0]) - 1] * float(pair.partition(":")[2])
                    for pair in words[1:] if int(pair.partition(":")[0]) <= len(weights))
                margin = score * int(words[0])
                loss += math.log1p(math.exp(-margin)) if margin > 0 else (
                    math.log1p(math.exp(margin)) - margin)
                right += margin > 0
                count += 1
        return loss / count, right / count
    return seconds, look(train)[0], look(test)[1]


def product(options, train, test):
    program = os.path.join(REPOSITORY, options.bin, "starling-sparse-bench")
    output = subprocess.run(
        [program, "--train", train, "--test", test, "--rule", options.rule, "--rate",
         str(options.rate), "--passes", str(options.passes), "--wire", options.wire, "--batch",
         str(options.batch)], check=True, capture_output=True, text=True).stdout
    lines = [json.loads(line) for line in output.splitlines()]
    return lines[0], lines[1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=os.environ.get("STARLING_BIN", "build/release/bin"))
    parser.add_argument("--data", metavar="FOLDER", help=f"required: {LAYOUT}")
    parser.add_argument("--rule", default="adagrad")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--passes", type=int, default=6)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--wire", default="shm", choices=("shm", "tcp"))
    options = parser.parse_args()
    if not options.data:
        parser.error(f"--data is missing; name {LAYOUT}")
    for name in ("train.tsv", "test.tsv"):
        if not os.path.isfile(os.path.join(options.data, name)):
            parser.error(f"--data {options.data} holds no {name}; name {LAYOUT}")
    with tempfile.TemporaryDirectory() as folder:
        samples = list(rows(os.path.join(options.data, "train.tsv")))
        bounds = quantiles(samples)
        train, test = os.path.join(folder, "train.libsvm"), os.path.join(folder, "test.libsvm")
        write(samples, bounds, train)
        write(list(rows(os.path.join(options.data, "test.tsv"))), bounds, test)
        print(harness.describe_machine(None))
        read, passes = product(options, train, test)
        print(f"starling, 1 server, 1 worker, {options.wire}, {options.rule}: read in "
              f"{read['read']:.2f} s, {read['samples']} samples, {read['pairs']} pairs")
        for one in passes:
            print(f"  pass {one['pass']:2}: {one['seconds']:6.2f} s, training loss "
                  f"{one['loss']:.4f}, test accuracy {one['accuracy']:.3f}, "
                  f"{one['sent'] / 1e6:.0f} MB sent, {one['received'] / 1e6:.0f} MB received")
        results = {"read": read, "passes": passes, "liblinear": []}
        for cost in COSTS:
            seconds, loss, accuracy = liblinear(cost, train, test, folder)
            reached = next((one for one in passes if one["loss"] <= loss), None)
            text = "not reached" if reached is None else (
                f"after {read['read'] + reached['seconds']:.2f} s with the reading, test accuracy "
                f"{reached['accuracy']:.3f}")
            print(f"liblinear -s 0 -c {cost}: {seconds:.2f} s, training loss {loss:.4f}, test "
                  f"accuracy {accuracy:.3f}; starling is there {text}", flush=True)
            results["liblinear"].append({"cost": cost, "seconds": seconds, "loss": loss,
                                         "accuracy": accuracy, "reached": reached})
        harness.save("sparse", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
