#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The emulated network by real clocks beside its model, and how sums scale to 4,096 ranks.

usage: bench/network.py [--bin FOLDER] [--docs FOLDER] [real] [curves]

real: one link and a shared card must take what the model says, within a tenth; sums of 2 to 8 ranks
what the simulator says, within 15 %. The model of a network that is twice as fast must be further
off: else the check shows nothing. Exit code 1 if not.
curves: plays the schedules of 2 to 4,096 ranks; with --docs writes scaling.md and scaling.svg there.
"""
import argparse
import collections
import json
import os
import subprocess
import sys

import harness
import origin

ALLOWED = {"link": 0.10, "shared card": 0.10}  # and of sums:
ALLOWED_OF_SUMS = 0.15
COLORS = {"Ring": "#1f77b4", "HalvingDoubling": "#d62728", "RecursiveDoubling": "#2ca02c",
          "Tree": "#9467bd"}


def play(folder, what):
    """One object a line."""
    process = subprocess.Popen([os.path.join(folder, "starling-network-bench"), what],
                               stdout=subprocess.PIPE, text=True)
    with process:
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode != 0:
        sys.exit(f"starling-network-bench {what} failed with {process.returncode}")


def compare(folder):
    """Whether real clocks say what the model says."""
    points = list(play(folder, "real"))
    print("| what | ranks | on a card | bytes | measured, ms | model, ms | off by |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    wrong, unnoticed = [], 0
    for point in points:
        off = point["measured"] / point["model"] - 1
        allowed = ALLOWED.get(point["what"], ALLOWED_OF_SUMS)
        if abs(off) > allowed:
            wrong.append(point)
        unnoticed += abs(point["measured"] / point["ofFasterNetwork"] - 1) <= allowed
        print(f"| {point['what']} | {point['ranks']} | {point['perHost']} | {point['bytes']} | "
              f"{1e3 * point['measured']:.1f} | {1e3 * point['model']:.1f} | {off:+.1%} |")
    offs = sorted(abs(point["measured"] / point["model"] - 1) for point in points)
    print(f"{len(points) - len(wrong)} of {len(points)} points are as the model says; off by "
          f"{offs[len(offs) // 2]:.1%} in the middle, {offs[-1]:.1%} at most. By the model of a "
          f"network that is twice as fast {unnoticed} would be.")
    return points, not wrong and unnoticed == 0


def size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def time(seconds):
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def panels(points):
    """By network, size and hosts."""
    found = collections.defaultdict(dict)
    for point in points:
        key = (point["bytesPerSecond"], point["bytes"], point["perHost"])
        found[key].setdefault(point["algorithm"], []).append(point)
    return dict(sorted(found.items()))


def title(key):
    bandwidth, count, per_host = key
    hosts = "a card each" if per_host == 1 else f"{per_host} ranks on a card"
    return f"{size(count)}, {bandwidth * 8 / 1e9:g} Gbit/s, {hosts}"


def log2(value):
    from math import log2 as logarithm
    return logarithm(value)


def svg(points):
    """A panel for each network, size and kind of host; both axes are logarithmic."""
    wide, high, left, top = 380, 250, 58, 26
    found = panels(points)
    rows = (len(found) + 1) // 2
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * wide}" height="{rows * high + 30}" '
           'font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="white"/>']
    for index, (key, lines) in enumerate(found.items()):
        x0, y0 = index % 2 * wide + left, index // 2 * high + top
        width, height = wide - left - 16, high - top - 42
        values = [point["seconds"] for line in lines.values() for point in line
                  if point["seconds"] > 0]
        low, most = log2(min(values)), log2(max(values))

        def at(ranks, seconds):
            return (x0 + (log2(ranks) - 1) / 11 * width,
                    y0 + height - (log2(seconds) - low) / (most - low) * height)
        out.append(f'<text x="{x0}" y="{y0 - 8}" font-size="12">{title(key)}</text>')
        out.append(f'<rect x="{x0}" y="{y0}" width="{width}" height="{height}" fill="none" '
                   'stroke="#999"/>')
        for ranks in (2, 8, 64, 512, 4096):
            x = at(ranks, min(values))[0]
            out.append(f'<text x="{x:.1f}" y="{y0 + height + 14}" text-anchor="middle">{ranks}</text>')
            out.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y0}" y2="{y0 + height}" stroke="#eee"/>')
        for power in range(-6, 4):
            if not min(values) <= 10.0 ** power <= max(values):
                continue
            y = at(2, 10.0 ** power)[1]
            out.append(f'<text x="{x0 - 4}" y="{y + 4:.1f}" text-anchor="end">{time(10.0 ** power)}'
                       '</text>')
            out.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#eee"/>')
        for algorithm, line in lines.items():
            path = " ".join("%.1f,%.1f" % at(point["ranks"], point["seconds"]) for point in line
                            if point["seconds"] > 0)
            out.append(f'<polyline points="{path}" fill="none" stroke="{COLORS[algorithm]}" '
                       'stroke-width="1.6"/>')
    for index, (algorithm, color) in enumerate(COLORS.items()):
        x, y = left + index * 160, rows * high + 16
        out.append(f'<line x1="{x}" x2="{x + 24}" y1="{y}" y2="{y}" stroke="{color}" '
                   f'stroke-width="2"/><text x="{x + 30}" y="{y + 4}">{algorithm}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


ASSUMPTIONS = """
What is assumed:

