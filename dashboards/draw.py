#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the dashboards of this folder from a Prometheus, without a Grafana: the same queries over the same
range, in the same places, with the same titles, units, colours and limits. ECharts draws, in a headless
browser.

usage: dashboards/draw.py --prometheus http://127.0.0.1:9090 [--minutes 15] [--ns REGEX] [--job REGEX] \
           [--every SECONDS] [--light] [--to FOLDER] [fleet|job|trainer|controller]...

Pictures are FOLDER/dashboards-NAME.png; those of docs/ are made anew by tests/dashboards/play_test.py
--pictures, which has jobs run and fail for them.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests/e2e"))
from browser import find_tools  # noqa: E402  pylint: disable=wrong-import-position
import generate  # noqa: E402  pylint: disable=wrong-import-position

BOARDS = [name for name, *_ in generate.DASHBOARDS]
POINTS = 180  # of a line, at most: a panel is not wider in its pixels than twice that


class Range:
    """A stretch of time of a Prometheus that scrapes every so many seconds."""

    def __init__(self, url, minutes, every):
        self.url = url.rstrip("/")
        self.end = time.time()
        self.begin = self.end - 60 * minutes
        self.step = max(every, (self.end - self.begin) / POINTS)
        # As Grafana has it.
        self.rate_interval = f"{max(4 * every, self.step + every):.0f}s"

    def ask(self, expression):
        """[(labels, [[seconds, value], ...])]; a value that is no number is None."""
        query = urllib.parse.urlencode({"query": expression, "start": self.begin, "end": self.end,
                                        "step": self.step})
        with urllib.request.urlopen(f"{self.url}/api/v1/query_range?{query}", timeout=30) as answer:
            found = json.load(answer)["data"]["result"]
        return [(series["metric"], [[at, finite(value)] for at, value in series["values"]])
                for series in found]


def finite(text):
    value = float(text)
    return value if abs(value) < float("inf") else None


def legend(pattern, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found.group(1), ""), pattern).strip()


def marks(annotation, stretch, expand):
    """When each of the annotation's series began to be there: an incident is one mark."""
    found = []
    for labels, values in stretch.ask(expand(annotation["expr"])):
        times = [at for at, _ in values]
        found += [{"at": at, "text": legend(annotation["titleFormat"], labels)}
                  for before, at in zip([0, *times], times) if at - before > 1.5 * stretch.step]
    return found


def content(board, stretch, variables):
    """What the page draws: the board with data in the place of queries."""
    def expand(expression):
        for name, value in {**variables, "__rate_interval": stretch.rate_interval}.items():
            expression = expression.replace(f"${name}", value)
        return expression
    panels = [{"title": panel["title"], "kind": panel["type"], "place": panel["gridPos"],
               **panel["fieldConfig"],
               "lines": [{"name": legend(target["legendFormat"], labels), "values": values}
                         for target in panel["targets"]
                         for labels, values in stretch.ask(expand(target["expr"]))]}
              for panel in board["panels"]]
    return {"title": board["title"], "begin": stretch.begin, "end": stretch.end, "step": stretch.step,
            "variables": [[one["label"], variables.get(one["name"], "Prometheus").replace("|", " + ")]
                          for one in board["templating"]["list"]],
            "panels": panels,
            "marks": [mark for one in board["annotations"]["list"] for mark in marks(one, stretch, expand)]}


def draw(names, stretch, folder, tools, light=False, **variables):
    """`variables`: ns and job, each a regular expression; .* is shown as All."""
    browser, modules = tools
    for name in names:
        with open(os.path.join(HERE, f"{name}.json"), encoding="utf-8") as file:
            board = json.load(file)
        path = os.path.join(folder, f"dashboards-{name}.png")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as data:
            json.dump(content(board, stretch, {"ns": ".*", "job": ".*", **variables}), data)
            data.flush()
            subprocess.run(["node", os.path.join(HERE, "draw.mjs"), data.name, path], check=True,
                           env=dict(os.environ, STARLING_BROWSER=browser, STARLING_WEB_TOOLS=modules,
                                    STARLING_THEME="light" if light else "dark"))
        print(f"{path}: {os.path.getsize(path)} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--prometheus", required=True, metavar="URL")
    parser.add_argument("--minutes", type=float, default=15, help="until now (15)")
    parser.add_argument("--every", type=float, default=15, metavar="SECONDS",
                        help="at which Prometheus scrapes (15)")
    parser.add_argument("--ns", default=".*", metavar="REGEX")
    parser.add_argument("--job", default=".*", metavar="REGEX")
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--to", default=".", metavar="FOLDER")
    parser.add_argument("boards", nargs="*", choices=[*BOARDS, []], metavar="DASHBOARD")
    options = parser.parse_args()
    draw(options.boards or BOARDS, Range(options.prometheus, options.minutes, options.every), options.to,
         find_tools(), options.light, ns=options.ns, job=options.job)


if __name__ == "__main__":
    main()
