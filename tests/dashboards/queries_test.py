#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dashboards, rules and runbooks: current, complete, and of metrics that there are."""
import json
import os
import re
import sys
import unittest

from alert_cases import CASES
from metric_names import REPOSITORY, family, names_in, table

FOLDER = os.path.join(REPOSITORY, "dashboards")
sys.path.insert(0, FOLDER)
import draw  # pylint: disable=wrong-import-position
import generate  # pylint: disable=wrong-import-position

# Of NVIDIA's dcgm-exporter, which a cluster with GPUs may have.
FOREIGN = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE"}


def read(*path):
    with open(os.path.join(REPOSITORY, *path), encoding="utf-8") as file:
        return file.read()


class Queries(unittest.TestCase):
    def setUp(self):
        self.metrics = table()
        self.recorded = {name for name, _ in generate.RECORDED}

    def expressions(self):
        for name, *_ in generate.DASHBOARDS:
            board = json.loads(read("dashboards", f"{name}.json"))
            for panel in board["panels"]:
                for target in panel["targets"]:
                    yield f"{name}: {panel['title']}", target["expr"]
            for annotation in board["annotations"]["list"]:
                yield f"{name}: annotation", annotation["expr"]
        for name, expression in generate.RECORDED:
            yield name, expression
        for alert in generate.ALERTS:
            yield alert.name, alert.expression

    def check(self, where, expression):
        named = names_in(expression)
        self.assertTrue(named, f"{where} names no metric: {expression}")
        for name in named - self.recorded - FOREIGN:
            self.assertIsNotNone(family(name, self.metrics), f"{where}: no metric {name} in "
                                 f"docs/reference/metrics.md: {expression}")
        # rate() of a gauge is nonsense, and so is a bare counter's level.
        for call, name in re.findall(r"\b(rate|increase)\((\w+)", expression):
            metric = self.metrics[family(name, self.metrics)]
            self.assertIn(metric.kind, ("counter", "histogram"), f"{where}: {call} of {name}")

    def test_every_query_is_of_metrics_of_the_table(self):
        count = 0
        for where, expression in self.expressions():
            self.check(where, expression)
            count += 1
        self.assertGreater(count, 70)

    def test_a_metric_that_is_not_there_is_seen(self):
        for wrong in ("rate(starling_worker_steps[5m])", "starling_worker_step_seconds",
                      "sum by (le) (rate(starling_worker_loss[5m]))", "up"):
            with self.assertRaises(AssertionError):
                self.check("a mutant", wrong)

    def test_files_are_current(self):
        for name, text in generate.files().items():
            self.assertEqual(text, read("dashboards", name), "run: dashboards/generate.py")


class Dashboards(unittest.TestCase):
    def test_can_be_imported_as_they_are(self):
        uids = set()
        for name, *_ in generate.DASHBOARDS:
            board = json.loads(read("dashboards", f"{name}.json"))
            self.assertNotIn("__inputs", board)
            uids.add(board["uid"])
            variables = {variable["name"] for variable in board["templating"]["list"]}
            self.assertIn("datasource", variables)
            text = json.dumps(board)
            used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval", "__all"}
            self.assertLessEqual(used, variables, name)
            taken = set()
            for panel in board["panels"]:
                self.assertTrue(panel["description"], panel["title"])
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
                cells = {(x, place["y"]) for x in range(place["x"], place["x"] + place["w"])}
                self.assertFalse(cells & taken, f"{name}: {panel['title']} lies on another")
                taken |= cells
                for target in panel["targets"]:
                    self.assertEqual("${datasource}", target["datasource"]["uid"])
        self.assertEqual(len(generate.DASHBOARDS), len(uids))


class Drawing(unittest.TestCase):
    """What draw.py makes of a dashboard and of what Prometheus answers; the browser draws only that."""

    class Stretch(draw.Range):
        def __init__(self, answer):
            super().__init__("http://nowhere", 5, 2)
            self.answer = answer
            self.asked = []

        def ask(self, expression):
            self.asked.append(expression)
            return self.answer

    def test_lines_have_their_legends_and_queries_their_variables(self):
        stretch = self.Stretch([({"job_name": "digits", "name": "loss"}, [[1, 0.5], [3, None]])])
        board = json.loads(read("dashboards/job.json"))
        drawn = draw.content(board, stretch, {"ns": "team", "job": "digits"})
        (metrics,) = (panel for panel in drawn["panels"] if panel["title"] == "Metrics")
        self.assertEqual([{"name": "digits loss", "values": [[1, 0.5], [3, None]]}], metrics["lines"])
        self.assertIn('sum (rate(starling_worker_samples_total'
                      '{job_namespace=~"team",job_name=~"digits"}[8s]))', stretch.asked)
        for expression in stretch.asked:
            self.assertNotIn("$", expression)
        self.assertEqual([["Data source", "Prometheus"], ["Namespace", "team"], ["Job", "digits"]],
                         drawn["variables"])

    def test_an_incident_is_one_mark_however_long_its_series_shows_it(self):
        stretch = self.Stretch([({"reason": "WorkerLost"}, [[10, 1], [12, 1], [14, 1], [40, 1]])])
        self.assertEqual([10, 40], [mark["at"] for mark in draw.marks(
            {"expr": "x", "titleFormat": "{{reason}}"}, stretch, str)])

    def test_the_browser_knows_every_unit_and_every_colour(self):
        text = read("dashboards/draw.mjs")
        for name, *_ in generate.DASHBOARDS:
            for panel in json.loads(read("dashboards", f"{name}.json"))["panels"]:
                field = panel["fieldConfig"]
                self.assertRegex(text, rf"\n    {field['defaults']['unit']}(:|,)", panel["title"])
                for override in field["overrides"]:
                    colour = override["properties"][0]["value"]["fixedColor"]
                    hue = colour.rpartition("-")[2]
                    self.assertTrue(colour.startswith("#") or f"    {hue}: [" in text, colour)


class Alerts(unittest.TestCase):
    def test_each_has_a_runbook_that_says_what_it_means_how_to_look_and_what_to_do(self):
        pages = set(os.listdir(os.path.join(REPOSITORY, "docs/runbooks")))
        self.assertEqual({f"Starling{alert.name}.md" for alert in generate.ALERTS}, pages)
        for alert in generate.ALERTS:
            page = read("docs/runbooks", f"Starling{alert.name}.md")
            self.assertTrue(page.startswith(f"# Starling{alert.name}\n"))
            for section in ("## What it means", "## How to look", "## What to do"):
                self.assertIn(f"\n{section}\n", page, alert.name)
            # What a page names is there.
            for name in re.findall(r"\b(?:starling_(?:worker|server|job|controller)|process|"
                                   r"workqueue|rest_client|controller_runtime)_\w+\b", page):
                self.assertIsNotNone(family(name, table()) or table().get(name),
                                     f"{alert.name}: no metric {name}")

    def test_each_is_tried_with_its_fault_and_without(self):
        for alert in generate.ALERTS:
            tried = {case.labels is None for case in CASES if case.alert == alert.name}
            self.assertEqual({True, False}, tried, f"{alert.name} in alert_cases.py")


if __name__ == "__main__":
    unittest.main(verbosity=2)