- Cards send and receive at once, at the bandwidth named, and never more: no burst, no loss, no switch that is
  busy or oversubscribed. Every message takes {delay} more, whatever is between its ends.
- Ranks wait for nothing but messages: adding, copying, headers' processing and system calls take no time. On a real machine
  each message costs a core about 5 microseconds; that is a tenth of the delay here, and hides behind it.
- All ranks begin at the same instant. Ranks that share a card follow one another, and what they send one another
  takes no time.
- Arrays of float32 are sent as [Execute](design/collectives.md) sends them, in pieces of 256 KiB with a header of 40
  bytes each, in the schedules of `trainer/collectives/schedule.h`. Rings and recursive doubling are
  the same at every host, so one host is played for all (a test holds that against playing all); the others are
  played in full.
"""


def page(points):
    where = origin.origin()
    yield "<!-- SPDX-License-Identifier: Apache-2.0 -->"
    yield f"<!-- Made by `{where['command']}` at commit {where['commit']} -->"
    yield "# How sums of gradients scale\n"
    yield ("Seconds of one allreduce on emulated networks, up to 4,096 ranks, as the simulator plays them "
           "(`trainer/collectives/emulation.h`). `bench/network.py real` holds it against real clocks with 2 to "
           "8 ranks ([benchmarks](benchmarks.md)).\n")
    yield "![Time of an allreduce by number of ranks](scaling.svg)"
    yield ASSUMPTIONS.format(delay=time(points[0]["delay"])).rstrip()
    yield ("\nThe bound is what no network of these cards can be faster than: the longest path of messages of "
           "which one waits for the other, or what the busiest card has to send or receive, in the schedule of "
           "the algorithm that is fastest there.\n")
    for key, lines in panels(points).items():
        yield f"## {title(key)}\n"
        yield "| ranks | " + " | ".join(lines) + " | bound of the fastest |"
        yield "| --- " * (len(lines) + 2) + "|"
        for row in zip(*lines.values()):
            best = min(row, key=lambda point: point["seconds"])
            cells = [f"**{time(point['seconds'])}**" if point is best and point["seconds"] > 0
                     else time(point["seconds"]) for point in row]
            bound = max(best["longestPath"], best["busiestCard"])
            yield f"| {row[0]['ranks']} | " + " | ".join(cells) + f" | {time(bound)} |"
        yield ""
    slowest = max(points, key=lambda point: point["tookSeconds"])
    yield (f"The run took {sum(point['tookSeconds'] for point in points):.0f} s of one core, the longest of them "
           f"({slowest['algorithm']}, {slowest['ranks']} ranks) {slowest['tookSeconds']:.0f} s, and at most "
           f"{max(point['mostMebibytes'] for point in points)} MiB.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="real, curves; default: both")
    parser.add_argument("--bin", default=os.path.join(harness.REPOSITORY, "build/release/bin"))
    parser.add_argument("--docs", help="where scaling.md and scaling.svg are written")
    options = parser.parse_args()
    results, good = {}, True
    print(f"others kept {harness.busy_cores():.2f} cores busy before the start", flush=True)
    if "real" in options.what or not options.what:
        results["real"], good = compare(options.bin)
    if "curves" in options.what or not options.what:
        points = results["curves"] = list(play(options.bin, "curves"))
        text = "\n".join(page(points)) + "\n"
        print(text)
        if options.docs:
            with open(os.path.join(options.docs, "scaling.md"), "w", encoding="utf-8") as file:
                file.write(text)
            with open(os.path.join(options.docs, "scaling.svg"), "w", encoding="utf-8") as file:
                file.write(svg(points))
    harness.save("network", results)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
