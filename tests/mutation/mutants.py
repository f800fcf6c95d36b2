#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks lines of the pure machines one at a time and asks whether a test notices.

rewrite.py puts all mutants of a source into one text, of which the environment chooses one, so that
everything is compiled once. Each test case is run once to see which mutants it comes by; then, for
every mutant, those cases run that come by it, the quickest first, until one fails, crashes or takes
far too long. A mutant that none notices has survived: it is printed, and it is an error unless
equivalent.txt lists it with the reason why nobody could notice. An entry there that names no mutant,
or one that is noticed, is an error too. Mutants that no case comes by have survived as well.

Sources are taken from the release build, tests and all else are linked from it as they are.

  mutants.py BUILD [--jobs N] [--only REGEX] [--survivors] [--quick] [--least PERCENT]

STARLING_MUTANTS_IN=REGEX: only sources whose name matches. --only: mutants whose key (what
equivalent.txt has) matches. --survivors: only those that no test is known to notice. --quick: only by
test cases that take no time, as most unit tests.
To add a folder or file: SCOPE. To add a kind of mutant: rewrite.py.
"""
import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import re
import resource
import shlex
import subprocess
import sys
import time

from rewrite import Mutant, Rewriter

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OUT = ROOT / "build/mutants"

# Folder: what is broken in it. Shells with threads and sockets, and what only goes from one form into
# another, have tests of another kind.
SCOPE = {
    "trainer/membership": ["coordinator", "failure_detector", "group_history", "member",
                           "peer_coordinator*", "summary", "sync_round"],
    "trainer/consistency": ["*"],
    "trainer/parameter_server": ["aggregator", "chain_server", "lease_book", "slot_client", "slot_coordinator*",
                                 "slot_plan*", "slot_state", "work_plan", "*_shard"],
}
WHERE = os.environ.get("STARLING_MUTANTS_IN", "")
MOST = 2000  # mutants of one source: its own are numbered from its place in SCOPE times this
PROGRAMS = ["trainer_membership_test", "trainer_consistency_test", "trainer_parameter_server_test",
            "trainer_simulation_test"]
ENVIRONMENT = {"STARLING_SIM_SEEDS": os.environ.get("STARLING_SIM_SEEDS", "60")}
LONGEST = 3  # seconds of CPU: cases that take longer are left out
QUICK = 0.05
CONTROL = re.compile(r"Without\w*Rule|SlotSimulation\.Without")
AT_A_TIME = 0.3  # seconds of cases in one process
PATIENCE = (3, 10)  # seconds of CPU, and times what the cases take otherwise
DEFINITELY = 120  # seconds that nothing takes


def sources():
    """Each with the number of its first mutant."""
    found = [path for folder, patterns in SCOPE.items() for pattern in patterns
             for path in sorted((ROOT / folder).glob(pattern + ".cc")) if not path.stem.endswith("_test")]
    return {path: i * MOST for i, path in enumerate(found) if re.search(WHERE, str(path))}


def arguments_of(command):
    """What a parser needs to know of a compile command: no compiler cache before the compiler, and no
    header that g++ has precompiled."""
    words = shlex.split(command)
    compiler = next(i for i, word in enumerate(words) if re.search(r"(c|g)\+\+$", word))
    kept, words = [], iter(words[compiler + 1:])
    for word in words:
        if word in ("-o", "-c"):
            next(words)
        elif word == "-include":
            header = next(words)
            if not header.endswith("cmake_pch.hxx"):
                kept += [word, header]
        elif not word.startswith(("-W", "-f", "-O")):
            kept.append(word)
    includes = subprocess.run(["clang-14", "-print-resource-dir"], capture_output=True, text=True, check=True)
    return kept + ["-resource-dir", includes.stdout.strip()]


def rewritten(path):
    return OUT / "src" / path.relative_to(ROOT)


def rewrite(task):
    """Writes the source with its mutants, unless that was done before; returns them, and what was skipped."""
    path, first_id, command = task
    to = rewritten(path)
    to.parent.mkdir(parents=True, exist_ok=True)
    known = to.with_suffix(".json")
    made_of = hashlib.sha256(path.read_bytes() + (HERE / "rewrite.py").read_bytes() + b"%d" % first_id).hexdigest()
    if known.exists():
        record = json.loads(known.read_text())
        if record["of"] == made_of:
            return [Mutant(**one) for one in record["mutants"]], record["skipped"]
    rewriter = Rewriter(path, str(path.relative_to(ROOT)), arguments_of(command), first_id)
    if len(rewriter.mutants) > MOST:
        raise SystemExit(f"{path}: more than {MOST} mutants; raise MOST")
    to.write_text(rewriter.render())
    mutants = [dataclasses.asdict(one) for one in rewriter.mutants]
    known.write_text(json.dumps({"of": made_of, "mutants": mutants, "skipped": rewriter.skipped}))
    return rewriter.mutants, rewriter.skipped


def run(words, **options):
    done = subprocess.run(words, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"failed: {words if isinstance(words, str) else shlex.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


class Programs:
    """The test programs with all mutants in them."""

    def __init__(self, build, jobs):
        self.build = build
        self.jobs = jobs
        self.mutants = []
        self.skipped = {}
        commands = {entry["file"]: entry["command"]
                    for entry in json.loads((build / "compile_commands.json").read_text())}
        (OUT / "bin").mkdir(parents=True, exist_ok=True)
        self.compile(commands)
        for program in PROGRAMS:
            self.link(program)

    def compile(self, commands):
        with concurrent.futures.ProcessPoolExecutor(self.jobs) as pool:
            found = list(pool.map(rewrite, [(path, first, commands[str(path)]) for path, first in sources().items()]))
        for mutants, skipped in found:
            self.mutants += mutants
            for why, count in skipped.items():
                self.skipped[why] = self.skipped.get(why, 0) + count
        jobs = []
        for path in sources():
            to = rewritten(path)
            words = shlex.split(commands[str(path)])
            words[words.index("-o") + 1] = str(to) + ".o"
            words[words.index("-c") + 1] = str(to)
            jobs.append(words[:1] + ["-include", str(HERE / "mutant.h")] + words[1:] + ["-O1", "-w"])
        jobs.append([jobs[0][0], "-std=c++20", f"-DSTARLING_MUTANTS={max(sources().values()) + MOST}", "-c",
                     str(HERE / "mutant.cc"), "-o", str(OUT / "mutant.o")])
        cached = ["ccache"] if subprocess.run(["which", "ccache"], capture_output=True).returncode == 0 else []
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda words: run(cached + words, cwd=self.build), jobs))

    def link(self, program):
        """With our objects in the place of those of the libraries, which are found first."""
        last = run(["ninja", "-C", str(self.build), "-t", "commands", program]).strip().splitlines()[-1]
        objects = [str(OUT / "mutant.o")]
        for folder in SCOPE:
            if f"{folder}/lib" in last:
                objects += [f"{rewritten(path)}.o" for path in sources() if path.parent == ROOT / folder]
        run(last.replace(f"-o bin/{program}", f"-o {OUT}/bin/{program} " + " ".join(objects)), cwd=self.build, shell=True)


@dataclasses.dataclass
class Case:
    program: str
    name: str
    seconds: float
    reached: set


def limit_cpu(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def play(program, names, environment, seconds):
    """Whether these cases pass, and how long they took."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        done = subprocess.run(
            [OUT / "bin" / program, "--gtest_brief=1", "--gtest_fail_fast", "--gtest_filter=" + ":".join(names)],
            env=os.environ | ENVIRONMENT | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=DEFINITELY, preexec_fn=lambda: limit_cpu(math.ceil(seconds) + 1))
        passed = done.returncode == 0
    except subprocess.TimeoutExpired:
        passed = False
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed, ended.ru_utime - began.ru_utime


