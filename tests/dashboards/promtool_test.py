#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prometheus' own verdict on the rules: they are valid, every alert fires under its fault and is
silent without, and every query of a dashboard parses. Exits with 77 where promtool cannot be built.
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from alert_cases import CASES
from metric_names import REPOSITORY

FOLDER = os.path.join(REPOSITORY, "dashboards")
sys.path.insert(0, FOLDER)
import generate  # pylint: disable=wrong-import-position

VARIABLES = {"$__rate_interval": "5m", "$ns": ".*", "$job": ".*"}


def promtool(*arguments):
    done = subprocess.run([PROMTOOL, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    return done.returncode, done.stdout


def unit_test(case, rules):
    """One case in promtool's form; JSON is YAML."""
    expected = [] if case.labels is None else [{
        "exp_labels": case.labels,
        "exp_annotations": {"summary": case.summary,
                            "runbook": f"docs/runbooks/Starling{case.alert}.md"}}]
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": [{
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in case.series],
        "alert_rule_test": [{"eval_time": case.at, "alertname": f"Starling{case.alert}",
                             "exp_alerts": expected}]}]}


class Promtool(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def play(self, case, rules=os.path.join(FOLDER, "rules.yaml")):
        return promtool("test", "rules", self.write("case.json", json.dumps(unit_test(case, rules))))

    def test_the_rules_are_valid(self):
        code, text = promtool("check", "rules", os.path.join(FOLDER, "rules.yaml"))
        self.assertEqual(0, code, text)

    def test_each_alert_fires_under_its_fault_and_is_silent_without(self):
        for number, case in enumerate(CASES):
            with self.subTest(case.alert, number=number):
                code, text = self.play(case)
                self.assertEqual(0, code, text)

    def test_an_alert_that_never_fires_is_seen(self):
        rules = generate.rules().replace(" < 1", " < -1").replace("> 0.1\"", "> 10\"")
        path = self.write("rules.yaml", rules)
        for case in CASES:
            if case.alert in ("NoLeader", "ReconcileErrors") and case.labels is not None:
                self.assertNotEqual(0, self.play(case, path)[0], case.alert)

    def test_every_query_of_a_dashboard_parses(self):
        expressions = []
        for name, *_ in generate.DASHBOARDS:
            with open(os.path.join(FOLDER, f"{name}.json"), encoding="utf-8") as file:
                board = json.load(file)
            expressions += [target["expr"] for panel in board["panels"]
                            for target in panel["targets"]]
            expressions += [one["expr"] for one in board["annotations"]["list"]]
        for variable, value in VARIABLES.items():
            expressions = [text.replace(variable, value) for text in expressions]
        rules = {"groups": [{"name": "panels", "rules": [
            {"record": f"panel:{i}", "expr": text} for i, text in enumerate(expressions)]}]}
        code, text = promtool("check", "rules", "--lint=none",
                              self.write("panels.json", json.dumps(rules)))
        self.assertEqual(0, code, text)
        rules["groups"][0]["rules"][0]["expr"] += ")"
        code, _ = promtool("check", "rules", self.write("panels.json", json.dumps(rules)))
        self.assertNotEqual(0, code, "a query that does not parse is seen")


if __name__ == "__main__":
    built = subprocess.run([os.path.join(REPOSITORY, "tests/kube/tools/build.sh"), "prometheus"],
                           stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode:
        sys.exit(built.returncode)
    PROMTOOL = os.path.join(built.stdout.strip(), "promtool")
    unittest.main(verbosity=2)
