#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The REST service of one machine under load, and what is left for training meanwhile.

One job trains, 49 wait; 1,000 watchers hold a stream of one of the 50 each. Meanwhile jobs are
submitted that are suspended, 50 a second, watched jobs are changed, read and listed. Stretches
without load, with the requests alone, and with requests and watchers come in turn, in one run, so
that whatever else the machine does falls on all of them.

  p99        of the time from when a request was due to the end of its answer
  training   steps a second, and as a share of those without load
  service    its share of one core, and the most memory that it has had; it is the controller too
  clients    the share of one core that the load's own processes took from the same machine
  last news  from the end of the load to the moment when every watcher has heard of a last change

On one machine there is one account, whose limits are raised for this (--rest-caller-*).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import harness
from harness import read_steps, spread, until

sys.path.insert(0, os.path.join(harness.REPOSITORY, "tests/e2e"))
import jobs  # noqa: E402  (the path must come first)
from rest_client import Client  # noqa: E402
from rest_load import JOBS, Load, quantile  # noqa: E402

TRAINED = "trained"
RATES = {"submit": 50, "change": 20, "get": 10, "list": 5}  # a second
SETTLE = 1.0  # seconds of a stretch that are not counted, at its begin
LIMITS = ["--rest-caller-reads=0", "--rest-caller-writes=0", "--rest-caller-streams=1500"]
TRAINING = {
    "workload": {"classification": {"model": {"mlp": {"hidden": [512, 512]}}}},
    "dataset": {"train": {"synthetic": {"samples": 1024, "shape": [784], "classes": 10}},
                "globalBatchSize": 64},
    "optimizer": {"sgd": {"learningRate": 0.01}},
    "stop": {"epochs": 1000000},
    "replicaSpecs": {"worker": {"replicas": 1}},
}


def waiting(name):
    return jobs.digits(name, epochs=1, runPolicy={"suspend": True})


class Service:
    """A controller with one job that trains and others that wait."""

    def __init__(self, home, watched):
        self.home = home
        self.process = subprocess.Popen(
            [home.program("starling-controller"), "--home", home.home, *LIMITS],
            env=home.environment, stderr=subprocess.DEVNULL)
        ready = os.path.join(home.home, "controller.json")
        until(lambda: os.path.exists(ready), 30, "the controller is ready")
        self.rest = Client(home.home)
        self.jobs = [TRAINED] + [f"waiting-{number}" for number in range(1, watched)]
        training = {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
                    "metadata": {"name": TRAINED}, "spec": json.loads(json.dumps(TRAINING))}
        training["spec"]["replicaSpecs"]["worker"]["template"] = {"spec": {"containers": [
            {"name": "trainer", "env": [{"name": "STARLING_STEP_LOG", "value": home.prefix}]}]}}
        for job in [training] + [waiting(name) for name in self.jobs[1:]]:
            answer = self.rest.ask("POST", JOBS, job)
            assert answer.status == 201, answer
        until(lambda: len(read_steps(home.prefix)) > 50, 60, home.describe)

    def cpu(self):
        """Seconds of CPU so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            words = file.read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        """MiB: the most so far."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(file.read().partition("VmHWM:")[2].split()[0]) / 1024

    def order(self, **more):
        return {"port": self.rest.port, "token": self.rest.token, "jobs": self.jobs, **more}

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def last_news(service, watchers, prefix):
    """Seconds from the last of 50 changes until all watchers have heard of their job's."""
    change = {"metadata": {"labels": {"last": prefix}}}
    for job in service.jobs:
        answer = service.rest.ask("PATCH", f"{JOBS}/{job}", change,
                                  Content_Type="application/merge-patch+json")
        assert answer.status == 200, answer
    changed = time.time()
    said = watchers.ask_until(lambda said: said["allMarkedAt"] is not None, 10)
    watchers.close()
    heard = said["allMarkedAt"]
    return said, None if heard is None else max(0.0, heard - changed)


