#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast processes of one machine sum up an array, beside Open MPI, MPICH, gloo and a limit written by hand.

usage: bench/allreduce.py [--json FILE] [--plot FILE] [--ranks N,...] [--bytes A,B,...] [--repeats N]
                          [--realtime] [--side LIBRARY,TRANSPORT]...

Product and peers take turns, --repeats times; of each the best repeat counts, a repeat being rank
0's median time from a barrier to the end of a call. FILE gets a list of objects:
library, transport, ranks, bytes, gigabytesPerSecond (bytes of the array / time / 1e9), and of the
product rank 0's cpuSeconds a call, which say what encryption costs on a busy machine too. What is not
installed is left out, and named. The limit is a program for this one purpose, without views, headers
or failures (allreduce_limit.cc). --plot draws all of them as SVG. The figures are those of a quiet
machine only if it was one, which the head line tells; where it is not, --realtime lets whoever is
measured go before all other processes (chrt; needs root) for these seconds.
"""
import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile

import harness
from harness import REPOSITORY, SYSTEM_PYTHON


class Missing(Exception):
    """Says what is not installed."""


def built(options, program, *words):
    path = os.path.join(REPOSITORY, options.bin, program)
    if not os.path.exists(path):
        sys.exit(f"{path} is missing: build it, or name its folder with --bin")
    return [path, "--ranks", str(options.count), "--seconds", str(options.seconds),
            "--bytes", ",".join(map(str, options.bytes)), *words]


def starling(options, *words):
    return built(options, "starling-allreduce-bench", *words)


def limit(options, transport):
    return built(options, "starling-allreduce-limit", "--transport", transport)


def mpi(options, implementation, name, packages, *words):
    """The peer built and run by `implementation`, the last part of the names that Debian gives to programs of an MPI."""
    run, compiler = shutil.which(f"mpirun.{implementation}"), shutil.which(f"mpicxx.{implementation}")
    if not run or not compiler:
        raise Missing(f"{name} (Debian's {packages})")
    program = os.path.join(options.folder, f"mpi_allreduce.{implementation}")
    if not os.path.exists(program):
        subprocess.run([compiler, "-O2", "-std=c++20", "-o", program,
                        os.path.join(harness.BENCH, "mpi_allreduce.cc")], check=True)
    return [run, "-n", str(options.count), *words, program, str(options.seconds), *map(str, options.bytes)]


def open_mpi(options, *words):
    return mpi(options, "openmpi", "Open MPI", "openmpi-bin and libopenmpi-dev", "--allow-run-as-root",
               "--oversubscribe", *words)


def mpich(options):
    return mpi(options, "mpich", "MPICH", "mpich and libmpich-dev")


def gloo(options):
    if not harness.have_torch():
        raise Missing("gloo (Debian's python3-torch)")
    return [SYSTEM_PYTHON, os.path.join(harness.BENCH, "gloo_allreduce.py"), str(options.count),
            str(options.seconds), *map(str, options.bytes)]


LIMIT = "by hand"

# Library, transport, and the command that measures it.
SIDES = [
    ("Starling", "shm", starling),
    ("Open MPI", "shm", open_mpi),
    ("MPICH", "shm", mpich),
    (LIMIT, "shm", lambda options: limit(options, "shm")),
    ("Starling", "tcp", lambda options: starling(options, "--transport", "tcp")),
    ("Starling", "udp", lambda options: starling(options, "--transport", "udp")),
    ("Starling", "tls", lambda options: starling(options, "--transport", "tls")),
    ("Open MPI", "tcp", lambda options: open_mpi(
        options, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include",
        "lo")),
    ("gloo", "tcp", gloo),
    (LIMIT, "tcp", lambda options: limit(options, "tcp")),
]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def measure(command, options):
    """Seconds, and seconds of rank 0's processor time if they are told, by bytes."""
    if options.realtime:
        command = ["chrt", "-f", "10", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1",
                   "BENCH_RENDEZVOUS": f"tcp://127.0.0.1:{free_port()}"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600,
                         check=False)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with exit code {run.returncode}:\n{run.stderr}")
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    for row in rows:
        if row.get("transport", "shm") == "shm links":
            sys.exit("the ranks of this machine share no memory; the program's log says why")
    return {row["bytes"]: (row["seconds"], row.get("cpuSeconds")) for row in rows}


