#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loops that are not ours (starling.join): real processes under a real control plane, killed where it
hurts. The workers' program is a script that runs own_loop_train.py by starling.embed.launch.
"""
import collections
import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import unittest
from array import array

# Programs look for each other beside themselves: what is replaced stands among copies of the others.
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILT = os.environ.get("STARLING_BIN", os.path.join(REPOSITORY, "build/release/bin"))
PROGRAMS = ("starling", "starling-controller", "starling-coordinator", "starling-supervisor")
FOLDER = tempfile.mkdtemp(prefix="starling-own-loop-")
os.environ["STARLING_BIN"] = FOLDER

from case import Case  # noqa: E402  (it reads STARLING_BIN)
from home import DATA, is_running, kill, read, until  # noqa: E402

SAMPLES, BATCH, EPOCHS = 100, 16, 6
PER_EPOCH = -(-SAMPLES // BATCH)
STEPS = PER_EPOCH * EPOCHS


def setUpModule():
    for program in PROGRAMS:
        shutil.copy2(os.path.join(BUILT, program), FOLDER)


def tearDownModule():
    shutil.rmtree(FOLDER, ignore_errors=True)


def script_of(plan):
    """What stands in starling-worker's place."""
    path = os.path.join(FOLDER, "starling-worker")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"""#!/bin/bash
export PYTHONPATH={REPOSITORY}/python STARLING_EMBED_LIBRARY={BUILT}/libstarling_embed.so
export OWN_LOOP='{json.dumps(plan)}'
for i in "$@"; do case $last in --pod-name) pod=$i;; esac; case $i in --pod-name=*) pod=${{i#*=}};; esac; last=$i; done
exec {sys.executable} -B -m starling.embed.launch "$@" -- \
  {REPOSITORY}/tests/e2e/own_loop_train.py --pod "$pod"
""")
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def job(workers=3, epochs=EPOCHS, delay="20ms", **changes):
    spec = {
        "workload": {"linearRegression": {}},  # never computed: the script is
        "dataset": {"train": {"csv": {"uri": os.path.join(DATA, "digits-train.csv")}},
                    "globalBatchSize": BATCH, "auditUse": True},
        "stop": {"epochs": epochs},
        "replicaSpecs": {"worker": {"replicas": workers, "maxReplicas": 4}},
        "experiment": {"stepDelay": delay},
    }
    spec.update(changes)
    return {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": "own"}, "spec": spec}


class OwnLoop(Case):
    def train(self, plan, **changes):
        script_of(plan)
        return self.run_job(job(**changes))

    def said(self):
        """What each pod's processes have said, in order, by the pod's name."""
        folder = os.path.join(self.home.job_folder("own"), "pods")
        told = collections.defaultdict(list)
        for pod in sorted(os.listdir(folder)):
            for line in read(os.path.join(folder, pod, "log")).splitlines():
                if line.startswith("SAID "):
                    told[pod.rpartition("-")[0]].append(json.loads(line[5:]))
        return told

    def model(self):
        """The model file's one tensor."""
        with open(os.path.join(self.home.job_folder("own"), "model.safetensors"), "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(size))
            begin, end = header["weights"]["data_offsets"]
            content = file.read()
        return struct.unpack(f"<{(end - begin) // 8}d", content[begin:end])

    def check_each_sample_once(self, said):
        """In the view in which a step counted, what the members were given is its whole batch, and an
        epoch's batches are all samples. Returns how often each step counted for some member."""
        counted, times = {}, collections.Counter()
        for pod, lines in said.items():
            mine = collections.Counter(line["counted"] for line in lines if "counted" in line)
            for step, often in mine.items():
                times[step] = max(times[step], often)
            counted.update((line["counted"], line["view"]) for line in lines if "counted" in line)
        used = collections.defaultdict(collections.Counter)
        for lines in said.values():
            for line in lines:
                if "given" in line and counted.get(line["given"]) == line["view"]:
                    used[line["epoch"]].update(line["ids"])
        self.assertEqual(list(range(1, STEPS + 1)), sorted(counted))
        for epoch in range(1, EPOCHS + 1):
            self.assertEqual({number: 1 for number in range(SAMPLES)}, dict(used[epoch]),
                             f"epoch {epoch}")
        return times

    def weights(self, said):
        return {pod: [line["weights"] for line in lines if "over" in line]
                for pod, lines in said.items()}

    def check_members_agree(self, said):
        found = {weights for all_of_pod in self.weights(said).values() for weights in all_of_pod}
        self.assertEqual(1, len(found), "members end with equal bits")

    def alone(self):
        """The model of one process that nobody disturbs."""
        self.train({}, workers=1, delay="0s")
        model = self.model()
        self.home.close()
        self.setUp()
        return model

    def distance(self, model, alone):
        return max(abs(a - b) / max(1, abs(b)) for a, b in zip(model, alone))

    def pids(self, said, pod):
        return {line["pid"] for line in said[pod] if "pid" in line}


class Training(OwnLoop):
    def test_members_make_together_what_one_process_makes_alone(self):
        alone = self.alone()
        done = self.train({}, workers=3)
        said = self.said()
        self.assertEqual({1}, set(self.check_each_sample_once(said).values()))
        self.check_members_agree(said)
        self.assertLess(self.distance(self.model(), alone), 1e-6)
        progress = done["status"]["progress"]
        self.assertGreater(progress["metrics"]["loss"], 0)
        # Of the last batch's 4 samples: (1 * 1 + 1 * 1 + 2 * 2) / 4, by weight.
        self.assertAlmostEqual(1.5, progress["metrics"]["share"])
        self.assertEqual(STEPS, self.result(done)["steps"])
        self.assertTrue(all(lines[-1] == {"closed": True} for lines in said.values()), said)
        lines = self.home.audit("own")
        self.assertEqual(list(range(1, STEPS + 1)), [line["step"] for line in lines])

    def test_what_members_begin_with_is_the_first_ones(self):
        self.train({"same_start": False}, workers=3)
        self.check_members_agree(self.said())


class Kill(OwnLoop):
    def check_kill(self, at, step=17, pods=("own-worker-1",), alone=None, **plan):
        self.train({"die": {"at": at, "step": step, "pods": list(pods)}, **plan})
        said = self.said()
        self.assertEqual({1}, set(self.check_each_sample_once(said).values()))
        self.check_members_agree(said)
        for pod in set(said) - set(pods):
            self.assertEqual(1, len(self.pids(said, pod)), f"{pod}: survivors keep their process")
        self.assertLess(self.distance(self.model(), alone), 1e-6, at)
        return said

    def test_a_state_of_copies_is_asked_for_when_somebody_comes_and_at_the_end(self):
        said = self.check_kill("counted", alone=self.alone(), copied=True)
        for pod, lines in said.items():
            asked = sum("refreshed" in line for line in lines)
            given = sum("given" in line for line in lines)
            self.assertLess(0, asked, pod)
            self.assertLess(asked, given / 3, pod)
        self.assertTrue(any(line.get("restored") for line in said["own-worker-1"]))

    def test_control_copies_that_are_not_brought_up_to_date_are_another_model(self):
        alone = self.alone()
        self.train({"die": {"at": "counted", "step": 17, "pods": ["own-worker-1"]}, "copied": True,
                    "stale": True})
        self.assertGreater(self.distance(self.model(), alone), 1e-3)

    def test_a_member_dies_wherever_it_is(self):
        alone = self.alone()
        for at in ("given", "counted", "applied"):
            with self.subTest(at):
                said = self.check_kill(at, alone=alone)
                if at == "given":
                    repeated = [line for line in said["own-worker-0"] if line.get("repeated")]
                    self.assertEqual([17], [line["given"] for line in repeated])
            self.home.close()
            self.setUp()

    def test_who_comes_back_goes_on_with_the_others_state(self):
        script_of({"die": {"at": "given", "step": 9, "pods": ["own-worker-1"]}})
        command = self.home.start("run", self.home.write("job.yaml", job(epochs=10000)))

        def first_of_a_newcomer():  # the pod's second process, or a pod in its place
            given = [[line for line in lines if "given" in line] for lines in self.said().values()]
            # At the first step all but the first member were given its state.
            return [line for lines in given for line in lines
                    if line["restored"] and line["given"] > 1][:1]
        self.home.await_step(1, "own", command=command)
        reborn, = until(first_of_a_newcomer, 60, self.home.describe)
        self.assertNotIn(reborn["pid"], self.pids(self.said(), "own-worker-0"))
        self.assertGreater(reborn["given"], 9)
        self.home.run("delete", "own")
        command.wait(60)

    def test_without_the_commit_the_audit_sees_it(self):
        """The negative control: whoever takes every step for one that counts is found out."""
        alone = self.alone()
        self.train({"die": {"at": "given", "step": 17, "pods": ["own-worker-1"]},
                    "ignore_commit": True})
        said = self.said()
        with self.assertRaises(AssertionError):
            self.assertEqual({1}, set(self.check_each_sample_once(said).values()))
        self.assertGreater(self.distance(self.model(), alone), 1e-4)

    def test_a_pod_that_is_killed_is_replaced_and_the_others_go_on(self):
        alone = self.alone()
        script_of({})
        command = self.home.start("run", self.home.write("job.yaml", job()), "-o", "json")
        self.home.await_step(8, "own", command=command)
        kill(self.home.await_pod("own-worker-2"))
        self.finish(command)
        said = self.said()
        self.assertEqual({1}, set(self.check_each_sample_once(said).values()))
        self.check_members_agree(said)
        for pod in ("own-worker-0", "own-worker-1"):
            self.assertEqual(1, len(self.pids(said, pod)))
        self.assertLess(self.distance(self.model(), alone), 1e-6)

    def test_all_members_die_and_go_on_from_a_checkpoint(self):
        alone = self.alone()
        pods = [f"own-worker-{index}" for index in range(3)]
        self.train({"die": {"at": "applied", "step": 30, "pods": pods}},
                   checkpoint={"interval": "100ms"}, delay="40ms")
        said = self.said()
        self.check_members_agree(said)
        self.assertLess(self.distance(self.model(), alone), 1e-6)
        # Some may have come back when all was done.
        again = [line for pod in pods for line in said[pod]
                 if "given" in line and line["pid"] != said[pod][0]["pid"]]
        self.assertGreater(min(line["given"] for line in again), 1, "none began anew")

    def test_a_loader_that_outlives_its_member_keeps_nobody_waiting(self):
        self.train({"loader": 20, "die": {"at": "given", "step": 17, "pods": ["own-worker-1"]}})
        for line in self.said()["own-worker-0"]:
            if line.get("given") == 17:
                first = line["at"] if not line["repeated"] else first
                again = line["at"]
        self.assertLess(again - first, 2.0)


class End(OwnLoop):
    def fails(self, plan):
        script_of(plan)
        limited = job(workers=2, runPolicy={"backoffLimit": 0})
        limited["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
        return self.home.run("run", self.home.write("job.yaml", limited), "-o", "json", code=None,
                             timeout=120).result()

    def incident(self, done):
        """The first one that a script's end with 1 has made."""
        found = [incident for incident in done["status"]["incidents"] if incident.get("exitCode") == 1]
        self.assertTrue(found, done["status"]["incidents"])
        return found[0]

    def test_an_exception_is_the_jobs_incident(self):
        done = self.fails({"raise": 9})
        self.assertEqual("Failed", done["status"]["state"])
        incident = self.incident(done)
        self.assertIn("the script has a mistake", incident["logTail"])

    def test_a_loop_that_is_left_too_early_is_a_failure_that_says_so(self):
        done = self.fails({"break": 9})
        incident = self.incident(done)
        self.assertIn("before training was over", incident["logTail"])

    def test_a_step_that_is_not_reduced_is_named(self):
        incident = self.incident(self.fails({"skip": 9}))
        self.assertIn("step 9 was given to the program", incident["logTail"])

    def test_wrong_flags_end_with_2(self):
        environment = {**os.environ, "PYTHONPATH": os.path.join(REPOSITORY, "python"),
                       "STARLING_EMBED_LIBRARY": os.path.join(BUILT, "libstarling_embed.so")}
        for flags, word in ((["--spec", "/no/such"], "--secret"), (["--nonsense"], "--"), ([], "--")):
            ended = subprocess.run(
                [sys.executable, "-B", "-m", "starling.embed.launch", *flags, "--", __file__],
                env=environment, capture_output=True, text=True, timeout=60)
            self.assertEqual(2, ended.returncode, ended.stderr)
            self.assertIn(word, ended.stderr)

    def test_who_is_not_needed_any_more_ends_with_0(self):
        script_of({})
        command = self.home.start("run", self.home.write("job.yaml", job(epochs=40)), "-o", "json")
        self.home.await_step(8, "own", command=command)
        first = self.home.role_pid("own-worker-2")
        self.home.run("scale", "own", "--replicas", "2")
        until(lambda: not is_running(first), 30, self.home.describe)
        self.home.await_step(self.home.steps("own") + 20, "own", command=command)
        log = "".join(read(path) for path in self.logs("own-worker-2"))
        self.assertNotIn("Traceback", log)
        self.home.run("delete", "own")
        command.wait(60)

    def logs(self, pod):
        folder = os.path.join(self.home.job_folder("own"), "pods")
        return [os.path.join(folder, name, "log") for name in os.listdir(folder)
                if name.startswith(pod)]


class Arrays(unittest.TestCase):
    def test_memory_is_known_by_its_format_and_must_be_writable(self):
        sys.path.insert(0, os.path.join(REPOSITORY, "python"))
        from starling.embed._memory import Memory
        for values, dtype, elements in ((array("f", [1, 2]), "F32", 2),
                                       (array("q", [1]), "I64", 1),
                                       (bytearray(5), "U8", 5)):
            memory = Memory("x", values)
            self.assertEqual((dtype, elements, (elements,)),
                             (memory.dtype, memory.elements, memory.shape))
        for wrong, error in ((b"read only", ValueError), ([1.0], TypeError),
                             (memoryview(bytearray(8))[::2], ValueError),
                             (array("u", "x"), TypeError)):
            with self.assertRaisesRegex(error, "weights"):
                Memory("weights", wrong)


if __name__ == "__main__":
    unittest.main()
