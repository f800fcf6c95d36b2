#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints lines of C++ per folder, and how many types stand in a thousand lines of the trainer.

Production and tests are counted apart; tests are *_test.cc, everything under tests/, and the
fixtures: what only tests, benchmarks and other fixtures include. Lines are all lines of a file. A
type is a class, struct, union or enum that is defined by itself, not inside another one. The figures say whether the code grows into
more concepts or fewer; no figure is a goal of its own.

  measures.py [FOLDER...]   of these folders (trainer by default), each with those beneath it
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = ["common", "api", "controller", "trainer", "cli", "bench", "tests"]
TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:class|struct|union|enum)\s[^;{(]*\{", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def is_test(name):
    return name.startswith(("tests/", "bench/")) or re.search(r"_(test|bench|fuzz)\.(cc|cu)$", name) is not None


def files():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *TOP], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout.split("\n")
    names = [name for name in listed if re.search(r"\.(h|cc|cu|cuh)$", name) and (ROOT / name).exists()]
    return {name: (ROOT / name).read_text() for name in names}


def fixtures(texts):
    """Headers that something includes, and only tests and fixtures do; and the sources beside them."""
    users = collections.defaultdict(set)
    for name, text in texts.items():
        for included in INCLUDE.findall(text):
            users[included].add(name)
    found = set()
    while True:
        more = set()
        for header in [name for name in texts if name.endswith(".h") and name not in found]:
            own = header[:-2] + ".cc"
            others = users[header] - {own}
            if others and all(is_test(user) or user in found for user in others):
                more |= {header} | ({own} & texts.keys())
        if not more:
            return found
        found |= more


def main():
    texts = files()
    of_tests = {name for name in texts if is_test(name)} | fixtures(texts)
    lines = {name: text.count("\n") for name, text in texts.items()}
    types = {name: len(TYPE.findall(COMMENT.sub("", text))) for name, text in texts.items()}

    print(f"{'folder':<32}{'production':>12}{'tests':>10}{'types':>8}{'per 1,000':>11}")
    for chosen in sys.argv[1:] or ["trainer"]:
        chosen = chosen.rstrip("/")
        below = sorted({str(pathlib.PurePath(name).parent) for name in texts
                        if name.startswith(chosen + "/") and str(pathlib.PurePath(name).parent) != chosen})
        for folder in below + [chosen]:
            inside = [name for name in texts if name.startswith(folder + "/")]
            product = [name for name in inside if name not in of_tests]
            count = sum(lines[name] for name in product)
            number = sum(types[name] for name in product)
            print(f"{folder:<32}{count:>12,}{sum(lines[n] for n in inside) - count:>10,}{number:>8,}"
                  f"{1000 * number / max(1, count):>11.1f}")


if __name__ == "__main__":
    main()
