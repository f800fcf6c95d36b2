# SPDX-License-Identifier: Apache-2.0
"""starling trace: what the file tells of a job is what the job did, kills and all."""
import collections
import gzip
import json
import os
import signal
import subprocess
import unittest

import jobs
from case import Case
from home import REPOSITORY, kill, read, until
from pages import blocks

PAGE = os.path.join(REPOSITORY, "docs/how-to/trace.md")
ACTIVITY, STEPS, EXCHANGE = 1, 2, 3  # tracks of a member


class Trace:
    """A trace file, by process and track."""

    def __init__(self, text):
        self.file = json.loads(text)
        self.about = self.file["otherData"]
        self.names = {}
        self.tracks = collections.defaultdict(list)  # (process, track): stretches and moments
        for event in self.file["traceEvents"]:
            if event["ph"] == "M":
                if event["name"] == "process_name":
                    self.names[event["pid"]] = event["args"]["name"]
            else:
                self.tracks[event["pid"], event["tid"]].append(event)
        self.by_name = {name: pid for pid, name in self.names.items()}

    def of(self, process, track):
        return self.tracks[self.by_name[process], track]

    def workers(self):
        return [name for name in self.by_name if "-worker-" in name]

    def steps(self, worker):
        return {event["args"]["step"]: event for event in self.of(worker, STEPS)}

    def within(self, worker, step, track):
        """What of a track lies in a step of this worker's."""
        whole = self.steps(worker)[step]
        begin, end = whole["ts"], whole["ts"] + whole["dur"]
        return [event for event in self.of(worker, track)
                if event["ph"] == "X" and begin - 0.01 <= event["ts"] and
                event["ts"] + event["dur"] <= end + 0.01]


def problems(trace):
    """What is wrong with a trace as a file, and what it leaves out of the steps that it tells."""
    found = []
    for (process, track), events in trace.tracks.items():
        last, until_then = float("-inf"), float("-inf")
        for event in events:
            if event["ts"] < last:
                found.append(f"{trace.names[process]}/{track} goes back at {event}")
            last = event["ts"]
            if event["ph"] != "X":
                continue
            if event["dur"] <= 0 or event["ts"] < until_then - 0.01:
                found.append(f"{trace.names[process]}/{track} overlaps at {event}")
            until_then = event["ts"] + event["dur"]
    for worker in trace.workers():
        steps = sorted(trace.steps(worker))
        if steps and steps != list(range(steps[0], steps[-1] + 1)):
            found.append(f"{worker} lacks steps among {steps}")
        for step in steps:
            names = {event["name"] for event in trace.within(worker, step, ACTIVITY)}
            # A step that is made again is told as one stretch.
            whole = "repeated" in names or (
                "compute" in names and names & {"exchange", "waiting"})
            if not whole:
                found.append(f"{worker}'s step {step} has {names}")
    return found


