# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs as elastic jobs: a worker is killed in the middle of a step, and nothing is lost.

What is compared with is one process that computes the same steps with plain PyTorch
(pytorch_reference.py). The controls leave out what the loop does right, and are far from it.
"""
import array
import collections
import glob
import json
import os
import shutil
import struct
import subprocess
import sys
import unittest

import jobs
from case import Case, pages
from home import BIN, DATA, REPOSITORY, kill, read, until

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLE = os.path.join(REPOSITORY, "examples/pytorch-elastic")
TRAIN = os.path.join(EXAMPLE, "train.py")
VICTIM = os.path.join(HERE, "pytorch_victim.py")
# All controls, each of which is a training of its own; else one of each kind.
ALL_CONTROLS = "STARLING_CONTROLS" in os.environ
NEAR = 1e-6  # what the order of sums of 32-bit numbers makes of 69 steps


# To import it takes seconds, which each class here would begin with.
FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"


def python_with_torch():
    """An interpreter, by STARLING_PYTHON_WITH_TORCH if that is set; None if there is none here."""
    told = os.environ.get("STARLING_PYTHON_WITH_TORCH")
    for python in (told,) if told else (sys.executable, "/usr/bin/python3", shutil.which("python3")):
        if python and has(python, FIND):
            return python
    return None


def has(python, statement):
    return subprocess.run([python, "-c", statement], capture_output=True, check=False).returncode == 0


PYTHON = python_with_torch()
WITHOUT = "skipped: no Python here has torch (Debian: python3-torch)"


class PytorchCase(Case):
    EPOCHS = 3
    NAME = "own"

    def setUp(self):
        super().setUp()
        self.told = os.path.join(self.home.folder, "told")
        os.mkdir(self.told)

    def job(self, *flags, workers=3, script=VICTIM, arguments=None, delay="20ms"):
        """The example's program; `flags` are pytorch_victim.py's."""
        if arguments is None:
            arguments = ["--tell", self.told, *flags, TRAIN, "--data", DATA,
                         "--epochs", str(self.EPOCHS)]
        return {
            "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
            "metadata": {"name": self.NAME},
            "spec": {
                "seed": 7,
                "workload": {"pytorch": {"script": script, "args": arguments, "python": PYTHON}},
                "dataset": {"auditUse": True},
                # Several buckets, so that one can die between two.
                "exchange": {"allReduce": {"bucketBytes": 4096}},
                "replicaSpecs": {"worker": {"replicas": workers, "minReplicas": 1,
                                            "maxReplicas": 8}},
                "checkpoint": {"interval": "400ms"},
                "experiment": {"stepDelay": delay}}}

    def start(self, job):
        return self.home.start("run", self.home.write("job.yaml", job), "-o", "json")

    def roles(self, workers=3):
        return [until(lambda index=index: self.home.role_pid(f"{self.NAME}-worker-{index}"), 60,
                      f"worker {index} runs") for index in range(workers)]

    def distance(self, job):
        """Of the job's model from one process's."""
        model = self.result(job)["model"]["uri"].removeprefix("file://")
        done = subprocess.run(
            [PYTHON, "-B", os.path.join(HERE, "pytorch_reference.py"), TRAIN, DATA,
             f"{self.home.job_folder(self.NAME)}/audit", model, str(self.EPOCHS)],
            capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        return float(done.stdout)

    def said(self):
        """What the program's processes have said, in any order."""
        return [json.loads(line[5:])
                for path in glob.glob(f"{self.home.job_folder(self.NAME)}/pods/*/log")
                for line in read(path).splitlines() if line.startswith("SAID ")]

    def members(self):
        """By the pid of each that has come to the end: the digest of what it holds, and how many
        batches it had read in vain."""
        return {int(os.path.basename(path)): read(path).split()
                for path in glob.glob(f"{self.told}/*")}

    def all_killed(self, job):
        """Both members of a job, after some steps: it goes on from a checkpoint to the same model."""
        command = self.start(job)
        self.home.await_step(35, self.NAME, command=command)
        for pid in self.roles(2):
            self.assertTrue(kill(pid))
        job = self.finish(command, timeout=300)
        self.check_audit(self.EPOCHS, self.NAME)
        self.assertLessEqual(self.distance(job), NEAR)


