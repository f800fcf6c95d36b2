#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What pushing and pulling parameters costs, over shared memory and TCP.

usage: bench/parameter_server.py [--bin FOLDER] [--rounds N] [--part transport|server|network]
                                 [--executors N] [--realtime]

transport  two processes: 16 MB one way (until the receiver says so), there and back, both ways at
           once; 4 KB there and back; beside a loop over plain sockets written by hand, a ring in
           shared memory written by hand (what two processes that copy can reach) and a memcpy
server     a whole parameter server and its worker: until the push is acknowledged, and applied
network    servers and workers with cards of 1 and 10 Gbit/s each, emulated, beside what the busiest
           card needs at least

Two processes that wait for one another all the time show the machine's other load first: the
figures mean something on a quiet machine only, and the head line says how quiet it was. Where it is
not, --realtime lets the two processes go before all others (chrt; needs root) for these seconds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

import harness
from harness import REPOSITORY

PROGRAM = "starling-parameter-server-bench"

# dmlc/ps-lite 15b8adf: one server that adds each push to its store, one worker, zero-copy push and
# pull of one key, separate processes on one quiet machine of two cores. Seconds from the call to
# the end of Wait().
PS_LITE = [
    ("16 MB push, TCP", 16 << 20, 4776e-6),
    ("16 MB push, UNIX sockets", 16 << 20, 4068e-6),
    ("16 MB push, then pull, TCP", 16 << 20, 9802e-6),
    ("4 KB push, TCP", 4 << 10, 160e-6),
    ("4 KB push, UNIX sockets", 4 << 10, 114e-6),
]


def measure(program, options):
    """The program's measurements, one by one as they come."""
    command = ["chrt", "-f", "10"] if options.realtime else []
    command += [program, "--rounds", str(options.rounds)]
    command += ["--part", options.part] if options.part else []
    command += ["--executors", str(options.executors)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        sys.exit(f"{PROGRAM} failed with exit code {process.returncode}")


def rate(size, seconds):
    """GB/s each way of large messages, microseconds of small ones: 'median [lowest, highest]'."""
    if size < 1 << 20:
        return f"{harness.spread(seconds, 1e6)} us"
    rates = [size / one / 1e9 for one in seconds]
    return f"{harness.spread(rates)} GB/s"


def show(result):
    size = f"{result['bytes'] >> 20} MB" if result["bytes"] >= 1 << 20 else (
        f"{result['bytes'] >> 10} KB")
    text = rate(result["bytes"], result["seconds"])
    if result["bound"]:
        share = result["bound"] / statistics.median(result["seconds"])
        text = (f"{harness.spread(result['seconds'], 1e3)} ms, "
                f"bound {result['bound'] * 1e3:.1f} ms: {share:.0%}")
    print(f"{result['part']:10} {result['side']:36} {size + ' ' + result['what']:30} {text}",
          flush=True)


def compare(results):
    """TCP beside the sockets written by hand, in the same run."""
    medians = {(one["side"], one["what"]): statistics.median(one["seconds"])
               for one in results if one["part"] == "transport"}
    for what in ("push", "push, then pull"):
        hand, tcp = medians.get(("sockets by hand", what)), medians.get(("tcp", what))
        if hand and tcp:
            print(f"tcp reaches {hand / tcp:.0%} of the sockets written by hand: {what}")
    ring = medians.get(("ring by hand", "push"))
    for side, what in sorted(medians):
        if ring and side.startswith("shm") and what == "push":
            print(f"{side} reaches {ring / medians[side, what]:.0%} of a ring of two copies and two "
                  "counters written by hand: push")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=os.environ.get("STARLING_BIN", "build/release/bin"),
                        help="folder of the programs")
    parser.add_argument("--rounds", type=int, default=30, help="of each of the five stretches")
    parser.add_argument("--executors", type=int, default=1, help="threads that serve a server's shards")
    parser.add_argument("--part", choices=("transport", "server", "network"))
    parser.add_argument("--realtime", action="store_true",
                        help="before all other processes of the machine")
    options = parser.parse_args()
    program = os.path.join(REPOSITORY, options.bin, PROGRAM)
    if not os.path.exists(program):
        sys.exit(f"{program} is missing: build it, or name its folder with --bin")
    print("Large messages in GB/s each way, small ones in microseconds, median [lowest, highest] of "
          "the medians of five stretches")
    print(harness.describe_machine(None))
    print(f"load average {os.getloadavg()[0]:.1f}"
          f"{', measured at real-time priority' if options.realtime else ''}", flush=True)
    for name, size, seconds in PS_LITE:
        print(f"{'earlier':10} {'ps-lite':36} {name:30} {rate(size, [seconds])}")
    results = []
    for result in measure(program, options):
        show(result)
        results.append(result)
    compare(results)
    harness.save("parameter_server", results)


if __name__ == "__main__":
    main()
