#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/report.py makes of a stage in which tests were tried twice."""
import os
import subprocess
import sys
import tempfile
import unittest

import results

HERE = os.path.dirname(os.path.abspath(__file__))
# As ctest prints what failed: its name, and below it what it has said.
FAILED = " 1/3 Test  #7: {name} ...............***Failed    2.00 sec\n{said}\n"
PASSED = " 2/3 Test  #7: {name} ...............   Passed    2.00 sec\n"


class Report(unittest.TestCase):
    def report(self, log, names=("e2e_slow",)):
        """Its exit code and what it prints of a stage whose tests have all passed in the end."""
        with tempfile.TemporaryDirectory() as folder:
            stage = os.path.join(folder, "timed.xml")
            with open(stage, "w", encoding="utf-8") as file:
                cases = "".join(f'<testcase name="{name}" status="run"/>' for name in names)
                file.write(f"<testsuite>{cases}</testsuite>")
            with open(os.path.join(folder, "timed.log"), "w", encoding="utf-8") as file:
                file.write(log)
            done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "report.py"), stage],
                                  capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_a_second_try_makes_good_for_a_slow_machine(self):
        code, told = self.report(FAILED.format(name="e2e_slow", said="AssertionError: 2.1 s")
                                 + PASSED.format(name="e2e_slow"))
        self.assertEqual(0, code, told)
        self.assertIn("SECOND TRY: e2e_slow", told)

    def test_but_not_for_a_wrong_result(self):
        code, told = self.report(FAILED.format(name="e2e_slow", said=results.WRONG)
                                 + PASSED.format(name="e2e_slow"))
        self.assertEqual(1, code, told)
        self.assertIn("FAILED: e2e_slow, a result was wrong at the first try", told)

    def test_which_is_that_of_the_test_whose_output_it_is(self):
        code, told = self.report(
            FAILED.format(name="e2e_wrong", said=results.WRONG)
            + FAILED.format(name="e2e_slow", said="AssertionError: 2.1 s")
            + PASSED.format(name="e2e_slow") + PASSED.format(name="e2e_wrong"),
            ("e2e_slow", "e2e_wrong"))
        self.assertEqual(1, code, told)
        self.assertIn("FAILED: e2e_wrong", told)
        self.assertIn("SECOND TRY: e2e_slow", told)

    def test_what_is_judged_says_so_before_it_fails(self):
        said = subprocess.run(
            [sys.executable, "-B", "-c", "import results\nwith results.judged():\n assert False"],
            cwd=HERE, capture_output=True, text=True, check=False)
        self.assertIn(results.WRONG, said.stdout)
        self.assertNotEqual(0, said.returncode)


if __name__ == "__main__":
    unittest.main()
