#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what bench/allreduce.py has measured: a panel for each number of ranks and transport, GB/s over bytes.

usage: bench/allreduce_plot.py build/bench/allreduce.json FILE.svg, by a Python that has matplotlib (Debian's
python3-matplotlib, of cmake/packages-prove.txt)
"""
import json
import sys

import matplotlib
matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402  (how it draws is chosen first)

matplotlib.rcParams.update({"svg.hashsalt": "starling", "svg.fonttype": "none", "font.family": "sans-serif"})


def plot(results, path):
    counts = sorted({row["ranks"] for row in results})
    figure, axes = pyplot.subplots(len(counts), 2, figsize=(9, 3.2 * len(counts)), sharex=True, squeeze=False)
    colors = {library: f"C{i}" for i, library in enumerate(dict.fromkeys(row["library"] for row in results))}
    for line, ranks in zip(axes, counts):
        for axis, transport in zip(line, ("shm", "tcp")):
            for library, color in colors.items():
                points = sorted((row["bytes"], row["gigabytesPerSecond"]) for row in results
                                if (row["ranks"], row["library"], row["transport"]) == (ranks, library, transport))
                if points:
                    axis.plot(*zip(*points), color=color, label=library, linewidth=2 if library == "Starling" else 1,
                              linestyle=":" if library == "by hand" else "-", marker=".")
            axis.set_title(f"{ranks} ranks, {'shared memory' if transport == 'shm' else 'TCP'}", fontsize=10)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_ylim(bottom=0.01)
            axis.minorticks_off()
            axis.grid(True, linewidth=0.3)
        line[0].set_ylabel("GB/s")
    for axis in axes[-1]:
        axis.set_xlabel("bytes of the array")
    for axis in axes[0]:
        axis.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        plot(json.load(file)["results"], sys.argv[2])