def stretch(service, options, kind, number):
    """One stretch of load, and what there was to see of it."""
    prefix = f"{kind[0]}{number}-"
    watchers, opened = None, {}
    if kind == "watchers":
        watchers = Load("watch", service.order(watchers=options.watchers, mark=f'"last":"{prefix}"'))
        opened = watchers.hear()
    requests = None
    if kind != "alone":
        requests = Load("request", service.order(
            rates=RATES, seconds=options.seconds, connections=16, prefix=prefix,
            submitted=json.dumps(waiting("NAME"))))
    time.sleep(SETTLE)
    began, cpu = time.time(), service.cpu()
    time.sleep(max(0.0, options.seconds - 2 * SETTLE))
    seconds, used = time.time() - began, service.cpu() - cpu
    steps = sum(began <= step.time < began + seconds for step in read_steps(service.home.prefix))
    figures = {"kind": kind, "stepsPerSecond": steps / seconds, "serviceCores": used / seconds,
               "memory": service.memory(), "clientCores": 0.0, "opened": opened}
    if requests is not None:
        figures["requests"] = requests.hear()
        requests.close()
        figures["clientCores"] += figures["requests"]["cpu"] / options.seconds
    if watchers is not None:
        figures["watchers"], figures["lastNews"] = last_news(service, watchers, prefix)
        figures["clientCores"] += figures["watchers"]["cpu"] / options.seconds
    return figures


def show(name, values, unit=1.0):
    print(f"  {name:44} {spread(values, unit)}")


def report(results):
    alone = statistics.median(one["stepsPerSecond"] for one in results if one["kind"] == "alone")
    for kind in ("alone", "requests", "watchers"):
        of_kind = [one for one in results if one["kind"] == kind]
        print({"alone": "no load", "requests": "requests", "watchers": "requests and watchers"}[kind])
        show("training, steps/s", [one["stepsPerSecond"] for one in of_kind])
        show("training, share of that without load",
             [one["stepsPerSecond"] / alone for one in of_kind])
        show("service, cores", [one["serviceCores"] for one in of_kind])
        show("service, most MiB", [one["memory"] for one in of_kind])
        show("clients, cores", [one["clientCores"] for one in of_kind])
        for request in RATES if kind != "alone" else ():
            seconds = [one["requests"]["seconds"][request] for one in of_kind]
            show(f"{request}, p50 ms", [quantile(one, 0.5) for one in seconds], 1000)
            show(f"{request}, p99 ms", [quantile(one, 0.99) for one in seconds], 1000)
        failed = {what: count for one in of_kind if "requests" in one
                  for what, count in one["requests"]["failed"].items()}
        if failed:
            print(f"  failed: {failed}")
        if kind == "watchers":
            show("streams that opened", [one["opened"]["opened"] for one in of_kind])
            show("slowest to open, s", [one["opened"]["slowest"] for one in of_kind])
            show("streams lost", [one["watchers"]["lost"] for one in of_kind])
            show("events", [one["watchers"]["events"] for one in of_kind])
            late = [one["lastNews"] for one in of_kind]
            print(f"  last news, s: {late}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=50, help="that are watched")
    parser.add_argument("--seconds", type=float, default=12, help="of one stretch")
    parser.add_argument("--rounds", type=int, default=3, help="of one stretch of each kind")
    options = parser.parse_args()
    print(harness.describe_machine(None), flush=True)
    home = harness.Product()
    service = None
    results = []
    try:
        service = Service(home, options.jobs)
        for number in range(options.rounds):
            for kind in ("alone", "requests", "watchers"):
                results.append(stretch(service, options, kind, number))
    finally:
        if service is not None:
            service.end()
        home.close()
    report(results)
    for one in results:
        if "requests" in one:
            one["requests"]["seconds"] = {
                kind: {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99),
                       "count": len(values)}
                for kind, values in one["requests"]["seconds"].items()}
    harness.save("service", results)


if __name__ == "__main__":
    main()
