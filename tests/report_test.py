#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tests/report.py makes of a stage in which tests were tried twice, and of GoogleTest programs
whose cases end in all ways (tests/report_cases.cc)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
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


def await_that(holds, what):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, f"not within a minute: {what}"
        time.sleep(0.05)


class Programs(unittest.TestCase):
    """gtest_program.py runs cases of a real program, and report.py tells how they went."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def play(self, wanted, *options, program=None):
        """Exit code and output of gtest_program.py."""
        program = program or os.path.join(os.environ["STARLING_BIN"], "tests_report_cases")
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(HERE, "gtest_program.py"), program, f"--filter={wanted}",
             *options], capture_output=True, text=True, check=False,
            env=os.environ | {"STARLING_CASES": str(self.folder / "unit")})
        return done.returncode, done.stdout

    def report(self, code, name="tests_report_cases"):
        """Exit code and lines of the summary, of a stage in which that program has ended so."""
        failure = '<failure message=""/>' if code else ""
        (self.folder / "unit.xml").write_text(
            f'<testsuite><testcase name="{name}" status="{"fail" if code else "run"}">{failure}'
            '</testcase><testcase name="dashboards" status="run"/></testsuite>', encoding="utf-8")
        done = subprocess.run([sys.executable, "-B", os.path.join(HERE, "report.py"),
                               str(self.folder / "unit.xml")], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines()

    def summary(self, wanted, *options):
        return self.report(self.play(wanted, *options)[0])

    def test_each_case_counts_and_what_did_not_pass_is_named(self):
        code, said = self.play("First.*:Some/*")
        self.assertIn("for all to see", said)
        self.assertNotIn("left open", said, "what passed says nothing")
        self.assertEqual((1, [
            "FAILED: First.Fails of tests_report_cases",
            "FAILED: Some/Named.AsGoogleTestNamesThem/1 of tests_report_cases",
            "SKIPPED: First.Skips of tests_report_cases",
            "3 passed, 2 failed, 1 skipped"]), self.report(code))

    def test_all_that_pass_make_a_stage_that_passes(self):
        self.assertEqual((0, ["4 passed, 0 failed, 0 skipped"]), self.summary("*.Passes:*.NoMore-Untidy.*"))

    def test_what_a_case_keeps_from_running_is_run_by_another_process(self):
        self.assertEqual((1, [
            "FAILED: Dies.OfASignal of tests_report_cases, the process did not get beyond it: ended by SIGABRT",
            "FAILED: Dies.ByAnExit of tests_report_cases, the process did not get beyond it: exit code 0",
            "FAILED: Unready.Never of tests_report_cases, the process did not get beyond it: ended by SIGSEGV",
            "SKIPPED: First.Skips of tests_report_cases",
            "6 passed, 3 failed, 1 skipped"]), self.summary("*-Hangs.W*:Waits.*:*Fails:Untidy.*:Some/*/1:Shared.Second"))

    def test_a_case_without_end_is_named_and_its_children_end_with_it(self):
        code, lines = self.summary("Hangs.*", "--case-timeout=5")
        self.assertEqual((1, [
            "FAILED: Hangs.WithAChildThatHoldsItsOutput of tests_report_cases, the process did not get "
            "beyond it: it took more than 5 s",
            "2 passed, 1 failed, 0 skipped"]), (code, lines))

    def test_whoever_is_ended_takes_the_case_that_runs_along(self):
        runner = subprocess.Popen(
            [sys.executable, "-B", os.path.join(HERE, "gtest_program.py"),
             os.path.join(os.environ["STARLING_BIN"], "tests_report_cases"), "--filter=Waits.*"],
            env=os.environ | {"TMPDIR": str(self.folder)})
        await_that(self.cases_that_run, "the case runs")
        runner.kill()
        runner.wait()
        await_that(lambda: not self.cases_that_run(), "it has ended")

    def cases_that_run(self):
        """The processes that were given their cases in a file of this test's folder."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += [path] if f"--gtest_flagfile={self.folder}" in path.read_text() else []
            except (OSError, UnicodeDecodeError):
                pass  # it has ended; or it is another's
        return found

    def test_a_process_that_fails_though_its_cases_pass_is_told(self):
        self.assertEqual((1, [
            "FAILED: tests_report_cases, its cases passed, the process did not: "
            "exit code 1", "2 passed, 1 failed, 0 skipped"]), self.summary("Untidy.*"))

    def test_cases_that_want_a_process_of_their_own_have_it(self):
        self.assertEqual(1, self.summary("Shared.*")[0])
        self.assertEqual((0, ["3 passed, 0 failed, 0 skipped"]), self.summary("Shared.*", "--alone=Second"))

    def test_shards_have_each_case_once(self):
        wanted = "First.*:*.NoMore:Shared.First"
        for shard in (1, 2, 3, 4):
            code, _ = self.play(wanted, f"--shard={shard}/4")
            self.assertEqual(int(shard == 2), code, "it has the second case, which fails")
        found = [case for path in sorted((self.folder / "unit").glob("*.json"))
                 for case in json.loads(path.read_text(encoding="utf-8"))]
        self.assertEqual(["First.Passes", "Hangs.NoMore", "First.Fails", "Shared.First", "First.Skips",
                          "Dies.NoMore"], found)
        code, lines = self.report(1, "tests_report_cases.2")
        self.assertEqual((1, ["FAILED: First.Fails of tests_report_cases",
                              "2 passed, 1 failed, 0 skipped"]), (code, lines))

    def test_a_program_that_cannot_list_its_cases_has_failed(self):
        code, _ = self.play("*", program="/bin/false")
        code, lines = self.report(code, "false")
        self.assertEqual(1, code)
        self.assertRegex(lines[0], "FAILED: false, its cases cannot be listed: ")
        self.assertEqual("1 passed, 1 failed, 0 skipped", lines[1])

    def test_so_has_one_of_which_no_case_is_wanted(self):
        self.assertEqual(1, self.summary("None.*")[0])

    def test_what_did_not_run_because_all_was_ended_counts_as_failed(self):
        self.play("*.NoMore")
        file = self.folder / "unit/tests_report_cases.json"
        cases = json.loads(file.read_text(encoding="utf-8"))
        cases["Dies.NoMore"] = ["failed", "did not run"]  # as it is written before the first begins
        file.write_text(json.dumps(cases), encoding="utf-8")
        self.assertEqual((1, ["FAILED: Dies.NoMore of tests_report_cases, did not run",
                              "2 passed, 1 failed, 0 skipped"]), self.report(1))


if __name__ == "__main__":
    unittest.main()
