# SPDX-License-Identifier: Apache-2.0
"""What docs/reference/metrics.md says, and which metrics a PromQL expression names."""
import os
import re
from collections import namedtuple

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(REPOSITORY, "docs/reference/metrics.md")
Metric = namedtuple("Metric", "name kind labels source")

# PromQL's own words, as far as dashboards and rules use any.
WORDS = {"sum", "max", "min", "avg", "count", "quantile", "rate", "increase", "changes", "time",
         "histogram_quantile", "clamp_min", "vector", "and", "or", "unless", "offset", "bool"}


def table():
    """The metrics of the page by name."""
    metrics, source = {}, ""
    with open(PAGE, encoding="utf-8") as page:
        for line in page:
            if line.startswith("## "):
                source = line[3:].strip().lower()
            row = re.match(r"\| `(\w+)` \| (\w+) \| (.*?) \| ", line)
            if row:
                labels = frozenset(re.findall(r"`(\w+)`", row.group(3)))
                metrics[row.group(1)] = Metric(row.group(1), row.group(2), labels, source)
    return metrics


def names_in(expression):
    """Metrics that the expression names: what is left of its words."""
    text = re.sub(r'"(\\.|[^"\\])*"', "", expression)
    text = re.sub(r"\[[^\]]*\]", "", text)
    text = re.sub(r"\boffset \d+\w", "", text)
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right) *\([^)]*\)", "", text)
    text = re.sub(r"\{[^}]*\}", "", text)
    found = set(re.findall(r"[a-zA-Z_:][\w:]*", text))
    return {word for word in found if word not in WORDS and not word.startswith("$")}


def family(name, metrics):
    """The metric of a series: a histogram's own name for its buckets, sum and count."""
    for end in ("_bucket", "_sum", "_count"):
        base = name[:-len(end)] if name.endswith(end) else None
        if base in metrics and metrics[base].kind == "histogram":
            return base
    return name if name in metrics and metrics[name].kind != "histogram" else None
