#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up ctest's JUnit files, one for each stage: the failed and skipped tests by name, those that
passed at a second try (ctest's log lies beside each file), and the stages that have not run; the
counts on the last line. A test that said at its first try that a result is wrong (tests/results.py)
has failed. Where a test is a GoogleTest program, each of its cases counts (tests/gtest_program.py
has written how they went into a folder beside the stage's file)."""
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

import gtest_program
import results


def failed_tries(path):
    """The names of the tests of which a try has failed, and of those whose try said WRONG."""
    log = path.with_suffix(".log")
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    tries, wrong, name = set(), set(), None
    for line in text.splitlines():  # below a test's line stands what it has printed
        found = re.search(r"Test +#\d+: (\S+) \.*\**(Failed|Exception|Timeout)?", line)
        if found:
            name = found[1] if found[2] else None
            tries.update([name] if name else [])
        elif results.WRONG in line and name:
            wrong.add(name)
    return tries, wrong


def cases_of(test, folder):
    """How each case of a test went that is a program of such: name, verdict and why; of another the
    test alone."""
    name = test.get("name")
    if test.find("skipped") is not None or test.get("status") in ("notrun", "disabled"):
        verdict = gtest_program.SKIPPED
    elif test.find("failure") is not None or test.get("status") == "fail":
        verdict = gtest_program.FAILED
    else:
        verdict = gtest_program.PASSED
    file = folder / f"{name}.json"
    if not file.exists():
        return [(name, verdict, "")]
    cases = json.loads(file.read_text(encoding="utf-8"))
    program = name.partition(".")[0]  # without the number of the shard
    found = [(case if case == program else f"{case} of {program}", went, why)
             for case, (went, why) in cases.items()]
    if verdict == gtest_program.FAILED and all(went != verdict for _, went, _ in found):
        found.append((name, verdict, "though none of its cases did"))
    return found


def main():
    passed, failed, skipped, again, missing = 0, [], [], [], []
    for path in map(pathlib.Path, sys.argv[1:]):
        if not path.exists():
            missing.append(path.stem)
            continue
        tries, wrong = failed_tries(path)
        for test in xml.parse(path).getroot().iter("testcase"):
            for name, verdict, why in cases_of(test, path.with_suffix("")):
                if verdict == gtest_program.SKIPPED:
                    skipped.append(name)
                elif verdict == gtest_program.FAILED:
                    failed.append(name + (f", {why}" if why else ""))
                elif name in wrong:
                    failed.append(f"{name}, a result was wrong at the first try")
                else:
                    passed += 1
                    if name in tries:
                        again.append(name)
    for name in again:
        print(f"SECOND TRY: {name}")
    for name in failed:
        print(f"FAILED: {name}")
    for name in skipped:
        print(f"SKIPPED: {name}")
    for name in missing:
        print(f"NOT RUN: the stage {name}, all of its tests; its log says why")
    print(f"{passed} passed, {len(failed) + len(missing)} failed, {len(skipped)} skipped"
          + (f", {len(again)} of the passed at a second try" if again else ""))
    return 1 if failed or missing or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
