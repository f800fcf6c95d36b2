#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line with pods behind it: a job run to its end, watched, read, scaled, replaced, left
and deleted, with the words and exit codes that docs/cli.md tells."""
import json
import os
import signal
import subprocess
import tempfile
import uuid

from kube_case import BIN, run_tests, sleeper
from parameter_server_test import served
from training import START, TrainingCase, digits, steps_of

PROGRAM = os.path.join(BIN, "starling")
DONE = "trainingjob.starling.dev/digits {}\n"


class Begun:
    """A command that goes on; what it has printed and said so far."""

    def __init__(self, command, environment, folder):
        self._paths = [os.path.join(folder, str(uuid.uuid4())) for _ in range(2)]
        with open(self._paths[0], "wb") as out, open(self._paths[1], "wb") as error:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=error)

    def printed(self):
        return self._read(0)

    def said(self):
        return self._read(1)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        return self.end(10)

    def end(self, deadline=60):
        """Its exit code; None if it goes on."""
        try:
            return self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def _read(self, index):
        with open(self._paths[index], encoding="utf-8") as file:
            return file.read()


class CommandLine(TrainingCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="starling-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, job):
        path = os.path.join(self.folder, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        return path

    def begin(self, *arguments, chosen=("--cluster",), **environment):
        environment = {"KUBECONFIG": self.cluster.kubeconfig, **environment}
        begun = Begun([PROGRAM, *arguments, *chosen, "-n", self.namespace],
                      dict(os.environ, STARLING_HOME=os.path.join(self.folder, "home"),
                           **environment), self.folder)
        self.addCleanup(begun.kill)
        return begun

    def starling(self, *arguments, code=0, **options):
        """What it printed; with another code than 0 what it said."""
        done = self.begin(*arguments, **options)
        ended = done.end(90)
        if ended != code:
            self.fail(f"{arguments}: {ended}, not {code}\n{done.printed()}{done.said()}"
                      f"{self.describe()}")
        return done.said() if code else done.printed()

    def test_run_tells_the_story_of_a_job_to_its_end(self):
        path = self.file(digits(stop__epochs=3))
        done = self.begin("run", path)
        self.assertEqual(0, done.end(120), done.said())
        lines = done.said().splitlines()
        told = ["digits: created; Ctrl-C leaves it running", "digits: waiting for the workers",
                "digits: training", "digits: epoch 3, step "]
        for line in lines:
            if told and line.startswith(told[0]):
                told.pop(0)
        self.assertEqual([], told, lines)
        self.assertTrue(done.printed().startswith("\ndigits: Succeeded\n"), done.printed())
        self.assertIn("validation accuracy", done.printed())
        before = self.get("tj", "digits")["metadata"]["uid"]

        # For scripts: the last line is the job, and another one of that name takes its place.
        printed = self.starling("run", path, "--replace", "-o", "json", "--set",
                                "spec.stop.epochs=1")
        job = json.loads(printed.splitlines()[-1])
        self.assertEqual("Succeeded", job["status"]["state"])
        self.assertNotEqual(before, job["metadata"]["uid"])
        self.assertEqual(steps_of(1), job["status"]["progress"]["step"])

        wrong = self.file(digits("fails", dataset__train__csv__uri="data/absent.csv"))
        done = self.begin("run", wrong)
        self.assertEqual(1, done.end(120), done.said())
        self.assertIn("fails: Failed (BadConfiguration: ", done.printed())
        self.assertIn("absent.csv", done.said())

    def test_a_running_job_is_watched_read_scaled_left_and_deleted(self):
        chosen = {"chosen": ("--kubeconfig", self.cluster.kubeconfig), "KUBECONFIG": "/dev/null"}
        self.assertEqual(DONE.format("created"),
                         self.starling("submit", self.file(digits()), **chosen))
        self.await_condition("Running")
        self.members(2)
        watch = self.begin("watch", "digits", **chosen)
        follow = self.begin("logs", "-f", "digits", **chosen)
        self.read_logs()

        self.assertEqual(DONE.format("scaled"),
                         self.starling("scale", "digits", "--replicas", "3", **chosen))
        self.members(3)
        self.wait_for(lambda: "digits: now with 3 workers\n" in watch.said(), 30,
                      lambda: f"watch tells of the third: {watch.said()}")
        self.wait_for(lambda: "\n[digits-worker-2] " in follow.printed(), 30,
                      lambda: f"its lines are followed: {follow.printed()}")
        self.assertRegex(self.starling("checkpoint", "digits", **chosen),
                         r"^trainingjob\.starling\.dev/digits checkpoint \S+ written at step \d+\n$")
        self.assertIn("must be at most maxReplicas", self.starling(
            "scale", "digits", "--replicas", "9", code=2))
        self.assertIn("has no parameter servers", self.starling(
            "scale", "digits", "--role", "parameter-server", "--replicas", "2", code=2))

        self.assertEqual(130, watch.interrupt())
        self.assertIn("digits: left\n", watch.said())
        self.assertEqual("True", self.condition("Running")[0], "the job goes on")
        context = self.kubectl("config", "current-context", namespace=None).strip()
        watch = self.begin("watch", "digits", chosen=("--context", context))
        self.wait_for(lambda: "digits: training\n" in watch.said(), 10, "it is watched again")
        self.assertEqual(DONE.format("deleted"), self.starling("delete", "digits", **chosen))
        self.assertEqual({}, self.pods())
        self.assertEqual(3, watch.end(), watch.said())
        self.assertIn("digits was deleted\n", watch.said())
        self.assertEqual(0, follow.end(), follow.said())
        for verb in ("logs", "watch", "delete"):
            self.assertIn("digits", self.starling(verb, "digits", code=3))

    def read_logs(self):
        """Of all pods with their names, of one without; as much as is asked for."""
        lines = {}
        for line in self.starling("logs", "--tail", "2", "digits").splitlines():
            pod, _, text = line.removeprefix("[").partition("] ")
            lines.setdefault(pod, []).append(text)
        self.assertEqual({"digits-coordinator-0", "digits-worker-0", "digits-worker-1"},
                         set(lines))
        for pod, found in lines.items():
            self.assertLessEqual(len(found), 2)
            written = self.logs(pod).splitlines()
            self.assertTrue(set(found) <= set(written), f"{found} are not all of {written}")
        worker = "digits-worker-0"
        self.assertEqual(1, len(self.starling("logs", worker, "--tail=1").splitlines()))
        self.assertEqual("", self.starling("logs", worker, "--tail", "0"))
        told = self.starling("logs", worker)
        self.assertTrue(self.logs(worker).startswith(told), "a pod's lines are told as they are")
        self.assertIn("nobody", self.starling("logs", "nobody", code=3))

    def test_a_changed_file_replaces_the_job_and_a_suspended_one_is_gone_on_with(self):
        chosen = {"chosen": (), "STARLING_KUBECONFIG": self.cluster.kubeconfig,
                  "KUBECONFIG": "/dev/null"}
        path = self.file(digits(workers=1))
        for outcome in ("created", "unchanged"):
            self.assertEqual(DONE.format(outcome), self.starling("submit", path, **chosen))
        self.await_condition("Running")
        before = self.get("tj", "digits")["metadata"]["uid"]
        self.hold("digits-secret", "digits-resolved-1")
        change = ("--set", "spec.seed=8")
        self.assertIn("spec.seed", self.starling("submit", path, *change, code=2, **chosen))
        self.assertEqual(DONE.format("created"),
                         self.starling("submit", path, *change, "--replace", **chosen))
        job = self.get("tj", "digits")
        self.assertNotEqual(before, job["metadata"]["uid"])
        self.assertEqual(8, job["spec"]["seed"])
        self.await_condition("Running")
        self.assertEqual({job["metadata"]["uid"]}, {
            pod["metadata"]["ownerReferences"][0]["uid"] for pod in self.roles("worker").values()})

        self.assertEqual(DONE.format("suspended"),
                         self.starling("suspend", "digits", "--wait", **chosen))
        self.assertEqual({}, self.pods("starling.dev/job=digits"))
        self.assertIn("digits is suspended; go on with: starling resume digits",
                      self.starling("watch", "digits", code=130, **chosen))
        self.assertEqual(DONE.format("resumed"), self.starling("resume", "digits", **chosen))
        self.await_condition("Running")

    def hold(self, secret, config):
        """A pod on each node that goes on using them, so that no kubelet forgets what they hold:
        those of the next job of that name must be seen all the same."""
        for node in self.cluster.nodes:
            pod = sleeper(f"holds-on-{node}", node)
            pod["spec"]["volumes"] = [{"name": "secret", "secret": {"secretName": secret}},
                                      {"name": "config", "configMap": {"name": config}}]
            pod["spec"]["containers"][0]["volumeMounts"] = [
                {"name": name, "mountPath": f"/{name}"} for name in ("secret", "config")]
            self.apply(pod)
        self.await_ready(*(f"holds-on-{node}" for node in self.cluster.nodes))

    def test_servers_are_scaled_by_their_role(self):
        self.starling("submit", self.file(served()))
        self.await_condition("Running")
        watch = self.begin("watch", "digits")
        # A kubelet asks some seconds after a start whether a pod is ready.
        self.wait_for(lambda: "Parameter servers:   2/2" in self.starling("describe", "digits"), START,
                      "both servers are ready")
        scale = ("scale", "digits", "--role", "parameter-server", "--replicas")
        self.assertIn("must be at most maxReplicas", self.starling(*scale, "5", code=2))
        self.assertEqual(DONE.format("scaled"), self.starling(*scale, "3"))
        self.wait_for(lambda: len(self.living("parameter-server")) == 3, START, "three servers")
        self.wait_for(lambda: "digits: now with 3 parameter servers\n" in watch.said(), START,
                      lambda: f"watch tells of the third: {watch.said()}")
        self.assertIn("Parameter servers:   3/3", self.starling("describe", "digits"))
        with self.watch_steps() as steps:
            steps.await_more(10)
        self.assertEqual([], self.incidents())


if __name__ == "__main__":
    run_tests()
