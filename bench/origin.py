#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where figures come from: the command, the commit and the machine, beside them in each JSON file.

usage: bench/origin.py --check docs/benchmarks.md

docs/benchmarks.md is written by people, from those files. Each of its sections that has a table says
at which commit its figures were taken; --check asks for that, and tells how many commits have
changed the product since.
"""
import datetime
import json
import os
import re
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRODUCT = ("api", "common", "controller", "trainer")
# "Taken at commit 65170d76 (2026-11-21)": of a section, or of a part of one.
TAKEN = re.compile(r"Taken at commit ([0-9a-f]{7,40}) \(\d{4}-\d{2}-\d{2}\)")


def git(*words):
    return subprocess.run(["git", "-C", REPOSITORY, *words], capture_output=True, text=True,
                          check=False)


def processor():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")),
                     "unknown processor")
    return f"{model}, {os.cpu_count()} cores"


def origin():
    """Of figures that this process has taken; "commit" is empty where there is no repository."""
    changed = git("status", "--porcelain", "--", *PRODUCT, "bench").stdout.strip()
    return {"command": " ".join([os.path.relpath(sys.argv[0], REPOSITORY), *sys.argv[1:]]),
            "commit": git("rev-parse", "HEAD").stdout.strip() + (", with changes" if changed else ""),
            "machine": processor(), "loadAverage": os.getloadavg()[0],
            "taken": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


def save(path, results):
    """Writes figures and where they come from, and says both."""
    where = origin()
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"origin": where, "results": results}, file, indent=1)
        file.write("\n")
    print(f"written: {os.path.relpath(path, REPOSITORY)}, taken at commit {where['commit']} by "
          f"`{where['command']}` on {where['machine']}, load average {where['loadAverage']:.1f}")


def check(path):
    with open(path, encoding="utf-8") as file:
        sections = re.split(r"^## ", file.read(), flags=re.MULTILINE)[1:]
    for section in sections:
        title = section.partition("\n")[0]
        commits = TAKEN.findall(section)
        if not commits and "\n| " in section:
            sys.exit(f"{path}, {title}: it does not say at which commit its figures were taken; "
                     "write \"Taken at commit HASH (DATE)\", as the JSON file of the run has it")
        for commit in commits:
            since = git("rev-list", "--count", f"{commit}..HEAD", "--", *PRODUCT)
            age = f"{since.stdout.strip()} commits before this one" if since.returncode == 0 else (
                "not in this history")
            print(f"benchmarks: {title.partition(' (')[0]}: {commit}, {age}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "--check":
        sys.exit(__doc__)
    sys.exit(check(sys.argv[2]))
