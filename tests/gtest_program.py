#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs all cases of a GoogleTest program in one process, and says of each how it went.

  gtest_program.py PROGRAM [--filter FILTER] [--alone REGEX] [--shard I/N] [--case-timeout SECONDS]

A process for each case would take longer to start than most cases take. A case that ends the process,
or does not end itself within its time, has failed and is named; those behind it are run by another
process, so that none is left out. --alone: cases that get a process of their own. --shard: only each
N-th case, from the I-th on.

What each case did is written to $STARLING_CASES/PROGRAM.json (PROGRAM.I.json), where tests/report.py
counts it: from the start on, so that cases count as not run should this be killed. Printed is what
failed cases said.
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
PR_SET_PDEATHSIG = 1
LISTING = 120  # seconds: a program with many libraries takes some where others keep the cores busy
# As GoogleTest prints them; a case may have left its own last line open.
BEGUN = re.compile(r"\[ RUN {6}\] (\S+)$")
ENDED = re.compile(r"\[ {2}(     OK|FAILED |SKIPPED) \] (\S+?)(?:,.*)? \(\d+ ms\)$")
VERDICTS = {"     OK": PASSED, "FAILED ": FAILED, "SKIPPED": SKIPPED}


def cases_of(program, wanted):
    """The names of its cases in the order in which it runs them."""
    listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={wanted}"], text=True,
                            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=LISTING, check=True)
    suite, names = "", []
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith(" "):
            names.append(suite + name)
        elif name.endswith("."):
            suite = name
    return names


def read(text):
    """Of what a process has printed: verdict and words of each case that ended, and which one runs."""
    ended, said, running = {}, [], None
    for line in text.splitlines():
        begins, ends = BEGUN.search(line), ENDED.search(line)
        if begins:
            running, said = begins[1], []
        said.append(line)
        if ends and ends[2] == running:
            ended[running] = (VERDICTS[ends[1]], "\n".join(said))
            running, said = None, []
    return ended, running, "\n".join(said)


def how(code):
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def die_with_parent():
    """In a new process: whatever ends this program, by Ctrl-C or kill -9, the cases end with it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def ended_within(process, seconds):
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


def play(program, names, limit):
    """Runs these cases in one process, which is killed where one of them takes longer than `limit`
    seconds: what it has printed, and how it ended."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_")}
    with tempfile.TemporaryDirectory() as folder:
        flags, path = pathlib.Path(folder, "flags"), pathlib.Path(folder, "output")
        flags.write_text("--gtest_filter=" + ":".join(names) + "\n", encoding="utf-8")

        def printed():
            return path.read_text(encoding="utf-8", errors="replace")

        # A file and not a pipe: that would end only with the last child that a case has left behind.
        with path.open("wb") as output:
            process = subprocess.Popen([program, f"--gtest_flagfile={flags}"], env=environment,
                                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                       start_new_session=True, preexec_fn=die_with_parent)
        newest, since, late = None, time.monotonic(), False
        while not late and not ended_within(process, 1):
            ended, running, _ = read(printed())
            if (len(ended), running) != newest:
                newest, since = (len(ended), running), time.monotonic()
            late = time.monotonic() - since > limit
        try:
            os.killpg(process.pid, signal.SIGKILL)  # whom its cases have left behind too
        except ProcessLookupError:
            pass
        code = process.wait()
        return printed(), f"it took more than {limit:g} s" if late else how(code), code


class Cases:
    def __init__(self, name):
        folder = os.environ.get("STARLING_CASES")
        self.path = pathlib.Path(folder, name + ".json") if folder else None
        self.verdicts = {}

    def add(self, verdicts):
        """Name of a case: [verdict, why]."""
        self.verdicts.update(verdicts)
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.verdicts, indent=0), encoding="utf-8")

    def count(self, wanted):
        return sum(verdict == wanted for verdict, _ in self.verdicts.values())


def run(program, names, limit, cases):
    """All of them, in as many processes as it takes."""
    while names:
        text, end, code = play(program, names, limit)
        ended, _, rest = read(text)
        failed = [name for name in ended if ended[name][0] == FAILED]
        for name in failed:
            print(ended[name][1])
        cases.add({name: [verdict, ""] for name, (verdict, _) in ended.items()})
        names = [name for name in names if name not in ended]
        if names:  # the next one has begun, or its suite
            print(rest)
            cases.add({names[0]: [FAILED, f"the process did not get beyond it: {end}"]})
            names = names[1:]
        elif code != 0 and not failed:  # a leak, or what a suite tears down
            print(rest)
            cases.add({program.name: [FAILED, f"its cases passed, the process did not: {end}"]})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=lambda path: pathlib.Path(path).absolute())
    parser.add_argument("--filter", default="*")
    parser.add_argument("--alone", type=re.compile)
    parser.add_argument("--shard", default="")
    parser.add_argument("--case-timeout", type=float, default=120)
    options = parser.parse_args()
    shard, _, shards = options.shard.partition("/")
    cases = Cases(options.program.name + (f".{shard}" if shard else ""))
    try:
        names = cases_of(options.program, options.filter)
        names = names[int(shard) - 1::int(shards)] if shard else names
    except (subprocess.SubprocessError, OSError) as error:
        names = []
        cases.add({options.program.name: [FAILED, f"its cases cannot be listed: {error}"]})
    cases.add({name: [FAILED, "did not run"] for name in names})
    alone = [name for name in names if options.alone and options.alone.search(name)]
    run(options.program, [name for name in names if name not in alone], options.case_timeout, cases)
    for name in alone:
        run(options.program, [name], options.case_timeout, cases)
    for name, (verdict, why) in cases.verdicts.items():
        if verdict != PASSED:
            print(f"{verdict}: {name}" + (f", {why}" if why else ""))
    print(f"{cases.count(PASSED)} passed, {cases.count(FAILED)} failed, {cases.count(SKIPPED)} skipped")
    return 1 if cases.count(FAILED) or not cases.count(PASSED) + cases.count(SKIPPED) else 0


if __name__ == "__main__":
    sys.exit(main())