class Loop(PytorchCase):
    def test_one_that_dies_in_the_middle_of_a_step_costs_the_others_nothing(self):
        command = self.start(self.job("--die", "own-worker-1", "20"))
        before = self.roles()

        job = self.finish(command, timeout=300)
        self.check_audit(self.EPOCHS, self.NAME)
        distance = self.distance(job)
        members = self.members()
        self.say(f"distance {distance:.2e}, ended: {members}, incidents: "
                 f"{[one['reason'] for one in job['status'].get('incidents', [])]}")
        self.assertLessEqual(distance, NEAR)
        self.assertLessEqual({before[0], before[2]}, set(members), "who survives is the same process")
        self.assertNotIn(before[1], members)
        self.assertEqual(1, len({digest for digest, _ in members.values()}), "equal bit by bit")
        lost = [one for one in job["status"]["incidents"] if one.get("pod") == "own-worker-1"]
        self.assertTrue(lost, job["status"]["incidents"])
        self.assertLessEqual(lost[0]["repeatedSteps"], 1)

    def test_running_averages_epoch_ends_and_parts_that_nobody_uses_stay_equal(self):
        other = os.path.join(HERE, "pytorch_other.py")
        command = self.start(self.job(arguments=["--tell", self.told, "--die", "own-worker-1", "13",
                                                 other]))
        before = self.roles()
        result = self.result(self.finish(command, timeout=300))
        members = self.members()
        self.assertLessEqual({before[0], before[2]}, set(members))
        self.assertEqual(1, len({digest for digest, _ in members.values()}), members)
        self.assertEqual((30, 3), (result["steps"], result["epochs"]))
        self.assertLess(0.5, result["metrics"]["accuracy"])

    def test_more_members_than_samples_in_a_batch_leave_some_without_a_share(self):
        job = self.job(workers=3, delay="0s", arguments=[
            "--tell", self.told, TRAIN, "--data", DATA, "--epochs", "1", "--batch", "2"])
        self.finish(self.start(job), timeout=300)
        self.check_audit(1, self.NAME, batch=2)
        self.assertEqual(1, len({digest for digest, _ in self.members().values()}))

    def test_a_step_of_several_batches_is_the_step_of_one(self):
        text = read(TRAIN)
        for old, new in (("scheduler)  # 2", "scheduler, accumulate=3)\n    batches = 0"),
                         ("options.epochs * len(loader)", f"{jobs.steps_of(self.EPOCHS)}"),
                         ("            loss.backward()\n",
                          "            (loss / 3).backward()\n            batches += 1\n"
                          "            if batches % 3:\n                continue\n"),
                         ('"../data"', repr(DATA))):
            self.assertIn(old, text)
            text = text.replace(old, new)
        job = self.job(arguments=["--tell", self.told, "--die", "own-worker-1", "20",
                                  self.home.write("accumulate.py", text), "--epochs",
                                  str(self.EPOCHS), "--batch", "32"])
        job["spec"]["dataset"]["globalBatchSize"] = 64
        job = self.finish(self.start(job), timeout=300)
        self.check_audit(self.EPOCHS, self.NAME)
        distance = self.distance(job)
        self.say(f"distance {distance:.2e}, ended: {self.members()}")
        self.assertLessEqual(distance, NEAR)

    def test_a_joiner_goes_on_with_optimizer_and_scheduler(self):
        command = self.start(self.job(workers=1, delay="100ms"))
        self.home.await_step(5, self.NAME, command=command)
        self.home.run("scale", self.NAME, "--replicas", "2")
        job = self.finish(command, timeout=300)
        self.check_audit(self.EPOCHS, self.NAME)
        self.assertLessEqual(self.distance(job), NEAR)
        members = self.members()
        self.assertEqual(2, len(members), "the second came before the end")
        self.assertEqual(1, len({digest for digest, _ in members.values()}))

    def test_all_killed_goes_on_from_a_checkpoint(self):
        self.all_killed(self.job(workers=2, delay="50ms"))

    def test_example_as_it_stands_in_the_tree_reads_ahead_in_processes_of_its_own(self):
        job = self.finish(self.home.start(
            "run", os.path.join(EXAMPLE, "job.yaml"), "-o", "json",
            "--set", f"spec.workload.pytorch.python={PYTHON}",
            "--set", 'spec.workload.pytorch.args=["--epochs", "3", "--readers", "1"]'), timeout=300)
        result = self.result(job)
        self.assertEqual((3, jobs.steps_of(3)), (result["epochs"], result["steps"]))
        self.assertIn("loss", result["metrics"])


