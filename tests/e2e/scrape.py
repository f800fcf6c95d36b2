# SPDX-License-Identifier: Apache-2.0
"""What the processes of a home show on /metrics, read again and again while a job runs."""
import collections
import json
import os
import re
import threading
import time
import urllib.request

from home import read

PORT = 7073
POLL = 0.25
# A sample of one process: a restarted one is another.
Series = collections.namedtuple("Series", "pod began name labels")

SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')


def parse(text):
    """Types by name, and the samples as (name, labels, value)."""
    types, samples = {}, []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            types[name] = kind
        elif line and not line.startswith("#"):
            name, labels, value = SAMPLE.match(line).groups()
            samples.append((name, frozenset(LABEL.findall(labels or "")), float(value)))
    return types, samples


def fetch(address, timeout=2):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=timeout) as page:
        return parse(page.read().decode())


def controller_address(home):
    text = read(f"{home.home}/controller.json")
    return json.loads(text)["metricsAddress"] if text else None


class Scraper:
    """Scrapes everything of a home until it is closed. `values` are those of each series, in order;
    `types` by name."""

    def __init__(self, home):
        self.types = {}
        self.values = collections.defaultdict(list)
        self._home = home
        self._addresses = {}
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=run, daemon=True)
                         for run in (self._find, self._scrape)]
        for thread in self._threads:
            thread.start()

    def close(self):
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _find(self):
        while not self._done.wait(1):
            found = {"controller": controller_address(self._home)}
            for name, pod in self._home.pods().items():
                address = pod.get("status", {}).get("podIP")
                found[name] = f"{address}:{PORT}" if address else None
            with self._lock:
                self._addresses.update({name: at for name, at in found.items() if at})

    def _scrape(self):
        while not self._done.wait(POLL):
            with self._lock:
                addresses = dict(self._addresses)
            for pod, address in addresses.items():
                self.take(pod, address)

    def take(self, pod, address):
        try:
            types, samples = fetch(address)
        except (OSError, AttributeError):
            return  # it does not listen yet, or has ended
        for name, kind in types.items():
            assert self.types.setdefault(name, kind) == kind, f"{name} has two types"
        began = [value for name, _, value in samples if name == "process_start_time_seconds"]
        for name, labels, value in samples:
            self.values[Series(pod, began[0] if began else 0, name, labels)].append(value)

    def pods(self, word):
        return {series.pod for series in self.values if word in series.pod}


def role_processes(home):
    """Start, in time.time(), and pid of each role's process that lives."""
    ticks = os.sysconf("SC_CLK_TCK")
    # Not "btime" of /proc/stat, which is in whole seconds.
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    found = {}
    for process in home.processes():
        if process.program in ("starling-worker", "starling-server"):
            stat = read(f"/proc/{process.pid}/stat").rpartition(")")[2].split()
            if stat:
                found[process.pid] = (process.program, boot + float(stat[19]) / ticks)
    return found
