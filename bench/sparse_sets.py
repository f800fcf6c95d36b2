# SPDX-License-Identifier: Apache-2.0
"""Sparse samples of two classes for bench/sparse.py, as libsvm files.

A set is written twice: as it is, for the product, which hashes the features' numbers itself; and
with the numbers hashed alike, for liblinear. So both train the same model, collisions included.
To add a set: a generator of (label, numbers), and its Settings in bench/sparse.py.
"""
import math
import os
import random
import sys

FEATURES = 1 << 22  # that samples may have
PER_SAMPLE = 50     # drawn; those drawn twice count once
COLUMNS = 28        # of HIGGS
STEPS = 32
HIGGS = (f"a folder with train.tsv and test.tsv, lines of UCI's HIGGS: the label, 1 or 0, and "
         f"{COLUMNS} numbers, with tabs between them")
MASK = (1 << 64) - 1


def mix(number):
    """SplitMix64's finalizer; the product's data::HashedFeature is this modulo the weights."""
    number = (number + 0x9e3779b97f4a7c15) & MASK
    number = ((number ^ (number >> 30)) * 0xbf58476d1ce4e5b9) & MASK
    number = ((number ^ (number >> 27)) * 0x94d049bb133111eb) & MASK
    return number ^ (number >> 31)


def generated(count, seed):
    """As clicks and words are: few features are in most samples, most are in few, and each weighs
    something. The same samples for the same arguments."""
    draw = random.Random(seed).random
    for _ in range(count):
        numbers = sorted({int(FEATURES ** draw()) for _ in range(PER_SAMPLE)})
        score = sum(mix(number ^ MASK) / 2 ** 63 - 1 for number in numbers)
        yield (1 if draw() < 1 / (1 + math.exp(-score)) else -1), numbers


def higgs(folder):
    """Training and test samples: every number in one of 32 steps of its column, and every pair of
    numbers in one of 32 x 32, which makes 406 features a sample out of 400,000."""
    samples = [list(_higgs_rows(os.path.join(folder, name))) for name in ("train.tsv", "test.tsv")]
    bounds = []  # from the training set alone
    for column in zip(*(values for _, values in samples[0])):
        ordered = sorted(column)
        bounds.append(sorted({ordered[len(ordered) * i // STEPS] for i in range(1, STEPS)}))
    return tuple([(label, _crossed(values, bounds)) for label, values in part] for part in samples)


def _higgs_rows(path):
    with open(path, encoding="ascii") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if len(words) not in (0, COLUMNS + 1):
                sys.exit(f"bench/sparse.py: {path}: line {number} has {len(words)} columns, not "
                         f"{COLUMNS + 1}; --data names {HIGGS}")
            if words:
                yield (1 if float(words[0]) > 0 else -1), [float(word) for word in words[1:]]


def _crossed(values, bounds):
    steps = [sum(value >= bound for bound in bounds[i]) for i, value in enumerate(values)]
    numbers = [i * STEPS + one + 1 for i, one in enumerate(steps)]
    pair = 0
    for i in range(COLUMNS):
        for j in range(i + 1, COLUMNS):
            numbers.append(COLUMNS * STEPS + (pair * STEPS + steps[i]) * STEPS + steps[j] + 1)
            pair += 1
    return numbers


def write(samples, path, hashed_path, weights):
    """The samples as they are, and with their features hashed to so many `weights`."""
    known = {}
    with open(path, "w", encoding="ascii") as file, open(hashed_path, "w",
                                                        encoding="ascii") as hashed_file:
        for label, numbers in samples:
            file.write(f"{label} " + " ".join(f"{number}:1" for number in numbers) + "\n")
            values = {}
            for number in numbers:
                place = known.get(number)
                if place is None:
                    place = known[number] = mix(number) % weights + 1
                values[place] = values.get(place, 0) + 1
            hashed_file.write(f"{label} " + " ".join(
                f"{place}:{values[place]}" for place in sorted(values)) + "\n")