def cases_of(program):
    suite, names = "", []
    for line in run([OUT / "bin" / program, "--gtest_list_tests"]).splitlines():
        line = line.split("#")[0].rstrip()
        if line.startswith(" "):
            names.append(suite + line.strip())
        else:
            suite = line.strip()
    return [name for name in names if "OneHistoryIsPrinted" not in name]


def look(task):
    """Runs one case with all lines as they are, unless that was done before."""
    program, name = task
    made_of = hashlib.sha256((OUT / "bin" / program).read_bytes() + name.encode() + repr(ENVIRONMENT).encode())
    known = OUT / "looks" / made_of.hexdigest()
    if known.exists():
        passed, seconds, reached = json.loads(known.read_text())
        return Case(program, name, seconds, set(reached)), passed
    path = OUT / f"reached.{os.getpid()}"
    path.unlink(missing_ok=True)
    passed, seconds = play(program, [name], {"STARLING_MUTANT_REACHED": str(path)}, LONGEST)
    reached = {int(line) for line in path.read_text().split()} if path.exists() else set()
    known.parent.mkdir(exist_ok=True)
    known.write_text(json.dumps([passed, seconds, sorted(reached)]))
    return Case(program, name, seconds, reached), passed


def may_notice(case, key):
    """Negative controls look for a history that shows what a rule is for: they notice broken rules."""
    return CONTROL.search(case.name) is None or "rules" in key


