#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job of sparse logistic regression on parameter servers, beside liblinear on the same machine.

usage: bench/sparse.py [--data FOLDER] [--bin FOLDER] [--repeats 3] [--samples 120000]

A job file with workload.sparseLogisticRegression is run by `starling run`: controller, coordinator,
workers and servers as processes, features hashed to a million weights. Validation loss and accuracy
after each pass, with their times, are what the worker writes into its log; bytes are those of its
/metrics. liblinear (Debian's; solvers 0 and 7, L2-regularised logistic regression) trains the same
hashed features, with several costs and tolerances.

Compared is the time to the same validation loss: of liblinear the fastest run whose model has it,
from its start to its end; of Starling the first validation that has it, from the start of
`starling run` (processes, certificates, reading) and from the first lease.

The set is generated, always the same, or with --data made of UCI's HIGGS (bench/sparse_sets.py).
Product and peer take turns --repeats times; printed are medians [lowest, highest].
"""
import argparse
import datetime
import glob
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import harness
import origin
import home as home_module
import sparse_sets
from harness import Home, spread

WEIGHTS = 1 << 20
NAME = "sparse"
SOLVERS = (0, 7)  # a trust region Newton method, and dual coordinate descent
TOLERANCES = (0.5, 0.1, 0.01)
NEARLY = 1.005
POLL = 0.2
# What suits a set: the job's optimizer and passes, and liblinear's costs.
SETTINGS = {
    "generated": {"batch": 1024, "rate": 0.25, "l2": 28, "epochs": 4, "costs": (0.03, 0.1, 0.3)},
    "higgs": {"batch": 256, "rate": 0.04, "l2": 200, "epochs": 5, "costs": (0.0025, 0.01, 0.025)},
}


def job_of(options, files):
    """What is applied is a push's mean gradient, so FTRL's beta and l2 for single samples (the
    paper's 1, and liblinear's 1 / cost for one pass) are divided by the samples of a push."""
    return {
        "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": NAME},
        "spec": {
            "seed": 1,
            "workload": {"sparseLogisticRegression": {"hashedFeatures": WEIGHTS}},
            "dataset": {"train": {"libsvm": {"uri": files["train"]}},
                        "validation": {"libsvm": {"uri": files["test"]}}},
            "optimizer": {"ftrl": {"learningRate": options.rate, "beta": 1 / options.batch,
                                   "l2": options.l2 / options.batch}},
            "exchange": {"parameterServer": {"consistency": {"asynchronous": {}},
                                             "samplesPerPush": options.batch,
                                             "shards": options.servers}},
            "validation": {"everyEpochs": 1},
            "stop": {"epochs": options.epochs},
            "replicaSpecs": {"worker": {"replicas": options.workers},
                             "parameterServer": {"replicas": options.servers}}}}


def scrape(address):
    """Bytes sent and received, and samples of the leases that are done, of one worker."""
    with urllib.request.urlopen(f"http://{address}:7073/metrics", timeout=5) as page:
        text = page.read().decode()
    found = dict(re.findall(r"^starling_worker_(\w+)(?:\{.*\})? (\S+)$", text, re.MULTILINE))
    return [float(found.get(name, 0)) for name in ("sent_bytes_total", "received_bytes_total",
                                              "samples_total")]


def follow(home, command):
    """What the workers' metrics say last, until the command ends."""
    addresses, newest = [], {}
    while command.running():
        try:
            if len(addresses) < 1:
                addresses = [pod["status"]["podIP"] for name, pod in home.pods().items()
                             if "-worker-" in name and pod.get("status", {}).get("podIP")]
            for address in addresses:
                newest[address] = scrape(address)
        except OSError:
            pass  # it does not listen yet, or has ended
        time.sleep(POLL)
    sent, received, samples = (sum(values) for values in zip(*newest.values() or [(0, 0, 0)]))
    return {"sent": sent, "received": received, "samples": samples}


def course(home):
    """When leases began, and what each validation found: (time, loss, accuracy) by turn."""
    first, turns = math.inf, {}
    for path in glob.glob(f"{home.home}/jobs/default/{NAME}-*/pods/{NAME}-worker-*/log"):
        for text in home_module.read(path).splitlines():
            line = json.loads(text) if text.startswith("{") else {}
            if line.get("msg") not in ("steps begin", "validated"):
                continue
            at = datetime.datetime.fromisoformat(line["ts"].replace("Z", "+00:00")).timestamp()
            if line["msg"] == "steps begin":
                first = min(first, at)
            else:
                metrics = dict(metric.split("=") for metric in line["metrics"].split())
                turns[int(line["turn"])] = (at, float(metrics["loss"]), float(metrics["accuracy"]))
    return first, [turns[turn] for turn in sorted(turns)]


def train(options, files):
    """One job, from `starling run` to its end."""
    home = Home()
    try:
        begin = time.time()
        command = home.start("run", home.write("job.json", job_of(options, files)), "-o", "json")
        traffic = follow(home, command)
        code = command.wait(60)
        if code != 0:
            sys.exit(f"{command.describe()} ended with {code}:\n{command.tail()}")
        seconds = time.time() - begin
        first, turns = course(home)
        result = command.result()["status"]["result"]
    finally:
        home.close()
    return {"seconds": seconds, "traffic": traffic, "metrics": result["metrics"],
            "passes": [{"from_start": at - begin, "from_first": at - first, "loss": loss,
                        "accuracy": accuracy} for at, loss, accuracy in turns]}


def model_of(path):
    with open(path, encoding="ascii") as file:
        lines = file.read().split("\n")
    labels = next(line for line in lines if line.startswith("label")).split()[1:]
    sign = 1 if labels[0] == "1" else -1
    return [sign * float(line) for line in lines[lines.index("w") + 1:] if line.strip()]


def look(weights, path):
    """Mean loss and accuracy of a model on a libsvm file."""
    loss, right, count = 0.0, 0, 0
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split()
            score = 0.0
            for pair in words[1:]:
                number, _, value = pair.partition(":")
                if int(number) <= len(weights):
                    score += weights[int(number) - 1] * float(value)
            margin = score * int(words[0])
            loss += math.log1p(math.exp(-abs(margin))) + max(0.0, -margin)
            right += margin > 0
            count += 1
    return loss / count, right / count


def liblinear(options, files, folder):
    """One run of each solver, cost and tolerance: how long, and what its model is worth."""
    runs = []
    for solver in SOLVERS:
        for cost in options.costs:
            for tolerance in TOLERANCES:
                path = os.path.join(folder, "model")
                flags = ["-s", str(solver), "-c", f"{cost:g}", "-e", str(tolerance)]
                begin = time.monotonic()
                subprocess.run(["liblinear-train", "-q", *flags, files["hashed_train"], path],
                               check=True)
                seconds = time.monotonic() - begin
                loss, accuracy = look(model_of(path), files["hashed_test"])
                runs.append({"flags": " ".join(flags), "cost": cost, "seconds": seconds,
                             "loss": loss, "accuracy": accuracy})
    return runs


def fastest(runs, loss, solver=""):
    """The fastest of liblinear's runs (of one solver's) whose model is as good; None."""
    good = [run for run in runs if run["loss"] <= loss and run["flags"].startswith(solver)]
    return min(good, key=lambda run: run["seconds"]) if good else None


def reached(job, loss):
    """The first pass of a job after which the loss was as low; None."""
    return next((one for one in job["passes"] if one["loss"] <= loss), None)


def times(found, name):
    """'median [lowest, highest]', or that it did not always come so far."""
    if not all(found):
        return "not reached"
    return spread([one[name] for one in found])


def losses_of_interest(results):
    """The lowest that liblinear finds with each cost, nearly its lowest of all, and those after
    Starling's passes."""
    by_cost = {}
    for run in results["liblinear"][0]:
        by_cost[run["cost"]] = min(run["loss"], by_cost.get(run["cost"], math.inf))
    passes = zip(*[[one["loss"] for one in job["passes"]] for job in results["starling"]])
    return ([(loss, f"liblinear's lowest with cost {cost:g}") for cost, loss in by_cost.items()] +
            [(NEARLY * min(by_cost.values()), f"{NEARLY:g} times liblinear's lowest")] +
            [(max(of_all), f"Starling's after pass {number}")
             for number, of_all in enumerate(passes, 1)])


def compare(results):
    """A row for each loss: how long both need to be as low."""
    rows = []
    for loss, whose in sorted(losses_of_interest(results), reverse=True):
        jobs = [reached(job, loss) for job in results["starling"]]
        peers = [fastest(runs, loss) for runs in results["liblinear"]]
        newton = [fastest(runs, loss, "-s 0") for runs in results["liblinear"]]
        rows.append({"loss": loss, "whose": whose, "starling": jobs, "liblinear": peers,
                     "liblinearNewton": newton})
    return rows


def report(results):
    for number, of_all in enumerate(zip(*[job["passes"] for job in results["starling"]]), 1):
        loss, accuracy = (statistics.median(one[name] for one in of_all)
                          for name in ("loss", "accuracy"))
        print(f"  pass {number}: loss {loss:.4f}, accuracy {accuracy:.4f}, s from the start "
              f"{times(of_all, 'from_start')}, from the first lease "
              f"{times(of_all, 'from_first')}")
    job = results["starling"][-1]
    traffic = job["traffic"]
    if traffic["samples"] > 0:
        a_pass = results["samples"] / traffic["samples"] / 1e6
        print(f"  workers sent {traffic['sent'] * a_pass:.1f} MB and received "
              f"{traffic['received'] * a_pass:.1f} MB a pass, validations included; all weights "
              f"for each lease would be {results['leases'] * WEIGHTS * 4 / 1e6:.0f} MB each way")
    print(f"  whole job, its end included: "
          f"{spread([one['seconds'] for one in results['starling']])} s")
    for of_all in zip(*results["liblinear"]):
        print(f"liblinear {of_all[0]['flags']}: {times(of_all, 'seconds')} s, loss "
              f"{of_all[0]['loss']:.4f}, accuracy {of_all[0]['accuracy']:.4f}")
    print("seconds to the same loss:")
    for row in compare(results):
        flags = f" ({row['liblinear'][0]['flags']})" if all(row["liblinear"]) else ""
        print(f"  {row['loss']:.4f}, {row['whose']}: liblinear "
              f"{times(row['liblinear'], 'seconds')}{flags}, its solver 0 "
              f"{times(row['liblinearNewton'], 'seconds')}; Starling from the start "
              f"{times(row['starling'], 'from_start')}, from the first lease "
              f"{times(row['starling'], 'from_first')}")


def write_sets(options, folder):
    if options.data:
        train_set, test_set = sparse_sets.higgs(options.data)
    else:
        train_set = sparse_sets.generated(options.samples, 1)
        test_set = sparse_sets.generated(max(1000, options.samples // 12), 2)
    files = {name: os.path.join(folder, name + ".libsvm")
             for name in ("train", "test", "hashed_train", "hashed_test")}
    sparse_sets.write(train_set, files["train"], files["hashed_train"], WEIGHTS)
    sparse_sets.write(test_set, files["test"], files["hashed_test"], WEIGHTS)
    return files


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=home_module.BIN)
    parser.add_argument("--data", metavar="FOLDER", help=sparse_sets.HIGGS)
    parser.add_argument("--samples", type=int, default=120000, help="to generate for training")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--batch", type=int, help="samples in a push")
    for name, kind in (("rate", float), ("l2", float), ("epochs", int)):
        parser.add_argument("--" + name, type=kind)
    parser.add_argument("--costs", type=float, nargs="+", help="of liblinear")
    parser.add_argument("--json", help="where the figures go; by default build/bench/sparse.json")
    options = parser.parse_args()
    for name in ("train.tsv", "test.tsv") if options.data else ():
        if not os.path.isfile(os.path.join(options.data, name)):
            parser.error(f"--data {options.data} holds no {name}; name {sparse_sets.HIGGS}")
    for name, value in SETTINGS["higgs" if options.data else "generated"].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main():
    options = options_of()
    home_module.BIN = os.path.realpath(options.bin)
    with tempfile.TemporaryDirectory() as folder:
        files = write_sets(options, folder)
        with open(files["train"], "rb") as file:
            samples = sum(1 for _ in file)
        results = {"options": vars(options), "samples": samples,
                   "leases": math.ceil(samples / options.batch), "starling": [], "liblinear": []}
        print(harness.describe_machine(None))
        print(f"{samples} samples, {os.path.getsize(files['train']) / 1e6:.0f} MB; starling: "
              f"{options.workers} workers, {options.servers} servers, {results['leases']} leases a "
              f"pass, ftrl with rate {options.rate:g} and l2 {options.l2:g}", flush=True)
        for _ in range(options.repeats):
            results["starling"].append(train(options, files))
            results["liblinear"].append(liblinear(options, files, folder))
        report(results)
        results["compared"] = compare(results)
        if options.json:
            origin.save(options.json, results)
        else:
            harness.save("sparse", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
