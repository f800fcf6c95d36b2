# SPDX-License-Identifier: Apache-2.0
"""What the measurements share: step logs, the product under test, peers, medians, the machine.

Both sides write one line a completed step, "step <number> <unix seconds> <pid>", into a file of
their own; everything else follows from these files. The product runs through the end-to-end tests'
Home, so that nothing of it is left behind.
"""
import collections
import glob
import os
import statistics
import subprocess
import sys
import time

import origin

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(REPOSITORY, "tests/e2e"))
from home import DATA, Home, kill, until  # noqa: E402  (the path must come first)

BENCH = os.path.join(REPOSITORY, "bench")
SYSTEM_PYTHON = "/usr/bin/python3"  # where Debian's python3-torch is
Step = collections.namedtuple("Step", "number time pid source")


def read_steps(prefix):
    """All completed steps of all processes whose logs begin with `prefix`, in order of time."""
    steps = []
    for path in glob.glob(prefix + ".*"):
        source = path[len(prefix) + 1:]
        with open(path, encoding="ascii", errors="replace") as file:
            for line in file.read().split("\n")[:-1]:
                words = line.split()
                if len(words) == 4 and words[0] == "step":
                    steps.append(Step(int(words[1]), float(words[2]), int(words[3]), source))
    return sorted(steps, key=lambda step: step.time)


class Product(Home):
    """A home whose workers log their steps."""

    def __init__(self):
        super().__init__()
        self.prefix = os.path.join(self.folder, "steps")

    def submit(self, name, spec):
        """Starts `starling run` on the job; its workers write the step logs."""
        worker = spec["replicaSpecs"]["worker"]
        worker["template"] = {"spec": {"containers": [
            {"name": "trainer", "env": [{"name": "STARLING_STEP_LOG", "value": self.prefix}]}]}}
        job = {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
               "metadata": {"name": name}, "spec": spec}
        return self.start("run", self.write(f"{name}.json", job), "-o", "json")

    def steps(self, name=None):
        return read_steps(self.prefix)

    def await_steps(self, holds, timeout, command):
        """Waits until `holds(steps)`; an early end of the command is an error with its output."""
        def look():
            steps = self.steps()
            if holds(steps):
                return steps
            if not command.running():
                raise AssertionError(f"{command.describe()} ended early:\n{command.tail()}")
            return None
        return until(look, timeout, self.describe)


def core_type():
    """The OpenBLAS kernel that Starling's workers choose on this processor."""
    if "OPENBLAS_CORETYPE" in os.environ:
        return os.environ["OPENBLAS_CORETYPE"]
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = next((line for line in file if line.startswith("flags")), "").split()
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"} <= set(flags):
        return "SkylakeX"
    return "Haswell" if {"avx2", "fma"} <= set(flags) else ""


def have_torch():
    probe = subprocess.run([SYSTEM_PYTHON, "-c", "import torch; print(torch.__version__)"],
                           capture_output=True, text=True, check=False)
    return probe.stdout.strip() if probe.returncode == 0 else None


def require_torch():
    version = have_torch()
    if version is None:
        sys.exit("PyTorch, the peer, is not installed: run `make bench`, which installs "
                 "cmake/packages-prove.txt, or measure Starling alone with --no-peer")
    return version


def busy_cores(seconds=0.5):
    """Cores that others keep busy: what a quiet machine has near 0."""
    def read():
        with open("/proc/stat", encoding="ascii") as file:
            values = [int(word) for word in file.readline().split()[1:9]]
        return sum(values) - values[3] - values[4]
    before = read()
    time.sleep(seconds)
    return (read() - before) / os.sysconf("SC_CLK_TCK") / seconds


def describe_machine(peer):
    return (f"{origin.processor()}, BLAS core type of Starling: "
            f"{core_type() or 'chosen by OpenBLAS'}, peer: PyTorch {peer or 'not measured'}, "
            f"others kept {busy_cores():.2f} cores busy before the start")


def spread(values, unit=1.0):
    """'median [lowest, highest]' of values, each multiplied by `unit`."""
    if not values:
        return "none"
    scaled = sorted(value * unit for value in values)
    return f"{statistics.median(scaled):.3f} [{scaled[0]:.3f}, {scaled[-1]:.3f}]"


def save(name, results):
    folder = os.path.join(REPOSITORY, "build/bench")
    os.makedirs(folder, exist_ok=True)
    origin.save(os.path.join(folder, name + ".json"), results)