def wanted(options, library, transport):
    return not options.side or f"{library},{transport}" in options.side


def take_turns(options):
    """The best seconds by (library, transport, bytes), and the least processor time."""
    best, busy = {}, {}
    missing = set()
    for _ in range(options.repeats):
        for library, transport, command_of in SIDES:
            if library in missing or not wanted(options, library, transport):
                continue
            try:
                command = command_of(options)
            except Missing as what:
                missing.add(library)
                print(f"SKIPPED: {what} is not installed", file=sys.stderr)
                continue
            for size, (seconds, cpu) in measure(command, options).items():
                key = (library, transport, size)
                best[key] = min(seconds, best.get(key, seconds))
                if cpu is not None:
                    busy[key] = min(cpu, busy.get(key, cpu))
    return best, busy


def show(best, busy, sizes):
    print("".join([f"{'GB/s':24}"] + [f"{size:>14}" for size in sizes] + ["  bytes"]))
    for library, transport, _ in SIDES:
        values = [best.get((library, transport, size)) for size in sizes]
        if not all(values):
            continue
        print(f"{library + ', ' + transport:24}" +
              "".join(f"{size / value / 1e9:14.2f}" for size, value in zip(sizes, values)))
    for library, transport, _ in SIDES:
        ours = [best.get(("Starling", transport, size)) for size in sizes]
        theirs = [best.get((library, transport, size)) for size in sizes]
        if library == "Starling" or not all(ours + theirs):
            continue
        print(f"{'of ' + library + ', ' + transport:24}" +
              "".join(f"{b / a:13.1f}x" for a, b in zip(ours, theirs)))
    for transport in ("tcp", "tls"):
        cpu = [busy.get(("Starling", transport, size)) for size in sizes]
        if all(cpu):
            print(f"{'core s/GB, ' + transport:24}" +
                  "".join(f"{a / size * 1e9:14.2f}" for a, size in zip(cpu, sizes)))
    plain, encrypted = ([best.get(("Starling", transport, size)) for size in sizes]
                        for transport in ("tcp", "tls"))
    if all(plain + encrypted):
        print(f"{'Starling, tls of tcp':24}" +
              "".join(f"{a / b:13.2f}x" for a, b in zip(plain, encrypted)))


def numbers(text):
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="where the list of figures goes")
    parser.add_argument("--bin", default=os.environ.get("STARLING_BIN", "build/release/bin"),
                        help="folder of the programs")
    parser.add_argument("--plot", metavar="FILE", help="where a plot goes, as SVG")
    parser.add_argument("--ranks", type=numbers, default=[2], help="one number or several")
    parser.add_argument("--bytes", type=numbers,
                        default=[1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20])
    parser.add_argument("--repeats", type=int, default=5, help="turns that each side has")
    parser.add_argument("--seconds", type=float, default=0.2, help="of calls a size and turn")
    parser.add_argument("--side", action="append", choices=[f"{side[0]},{side[1]}" for side in SIDES],
                        help="one of those that are measured, again for each; by default all")
    parser.add_argument("--realtime", action="store_true",
                        help="before all other processes of the machine")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory(prefix="starling-bench-") as options.folder:
        for options.count in options.ranks:
            print(f"float32 allreduce of {options.count} processes, best of {options.repeats} turns")
            print(harness.describe_machine(harness.have_torch()), flush=True)
            best, busy = take_turns(options)
            show(best, busy, options.bytes)
            results += [{"library": library, "transport": transport, "ranks": options.count, "bytes": size,
                         "gigabytesPerSecond": round(size / seconds / 1e9, 3),
                         **({"cpuSeconds": busy[key]} if key in busy else {})}
                        for key, seconds in best.items() for library, transport, size in [key]]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
            file.write("\n")
    harness.save("allreduce", results)
    if options.plot:
        subprocess.run([SYSTEM_PYTHON, os.path.join(harness.BENCH, "allreduce_plot.py"),
                        os.path.join(REPOSITORY, "build/bench/allreduce.json"), options.plot], check=True)


if __name__ == "__main__":
    main()
