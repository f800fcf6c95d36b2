#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/techniques.md and docs/stragglers.svg from what `starling-techniques` wrote.

usage: tests/techniques/page.py [--results build/results/techniques] [--out docs]
       tests/techniques/page.py --check docs/techniques.md

Nothing on the page is typed by hand: its head names the command, the commit that ran, and the
digest of the rest, which --check holds against it. Whether the page is this tree's is asked of the
rows themselves, which the tests play (techniques_test.cc, NotOnPage).
"""
import argparse
import glob
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMAND = "make techniques"
HEAD = re.compile(r"<!-- Made by `(?P<command>[^`]+)` at commit (?P<commit>[0-9a-f]{40})"
                  r"(?P<dirty>, with changes)?; "
                  r"SHA-256 of what follows: (?P<digest>[0-9a-f]{64}) -->\n")
LEARNED = (
    "Where a row judges how well something is learned, the names of its figures begin with MNIST: "
    "a LeNet-5 of 61,706 parameters learns, by the engine that workers have and with one thread, "
    "from the first 8,000 of the 10,000 images in examples/data, in five passes, and is judged "
    "by the last 2,000. One of these is 0.05 points of accuracy; with 97% right, the sampling "
    "error of one run is 0.38 points, and that of a mean over five seeds, which share the images, "
    "between 0.17 and 0.38. Two methods are compared seed by seed, from the same first values and "
    "on the same images; where the differences lie on both sides of zero, these images do not "
    "resolve which of the two is better. The other figures that need gradients, and the race of "
    "the stragglers, have the digits of examples/data: 1,438 training and 359 test images of 8 by "
    "8 pixels. What is counted, such as bytes, staleness and sums of whole numbers, is exact.\n")
LEARNED_WITHOUT_ENGINE = (
    "**No engine was there, so nothing is judged on MNIST.** Where a row judges how well "
    "something is learned, it is learned on the digits of examples/data: 1,438 training and 359 "
    "test images of 8 by 8 pixels. One test image is 0.28 points of accuracy; with 95% right, the "
    "sampling error of one run is 1.15 points, and that of a mean over five seeds, which share "
    "these images, is between 0.5 and 1.15. So five seeds resolve differences of a point or two, "
    "and none of the tenths of a point by which methods differ on larger data. What is counted, "
    "such as bytes, staleness and sums of whole numbers, is exact.\n")
LICENCE = "<!-- SPDX-License-Identifier: Apache-2.0 -->\n"


def number(value):
    if isinstance(value, str):
        return value
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def spread(values):
    numbers = [value for value in values if not isinstance(value, str)]
    if len(numbers) < len(values) or not numbers:
        return ", ".join(sorted({number(value) for value in values}))
    if max(numbers) == min(numbers):
        return number(numbers[0])
    return f"{number(statistics.mean(numbers))} [{number(min(numbers))}, {number(max(numbers))}]"


def row_number(row):
    kind, number_in_kind = row["row"].split("-")
    return kind, int(number_in_kind)


def table(row):
    yield f"## {row['row']}: {row['title']}\n"
    yield f"{capital(row['check'])}. Control: {row['control']}.\n"
    yield "| | measured | wanted | |"
    yield "| --- | --- | --- | --- |"
    for figure in row["figures"]:
        what = f"*control:* {figure['what']}" if figure["control"] else figure["what"]
        verdict = "" if not figure["rule"] else "holds" if figure["holds"] else "**fails**"
        yield (f"| {what} | {spread(figure['values'])} | {figure['wanted'] or 'told only'} | "
               f"{verdict} |")
    yield ""


def capital(text):
    return text[0].upper() + text[1:]


def verdicts(rows):
    yield "| row | technique | seeds | figures judged | controls | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        judged = [one for one in row["figures"] if one["rule"] and not one["control"]]
        controls = [one for one in row["figures"] if one["rule"] and one["control"]]
        anchor = re.sub(r"[^a-z0-9 -]", "", f"{row['row']}: {row['title']}".lower())
        yield (f"| [{row['row']}](#{anchor.replace(' ', '-')}) | {row['title']} | {row['seeds']} | "
               f"{len(judged)} | {len(controls)} | {'holds' if row['holds'] else '**fails**'} |")
    yield ""


def race(study):
    yield "## Stragglers\n"
    yield (f"{study['workers']} workers of {study['step']} s a push of {study['batch']} samples; "
           f"another of them is {study['slower']:.0f} times slower every {study['turn']:.0f} s. "
           f"Seconds (made-up time, real gradients) until {study['target']:.0%} of the digits' "
           f"test set are right; {study['seeds']} seeds, mean [lowest, highest]. With the straggler "
           "each of the others must be sooner than bulkSynchronous, with every seed.\n")
    yield "![Accuracy over time by consistency model](stragglers.svg)\n"
    yield "| model | no straggler | rotating straggler | staleness, mean (most) | time waited |"
    yield "| --- | --- | --- | --- | --- |"
    for model in dict.fromkeys(run["model"] for run in study["runs"]):
        def of(stragglers):
            return [run for run in study["runs"]
                    if run["model"] == model and run["stragglers"] == stragglers]
        reached = [spread([run["reached"] if run["reached"] is not None else "not reached"
                           for run in of(flag)]) for flag in (False, True)]
        late = of(True)
        yield (f"| {model} | {reached[0]} | {reached[1]} | "
               f"{statistics.mean(run['staleness']['mean'] for run in late):.1f} "
               f"({max(run['staleness']['most'] for run in late)}) | "
               f"{statistics.mean(run['waited'] for run in late):.0%} |")
    yield ""


def plot(study, path):
    import matplotlib
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "starling"
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for axis, stragglers in zip(axes, (False, True)):
        for color, model in enumerate(dict.fromkeys(run["model"] for run in study["runs"])):
            for run in study["runs"]:
                if run["model"] != model or run["stragglers"] != stragglers:
                    continue
                axis.plot([point[0] for point in run["curve"]], [point[3] for point in run["curve"]],
                          color=f"C{color}", linewidth=1, alpha=0.9 if run["seed"] == 1 else 0.35,
                          label=model if run["seed"] == 1 else None)
        axis.axhline(study["target"], color="0.6", linewidth=0.8, linestyle=":")
        axis.set_title("a rotating straggler, 10 times slower" if stragglers else "no straggler",
                       fontsize=10)
        axis.set_xlabel("seconds")
        axis.set_xscale("log")
        axis.grid(True, which="both", linewidth=0.3)
    axes[0].set_ylabel("accuracy on the test set")
    axes[0].set_ylim(0.4, 1)
    axes[0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def commit():
    def git(*words):
        return subprocess.run(["git", "-C", REPOSITORY, *words], capture_output=True, text=True,
                              check=True).stdout.strip()
    changed = git("status", "--porcelain", "--", "trainer", "tests/techniques", "common", "api/proto")
    return git("rev-parse", "HEAD"), bool(changed)


def make(results, out):
    rows = []
    for path in glob.glob(os.path.join(results, "[A-Z]*-*.json")):
        with open(path, encoding="utf-8") as file:
            rows.append(json.load(file))
    if not rows:
        sys.exit(f"{results} holds no results: run `{COMMAND}`")
    rows.sort(key=row_number)
    with open(os.path.join(results, "stragglers.json"), encoding="utf-8") as file:
        study = json.load(file)
    lines = ["# Techniques, checked\n",
             "Each row: what is measured over the seeds (mean [lowest, highest]), what is wanted, "
             "and a negative control, in which the essential ingredient is left out and the harm "
             "must be seen. `make test` plays the same rows in a short form and holds this page against "
             "it: what is checked, the name of each figure and what is wanted of it. The short form has "
             "one seed, and fewer of PS-22's histories. It learns the digits, of which one seed resolves "
             "less: there accuracies may be 2 to 2.5 points lower instead of 0.5 to 1.5, and "
             "DC-ASGD's too; harm to what a codec's workers learn is judged there by the loss alone. "
             "It does not judge PS-18's step time, which is a wall clock's.\n",
             LEARNED if all(row["mnist"] for row in rows) else LEARNED_WITHOUT_ENGINE]
    lines += verdicts(rows)
    lines += race(study)
    for row in rows:
        lines += table(row)
    body = "\n".join(lines).rstrip("\n") + "\n"
    digest = hashlib.sha256(body.encode()).hexdigest()
    number_of_commit, changed = commit()
    head = (f"<!-- Made by `{COMMAND}` at commit {number_of_commit}"
            f"{', with changes' if changed else ''}; SHA-256 of what follows: {digest} -->\n")
    with open(os.path.join(out, "techniques.md"), "w", encoding="utf-8") as file:
        file.write(LICENCE + head + body)
    plot(study, os.path.join(out, "stragglers.svg"))
    print(f"written: {out}/techniques.md and {out}/stragglers.svg")
    return 0 if all(row["holds"] for row in rows) else 1


def check(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    match = HEAD.match(text, len(LICENCE)) if text.startswith(LICENCE) else None
    if match is None:
        sys.exit(f"{path} does not say which command and commit made it; run: {COMMAND}")
    digest = hashlib.sha256(text[match.end():].encode()).hexdigest()
    if digest != match["digest"] or match["command"] != COMMAND:
        sys.exit(f"{path} was changed after it was made; run: {COMMAND}")
    if "**fails**" in text:
        sys.exit(f"{path}: a row fails; mend what it measures and run: {COMMAND}")
    print(f"generated: {os.path.basename(path)} is as {match['commit'][:12]} made it")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", default="build/results/techniques")
    parser.add_argument("--out", default="docs")
    parser.add_argument("--check", metavar="PAGE")
    options = parser.parse_args()
    os.chdir(REPOSITORY)
    if options.check:
        return check(options.check)
    return make(options.results, options.out)


if __name__ == "__main__":
    sys.exit(main())