def batches(cases):
    """The quickest first, several in one process."""
    batch, seconds = [], 0.0
    for case in sorted(cases, key=lambda c: (c.seconds > AT_A_TIME, PROGRAMS.index(c.program), c.seconds)):
        if batch and (batch[0].program != case.program or seconds + case.seconds > AT_A_TIME):
            yield batch
            batch, seconds = [], 0.0
        batch.append(case)
        seconds += case.seconds
    if batch:
        yield batch


def noticed(task):
    """By which cases, or nothing."""
    mutant, cases = task
    for batch in batches(cases):
        seconds = PATIENCE[0] + PATIENCE[1] * sum(case.seconds for case in batch)
        passed, _ = play(batch[0].program, [case.name for case in batch], {"STARLING_MUTANT": str(mutant)}, seconds)
        if not passed:
            return batch[0].program
    return None


def read_equivalent():
    """Key of a mutant: reason. Blocks of: file and function; mutants, indented; `because` the reason."""
    reasons = {}
    path = HERE / "equivalent.txt"
    for block in re.split(r"\n\s*\n", path.read_text()):
        lines = [line.rstrip() for line in block.splitlines() if line.strip() and not line.startswith("#")]
        if not lines:
            continue
        because = next((i for i, line in enumerate(lines) if line.startswith("  because ")), None)
        if because is None or because < 2 or lines[0].startswith(" "):
            raise SystemExit(f"{path}: a block is a file and a function, their mutants, and a line with `because`:\n{block}")
        reason = " ".join(line.strip() for line in lines[because:]).removeprefix("because ")
        for line in lines[1:because]:
            if f"{lines[0]}\n{line}" in reasons:
                raise SystemExit(f"{path}: listed twice:\n{lines[0]}\n{line}")
            reasons[f"{lines[0]}\n{line}"] = reason
    return reasons


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--least", type=float, default=95)
    options = parser.parse_args()
    programs = Programs(options.build.resolve(), options.jobs)
    keys = {mutant.id: mutant.key() for mutant in programs.mutants}
    equivalent = read_equivalent()
    results = OUT / "results.json"
    known = json.loads(results.read_text()) if results.exists() else {}

    began = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        looks = list(pool.map(look, [(p, name) for p in PROGRAMS for name in cases_of(p)]))
        failing = [case.name for case, passed in looks if not passed and case.seconds <= LONGEST]
        if failing:
            raise SystemExit("these fail without any mutant: " + " ".join(failing))
        longest = QUICK if options.quick else LONGEST
        cases = [case for case, _ in looks if case.seconds <= longest]
        if len(cases) < len(looks):
            print(f"left out, they take more than {longest} s:",
                  " ".join(case.name for case, _ in looks if case.seconds > longest))
        chosen = [m for m in programs.mutants if re.search(options.only, keys[m.id])
                  and (not options.survivors or known.get(keys[m.id]) is None)]
        tasks = [(m.id, [case for case in cases if m.id in case.reached and may_notice(case, keys[m.id])])
                 for m in chosen]
        print(f"{len(chosen)} of {len(programs.mutants)} mutants, {len(cases)} test cases; "
              f"left out: {', '.join(f'{n} {why}' for why, n in sorted(programs.skipped.items()))}", flush=True)
        verdicts = {}
        for mutant, by in zip(chosen, pool.map(noticed, tasks)):
            verdicts[keys[mutant.id]] = known[keys[mutant.id]] = by
            if len(verdicts) % 100 == 0:
                results.write_text(json.dumps(known, indent=1))
                print(f"{len(verdicts)} tried after {time.monotonic() - began:.0f} s", flush=True)
    known = {key: by for key, by in known.items() if key in keys.values()}
    results.write_text(json.dumps(known, indent=1))
    sys.exit(report(programs, chosen, verdicts, equivalent, options))


def report(programs, chosen, verdicts, equivalent, options):
    survivors = [m for m in chosen if verdicts[m.key()] is None]
    unlisted = [m for m in survivors if m.key() not in equivalent]
    for mutant in unlisted:
        print(f"\n{mutant.file}:{mutant.line} survives:\n{mutant.key()}")
    all_keys = {m.key() for m in programs.mutants}
    stale = [key for key in equivalent if key not in all_keys or verdicts.get(key) is not None]
    for key in stale:
        what = "it is noticed" if key in all_keys else "there is no such mutant any more"
        print(f"\nequivalent.txt: {what}, take it out:\n{key}")
    listed = len(survivors) - len(unlisted)
    counted = len(chosen) - listed
    share = 100 * (counted - len(unlisted)) / max(1, counted)
    print(f"\n{counted - len(unlisted)} of {counted} noticed ({share:.1f} %), {listed} equivalent (listed)")
    return 1 if stale or share < options.least else 0


if __name__ == "__main__":
    main()
