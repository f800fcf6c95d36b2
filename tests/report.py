#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up ctest's JUnit files: the failed and skipped tests by name, the counts on the last line."""
import sys
import xml.etree.ElementTree as xml


def main():
    passed, failed, skipped = 0, [], []
    for path in sys.argv[1:]:
        for case in xml.parse(path).getroot().iter("testcase"):
            if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
                skipped.append(case.get("name"))
            elif case.find("failure") is not None or case.get("status") == "fail":
                failed.append(case.get("name"))
            else:
                passed += 1
    for name in failed:
        print(f"FAILED: {name}")
    for name in skipped:
        print(f"SKIPPED: {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
