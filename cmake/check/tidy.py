#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the sources that have not passed in their present form.

A file's verdict depends on itself, on the headers of this project that it includes and on
.clang-tidy; a digest of them all is remembered outside the tree, so that a second run costs seconds.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "starling" / "tidy"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def closure(path, seen):
    if path in seen or not (ROOT / path).exists():
        return
    seen.add(path)
    for header in INCLUDE.findall((ROOT / path).read_text()):
        closure(header, seen)


def digest(path):
    seen = set()
    closure(path, seen)
    sha = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for name in sorted(seen):
        sha.update(name.encode() + b"\0" + (ROOT / name).read_bytes())
    for proto in sorted((ROOT / "api/proto").rglob("*.proto")):
        sha.update(proto.read_bytes())
    return sha.hexdigest()


def check(build, path):
    mark = CACHE / digest(path)
    if mark.exists():
        return None
    run = subprocess.run(["clang-tidy-14", "--quiet", "-p", build, path], cwd=ROOT, capture_output=True, text=True)
    if run.returncode == 0:
        mark.touch()
        return None
    return run.stdout + run.stderr


def without_precompiled(build, commands):
    """A folder with the same commands, but for g++'s precompiled header, which clang cannot read."""
    folder = ROOT / build / "tidy"
    folder.mkdir(exist_ok=True)
    for entry in commands:
        entry["command"] = re.sub(r"-include \S*/cmake_pch\.hxx", "", entry["command"])
    (folder / "compile_commands.json").write_text(json.dumps(commands))
    return str(folder)


def main():
    build, skip = sys.argv[1], sys.argv[2:]
    commands = json.loads((ROOT / build / "compile_commands.json").read_text())
    build = without_precompiled(build, commands)
    paths = sorted({os.path.relpath(entry["file"], ROOT) for entry in commands})
    paths = [p for p in paths if not p.startswith(("build", "..")) and p.endswith(".cc")
             and not any(p.startswith(s) for s in skip)]
    CACHE.mkdir(parents=True, exist_ok=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, text in zip(paths, pool.map(lambda p: check(build, p), paths)):
            if text is not None:
                failed += 1
                print(f"{path}:\n{text}")
    print(f"tidy: {len(paths) - failed} of {len(paths)} files pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
