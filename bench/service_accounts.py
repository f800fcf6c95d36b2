#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""REST in a cluster with many accounts, and whether a greedy one slows the others.

One replica beside a real API server, whose nodes there are none: jobs are suspended. The accounts read,
list, change and submit jobs, so many a second together; in every second stretch one more asks for ten
times what it may, each time for another name, which would be another question to the API server.

  p99      of the others, from when a request was due to the end of its answer
  service  its share of one core
  reviews  of tokens and of rights, that the API server made a second
"""
import argparse
import os
import statistics
import sys
import tempfile

import harness
from harness import spread

sys.path.insert(0, os.path.join(harness.REPOSITORY, "tests/install"))
sys.path.insert(0, os.path.join(harness.REPOSITORY, "tests/kube"))


def cpu(pid):
    """Seconds of CPU so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(options):
    # What needs the API server that has been started by now.
    import kubectl as k  # pylint: disable=import-outside-toplevel
    from controller import install_chart  # pylint: disable=import-outside-toplevel
    from rest_accounts import Accounts  # pylint: disable=import-outside-toplevel
    from rest_api import RestApi  # pylint: disable=import-outside-toplevel
    from rest_load import quantile  # pylint: disable=import-outside-toplevel
    rates = {"submit": 20, "change": 20, "get": 100, "list": 10}
    results = {"alone": [], "greedy": []}
    with tempfile.TemporaryDirectory(prefix="starling-accounts-") as folder:
        install_chart("--set=webhook.enabled=false")
        accounts = Accounts(options.accounts)
        api = RestApi(folder).await_ready()
        try:
            jobs = [f"job-{number}" for number in range(50)]
            for name in jobs:
                k.create(k.digits(name, runPolicy={"suspend": True}))
            for number in range(options.rounds):
                for kind in results:
                    reviews, used = accounts.reviews(), cpu(api.process.pid)
                    others, greedy = accounts.load(api.port, jobs, options.seconds, f"{kind}-{number}-",
                                                   kind == "greedy", rates)
                    results[kind].append({
                        "failed": others["failed"], "greedy": greedy and greedy["failed"],
                        "reviews": (accounts.reviews() - reviews) / options.seconds,
                        "cores": (cpu(api.process.pid) - used) / options.seconds,
                        **{f"{one} {share}": quantile(others["seconds"][one], share)
                           for one in rates for share in (0.5, 0.99)}})
        finally:
            api.end()
    for kind, stretches in results.items():
        print("accounts alone" if kind == "alone" else "and one that asks for ten times what it may")
        for one in rates:
            print(f"  {one + ', p50 and p99, ms':32} "
                  + "   ".join(spread([part[f"{one} {share}"] for part in stretches], 1000)
                               for share in (0.5, 0.99)))
        for name in ("cores", "reviews"):
            print(f"  {name:32} {spread([part[name] for part in stretches])}")
        print(f"  refused of the others: {[part['failed'] for part in stretches]}")
        if kind == "greedy":
            print(f"  answers to the greedy one: {[part['greedy'] for part in stretches]}")
    slower = [statistics.median(part["get 0.99"] for part in results[kind]) for kind in results]
    print(f"p99 of reading one: {1000 * slower[0]:.1f} ms, with the greedy one {1000 * slower[1]:.1f} ms")
    harness.save("service-accounts", results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--accounts", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10, help="of one stretch")
    parser.add_argument("--rounds", type=int, default=3, help="of one stretch of each kind")
    options = parser.parse_args()
    if "STARLING_TEST_KUBE" not in os.environ:
        beside = os.path.join(harness.REPOSITORY, "tests/kube/with_api_server.py")
        os.environ.setdefault("STARLING_BIN", os.path.join(harness.REPOSITORY, "build/release/bin"))
        os.execv(beside, [beside, "--controller-manager", "--", sys.executable, "-B", *sys.argv])
    print(harness.describe_machine(None), flush=True)
    measure(options)


if __name__ == "__main__":
    main()
