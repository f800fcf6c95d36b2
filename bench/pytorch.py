#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs of two members: Starling beside torchrun with DDP over gloo, and torchft.

All sides run the same models on the same data with the same batch (bench/pytorch_loops.py), one compute
thread a process.

  step time    between the ends of two steps of one process
  next step    kill -9 of a member to the survivor's next committed step
  lost         samples of batches that no step has counted (Starling: by the job's audit)
  repeated     samples of steps that were complete before the kill and were made again
  pause        how much longer than others a survivor's step takes in which the new process joins

torchft is measured with a Python that has it: --python names one for all sides. torchrun restarts
everybody, so that nobody survives and nobody joins.
"""
import argparse
import collections
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import harness
import origin
from harness import SYSTEM_PYTHON, kill, read_steps, spread, until
from recovery import both_step, is_ours, outcome
from step_time import stretches, waits_between

LOOPS = os.path.join(harness.BENCH, "pytorch_loops.py")
BATCH = {"mlp": 128, "resnet18": 16, "transformer": 16}
SAMPLES = {"mlp": 2048, "resnet18": 256, "transformer": 512}
PAUSE = 0.005  # of a step, where members are killed
RECOVERS = 120  # seconds that a side is given to make its next step
# torchft's lighthouse: as it comes, and as fast as it may be.
LIGHTHOUSES = {"torchft, as it comes": [],
               "torchft, tuned": ["--join_timeout_ms", "200", "--quorum_tick_ms", "20",
                                  "--heartbeat_timeout_ms", "500"]}


class Starling:
    """A job of two workers."""

    def __init__(self, python, name, pause):
        self.home = harness.Product()
        self.name = name
        self.prefix = self.home.prefix
        self.command = self.home.submit("pytorch", {
            "workload": {"pytorch": {"script": LOOPS, "python": python,
                                     "args": ["starling", name, str(pause), self.home.folder]}},
            # The audit is for kills; peers have none that would cost time.
            "dataset": {"auditUse": pause > 0}, "checkpoint": {"interval": "24h"},
            "replicaSpecs": {"worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 2}}})

    def check(self):
        assert self.command.running(), self.command.tail()

    def lost(self, _):
        """And repeated: of all whole epochs; asked for at the end."""
        self.command.signal(signal.SIGINT)
        self.command.wait(60)
        used = collections.defaultdict(collections.Counter)
        for line in self.home.audit("pytorch"):
            used[line["epoch"]].update(line["samples"])
        whole = [counts for epoch, counts in used.items() if epoch < max(used)]
        return (sum(SAMPLES[self.name] - len(counts) for counts in whole),
                sum(counts.total() - len(counts) for counts in whole))

    def close(self):
        self.home.close()


class Peer:
    """Processes that write their steps into a folder of their own."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="starling-bench-")
        self.prefix = os.path.join(self.folder, "steps")
        self.started = []

    def start(self, *command, **environment):
        # Pods have no such variables either: which of its kernels OpenBLAS chooses is its own word.
        inherited = {name: value for name, value in os.environ.items()
                     if not name.startswith(("OPENBLAS_", "OMP_", "MKL_"))}
        with open(os.path.join(self.folder, f"output.{len(self.started)}"), "wb") as output:
            self.started.append(subprocess.Popen(
                command, env={**inherited, "OMP_NUM_THREADS": "1", **environment}, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True))

    def torchrun(self, python, processes, flags, arguments, **environment):
        self.start(python, "-m", "torch.distributed.run", "--rdzv_backend=c10d",
                   "--rdzv_endpoint=127.0.0.1:0", f"--rdzv_id={len(self.started)}",
                   f"--nproc_per_node={processes}", "--max_restarts=100",
                   # Debian's 1.13 fails under Python 3.11 without these three.
                   "--redirects=1", "--tee=1", f"--log_dir={self.folder}/logs{len(self.started)}",
                   *flags, LOOPS, *arguments, self.folder, **environment)

    def output(self):
        texts = []
        for number in range(len(self.started)):
            with open(os.path.join(self.folder, f"output.{number}"), errors="replace",
                      encoding="utf-8") as file:
                texts.append(file.read()[-2000:])
        return "\n".join(texts)

    def check(self):
        ended = [one.args for one in self.started if one.poll() is not None]
        assert not ended, f"{ended} ended early:\n{self.output()}"

    def close(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for pid in {step.pid for step in read_steps(self.prefix)}:
            if is_ours(pid, self.folder):
                kill(pid)
        shutil.rmtree(self.folder, ignore_errors=True)


class Torchrun(Peer):
    def __init__(self, python, name, pause, flags=()):
        super().__init__()
        self.batch = BATCH[name]
        self.torchrun(python, 2, flags, ["ddp", name, str(pause)])

    def lost(self, results):
        return 0, sum(one["repeated"] for one in results) * self.batch


class Torchft(Peer):
    def __init__(self, python, name, pause, flags=()):
        super().__init__()
        self.batch = BATCH[name]
        self.start(os.path.join(os.path.dirname(python), "torchft_lighthouse"), "--min_replicas", "1",
                   "--bind", "127.0.0.1:0", *flags)
        address = until(self._address, 30, self.output)
        for group in range(2):
            self.torchrun(python, 1, ["--monitor_interval=0.1"], ["torchft", name, str(pause)],
                          REPLICA_GROUP_ID=str(group), NUM_REPLICA_GROUPS="2",
                          TORCHFT_LIGHTHOUSE=address)

    def _address(self):
        found = re.search(r"http://[\w.\[\]:-]+:[1-9]\d*", self.output())
        return found and found.group()

    def lost(self, results):
        """A survivor's dropped batches, and what the dead one had in its hands."""
        drops = 0
        for name in os.listdir(self.folder):
            if name.startswith("steps."):
                with open(os.path.join(self.folder, name), encoding="ascii") as file:
                    drops += sum(line.startswith("drop") for line in file)
        return ((drops + len(results)) * self.batch // 2,
                sum(one["repeated"] for one in results) * self.batch)


def steps_until(side, holds, timeout):
    def look():
        steps = read_steps(side.prefix)
        if holds(steps):
            return steps
        side.check()
        return None
    return until(look, timeout,
                 lambda: f"{type(side).__name__} has made {len(read_steps(side.prefix))} steps")


def step_times(make, count):
    side = make()
    try:
        steps = steps_until(side, lambda now: both_step(now, 0, count), 900)
    finally:
        side.close()
    first = min(step.source for step in steps)
    return stretches(waits_between([step.time for step in steps if step.source == first]))


def pause_at_join(steps, joined):
    """Beyond a survivor's usual step: the longest of the second in which the new process appears."""
    survivors = [step.time for step in steps if step.pid != joined.pid]
    waits = [(later, later - earlier) for earlier, later in zip(survivors, survivors[1:])]
    near = [wait for later, wait in waits if joined.time - 1 <= later <= joined.time + 0.5]
    return max(near, default=0) - statistics.median(wait for _, wait in waits)


def recoveries(make, repeats):
    side, results, since, stuck = make(), [], 0.0, False
    try:
        for repeat in range(repeats):
            steps = steps_until(side, lambda now, since=since: both_step(now, since), 300)
            newest = {step.source: step.pid for step in steps}
            # The two that step now, one after the other.
            victim = newest[sorted({step.source for step in steps[-8:]})[repeat % 2]]
            killed_at = time.time()
            kill(victim)
            try:
                steps_until(side, lambda now, at=killed_at, pid=victim: outcome(now, at, pid), RECOVERS)
            except AssertionError:  # nor will it after the next kill
                stuck = True
                break
            since = time.time()
            steps = steps_until(side, lambda now, at=since: both_step(now, at, 8), 120)
            found = outcome(steps, killed_at, victim)
            known = {step.pid for step in steps if step.time <= killed_at}
            joined = next(step for step in steps if step.pid not in known)
            if found["survived"]:
                found["pause"] = pause_at_join([step for step in steps if step.time > killed_at], joined)
            results.append(found)
        lost, repeated = side.lost(results)
    finally:
        side.close()
    return {"kills": results, "lost": lost, "repeated": repeated, "stuck": stuck}


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def show(name, found):
    if found["stuck"]:
        print(f"{name:26} made no step within {RECOVERS} s of kill {len(found['kills']) + 1}", flush=True)
    if not found["kills"]:
        return
    waits = [one["next_step"] * 1e3 for one in found["kills"]]
    pauses = [one["pause"] * 1e3 for one in found["kills"] if "pause" in one]
    print(f"{name:26} next step p50 {percentile(waits, 50):7.0f} ms  p99 {percentile(waits, 99):7.0f} ms  "
          f"lost {found['lost']:5}  repeated {found['repeated']:5}  "
          f"pause {spread(pauses) + ' ms' if pauses else 'all start again'}", flush=True)


def sides(python):
    """By name: what makes it for a model and a pause."""
    table = {"Starling": Starling,
             "torchrun, DDP": Torchrun,
             "torchrun, DDP, fast": lambda *what: Torchrun(*what, ["--monitor_interval=0.1"])}
    if subprocess.run([python, "-c", "import torchft"], capture_output=True, check=False).returncode:
        print(f"torchft is not measured: {python} has none; name a Python with torchft-nightly by --python")
        return table
    for name, flags in LIGHTHOUSES.items():
        table[name] = lambda *what, flags=flags: Torchft(*what, flags)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=SYSTEM_PYTHON, help="with PyTorch, for all sides")
    parser.add_argument("--models", default="mlp,resnet18,transformer")
    parser.add_argument("--steps", type=int, default=200, help="whose time is taken")
    parser.add_argument("--kills", type=int, default=20, help="of each side; 0: none")
    parser.add_argument("--only", default="", help="sides whose names contain this")
    parser.add_argument("--json", help="file; by default build/bench/pytorch.json")
    options = parser.parse_args()
    version = subprocess.run([options.python, "-c", "import torch; print(torch.__version__)"],
                             capture_output=True, text=True, check=True).stdout.strip()
    print(harness.describe_machine(version), flush=True)
    measured = {name: make for name, make in sides(options.python).items() if options.only in name}
    results = {"torch": version, "step_time": {}, "recovery": {}}
    print("Step time in milliseconds, median [lowest, highest] of the medians of five stretches")
    for model in filter(None, options.models.split(",")):
        for name, make in measured.items():
            if name.endswith((", fast", ", tuned")):
                continue
            found = step_times(lambda: make(options.python, model, 0.0), options.steps)
            results["step_time"][f"{model}, {name}"] = found
            print(f"{model:12} {name:26} {spread(found, 1e3)}", flush=True)
    print(f"Kills of a member of two; {options.kills} of each side")
    for name, make in measured.items() if options.kills else ():
        results["recovery"][name] = recoveries(lambda: make(options.python, "mlp", PAUSE), options.kills)
        show(name, results["recovery"][name])
    if options.json:
        origin.save(options.json, results)
    else:
        harness.save("pytorch", results)


if __name__ == "__main__":
    main()