class Device(PytorchCase):
    """A model that lies where the library cannot read it (tests/torch/standin_device.cc)."""

    @classmethod
    def setUpClass(cls):
        folder = os.path.join(REPOSITORY, "tests/torch")
        if not has(PYTHON, f"import os, sys; sys.path.insert(0, {folder!r}); os.environ['STARLING_BIN'] = {BIN!r}; "
                           "import standin; sys.exit(not standin.fits())"):
            raise unittest.SkipTest("the stand-in device was not built for this Python's PyTorch")

    def program(self, *flags, workers=2, delay="50ms", mixed=()):
        return self.job(workers=workers, delay=delay, arguments=[
            "--tell", self.told, *flags, os.path.join(HERE, "pytorch_device.py"), TRAIN, DATA,
            str(self.EPOCHS), *mixed])

    def play(self, *flags, mixed=()):
        """A third comes, and then one is killed in the middle of a step; steps are slow while one is away."""
        command = self.start(self.program("--die", "own-worker-1", "20", "--wait", "3", *flags, delay="100ms",
                                          mixed=mixed))
        before = self.roles(2)
        self.home.await_step(8, self.NAME, command=command)
        self.home.run("scale", self.NAME, "--replicas", "3")
        job = self.finish(command, timeout=300)
        members = self.members()
        distance = self.distance(job)
        self.say(f"{' '.join(flags)} {mixed}: distance {distance:.2e}, ended: {members}")
        self.assertIn(before[0], members, "who survives is the same process")
        self.assertLess(1, len(members), "others came before the end")
        return distance, {digest for digest, _ in members.values()}

    def test_one_is_killed_and_one_comes_and_the_model_is_what_one_process_makes(self):
        distance, digests = self.play()
        self.check_audit(self.EPOCHS, self.NAME)
        self.assertLessEqual(distance, NEAR)
        self.assertEqual(1, len(digests), "equal bit by bit")

    def test_a_model_of_which_a_part_lies_on_the_host(self):
        distance, digests = self.play(mixed=["--mixed"])
        self.assertLessEqual(distance, NEAR)
        self.assertEqual(1, len(digests), "equal bit by bit")

    def test_all_killed_goes_on_from_a_checkpoint(self):
        self.all_killed(self.program())

    def test_the_bits_of_a_reproducible_job_are_the_same_for_any_number_of_members(self):
        found = set()
        for flags, workers in (((), 1), (("--die", "own-worker-1", "9"), 3)):
            job = self.program(*flags, workers=workers, delay="20ms")
            job["spec"]["reproducible"] = True
            found.add(self.digest(self.finish(self.start(job), timeout=120)))
            self.home.close()
            self.setUp()
        self.assertEqual(1, len(found))

    def test_control_copies_that_are_not_brought_up_to_date_give_who_comes_an_old_state(self):
        distance, digests = self.play("--without", "refresh")
        self.assertGreater(distance, 100 * NEAR)
        self.assertLess(1, len(digests), "members differ")


