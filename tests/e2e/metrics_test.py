# SPDX-License-Identifier: Apache-2.0
"""docs/reference/metrics.md against the output of real jobs: what it lists appears, with its type and
labels, and nothing else does."""
import os
import sys
import unittest

import jobs
import parameter_server_test
from case import Case
from home import REPOSITORY, kill, until
from rest_client import Client
from scrape import Scraper, Series

sys.path.insert(0, os.path.join(REPOSITORY, "tests/dashboards"))
from metric_names import family, table  # pylint: disable=wrong-import-position

# Where a job stands: these fall when it goes back to a checkpoint or to a new coordinator, which a
# process that lives through it shows.
POSITIONS = {"starling_worker_step", "starling_worker_view_epoch", "starling_server_view_epoch",
             "starling_server_ledger_leases", "starling_job_step", "starling_job_view_epoch",
             "starling_coordinator_incarnation",
             # Falls when old jobs are forgotten.
             "starling_history_bytes"}


def never_fell(values, metrics):
    """Gauges that have only ever risen, several times: counters by another name."""
    rose, fell = {}, set()
    for series, seen in values.items():
        metric = metrics.get(series.name)
        if metric is None or metric.kind != "gauge":
            continue
        steps = [after - before for before, after in zip(seen, seen[1:])]
        if any(step < 0 for step in steps):
            fell.add(series.name)
        most = max(rose.get(series.name, 0), sum(step > 0 for step in steps))
        rose[series.name] = most
    # The names of every process are Prometheus' own, and a timestamp is a gauge.
    return {name for name, times in rose.items()
            if times >= 3 and name not in fell and metrics[name].source != "every process" and
            not name.endswith("_timestamp_seconds")}


class Metrics(Case):
    def setUp(self):
        super().setUp()
        self.metrics = table()
        self.home.run("up")
        self.scraper = Scraper(self.home)

    def kill_role(self, pod, step, command):
        self.home.await_step(step, command=command)
        kill(until(lambda: self.home.role_pid(pod), 30, f"{pod} runs"))

    def run_scraped(self, job, pods):
        """Runs the job, whose pods lose a process each on the way."""
        command = self.home.start("run", self.home.write("job.yaml", job), "-o", "json")
        for number, pod in enumerate(pods):
            self.kill_role(pod, 15 + 30 * number, command)
            Client(self.home.home).ask("GET", "/v1/jobs")
        self.assertEqual(0, command.wait(180), command.tail())
        ended = Series("controller", None, "starling_controller_jobs_finished_total", None)
        until(lambda: any(series.name == ended.name for series in list(self.scraper.values)), 30,
              "the controller has counted the job's end")
        self.scraper.close()
        self.home.run("down")

    def check(self, sources):
        """All of these sources' metrics appeared, and none that is not documented."""
        shown = {}
        for series in self.scraper.values:
            name = family(series.name, self.metrics) or series.name
            self.assertIn(name, self.metrics, f"{series.pod} shows it, but it is not documented")
            labels = {label for label, _ in series.labels} - {"le"}
            self.assertEqual(self.metrics[name].labels, labels, series)
            shown.setdefault(name, set()).add(series.pod)
        for name, metric in self.metrics.items():
            if metric.source not in sources:
                continue
            self.assertIn(name, shown, f"documented, but nobody shows it ({metric.source})")
            self.assertEqual(metric.kind, self.scraper.types[name], name)
            self.assertEqual(metric.kind == "counter", name.endswith("_total"), name)
        for name, pods in shown.items():
            of = self.metrics[name].source
            wrong = {pod for pod in pods if of != "every process" and not self.is_of(pod, of)}
            self.assertFalse(wrong, f"{name} is documented as the {of}'s")
        for pod in {series.pod for series in self.scraper.values}:
            self.assertIn(pod, shown["process_resident_memory_bytes"], "every process")
        self.assertEqual(set(), never_fell(self.scraper.values, self.metrics) - POSITIONS,
                         "gauges that never fall are counters")

    @staticmethod
    def is_of(pod, source):
        return {"worker": "-worker-", "parameter server": "-parameter-server-",
                "coordinator": "-coordinator-", "controller": "controller",
                "rest service": "controller"}[source] in pod

    def test_of_a_job_with_workers(self):
        # The queue does not exist, so the job is Degraded.
        job = jobs.digits(workers=2, epochs=6,
                          runPolicy__schedulingPolicy={"queue": "nobody"})
        self.run_scraped(job, ["digits-worker-1", "digits-coordinator-0", "digits-worker-0"])
        self.check({"worker", "coordinator", "controller", "rest service",
                    "every process"})

    def test_of_a_job_with_parameter_servers(self):
        # Long enough for smoothed values to have risen and to fall.
        job = parameter_server_test.job(epochs=2 * parameter_server_test.EPOCHS,
                                        runPolicy__schedulingPolicy={"queue": "nobody"})
        self.run_scraped(job, ["digits-worker-1", "digits-parameter-server-1"])
        self.check({"worker", "parameter server", "coordinator", "controller", "every process"})

    def test_a_counter_that_is_typed_as_a_gauge_is_seen(self):
        self.scraper.close()
        self.home.run("down")
        values = {Series("w", 0, "starling_worker_loss", frozenset()): [1, 2, 3, 4],
                  Series("w", 0, "starling_worker_view_members", frozenset()): [1, 2, 1, 4]}
        self.assertEqual({"starling_worker_loss"}, never_fell(values, self.metrics))


if __name__ == "__main__":
    unittest.main(verbosity=2)