class Traces(Case):
    def start(self, **changes):
        # Two buckets and more, so that there is an order to be seen.
        job = jobs.digits(epochs=400, experiment__stepDelay="5ms", checkpoint__interval="1s",
                          exchange={"allReduce": {"algorithm": "Ring", "bucketBytes": 16384}},
                          **changes)
        return self.home.start("run", self.home.write("job.yaml", job), "-o", "json")

    def stop(self, command):
        """As Ctrl-C does: the job is saved, and nothing is left."""
        command.signal(signal.SIGINT)
        command.wait(60)

    def trace(self, *flags):
        """Runs beside the test."""
        return self.home.start("trace", "digits", "-o", "trace.json", *flags)

    def take(self, command, timeout=60):
        self.assertEqual(0, command.wait(timeout), command.tail())
        return Trace(read(os.path.join(self.home.folder, "trace.json")))

    def test_of_two_workers_it_tells_each_step_and_every_byte(self):
        command = self.start()
        self.home.await_step(20)
        trace = self.take(self.trace("--steps", "40"))
        self.stop(command)
        self.assertEqual([], problems(trace))
        self.assertIn("made 40 steps", trace.about["ended"])
        self.assertEqual({}, trace.about["silent"])
        self.assertEqual(["digits-worker-0", "digits-worker-1"], sorted(trace.workers()))
        common = set.intersection(*(set(trace.steps(worker)) for worker in trace.workers()))
        self.assertGreaterEqual(len(common), 40)
        for worker in trace.workers():
            for step in common:
                self.check_bytes(trace, worker, step)
        for member in trace.about["members"]:
            # One machine, one clock.
            self.assertEqual(0, member["clockOffsetMicros"], member)
            self.assertLess(member["clockUncertaintyMicros"], 1e6)

    def check_bytes(self, trace, worker, step):
        """A ring of two sends half of each bucket twice, which is what the ledger counts."""
        buckets = [event for event in trace.within(worker, step, EXCHANGE)]
        self.assertGreater(len(buckets), 1, step)
        self.assertEqual(list(range(len(buckets))), [event["args"]["bucket"] for event in buckets])
        for event in buckets:
            arguments = event["args"]
            self.assertEqual(arguments["denseBytes"], arguments["bytes"], event)
            self.assertEqual("Ring", arguments["algorithm"])
            self.assertIn(arguments["transport"], ("shared memory", "TCP"))
        ready = [event["args"]["bucket"] for event in trace.of(worker, EXCHANGE)
                 if event["ph"] == "i" and event["args"]["step"] == step]
        self.assertEqual(sorted(ready), [event["args"]["bucket"] for event in buckets])
        self.bytes_of_step = sum(event["args"]["bytes"] for event in buckets)

    def test_its_bytes_are_those_of_the_ledger(self):
        # Nothing is exchanged by whoever is there first and trains alone.
        command = self.start(stop={"steps": 300}, replicaSpecs__worker__minReplicas=2)
        self.home.await_step(20)
        trace = self.take(self.trace("--steps", "20"))
        for step in trace.steps("digits-worker-0"):
            self.check_bytes(trace, "digits-worker-0", step)
        job = self.finish(command)
        sent = job["status"]["progress"]["metrics"]["exchange/sentBytes"]
        self.assertEqual(300 * self.bytes_of_step, sent)

    def test_a_kill_is_seen_with_its_recovery_and_who_comes_back(self):
        job = self.start()
        self.home.await_step(20)
        command = self.trace("--steps", "900", "--time", "25s")
        pid = until(lambda: self.home.role_pid("digits-worker-1"), 30, "worker 1 runs")
        before = self.home.steps()
        self.home.await_step(before + 60)
        self.assertTrue(kill(pid))
        trace = self.take(command)
        self.stop(job)
        self.assertEqual([], problems(trace))
        processes = [worker for worker in trace.workers() if worker.startswith("digits-worker-1")]
        self.assertEqual(["digits-worker-1", "digits-worker-1, process 2"], sorted(processes))
        # What the killed one had told stays, up to a question before its end.
        self.assertGreater(len(trace.steps("digits-worker-1")), 20)
        last = max(trace.steps("digits-worker-1"))
        survivor = trace.steps("digits-worker-0")
        self.assertIn(last + 1, survivor)
        activities = {event["name"] for event in trace.of("digits-worker-0", ACTIVITY)}
        self.assertIn("recovery", activities)
        views = [event["name"] for event in trace.of("digits-worker-0", 6)]
        self.assertIn("the view breaks", views)
        self.assertIn("steps begin", views)
        told = [event["name"] for event in trace.of("coordinator", 1)]
        self.assertTrue([name for name in told if name.startswith("Worker")], told)
        self.assertTrue([name for name in told if name.startswith("view ")], told)
        self.assertGreater(len(trace.steps("digits-worker-1, process 2")), 0)

    def test_a_step_that_is_left_out_is_noticed(self):
        command = self.start()
        self.home.await_step(20)
        trace = self.take(self.trace("--steps", "10"))
        self.stop(command)
        worker = trace.by_name["digits-worker-1"]
        middle = sorted(trace.steps("digits-worker-1"))[5]
        whole = json.dumps(trace.file)
        without = json.loads(whole)
        without["traceEvents"] = [event for event in without["traceEvents"]
                                  if event["pid"] != worker or event["tid"] != STEPS or
                                  event["ph"] == "M" or event["args"].get("step") != middle]
        self.assertNotEqual([], problems(Trace(json.dumps(without))))
        without = json.loads(whole)
        without["traceEvents"] = [event for event in without["traceEvents"]
                                  if event["pid"] != worker or event["name"] != "compute" or
                                  event["args"].get("step") != middle]
        self.assertNotEqual([], problems(Trace(json.dumps(without))))

    def test_wishes_and_jobs_that_are_none_are_refused_and_what_was_recorded_is_kept(self):
        command = self.start(stop={"steps": 400})
        for flags, why in ((("--steps", "0"), "steps"), (("--steps", "many"), "whole number"),
                           (("--time", "1h"), "10m"), (("--time", "soon"), "duration")):
            refused = self.trace(*flags)
            self.assertEqual(2, refused.wait(30), refused.tail())
            self.assertIn(why, refused.stderr)
        absent = self.home.start("trace", "nobody")
        self.assertNotEqual(0, absent.wait(30))
        self.home.await_step(20)
        first = self.take(self.trace("--steps", "5"))
        second = self.take(self.trace("--steps", "5"))
        self.assertNotEqual(first.about["request"], second.about["request"])
        self.finish(command)
        last = self.trace()
        kept = self.take(last)
        self.assertEqual(second.about, kept.about)
        self.assertIn("finished", last.stderr)

    def test_with_parameter_servers_pushes_and_servers_are_seen(self):
        job = jobs.digits(epochs=400, experiment__stepDelay="5ms",
                          exchange={"parameterServer": {}},
                          replicaSpecs__parameterServer={"replicas": 2})
        command = self.home.start("run", self.home.write("job.yaml", job), "-o", "json")
        self.home.await_step(20)
        trace = self.take(self.trace("--steps", "20"))
        self.stop(command)
        servers = [name for name in trace.by_name if "-parameter-server-" in name]
        self.assertEqual(2, len(servers), trace.names)
        for server in servers:
            self.assertTrue(trace.of(server, ACTIVITY), server)
        for worker in trace.workers():
            pushes = [event for event in trace.of(worker, EXCHANGE) if event["name"] == "push"]
            self.assertTrue(pushes, worker)
            self.assertGreater(sum(event["args"]["bytes"] for event in pushes), 0)

    def test_by_rest_it_is_the_same(self):
        self.assertEqual(0, self.home.start("up").wait(60))
        job = jobs.digits(epochs=400, experiment__stepDelay="5ms")
        submitted = self.home.start("submit", self.home.write("job.yaml", job))
        self.assertEqual(0, submitted.wait(60), submitted.tail())
        self.home.await_step(20)
        rest = json.loads(read(os.path.join(self.home.home, "controller.json")))["restUrl"]
        early = subprocess.run(
            ["curl", "-s", "-H", f"Authorization: Bearer {self.token()}",
             f"{rest}/v1/namespaces/default/jobs/digits/trace"],
            text=True, capture_output=True, timeout=60, check=True)
        self.assertEqual("NotFound", json.loads(early.stdout)["code"])
        trace = self.take(self.trace("--server", rest, "--steps", "20"))
        self.assertEqual([], problems(trace))
        self.assertEqual(2, len(trace.workers()))
        asked = subprocess.run(
            ["curl", "-s", "-X", "POST", "-H", f"Authorization: Bearer {self.token()}",
             f"{rest}/v1/namespaces/default/jobs/digits:trace?steps=7&seconds=5"],
            text=True, capture_output=True, timeout=60, check=True)
        word = json.loads(asked.stdout)["metadata"]["annotations"]["starling.dev/trace-requested"]
        self.assertTrue(word.startswith("steps=7,seconds=5,at="), word)
        until(lambda: self.fetched(rest) == word, 30, "it is recorded")
        self.home.start("delete", "digits").wait(60)
        self.assertEqual(0, self.home.start("down").wait(90))

    def token(self):
        return read(os.path.join(self.home.home, "api.token")).strip()

    def fetched(self, rest):
        """The word that the trace there was asked for by."""
        answer = subprocess.run(
            ["curl", "-s", "-H", f"Authorization: Bearer {self.token()}",
             f"{rest}/v1/namespaces/default/jobs/digits/trace"],
            capture_output=True, timeout=60, check=True)
        return json.loads(gzip.decompress(answer.stdout))["otherData"]["request"]

    def test_the_how_to_does_what_it_says(self):
        page = read(PAGE)
        script = blocks(page, "sh")[0]
        environment = dict(self.home.environment, PATH=f"{os.path.dirname(self.home.program('starling'))}:"
                           f"{os.environ['PATH']}")
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=REPOSITORY,
                              env=environment, text=True, capture_output=True, timeout=120,
                              check=False)
        packed = os.path.join(REPOSITORY, "digits-trace.json.gz")
        try:
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            with gzip.open(packed) as file:
                trace = Trace(file.read())
        finally:
            if os.path.exists(packed):
                os.remove(packed)
        self.assertEqual([], problems(trace))
        self.assertIn("processes, steps", done.stdout)


if __name__ == "__main__":
    unittest.main()