class Reproducible(PytorchCase):
    """The same bits for any number of workers, whatever happens to them."""
    OTHER = os.path.join(HERE, "pytorch_other.py")

    def program(self, *flags, workers=3, members=None, reproducible=True, readers=0, delay="20ms"):
        """`members`: steps are slow until there are so many, by default all workers. On a busy machine the first one
        would else be done before the second has begun, and there would be nothing to compare."""
        job = self.job(workers=workers, delay=delay, arguments=[
            "--tell", self.told, *flags, self.OTHER, "--blur", "0.1", "--batch", "50",
            "--readers", str(readers), "--members", str(members or workers)])
        job["spec"]["reproducible"] = reproducible
        return job

    def bits(self, *flags, **options):
        """Of the model of a job, in a home of its own."""
        self.home.close()
        self.setUp()
        found = self.digest(self.finish(self.start(self.program(*flags, **options)), timeout=120))
        self.say(f"{' '.join(flags)} {options}: {found[:12]}")
        return found

    def test_neither_the_number_of_workers_nor_deaths_nor_scaling_change_a_bit(self):
        alone = self.bits(workers=1, delay="0s")
        self.assertEqual(alone, self.bits(workers=3, delay="0s"))
        self.assertEqual(alone, self.bits("--die", "own-worker-1", "9"))
        self.assertEqual(alone, self.bits("--die", "own-worker-0", "9/3", workers=2, readers=1))

        self.home.close()
        self.setUp()
        command = self.start(self.program(workers=1, members=3))
        self.home.await_step(2, self.NAME, command=command)
        self.home.run("scale", self.NAME, "--replicas", "3")
        self.assertEqual(alone, self.digest(self.finish(command, timeout=120)))
        self.assertEqual(3, len(self.members()), "they came before the end")

    def test_controls_without_any_part_of_it_bits_differ(self):
        parts = (((), {"reproducible": False}), (("--without", "seeds"), {}),
                 (("--without", "averages"), {}))
        for flags, options in parts if ALL_CONTROLS else parts[:1]:
            with self.subTest(flags=flags, **options):
                found = {self.bits(*flags, workers=workers, delay="0s", **options)
                         for workers in (1, 2)}
                self.assertEqual(2, len(found))

    def test_what_makes_results_depend_on_the_machine_is_refused(self):
        text = read(self.OTHER).replace("    before = model",
                                        "    torch.set_num_threads(2)\n    before = model")
        job = self.program(workers=1)
        job["spec"]["workload"]["pytorch"] = {"script": self.home.write("threads.py", text),
                                              "args": [], "python": PYTHON}
        job["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
        self.assertNotEqual(0, self.start(job).wait(120))
        told = str(self.home.job(self.NAME)["status"]["incidents"])
        self.assertIn("leave out torch.set_num_threads, or spec.reproducible", told)


class Scaler(PytorchCase):
    PROGRAM = os.path.join(HERE, "pytorch_scaler.py")

    @classmethod
    def setUpClass(cls):
        if not has(PYTHON, "import torch; torch.amp.GradScaler('cpu')"):
            raise unittest.SkipTest("a GradScaler without a GPU needs PyTorch 2.3: "
                                    "STARLING_PYTHON_WITH_TORCH names one")

    def train(self, *flags):
        """What each that has come to the end says."""
        self.finish(self.start(self.job(
            workers=3,
            arguments=["--tell", self.told, "--die", "own-worker-1", "13", *flags, self.PROGRAM])))
        said = self.said()
        self.say(f"{' '.join(flags)}: {said}, ended: {self.members()}")
        return said

    def test_an_infinity_anywhere_makes_all_pass_over_the_step_and_who_comes_has_the_scale(self):
        scale, good = 1024.0, 0
        for step in range(1, 31):
            good = 0 if step % 10 == 9 else good + 1
            if good == 0:
                scale /= 2
            elif good == 4:
                scale, good = scale * 2, 0
        said = self.train()
        self.assertGreaterEqual(len(said), 3, "who died came back before the end")
        for one in said:
            self.assertEqual({"scale": scale, "made": [27]}, one)
        self.assertEqual(1, len({digest for digest, _ in self.members().values()}))

    def test_control_without_it_in_the_state_who_comes_has_a_scale_of_its_own(self):
        said = self.train("--without", "scaler")
        self.assertLess(1, len({one["scale"] for one in said}))

    def test_a_scaler_that_elastic_does_not_know_is_refused(self):
        script = self.home.write("wrong.py", read(self.PROGRAM).replace(", scaler=scaler", ""))
        self.home.write("say.py", read(os.path.join(HERE, "say.py")))
        job = self.job(script=script, arguments=[], workers=1)
        job["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
        self.assertNotEqual(0, self.start(job).wait(120))
        self.assertIn("elastic(..., scaler=scaler)", str(self.home.job(self.NAME)["status"]["incidents"]))


class Collective(PytorchCase):
    """An evaluation that the members share, in which one of them dies."""

    def off(self, *flags, **spec):
        """By step: how far what all have found together is from what each finds alone, at most."""
        job = self.job(arguments=["--tell", self.told, "--die", "own-worker-1", "20@collective", *flags,
                                  os.path.join(HERE, "pytorch_collective.py"), TRAIN, DATA])
        job["spec"].update(spec)
        self.finish(self.start(job))
        found = collections.defaultdict(float)
        for one in self.said():
            found[one["step"]] = max(found[one["step"]], abs(one["all"] - one["alone"]))
        self.say(f"{' '.join(flags)} {spec}: {dict(found)}")
        self.assertEqual([10, 20, 30, 40], sorted(found))
        return found

    def test_its_parts_are_made_again_for_who_is_left(self):
        self.assertLess(max(self.off().values()), 1e-12)

    def test_in_a_reproducible_job_the_groups_share_it(self):
        self.assertLess(max(self.off(reproducible=True).values()), 1e-12)

    def test_control_parts_that_are_not_made_again_are_not_the_whole(self):
        self.assertGreater(self.off("--without", "again")[20], 1e-6)


class Wrapped(PytorchCase):
    """A program for DistributedDataParallel that knows nothing of Starling."""
    WRAP = os.path.join(BIN, "python/starling/torch/__main__.py")
    DDP = os.path.join(REPOSITORY, "examples/pytorch-ddp/train.py")

    def program(self, program, *flags, workers=3, delay="20ms"):
        arguments = ["--data", DATA, "--checkpoint", self.home.folder, "--epochs", str(self.EPOCHS)]
        return self.job(workers=workers, delay=delay, arguments=[
            "--tell", self.told, *flags, self.WRAP, "--wrap", program, *arguments])

    def weights(self, job):
        uri = self.result(job)["model"]["uri"].removeprefix("file://")
        with open(uri, "rb") as file:
            size, = struct.unpack("<Q", file.read(8))
            file.seek(8 + size)
            return array.array("f", file.read())

    def test_the_ddp_example_as_it_stands_survives_a_kill_and_is_what_one_worker_makes(self):
        alone = self.weights(self.finish(self.start(self.program(self.DDP, workers=1, delay="0s"))))
        self.home.close()
        self.setUp()
        command = self.start(self.program(self.DDP, "--die", "own-worker-1", "30"))
        before = self.roles()
        job = self.finish(command)
        self.check_audit(self.EPOCHS, self.NAME)
        members = self.members()
        self.assertLessEqual({before[0], before[2]}, set(members), "who survives is the same process")
        self.assertEqual(1, len({digest for digest, _ in members.values()}), "equal bit by bit")
        distance = max(abs(a - b) for a, b in zip(alone, self.weights(job), strict=True))
        self.say(f"distance {distance:.2e}")
        self.assertLessEqual(distance, NEAR)
        self.assertIn("loss", self.result(job)["metrics"])
        self.assertTrue(os.path.exists(os.path.join(self.home.folder, "pytorch-ddp.pt")),
                        "rank 0 has saved its own checkpoint")

    def test_a_command_by_hand_makes_the_job(self):
        done = subprocess.run(
            [PYTHON, "-B", "-m", "starling.torch", "--workers", "2", "--set", "spec.seed=7", "--wrap",
             self.DDP, "--data", DATA, "--checkpoint", self.home.folder, "--epochs", "1"],
            env={**self.home.environment, "PATH": f"{BIN}:{os.environ['PATH']}",
                 "PYTHONPATH": os.path.join(BIN, "python")},
            cwd=self.home.folder, capture_output=True, text=True, check=False, timeout=120)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(jobs.steps_of(1), self.result(self.home.job("train"))["steps"])

    def test_what_it_does_not_know_is_refused_by_name(self):
        text = read(self.DDP)
        for old, new, told in (
                ("loss.backward()", "dist.all_reduce(loss)", "torch.distributed.all_reduce: --wrap"),
                ("DistributedDataParallel(model)", "DistributedDataParallel(model, device_ids=[0])",
                 "device_ids=[0]): --wrap"),
                ("range(first, options.epochs)", "[0, 1]", "outside of: for epoch in range"),
                ("optimizer.step()", "dist.barrier()", "barrier in the loop over epochs")):
            with self.subTest(told):
                self.home.close()
                self.setUp()
                self.assertIn(old, text)
                job = self.program(self.home.write("wrong.py", text.replace(old, new)), workers=1)
                job["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
                self.assertNotEqual(0, self.start(job).wait(60))
                self.assertIn(told, str(self.home.job(self.NAME)["status"]["incidents"]))


class Controls(PytorchCase):
    """Each leaves out one thing, and the model is another."""

    def far(self, *flags):
        job = self.finish(self.start(self.job(*flags)), timeout=300)
        distance = self.distance(job)
        self.say(f"{' '.join(flags)}: distance {distance:.2e}")
        self.assertGreater(distance, 100 * NEAR)

    @unittest.skipUnless(ALL_CONTROLS, "make prove plays it")
    def test_shares_of_other_sizes_that_weigh_the_same(self):
        self.far("--without", "weights")

    def test_own_gradients_taken_where_the_sum_was_lost(self):
        self.far("--without", "dropping", "--die", "own-worker-1", "20", "--wait", "3")
        digests = {digest for digest, _ in self.members().values()}
        self.assertLess(1, len(digests), "members differ")

    @unittest.skipUnless(ALL_CONTROLS, "make prove plays it")
    def test_a_scheduler_that_counts_a_step_that_was_lost(self):
        self.far("--without", "restoring", "--die", "own-worker-1", "20")


class HowTo(PytorchCase):
    """docs/how-to/pytorch.md as it stands, but for the build; its cluster is tests/kube/pytorch_test.py's."""
    PAGE = read(os.path.join(REPOSITORY, "docs/how-to/pytorch.md"))

    def play(self, block, folder):
        environment = {**self.home.environment, "HOME": self.home.folder,
                       "PATH": f"{os.path.dirname(PYTHON)}:{os.environ['PATH']}"}
        named = block.replace("$PWD/build/release/bin", BIN).replace("$STARLING/build/release/bin", BIN)
        done = subprocess.run(["bash", "-ec", named], cwd=folder, env=environment,
                              capture_output=True, text=True, check=False, timeout=240)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.home.describe())
        return done.stdout

    def test_every_command_of_the_page_is_played(self):
        ten, cluster = (pages.blocks(pages.section(self.PAGE, title), "sh")
                        for title in ("In ten minutes", "In a cluster"))
        wrap = pages.blocks(pages.section(self.PAGE, "Without a line"), "sh")
        self.assertEqual((4, 1, 1), (len(ten), len(cluster), len(wrap)))
        self.assertEqual(6, len(pages.blocks(self.PAGE, "sh")))

    def test_ten_minutes_from_nothing_to_a_script_that_survives_a_kill(self):
        section = pages.section(self.PAGE, "In ten minutes")
        build, copy, train, example = pages.blocks(section, "sh")
        self.assertTrue(build.startswith("make programs\n"), build)
        exports = build.removeprefix("make programs\n")
        self.assertIn("Test set: Accuracy", self.play(exports + copy, REPOSITORY))
        folder = os.path.join(self.home.folder, "digits")
        script = os.path.join(folder, "train.py")
        changed = pages.changed(read(script), *pages.blocks(section, "diff"))
        self.home.write(script, changed)
        self.home.write(os.path.join(folder, "job.yaml"), *pages.blocks(section, "yaml"))
        told = self.play(f"cd {REPOSITORY}\n{exports}cd ~/digits\n{train}", REPOSITORY)
        self.home.assert_nothing_runs()
        described = told[told.rindex("incidents"):]
        self.say(described.partition("Where")[0])
        self.assertRegex(described, "digits-worker-1( was killed by signal 9|: its process ended)")
        self.assertIn("Succeeded", told)
        self.play(exports + example, REPOSITORY)

    def test_an_unchanged_program_by_one_command(self):
        block, = pages.blocks(pages.section(self.PAGE, "Without a line"), "sh")
        ddp = read(os.path.join(REPOSITORY, "examples/pytorch-ddp/train.py"))
        self.assertIn('"/opt/digits"', ddp)
        self.home.write("train.py", ddp.replace('"/opt/digits"', repr(DATA)))
        self.play(f"export PATH={BIN}:$PATH STARLING={REPOSITORY}\n{block}", self.home.folder)
        self.assertEqual(10, self.result(self.home.job("train"))["epochs"])


class Wrong(PytorchCase):
    def fails(self, text, *policy):
        script = self.home.write("wrong.py", text)
        job = self.job(script=script, arguments=[], workers=1)
        job["spec"]["replicaSpecs"]["worker"]["restartPolicy"] = "Never"
        command = self.start(job)
        self.assertNotEqual(0, command.wait(120))
        return self.home.job(self.NAME), command

    def test_a_script_that_raises_fails_the_job_with_its_last_lines(self):
        job, _ = self.fails("raise ValueError('there is no such colour')\n")
        self.assertEqual("Failed", job["status"]["state"])
        told = str(job["status"]["incidents"])
        self.assertIn("there is no such colour", told)

    def test_a_python_without_what_the_script_needs_fails_at_once_and_says_which(self):
        script = self.home.write("wrong.py", "import no_such_module\n")
        command = self.start(self.job(script=script, arguments=[], workers=1))
        self.assertNotEqual(0, command.wait(60), command.tail())
        incidents = self.home.job(self.NAME)["status"]["incidents"]
        self.assertEqual(1, len(incidents), "nothing is tried again that cannot get better")
        self.assertIn(f"{PYTHON} has no module no_such_module: name a Python that has it in "
                      "spec.workload.pytorch.python", str(incidents))

    def test_a_script_that_is_not_there_is_refused_before_anything_runs(self):
        job = self.job(script=os.path.join(self.home.folder, "none.py"), arguments=[])
        command = self.start(job)
        self.assertEqual(2, command.wait(30), command.tail())
        self.assertIn("spec.workload.pytorch.script", command.tail())
        self.home.assert_nothing_runs()

    def test_a_member_whose_model_is_another_is_not_let_in_and_the_others_go_on(self):
        text = read(TRAIN).replace(
            "torch.nn.Linear(64, 128)", "torch.nn.Linear(64, WIDTH)").replace(
            "torch.nn.Linear(128, 64)", "torch.nn.Linear(WIDTH, 64)").replace(
            "def make_model", "import sys\nWIDTH = 96 if 'own-worker-1' in sys.orig_argv else 128\n\n\n"
            "def make_model")
        script = self.home.write("train.py", text)
        command = self.start(self.job(workers=1, delay="200ms", script=script,
                                      arguments=["--data", DATA, "--epochs", "3"]))
        # Of two that begin together either may be the other's stranger.
        self.home.await_step(2, self.NAME)
        self.home.run("scale", self.NAME, "--replicas", 2)

        def refusal():
            job = self.home.job(self.NAME) or {}
            conditions = job.get("status", {}).get("conditions", [])
            return [one["message"] for one in conditions if one["reason"] == "WorkerRefused"]
        message, = until(refusal, 60, self.home.describe)
        self.assertIn("own-worker-1", message)
        self.assertIn("with the same data (data=) and the same program", message)
        self.finish(command)
        self.check_audit(3, self.NAME)

    def test_a_loop_without_backward_is_told_which_step(self):
        text = read(TRAIN).replace("            loss.backward()\n", "")
        job, _ = self.fails(text.replace('os.path.join(os.path.dirname(__file__), "../data")',
                                         repr(DATA)))
        self.assertIn("loss.backward() was not called", str(job["status"]["incidents"]))


if __name__ == "__main__":
    if PYTHON is None:
        print(WITHOUT)
        sys.exit(77)
    unittest.main()
