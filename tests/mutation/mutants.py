#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks lines one at a time, those of the pure machines and of the folders around them whose mistakes
cost a job its state, and asks whether a test notices.

rewrite.py puts all mutants of a source into one text, of which the environment chooses one, so that
everything is compiled once. Each test case is run once to see which mutants it comes by; then, for
every mutant, those cases run that come by it, the quickest first, until one fails, crashes or takes
far too long. A mutant that none notices has survived: it is printed, and it is an error unless
equivalent.txt lists it with the reason why nobody could notice. An entry there that names no mutant,
or one that is noticed, is an error too. Mutants that no case comes by have survived as well.

Sources are taken from the release build, tests and all else are linked from it as they are. At the
end: for each source, each folder and in all, how many mutants were made, noticed, listed as equivalent
and not noticed, and the share noticed of those that are not listed. It fails where a folder is below
what SCOPE wants of it, or all below --least percent.

  mutants.py BUILD [SOURCE...] [--jobs N] [--only REGEX] [--every N] [--survivors] [--quick] [--by REGEX] [--least PERCENT]

SOURCE: a folder, or how the names of sources begin (trainer/consistency,
trainer/parameter_server/shard_state); all of SCOPE without one. --only: mutants whose key (what
equivalent.txt has) matches. --every: each N-th of them, for a first look. --survivors: tries those that
no test noticed last time; the others count as they did then. --quick: only by test cases that take no
time, as most unit tests. --by: only by the test programs whose names match. --programs: only prints the
names of those that have a line of these sources, which must be built before.
To add a folder: SCOPE. To add a kind of mutant: rewrite.py.
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


@dataclasses.dataclass
class Folder:
    least: float = 95  # percent that must be noticed; it only rises
    left_out: tuple = ()


# Shells with threads and sockets, and what only goes from one form into another, have tests of another
# kind, which wait for what a mutant keeps from coming: they are left out.
TRANSPORT_SHELLS = ("acceptor", "arena", "dialing", "encrypted_stream", "inproc_transport", "shm_segment",
                    "shm_stream", "shm_transport", "socket_stream", "stream_mesh", "stream_mesh_arena",
                    "stream_transport", "tcp_transport", "udp_relay", "udp_transport", "unix_socket")
SCOPE = {
    "trainer/membership": Folder(left_out=("convert",)),
    "trainer/consistency": Folder(),
    "trainer/parameter_server": Folder(least=98, left_out=("convert", "server_loop")),
    "trainer/checkpoint": Folder(),
    "trainer/transport": Folder(least=98, left_out=TRANSPORT_SHELLS),
    "controller/trainingjob": Folder(least=98, left_out=("grpc_links",)),
    "controller/runtime": Folder(),
    "controller/kube": Folder(least=98),
    "controller/local": Folder(least=98),
    "controller/admission": Folder(),
}
MOST = 2000  # mutants of one source: its own are numbered from its place in SCOPE times this
PROGRAMS = ["trainer_membership_test", "trainer_consistency_test", "trainer_parameter_server_test",
            "trainer_simulation_test", "trainer_checkpoint_test", "trainer_transport_test",
            "controller_trainingjob_test", "controller_runtime_test", "controller_kube_test",
            "controller_admission_test", "controller_local_test", "tests_contract_test"]
