#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory of a worker on images that it cannot hold, and how much of its time it waits for them.

The sets are JPEG files that starling-images-bench writes. Memory is the peak of the worker's process
(VmHWM) after two epochs over a set that fits into its cache (dataset.train.imageFolder.cacheBytes),
over one ten times as large, and over the same with a cache that holds all of it: the last shows what
the measurement would see if memory were not bounded. Waiting is the share of `input` in what the
worker spent on training (status.goodput), with random crops, so that every image is read and decoded
each time: of a ResNet-18, and of a linear model, which computes next to nothing and so shows the bound
that decoding sets; beside it stands how many images one core decodes, measured alone.
"""
import argparse
import glob
import os
import re
import subprocess
import tempfile
import time

import harness
from harness import read_steps, spread

STORED = 96  # sides of the files, and of what the network is given
SIDE = 64
SAMPLE_BYTES = 3 * SIDE * SIDE
BATCH = 64
LINEAR = {"layers": [{"flatten": {}}, {"dense": {}}]}
TRAINING = ("input", "compute", "exchange", "waiting", "optimizer", "checkpoint")


def program():
    return harness.Product.program("starling-images-bench")


def write_set(folder, count):
    """Bytes of all files."""
    return int(subprocess.run([program(), "write", folder, str(count), str(STORED)],
                              capture_output=True, text=True, check=True).stdout)


def decoding_rate(folder, seconds):
    """Images that one core makes into samples in a second of its own time."""
    return float(subprocess.run([program(), "rate", folder, str(SIDE), str(seconds)],
                                capture_output=True, text=True, check=True).stdout)


def peak_memory(pid):
    """VmHWM in bytes; 0: there is no such process any more."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            found = re.search(r"^VmHWM:\s+(\d+) kB$", file.read(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def spec_of(folder, model, cache_bytes, stop, augmentation=None):
    dataset = {"train": {"imageFolder": {"uri": folder, "shape": [3, SIDE, SIDE],
                                         "cacheBytes": cache_bytes}}, "globalBatchSize": BATCH}
    if augmentation:
        dataset["augmentation"] = augmentation
    return {"workload": {"classification": {"model": model}}, "dataset": dataset,
            "optimizer": {"sgd": {"learningRate": 0.01}}, "stop": stop,
            "checkpoint": {"interval": "24h"},
            "replicaSpecs": {"worker": {"replicas": 1, "minReplicas": 1, "maxReplicas": 1}}}


def run(name, spec):
    """The job's end, the peak of its worker's memory, and its steps."""
    home = harness.Product()
    try:
        command = home.submit(name, spec)
        peak = 0
        workers = []
        while command.running():
            if not workers:
                workers = [process.pid for process in home.processes()
                           if process.program == "starling-worker"]
            peak = max([peak, *map(peak_memory, workers)])
            time.sleep(0.05)
        code = command.wait(1)
        if code != 0:
            raise AssertionError(f"{command.describe()} exited with {code}:\n{command.tail()}")
        return command.result(), peak, read_steps(home.prefix)
    finally:
        home.close()


def measure_memory(folders, cache_bytes, repeats):
    """Megabytes by what was measured."""
    results = {}
    for key, folder, cache in (("set as large as the cache", folders[0], cache_bytes),
                               ("set ten times as large", folders[1], cache_bytes),
                               ("the same, cache for all of it", folders[1], 64 * cache_bytes)):
        # So small a network that the data make the difference.
        results[key] = [run("memory", spec_of(folder, LINEAR, cache, {"epochs": 2}))[1] / 1e6
                        for _ in range(repeats)]
        print(f"{key:34} {spread(results[key])} MB", flush=True)
    return results


def measure_waiting(name, model, folder, cache_bytes, steps, repeats):
    """Per cent of the model's time that went into input, and its images a second."""
    shares, rates = [], []
    for _ in range(repeats):
        done, _, log = run("waiting", spec_of(
            folder, model, cache_bytes, {"epochs": 1000, "steps": steps},
            {"randomCrop": {"minimumArea": 0.5}, "flip": True}))
        spent = done["status"]["goodput"]
        shares.append(100 * spent.get("input", 0) / sum(spent.get(kind, 0) for kind in TRAINING))
        times = [step.time for step in log]
        waits = [later - earlier for earlier, later in zip(times, times[1:])]
        rates.append(BATCH * len(waits) / sum(waits))
    print(f"{'input, ' + name:34} {spread(shares)} %", flush=True)
    print(f"{'trained, ' + name:34} {spread(rates)} images/s", flush=True)
    return {f"input share, {name} (%)": shares, f"trained, {name} (images/s)": rates}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache-mib", type=int, default=16, help="the worker's cacheBytes")
    parser.add_argument("--steps", type=int, default=60, help=f"of the ResNet-18, {BATCH} images each")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    cache_bytes = options.cache_mib << 20
    count = cache_bytes // SAMPLE_BYTES
    print("Images that a worker cannot hold; median [lowest, highest]")
    print(harness.describe_machine(None), flush=True)
    results = {}
    with tempfile.TemporaryDirectory(prefix="starling-images-") as folder:
        folders = [os.path.join(folder, name) for name in ("one", "ten")]
        sizes = [write_set(place, times * count) for place, times in zip(folders, (1, 10))]
        files = len(glob.glob(f"{folders[1]}/*/*.jpg"))
        print(f"{count} and {files} JPEG files of {STORED} by {STORED}, {sizes[1] / 1e6:.0f} MB "
              f"(decoded to {SIDE} by {SIDE}: {files * SAMPLE_BYTES / 1e6:.0f} MB); the cache "
              f"holds {cache_bytes / 1e6:.0f} MB", flush=True)
        rates = [decoding_rate(folders[1], 2) for _ in range(options.repeats)]
        results["decoded by one core (images/s)"] = rates
        print(f"{'decoded by one core':34} {spread(rates)} images/s", flush=True)
        results |= measure_memory(folders, cache_bytes, options.repeats)
        for name, model, steps in (("ResNet-18", {"resnet18": {}}, options.steps),
                                   ("linear", LINEAR, 20 * options.steps)):
            results |= measure_waiting(name, model, folders[1], cache_bytes, steps, options.repeats)
    harness.save("images", results)


if __name__ == "__main__":
    main()
