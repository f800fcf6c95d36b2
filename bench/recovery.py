#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds from kill -9 of a worker to the next completed step, and steps repeated.

Two processes train the same network (784-1024-1024-10, 64 samples each a step, 5 ms of pause);
one is killed again and again. Starling: the pod's first process (as a node would die) and the role
alone (restarted in place). Beside it torchrun, which restarts all workers from the last
checkpoint, with its own polling interval and with a fast one.

  next step    kill to the end of the first step that the survivor could not have finished without
               regrouping: the step after the longest wait
  repeated     steps that were complete before the kill and were run again
  replacement  kill to the first step that the new process completes
"""
import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time

import harness
from harness import SYSTEM_PYTHON, kill, read_steps, spread, until

SPEC = {
    "workload": {"classification": {"model": {"mlp": {"hidden": [1024, 1024]}}}},
    "dataset": {"train": {"synthetic": {"samples": 1024, "shape": [784], "classes": 10}},
                "globalBatchSize": 128},
    "optimizer": {"sgd": {"learningRate": 0.01}},
    "stop": {"epochs": 1000000},
    "replicaSpecs": {"worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 2}},
    "experiment": {"stepDelay": "5ms"},
}
SETTLED = 30  # steps that both complete before the next kill


def outcome(steps, killed_at, victim):
    """What one kill cost; None until survivors and a replacement have stepped."""
    before = [step for step in steps if step.time <= killed_at]
    after = [step for step in steps if step.time > killed_at]
    known = {step.pid for step in before}
    replacement = [step for step in after if step.pid not in known]
    survivors = [step for step in after if step.pid in known and step.pid != victim]
    if not replacement:
        return None
    stepping = survivors or replacement
    times = [killed_at] + [step.time for step in stepping]
    # The step that was being made may still be completed, so the wait is the longer of the first two.
    waits = [later - earlier for earlier, later in zip(times, times[1:])][:2]
    first = stepping[waits.index(max(waits))]
    highest = max([step.number for step in before] +
                  [step.number for step in stepping if step.time < first.time])
    return {"next_step": first.time - killed_at,
            "repeated": max(0, highest + 1 - first.number),
            "replacement": replacement[0].time - killed_at,
            "survived": bool(survivors)}


def both_step(steps, since, count=SETTLED):
    """Whether two processes have completed `count` steps each after `since`."""
    counts = {}
    for step in steps:
        if step.time > since:
            counts[step.pid] = counts.get(step.pid, 0) + 1
    return sum(count <= steps_of for steps_of in counts.values()) >= 2


def measure_starling(what, repeats):
    home = harness.Product()
    results = []
    try:
        command = home.submit("recovery", {**SPEC})
        since = 0.0
        for repeat in range(repeats):
            steps = home.await_steps(lambda now, since=since: both_step(now, since), 90, command)
            newest = {step.source: step.pid for step in steps}
            # The two that step now, the one that has been there longer or shorter in turn.
            pods = sorted({step.source for step in steps[-8:]})
            pod = pods[repeat % len(pods)]
            role = newest[pod]
            first = home.pod_pid(pod) if what == "pod" else role
            killed_at = time.time()
            kill(first)
            home.await_steps(lambda now, at=killed_at, pid=role: outcome(now, at, pid), 60, command)
            since = time.time()
            steps = home.await_steps(lambda now, at=since: both_step(now, at, 8), 60, command)
            results.append(outcome(steps, killed_at, role))
        command.signal(signal.SIGINT)
        command.wait(60)
    finally:
        home.close()
    return results


def is_ours(pid, folder):
    """Whether the process still is a worker of this run: numbers of ended ones are given anew."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return folder.encode() in file.read()
    except OSError:
        return False


def measure_torchrun(arguments, repeats):
    results = []
    for repeat in range(repeats):
        folder = tempfile.mkdtemp(prefix="starling-bench-")
        prefix = os.path.join(folder, "steps")
        with open(os.path.join(folder, "output"), "wb") as output:
            process = subprocess.Popen(
                [SYSTEM_PYTHON, "-m", "torch.distributed.run", "--standalone",
                 "--nproc_per_node=2", "--max_restarts=3",
                 # Debian's 1.13 fails under Python 3.11 without these three.
                 "--redirects=1", "--tee=1", f"--log_dir={folder}/logs", *arguments,
                 os.path.join(harness.BENCH, "torchrun_worker.py"), folder],
                env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True)
        try:
            def reached(number, pids=frozenset()):
                steps = read_steps(prefix)
                ranks = {step.source for step in steps
                         if step.number >= number and step.pid not in pids}
                return steps if len(ranks) == 2 else None
            # Not on a checkpoint's step, so that the cost is a typical one.
            steps = until(lambda: reached(120), 120, "torchrun trains")
            pids = {step.source: step.pid for step in steps}
            victim = pids[str(repeat % 2)]
            killed_at = time.time()
            kill(victim)
            old = frozenset(pids.values())
            steps = until(lambda: reached(1, old), 120, "torchrun trains again")
            results.append(outcome(steps, killed_at, victim))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pid in {step.pid for step in read_steps(prefix)}:
                if is_ours(pid, folder):
                    kill(pid)
            shutil.rmtree(folder, ignore_errors=True)
    return results


def show(name, results):
    print(f"{name:38} next step {spread([r['next_step'] for r in results]):24} "
          f"repeated {spread([r['repeated'] for r in results]):24} "
          f"replacement {spread([r['replacement'] for r in results])}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--no-peer", action="store_true", help="measure Starling alone")
    options = parser.parse_args()
    peer = None if options.no_peer else harness.require_torch()
    print("Recovery after kill -9 of one of two workers; seconds and steps, "
          f"median [lowest, highest] of {options.repeats} kills each")
    print(harness.describe_machine(peer), flush=True)
    results = {}
    runs = [("Starling, pod killed", lambda: measure_starling("pod", options.repeats)),
            ("Starling, role killed", lambda: measure_starling("role", options.repeats))]
    if peer:
        runs += [("torchrun, as it comes", lambda: measure_torchrun([], options.repeats)),
                 ("torchrun, --monitor_interval=0.1",
                  lambda: measure_torchrun(["--monitor_interval=0.1"], options.repeats))]
    for name, run in runs:
        results[name] = run()
        show(name, results[name])
    harness.save("recovery", results)


if __name__ == "__main__":
    main()
