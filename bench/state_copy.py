#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a member that joins takes to copy a large state, beside what the link could do.

A loop of its own (bench/state_copy_loop.py) holds a state of so many bytes and gradients of four, so
that a step takes next to nothing. Two members, on cards of an emulated network; the second is killed
again and again, and the one that starts in its place copies the state from the other. Measured is
the gap between two steps of the survivor in which it serves the copy, with all that belongs to a
view: links, agreement, digests. The share is bytes / bandwidth, over that gap.
"""
import argparse
import os
import signal
import statistics

import harness
from harness import kill, spread
from recovery import both_step

LOOP = os.path.join(harness.BENCH, "state_copy_loop.py")
NETWORKS = {"1 Gbit/s": ("1G", 1e9 / 8), "10 Gbit/s": ("10G", 1e10 / 8)}


def spec(size, bandwidth):
    return {"workload": {"pytorch": {"script": LOOP, "python": harness.SYSTEM_PYTHON,
                                     "args": [str(size)]}},
            "exchange": {"allReduce": {"algorithm": "Ring"}},
            "experiment": {"network": {"bandwidth": bandwidth, "delay": "100us"}},
            "dataset": {"globalBatchSize": 4}, "stop": {"epochs": 1000000},
            "replicaSpecs": {"worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 2}},
            "checkpoint": {"interval": "24h"}}


def gaps(size, bandwidth, repeats):
    """The longest wait of the survivor after each kill, without that for the loss itself."""
    home = harness.Product()
    found = []
    try:
        command = home.submit("copy", spec(size, bandwidth))
        since = 0.0
        for _ in range(repeats):
            steps = home.await_steps(lambda now, since=since: both_step(now, since, 20), 300, command)
            newest = {step.source: step.pid for step in steps}
            victim = newest[max(newest)]
            killed_at = steps[-1].time
            kill(victim)
            known = {step.pid for step in steps}
            steps = home.await_steps(
                lambda now, known=known: any(step.pid not in known for step in now), 300, command)
            joined = next(step for step in steps if step.pid not in known)
            others = (victim, joined.pid)
            steps = home.await_steps(lambda now, others=others, since=joined.time: any(
                step.time > since and step.pid not in others for step in now), 300, command)
            times = [step.time for step in steps if step.pid not in others
                     and killed_at <= step.time <= joined.time + 1]
            found.append(max(later - earlier for earlier, later in zip(times, times[1:])))
            since = joined.time
        command.signal(signal.SIGINT)
        command.wait(120)
    finally:
        home.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(harness.describe_machine(None), flush=True)
    size = options.megabytes * 10**6
    results = {"bytes": size}
    for name, (bandwidth, bytes_a_second) in NETWORKS.items():
        found = gaps(size, bandwidth, options.repeats)
        results[name] = found
        share = size / bytes_a_second / statistics.median(found)
        print(f"{name}: {options.megabytes} MB in {spread(found)} s, {share:.0%} of the link", flush=True)
    harness.save("state_copy", results)


if __name__ == "__main__":
    main()
