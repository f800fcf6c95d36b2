# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus with the rules of dashboards/, for as long as a test lasts, and what finds the
processes of one machine for it. Whoever scrapes something else gives it scrape configurations of its own.
"""
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

from metric_names import REPOSITORY

FOLDER = os.path.join(REPOSITORY, "dashboards")
sys.path.insert(0, FOLDER)
sys.path.insert(0, os.path.join(REPOSITORY, "tests/e2e"))
import generate  # noqa: E402  pylint: disable=wrong-import-position
from home import read, until  # noqa: E402  pylint: disable=wrong-import-position
from scrape import PORT, controller_address  # noqa: E402  pylint: disable=wrong-import-position


def find_programs():
    """The folder of prometheus and promtool; exits with 77 where they cannot be built."""
    built = subprocess.run([os.path.join(REPOSITORY, "tests/kube/tools/build.sh"), "prometheus"],
                           stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        sys.exit(built.returncode)
    return built.stdout.strip()


def free_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


class Prometheus:
    """`programs`: the folder of find_programs(). `rules`: the text of a rule file."""

    def __init__(self, programs, scrape_configs, rules, interval="1s"):
        self._folder = tempfile.TemporaryDirectory(prefix="starling-prometheus-")
        self.address = free_address()
        self._write("rules.yaml", rules)
        self._write("prometheus.yaml", json.dumps({
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [f"{self._folder.name}/rules.yaml"], "scrape_configs": scrape_configs}))
        self._log = open(f"{self._folder.name}/log", "w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [os.path.join(programs, "prometheus"),
             f"--config.file={self._folder.name}/prometheus.yaml",
             f"--storage.tsdb.path={self._folder.name}/data", f"--web.listen-address={self.address}"],
            stdout=self._log, stderr=subprocess.STDOUT)
        until(self._is_ready, 30, self.log)

    def close(self):
        self._process.terminate()
        self._process.wait(20)
        self._log.close()
        self._folder.cleanup()

    def log(self):
        self._log.seek(0)
        return self._log.read()[-3000:]

    def ask(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self):
        return {(alert["labels"]["alertname"], alert["labels"].get("job_name", ""))
                for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"}

    def samples(self, expression, seconds):
        """Finite values of the expression over the last seconds."""
        end = time.time()
        found = self.ask("query_range", query=expression, start=end - seconds, end=end, step=1)
        values = [float(value) for series in found["result"] for _, value in series["values"]]
        return [value for value in values if value == value and abs(value) != float("inf")]

    def _is_ready(self):
        with contextlib.suppress(OSError):
            return self.ask("query", query="1")

    def _write(self, name, text):
        with open(f"{self._folder.name}/{name}", "w", encoding="utf-8") as file:
            file.write(text)


def shipped_rules():
    return read(os.path.join(FOLDER, "rules.yaml"))


class HomeTargets:
    """Keeps a file for Prometheus with all processes of a home, and the labels that a cluster's
    PodMonitors would give them; which jobs it knows of can be changed."""

    def __init__(self, home):
        self._home = home
        self._path = os.path.join(home.folder, "targets.json")
        self.hidden = set()  # jobs that are not scraped
        self._write([])
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._find, daemon=True)
        self._thread.start()

    def close(self):
        self._done.set()
        self._thread.join()

    def scrape_configs(self):
        return [{"job_name": "starling", "honor_labels": True, "file_sd_configs": [
            {"files": [self._path], "refresh_interval": "1s"}]}]

    def _find(self):
        while not self._done.wait(1):
            targets = [(controller_address(self._home), {"pod": "controller", "role": "controller"})]
            for name, pod in self._home.pods().items():
                address = pod.get("status", {}).get("podIP")
                job, role = re.match(r"(.+)-(coordinator|worker|parameter-server)-\d+$", name).groups()
                if address and job not in self.hidden:
                    targets.append((f"{address}:{PORT}", {"job_namespace": "default", "job_name": job,
                                                          "role": role, "pod": name}))
            self._write([{"targets": [address], "labels": labels}
                         for address, labels in targets if address])

    def _write(self, targets):
        with open(f"{self._path}.new", "w", encoding="utf-8") as file:
            json.dump(targets, file)
        os.rename(f"{self._path}.new", self._path)


def panels(*boards):
    """(dashboard, title, expression) of all queries, those of annotations too."""
    found = []
    for name in boards or [name for name, *_ in generate.DASHBOARDS]:
        board = json.loads(read(os.path.join(FOLDER, f"{name}.json")))
        found += [(name, panel["title"], target["expr"]) for panel in board["panels"]
                  for target in panel["targets"]]
        found += [(name, one["name"], one["expr"]) for one in board["annotations"]["list"]]
    return found
