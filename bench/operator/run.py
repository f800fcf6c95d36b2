#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures operators on simulated nodes: jobs a second, CPU, memory and requests for each job.

usage: bench/operator/run.py [--jobs N]... [--alone N] [--rounds N] [--sides SIDE,...] [--json FILE]

For each side and number of jobs a control plane of its own, as clusters have it (etcd, API server,
scheduler and controller manager without throttle, five simulated nodes), so that none starts from
another's objects. A first job is done before anything is counted (not with --rounds), for the server
takes two seconds for the first object of a new kind. Time runs from the first create to the last job
that is done. CPU and peak memory are those of the operator's process, the peak since it began;
requests are what it counts itself. --alone measures Starling by itself with many jobs; --rounds
creates and deletes jobs again and again and shows whether its memory grows.
"""
import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(REPOSITORY, "tests/kube"), os.path.join(REPOSITORY, "bench")]
import origin  # noqa: E402  (the path must come first)
import kwok  # noqa: E402  (the path must come first)
from control_plane import ControlPlane, Options  # noqa: E402
from programs import Programs, run_main  # noqa: E402
from client import Client, Watch, create_all  # noqa: E402
from sides import BarePods, Kubeflow, Starling, StarlingPods  # noqa: E402
from waiting import wait_for  # noqa: E402

NODES = 5
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Usage:
    """CPU that named groups of processes have taken since this was made."""

    def __init__(self, groups):
        self._groups = groups
        self._before = self._now()

    def ms_each(self, jobs):
        return {name: 1000 * (now - self._before[name]) / jobs for name, now in self._now().items()}

    def _now(self):
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self._groups.items()}


def memory_mib(pid, field):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field)) / 1024


class Plane:
    """A control plane with one side in it, ended with everything that it left."""

    def __init__(self, side):
        self.folder = tempfile.mkdtemp(prefix="starling-bench-")
        self.programs = Programs("etcd", "kubernetes", "kwok", *(
            ["training-operator"] if side == "kubeflow" else []))
        self.plane = ControlPlane(self.folder, self.programs, Options(
            scheduler=True, controller_manager=True, kwok_nodes=NODES))
        self.kind = side
        self.side = None

    def __enter__(self):
        try:
            self.plane.start()
            self._await_nodes()
            self.side = self._make()
            self.side.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.plane.end()
        if os.environ.get("STARLING_TEST_KEEP"):
            print(f"kept {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _await_nodes(self):
        """New nodes are closed to pods until the controller manager has seen them."""
        def open_to_pods():
            nodes = self.plane.api.call("GET", "/api/v1/nodes")["items"]
            return len(nodes) == NODES and not any(node["spec"].get("taints") for node in nodes)
        wait_for(open_to_pods, 120, lambda: "all nodes are open to pods")

    def _make(self):
        port = random.randrange(18000, 19900)
        if self.kind == "bare":
            return BarePods(self.plane, self.programs)
        if self.kind == "kubeflow":
            return Kubeflow(self.plane, self.programs, port)
        binaries = os.environ.get("STARLING_BIN", os.path.join(REPOSITORY, "build/release/bin"))
        side = StarlingPods if self.kind == "pods" else Starling
        return side(self.plane, self.programs, os.path.join(binaries, "starling-controller"),
                    os.path.join(REPOSITORY, "crds/starling.dev_trainingjobs.yaml"), port)

    def run(self, first, jobs, deadline):
        """Seconds from the first create to the last job that is done."""
        requests = self.side.requests(first, jobs)
        watch = Watch(self.plane.kubeconfig, self.side.collection, self.side.done,
                      self.side.done_selector)
        begin = time.monotonic()
        create_all(self.plane.kubeconfig, requests)
        watch.await_done(self.side.objects(jobs), deadline, self.plane.processes.check_running)
        return time.monotonic() - begin


def measure(kind, jobs):
    with Plane(kind) as plane:
        side, process = plane.side, plane.plane.processes.get
        groups = {"API server": [process("kube-apiserver").pid], "etcd": [process("etcd").pid],
                  "scheduler": [process("kube-scheduler").pid],
                  "controller manager": [process("kube-controller-manager").pid],
                  "nodes": [process(kwok.process(index)).pid for index in range(NODES)],
                  "load": [os.getpid()]}
        if side.process:
            groups["operator"] = [side.process.pid]
        plane.run(0, 1, deadline=120)
        calls, usage = side.api_calls(), Usage(groups)
        seconds = plane.run(1, jobs, deadline=120 + jobs)
        result = {"side": side.name, "jobs": jobs, "jobs_per_second": jobs / seconds,
                  "cpu_ms": usage.ms_each(jobs)}
        if side.process:
            result.update(peak_mib=memory_mib(side.process.pid, "VmHWM"),
                          calls=(side.api_calls() - calls) / jobs)
        return result


def delete_all(plane, deadline=600):
    client = Client(plane.plane.kubeconfig)
    client.call("DELETE", plane.side.collection)
    paths = [plane.side.collection, BarePods.collection]
    end = time.monotonic() + deadline
    while any(client.call("GET", path + "?limit=1")["items"] for path in paths):
        if time.monotonic() > end:
            raise RuntimeError(f"jobs and pods are not gone after {deadline} s")
        time.sleep(0.5)


def measure_growth(rounds, jobs):
    """Resident memory after each round of creating `jobs` jobs, seeing them done, deleting them."""
    with Plane("starling") as plane:
        sizes = []
        for _ in range(rounds):
            plane.run(0, jobs, deadline=120 + jobs)
            delete_all(plane)
            sizes.append(memory_mib(plane.side.process.pid, "VmRSS"))
            print(f"  round {len(sizes)}: {sizes[-1]:.1f} MiB", flush=True)
        return sizes


def show(result):
    cpu = dict(result["cpu_ms"])
    operator = cpu.pop("operator", None)
    text = f"{result['side']:<10} {result['jobs']:>6} jobs {result['jobs_per_second']:7.1f} jobs/s"
    if operator is not None:
        text += (f"   operator {operator:6.2f} ms a job, peak {result['peak_mib']:6.1f} MiB, "
                 f"{result['calls']:5.1f} requests a job")
    print(text)
    print("           CPU of the others, ms a job: "
          + ", ".join(f"{name} {ms:.1f}" for name, ms in cpu.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, action="append")
    parser.add_argument("--alone", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--round-jobs", type=int, default=300)
    parser.add_argument("--sides", default="bare,pods,kubeflow,starling")
    parser.add_argument("--json")
    options = parser.parse_args()
    print("Operators: three pods a job on simulated nodes, which succeed as soon as they run;")
    print("Kubeflow's training operator 1.9.2 and Starling without throttle, 8 workers each.")
    results = []
    for jobs in options.jobs or []:
        for side in options.sides.split(","):
            results.append(measure(side, jobs))
            show(results[-1])
    if options.alone:
        results.append(measure("starling", options.alone))
        show(results[-1])
    if options.rounds:
        sizes = measure_growth(options.rounds, options.round_jobs)
        grown = statistics.median(sizes[-2:]) - statistics.median(sizes[:2])
        print(f"growth over {options.rounds} rounds of {options.round_jobs} jobs: {grown:.1f} MiB")
        results.append({"side": "Starling", "rounds": sizes})
    if options.json:
        origin.save(options.json, results)
    return 0


if __name__ == "__main__":
    run_main(main)
