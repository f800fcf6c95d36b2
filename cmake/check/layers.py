#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds every #include against cmake/layers.txt, and libtorch to its one folder of the programs.

Static libraries would not: a forbidden call can still link through the program.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TORCH = re.compile(r"^(torch|ATen|c10)/")
WITH_TORCH = ("trainer/engine", "tests/torch")  # the latter: a device, which only Python loads


def read_layers():
    """For each folder what all its files may include, and what only its tests may."""
    layers = {}
    for line in (ROOT / "cmake/layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, _, allowed = line.partition(":")
            always, _, in_tests = allowed.partition("|")
            layers[folder.strip()] = (always.split(), in_tests.split())
    return layers


def folder_of(path, layers):
    """The longest line of layers.txt that holds this path."""
    parts = pathlib.PurePosixPath(path).parent.parts
    for length in range(len(parts), 0, -1):
        candidate = "/".join(parts[:length])
        if candidate in layers:
            return candidate
    return None


def problems_of(path, layers, tops, used):
    own = folder_of(path, layers)
    if own is None:
        yield f"{path}: its folder has no line in cmake/layers.txt"
        return
    always, in_tests = layers[own]
    allowed = [own, *always, *(in_tests if path.endswith("_test.cc") else [])]
    for number, text in enumerate((ROOT / path).read_text().splitlines(), 1):
        match = INCLUDE.match(text)
        if not match:
            continue
        bracket, header = match.groups()
        if TORCH.match(header) and own not in WITH_TORCH:
            yield f"{path}:{number}: only trainer/engine may include libtorch ({header})"
        if TORCH.match(header) and path.endswith(".h"):
            yield f"{path}:{number}: no header includes libtorch: it costs 10 s a file ({header})"
        if bracket == "<" or header.split("/")[0] not in tops:
            continue
        by = [prefix for prefix in allowed if header.startswith(prefix + "/")]
        used.update((own, prefix) for prefix in by)
        if not by:
            yield f"{path}:{number}: {own} may not include {header} (cmake/layers.txt)"


def unused(layers, used):
    """Edges between two folders that no include uses. (api/proto's headers are generated.)"""
    for folder, (always, in_tests) in layers.items():
        for other in [*always, *in_tests]:
            if "/" in folder and "/" in other and other != "api/proto" and (folder, other) not in used:
                yield f"cmake/layers.txt: {folder} includes nothing of {other}: remove it there"


def main():
    layers = read_layers()
    tops = {folder.split("/")[0] for folder in layers}
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.h", "*.cc", "*.cu"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()
    files = [name for name in files if (ROOT / name).exists()]
    used = set()
    problems = [p for name in files for p in problems_of(name, layers, tops, used)]
    problems += unused(layers, used)
    print("\n".join(problems) or f"layers: {len(files)} files keep to cmake/layers.txt")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
