#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the sources that have not passed in their present form.

A file's verdict depends on itself, on the headers of this project that it includes and on
.clang-tidy; a digest of them all is remembered outside the tree, so that a second run costs seconds.

Most of a run's time goes into the system's headers, so the files of a folder are first checked as
one unit. Where that one has remarks (files that are alright alone may clash together), each of its
files is checked alone, and only what is said then counts.

Files that include libtorch are left out, and counted: clang 14 cannot read its headers together with
those of g++ 12's library in C++20 (vectors of types that are declared later).
"""
import concurrent.futures
import hashlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "starling" / "tidy"
UNIT = 8
ALL_OURS = r"(common|api|controller|trainer|cli|tests|bench)/.*\.(h|cc)$"
LIBTORCH = re.compile(r"^\s*#\s*include\s*<(torch|ATen|c10)/", re.MULTILINE)
INCLUDE = re.compile(r'^\s*(?:#\s*include|import)\s*"([^"]+)"', re.MULTILINE)
GENERATED = re.compile(r"(\.grpc)?\.pb\.h$")  # of a .proto of the same name
PROTOS = "api/proto"


def closure(path, seen):
    """Adds the file and all of ours that it includes, contracts in the place of what is made of them."""
    if GENERATED.search(path) or path.endswith(".proto"):
        path = os.path.join(PROTOS, GENERATED.sub(".proto", path.removeprefix(PROTOS + "/")))
    if path in seen or not (ROOT / path).exists():
        return
    seen.add(path)
    for included in INCLUDE.findall((ROOT / path).read_text()):
        closure(included, seen)


def digest(path):
    seen = set()
    closure(path, seen)
    sha = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for name in sorted(seen):
        sha.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    return sha.hexdigest()


def includes_libtorch(path):
    seen = set()
    closure(path, seen)
    return any(LIBTORCH.search((ROOT / name).read_text()) for name in seen)


def tidy(build, path, *options):
    run = subprocess.run(["clang-tidy-14", "--quiet", "-p", build, *options, path], cwd=ROOT, capture_output=True,
                         text=True)
    return "" if run.returncode == 0 else run.stdout + run.stderr or f"clang-tidy ended with {run.returncode}"


def mark(path):
    return CACHE / digest(path)


def check(build, unit, paths):
    """What clang-tidy says about these files, by file; of one that passes nothing."""
    marks = {path: mark(path) for path in paths}
    if len(paths) > 1 and not tidy(build, unit, f"--header-filter={ALL_OURS}"):
        remarks = {}
    else:
        remarks = {path: text for path in paths if (text := tidy(build, path))}
    for path in paths:
        if path not in remarks:
            marks[path].touch()
    return remarks


def without_precompiled(command):
    """The same command, but for g++'s precompiled header, which clang cannot read."""
    return re.sub(r"-include \S*/cmake_pch\.hxx", "", command)


def apart(entry):
    """The entry of a source; one for each where one that the build made includes several of a folder."""
    if not re.fullmatch(r"together_\d+\.cc", os.path.basename(entry["file"])):
        return [entry]
    paths = re.findall(r'#include "(\S+)"', pathlib.Path(entry["file"]).read_text())
    return [{**entry, "file": str(ROOT / path), "command": entry["command"].replace(entry["file"], str(ROOT / path))}
            for path in paths]


def units(folder, entries):
    """Files of one folder that are compiled alike, a few at a time, and commands for them all."""
    alike = {}
    for path, entry in sorted(entries.items()):
        command = re.sub(r" -o \S+ -c \S+", "", entry["command"])
        alike.setdefault((os.path.dirname(path), path.endswith("_test.cc"), command), []).append(path)
    commands, found = list(entries.values()), []
    for key, paths in alike.items():
        for start in range(0, len(paths), UNIT):
            unit, some = str(folder / f"unit{len(found)}.cc"), paths[start:start + UNIT]
            pathlib.Path(unit).write_text(
                "".join(f'#include "{ROOT / path}"  // NOLINT(bugprone-suspicious-include)\n' for path in some))
            entry = entries[some[0]]
            commands.append({**entry, "file": unit, "command": entry["command"].replace(entry["file"], unit)})
            found.append((unit, some))
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    return found


def main():
    build, skip = sys.argv[1], sys.argv[2:]
    entries = {}
    listed = json.loads((ROOT / build / "compile_commands.json").read_text())
    for entry in itertools.chain.from_iterable(map(apart, listed)):
        path = os.path.relpath(entry["file"], ROOT)
        if path.endswith(".cc") and not path.startswith(("build", "..", *skip)):
            entries[path] = {**entry, "command": without_precompiled(entry["command"])}
    unread = {path for path in entries if includes_libtorch(path)}
    entries = {path: entry for path, entry in entries.items() if path not in unread}
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = ROOT / build / "tidy"
    folder.mkdir(exist_ok=True)
    changed = {path: entry for path, entry in entries.items() if not mark(path).exists()}
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        for remarks in pool.map(lambda unit: check(str(folder), *unit), units(folder, changed)):
            for path, text in remarks.items():
                failed += 1
                print(f"{path}:\n{text}", flush=True)
    print(f"tidy: {len(entries) - failed} of {len(entries)} files pass; {len(unread)} include libtorch and were not read")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