# A test that waits in vain does so for seconds, not for a minute.
ENVIRONMENT = {"STARLING_SIM_SEEDS": os.environ.get("STARLING_SIM_SEEDS", "60"), "STARLING_TEST_PATIENCE": "10"}
LONGEST = 3  # seconds of CPU: cases that take longer are left out
QUICK = 0.05
CONTROL = re.compile(r"Without\w*Rule|ShardSimulation\.Without")
# One prints; the others have threads, which wait for what a mutant keeps from coming, or need a server.
LEFT_OUT = re.compile(r"OneHistoryIsPrinted|^Kinds/|ManyThreads|^ApiServer")
# Nothing that anybody decides hangs on these: a line of the log (decisions' reasons are one), and memory
# that is had in one piece.
UNSEEN = re.compile(r"\n  delete (log::\w+\(|pass\.Reason\(|[\w.>-]+\.(reserve|shrink_to_fit)\()")
AT_A_TIME = 0.3  # seconds of cases in one process
PATIENCE = (3, 10)  # seconds of CPU, and times what the cases take otherwise
MEMORY = 8 << 30  # bytes of addresses: some mutants allocate without end
DEFINITELY = 600  # seconds that nothing takes, even where others have most of the CPU
IDLE = 20  # seconds in which no thread runs or waits for a core: what it waits for never comes
SOON = 2  # seconds: a failure within them is no deadline that passed because others had the CPU


def sources(wanted):
    """Those that begin with one of these names, each with the number of its first mutant."""
    found = [path for name, folder in SCOPE.items() for path in sorted((ROOT / name).glob("*.cc"))
             if not path.stem.endswith("_test") and path.stem not in folder.left_out]
    numbered = {path: i * MOST for i, path in enumerate(found)}
    names = {path: str(path.relative_to(ROOT)) for path in found}
    for start in wanted:
        if not any(name.startswith(start) for name in names.values()):
            raise SystemExit(f"no source begins with {start}; there are:\n" + "\n".join(names.values()))
    return {path: first for path, first in numbered.items()
            if not wanted or any(names[path].startswith(start) for start in wanted)}


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


def units(commands):
    """For each source the file that the build compiles it in, and the sources of that: itself, or
    several of a folder that are compiled together."""
    found = {}
    for file in map(pathlib.Path, commands):
        together = file.name.startswith("together_")
        inside = [ROOT / name for name in re.findall('#include "(.*)"', file.read_text())] if together else [file]
        found.update({source: (file, inside) for source in inside})
    return found


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


def link_command(build, program):
    return run(["ninja", "-C", str(build), "-t", "commands", program]).strip().splitlines()[-1]


def has(command, folder):
    """Whether what is linked has the library of that folder."""
    return f"{folder.relative_to(ROOT)}/lib" in command


class Programs:
    """The test programs with all mutants in them."""

    def __init__(self, options):
        self.build = options.build.resolve()
        self.jobs = options.jobs
        self.sources = sources(options.source)
        self.mutants = []
        self.skipped = {}
        self.objects = {}  # what is compiled in the place of a file of the build: the folder of that
        commands = {entry["file"]: entry["command"]
                    for entry in json.loads((self.build / "compile_commands.json").read_text())}
        (OUT / "bin").mkdir(parents=True, exist_ok=True)
        self.compile(commands)
        self.names = [program for program in PROGRAMS if re.search(options.by, program) and self.link(program)]

    def compile(self, commands):
        unit_of = units(commands)
        with concurrent.futures.ProcessPoolExecutor(self.jobs) as pool:
            tasks = [(path, first, commands[str(unit_of[path][0])]) for path, first in self.sources.items()]
            found = list(pool.map(rewrite, tasks))
        for mutants, skipped in found:
            self.mutants += mutants
            for why, count in skipped.items():
                self.skipped[why] = self.skipped.get(why, 0) + count
        jobs = []
        for path in self.sources:
            unit, inside = unit_of[path]
            to = rewritten(path.with_name(unit.name))
            if to in self.objects:
                continue
            self.objects[to] = path.parent
            if unit != path:
                to.write_text("".join(f'#include "{rewritten(one) if one in self.sources else one}"\n' for one in inside))
            words = shlex.split(commands[str(unit)])
            words[words.index("-o") + 1] = str(to) + ".o"
            words[words.index("-c") + 1] = str(to)
            jobs.append(words[:1] + ["-include", str(HERE / "mutant.h")] + words[1:] + ["-O1", "-w"])
        jobs.append([jobs[0][0], "-std=c++20", f"-DSTARLING_MUTANTS={max(self.sources.values()) + MOST}", "-c",
                     str(HERE / "mutant.cc"), "-o", str(OUT / "mutant.o")])
        cached = ["ccache"] if subprocess.run(["which", "ccache"], capture_output=True).returncode == 0 else []
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda words: run(cached + words, cwd=self.build), jobs))

    def leave_out(self, why, pattern):
        kept = [mutant for mutant in self.mutants if not pattern.search(mutant.key())]
        self.skipped[why] = len(self.mutants) - len(kept)
        self.mutants = kept

    def link(self, program):
        """With our objects in the place of those of the libraries, which are found first; unless it
        has none of them."""
        last = link_command(self.build, program)
        objects = [f"{unit}.o" for unit, folder in self.objects.items() if has(last, folder)]
        if not objects:
            return False
        objects.append(str(OUT / "mutant.o"))
        run(last.replace(f"-o bin/{program}", f"-o {OUT}/bin/{program} " + " ".join(objects)), cwd=self.build, shell=True)
        return True


@dataclasses.dataclass
class Case:
    program: str
    name: str
    seconds: float
    reached: set


def limit_cpu(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def busy(pid):
    """Seconds for which threads of a process have run or waited for a core."""
    spent = 0
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            spent += sum(int(word) for word in thread.read_text().split()[:2])
        except OSError:
            pass  # it has ended
    return spent / 1e9


def wait_for(process):
    """Whether it ends well; one that is idle for too long is killed."""
    began = time.monotonic()
    while True:
        try:
            return process.wait(1) == 0
        except subprocess.TimeoutExpired:
            lasted = time.monotonic() - began
            if lasted - busy(process.pid) > IDLE or lasted > DEFINITELY:
                process.kill()
                process.wait()
                return False


def play(program, names, environment, seconds):
    """Whether these cases pass, and how long they took."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    passed = wait_for(subprocess.Popen(
        [OUT / "bin" / program, "--gtest_brief=1", "--gtest_fail_fast", "--gtest_filter=" + ":".join(names)],
        env=os.environ | ENVIRONMENT | environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, preexec_fn=lambda: limit_cpu(math.ceil(seconds) + 1)))
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
    return [name for name in names if not LEFT_OUT.search(name)]


def look(task):
    """Runs one case with all lines as they are, unless that was done before."""
    program, name = task
    made_of = hashlib.sha256((OUT / "bin" / program).read_bytes() + name.encode() + repr(ENVIRONMENT).encode())
    known = OUT / "looks" / made_of.hexdigest()
    if known.exists():
        passed, seconds, reached = json.loads(known.read_text())
        return Case(program, name, seconds, set(reached)), passed
    path = OUT / f"reached.{os.getpid()}"
    for _ in range(2):  # on a busy machine a deadline may pass
        path.unlink(missing_ok=True)
        passed, seconds = play(program, [name], {"STARLING_MUTANT_REACHED": str(path)}, LONGEST)
        if passed or seconds > LONGEST:
            break
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
    """By which program's cases, or nothing. Those that fail late have to pass in their turn without
    the mutant, or their deadlines passed because others had the CPU."""
    mutant, cases = task
    for batch in batches(cases):
        program, names = batch[0].program, [case.name for case in batch]
        seconds = PATIENCE[0] + PATIENCE[1] * sum(case.seconds for case in batch)
        began = time.monotonic()
        passed, _ = play(program, names, {"STARLING_MUTANT": str(mutant)}, seconds)
        if not passed and (time.monotonic() - began < SOON or play(program, names, {}, DEFINITELY)[0]):
            return program
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
    parser.add_argument("source", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--survivors", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--by", default="")
    parser.add_argument("--least", type=float)
    parser.add_argument("--programs", action="store_true")
    options = parser.parse_intermixed_args()
    if options.programs:
        folders = {path.parent for path in sources(options.source)}
        print(*(program for program in PROGRAMS if re.search(options.by, program) and
                any(has(link_command(options.build, program), folder) for folder in folders)))
        return
    programs = Programs(options)
    programs.leave_out("lines that only log or reserve memory", UNSEEN)
    keys = {mutant.id: mutant.key() for mutant in programs.mutants}
    files = {mutant.file for mutant in programs.mutants}
    equivalent = {key: why for key, why in read_equivalent().items()
                  if key.split()[0] in files or not (ROOT / key.split()[0]).exists()}
    results = OUT / "results.json"
    known = json.loads(results.read_text()) if results.exists() else {}

    began = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        looks = list(pool.map(look, [(p, name) for p in programs.names for name in cases_of(p)]))
        failing = [case.name for case, passed in looks if not passed and case.seconds <= LONGEST]
        if failing:
            raise SystemExit("these fail without any mutant: " + " ".join(failing))
        longest = QUICK if options.quick else LONGEST
        cases = [case for case, _ in looks if case.seconds <= longest]
        if len(cases) < len(looks):
            print(f"{len(looks) - len(cases)} test cases take more than {longest} s and are left out")
        chosen = [m for m in programs.mutants if re.search(options.only, keys[m.id])][::options.every]
        tried = [m for m in chosen if not options.survivors or known.get(keys[m.id]) is None]
        tasks = [(m.id, [case for case in cases if m.id in case.reached and may_notice(case, keys[m.id])])
                 for m in tried]
        print(f"{len(tried)} of {len(programs.mutants)} mutants, {len(cases)} test cases; "
              f"left out: {', '.join(f'{n} {why}' for why, n in sorted(programs.skipped.items()))}", flush=True)
        verdicts = {}
        for mutant, by in zip(tried, pool.map(noticed, tasks)):
            verdicts[keys[mutant.id]] = known[keys[mutant.id]] = by
            if len(verdicts) % 100 == 0:
                results.write_text(json.dumps(known, indent=1))
                print(f"{len(verdicts)} tried after {time.monotonic() - began:.0f} s", flush=True)
    all_keys = set(keys.values())
    known = {key: by for key, by in known.items() if key in all_keys or key.split()[0] not in files}
    results.write_text(json.dumps(known, indent=1))
    sys.exit(report(chosen, known, all_keys, equivalent, options.least))


def report(chosen, known, all_keys, equivalent, least):
    """Prints what was not noticed, and the figures of each source and folder; 1 where something is to
    be done."""
    figures = {}  # of a file, a folder or all: made, noticed, listed, not noticed
    for mutant in chosen:
        key = mutant.key()
        what = 1 if known[key] is not None else 2 if key in equivalent else 3
        for name in (mutant.file, os.path.dirname(mutant.file) + "/", "all"):
            figure = figures.setdefault(name, [0, 0, 0, 0])
            figure[0] += 1
            figure[what] += 1
        if what == 3:
            print(f"\n{mutant.file}:{mutant.line} is not noticed:\n{key}")
    stale = [key for key in equivalent if key not in all_keys or known.get(key) is not None]
    for key in stale:
        what = "it is noticed" if key in all_keys else "there is no such mutant any more"
        print(f"\nequivalent.txt: {what}, take it out:\n{key}")
    print(f"\n{'':48}   made  noticed  listed  not noticed   share")
    low = False
    for name in sorted(figures, key=lambda name: (name == "all", name)):
        made, noticed, listed, missed = figures[name]
        share = 100 * noticed / max(1, noticed + missed)
        wanted = SCOPE[name[:-1]].least if least is None and name.endswith("/") else least if name == "all" else None
        low |= wanted is not None and share < wanted
        print(f"{name:48}{made:7}{noticed:9}{listed:8}{missed:13}{share:7.1f} %"
              + (f"  below {wanted} %" if wanted is not None and share < wanted else ""))
    return 1 if stale or low else 0


if __name__ == "__main__":
    main()
