# SPDX-License-Identifier: Apache-2.0
"""The Python client against the real server: what people do, and what the network does."""
import collections
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import jobs
from case import Case, pages
from home import REPOSITORY, kill, read, sha256, until
from python_proxy import Proxy, Talker, certified

sys.path.insert(0, os.path.join(REPOSITORY, "python"))
from starling import errors  # noqa: E402  (the path must come first)
from starling.client import Client, is_finished  # noqa: E402

EXAMPLE = os.path.join(REPOSITORY, "examples/digits.yaml")


def quick(name, delay="0s", **changes):
    return jobs.digits(name=name, epochs=1, experiment__stepDelay=delay, **changes)


def held(name, **changes):
    return quick(name, runPolicy={"suspend": True}, **changes)


class ClientCase(Case):
    def setUp(self):
        super().setUp()
        self.home.run("up")
        # The client under test sees the home's environment, and nothing of the developer's.
        environment = mock.patch.dict(os.environ, {"STARLING_HOME": self.home.home})
        environment.start()
        self.addCleanup(environment.stop)
        for name in ("STARLING_SERVER", "STARLING_TOKEN", "STARLING_CA_FILE", "STARLING_NAMESPACE"):
            os.environ.pop(name, None)
        self.client = Client()
        self.port = int(self.client._transport.endpoint.url().rpartition(":")[2])
        self.token = read(f"{self.home.home}/api.token").strip()

    def down(self):
        self.home.run("down")
        self.home.assert_nothing_runs()

    def through(self, **options):
        """A client behind a proxy that breaks things, and the proxy."""
        proxy = Proxy(self.port, **options)
        self.addCleanup(proxy.close)
        return Client(proxy.url, self.token), proxy

    def await_state(self, name, state, timeout=60):
        until(lambda: self.client.get(name).get("status", {}).get("state") == state, timeout,
              lambda: f"{name} is {state}\n{self.home.describe()}")

    def written(self, job):
        """What each of the job's pods has written: lines by its name."""
        folder = f"{self.home.job_folder(job)}/pods"
        return {pod.rpartition("-")[0]: read(f"{folder}/{pod}/log").splitlines()
                for pod in os.listdir(folder)}

    def check_lines(self, job, lines):
        """That each line of each pod was told once, in its order."""
        told = collections.defaultdict(list)
        for pod, line in lines:
            told[pod].append(line)
        self.assertEqual({pod: log for pod, log in self.written(job).items() if log}, told)


class Life(ClientCase):
    def test_a_job_file_is_submitted_watched_to_its_end_and_its_model_fetched(self):
        created = self.client.submit(EXAMPLE)
        uri = created["spec"]["dataset"]["train"]["csv"]["uri"]
        self.assertEqual(os.path.join(REPOSITORY, "examples/data/digits-train.csv"), uri)
        events = list(self.client.watch("digits", timeout=240))
        self.assertEqual("added", events[0].kind)
        self.assertIn("progress", {event.kind for event in events})
        versions = [int(event.job["metadata"]["resourceVersion"]) for event in events if event.job]
        self.assertEqual(sorted(set(versions)), versions, "states only get newer")
        job = [event.job for event in events if event.job][-1]
        self.assertTrue(is_finished(job))
        self.assertEqual("Succeeded", job["status"]["state"], self.home.describe())
        self.assertEqual(job["metadata"]["uid"],
                         self.client.wait("digits", timeout=10)["metadata"]["uid"])

        points = self.client.metrics("digits", "loss")
        self.assertEqual(job["status"]["result"]["steps"], points[-1].step)
        self.assertEqual(points, list(self.client.stream_metrics("digits", "loss", timeout=10)))
        self.assertEqual(points[-1:], self.client.metrics("digits", start=points[-1].step))
        self.assertEqual([], self.client.metrics("digits", "nothing/of/that/name"))

        model = self.client.model("digits", self.home.folder)
        self.assertEqual("digits.safetensors", model.name)
        self.assertEqual(job["status"]["result"]["model"]["sha256"], sha256(model))

        until(lambda: all(self.home.pod_pid(pod) is None for pod in self.home.pods()), 30,
              lambda: f"pods outlive their job for moments, and write\n{self.home.describe()}")
        lines = list(self.client.logs("digits"))
        self.check_lines("digits", lines)
        pod = max(line.pod for line in lines)
        lines = list(self.client.logs("digits", pod))
        self.assertEqual(self.written("digits")[pod], [line.line for line in lines])
        self.assertEqual(lines[-2:], list(self.client.logs("digits", pod, tail=2)))
        self.assertEqual(["digits"], [job["name"] for job in self.client.list()])
        self.assertEqual("digits", self.client.delete("digits")["metadata"]["name"])
        until(lambda: not list(self.client.list(all_namespaces=True)), 40, self.home.describe)
        self.down()

    def test_points_and_lines_come_while_the_job_runs(self):
        self.client.submit(quick("live", delay="50ms"))
        points = self.client.stream_metrics("live", timeout=240)
        first = next(points)
        self.assertFalse(is_finished(self.client.get("live")), "the first point did not wait")
        self.check_lines("live", self.client.logs("live", follow=True, timeout=240))
        steps = [first.step] + [point.step for point in points]
        self.assertEqual(sorted(set(steps)), steps)
        self.assertEqual(jobs.steps_of(1), steps[-1])
        self.down()

    def test_scale_suspend_resume_patch_and_delete(self):
        client = self.client
        client.submit(jobs.digits("long", epochs=200))
        self.await_state("long", "Running")
        self.assertEqual(3, client.scale("long", 3)["roles"]["worker"]["replicas"])
        written = client.checkpoint("long")
        self.assertEqual(written, client.get("long")["status"]["requestedCheckpoint"]["checkpoint"])
        self.assertGreater(client.checkpoint("long")["step"], written["step"])
        client.suspend("long")
        self.await_state("long", "Suspended")
        with self.assertRaises(errors.Conflict) as caught:
            client.checkpoint("long")
        self.assertEqual((409, "NotPossibleNow"), (caught.exception.status, caught.exception.code))
        seen = client.get("long")["metadata"]["resourceVersion"]
        patched = client.patch("long", {"metadata": {"labels": {"team": "a"}}}, if_match=seen)
        self.assertEqual({"team": "a"}, patched["metadata"]["labels"])
        with self.assertRaises(errors.Conflict) as caught:
            client.patch("long", {"metadata": {"labels": {"team": "b"}}}, if_match=seen)
        self.assertEqual((412, "PreconditionFailed"),
                         (caught.exception.status, caught.exception.code))
        self.assertEqual(["long"], [job["name"] for job in client.list(labels="team=a")])
        self.assertEqual([], list(client.list(labels="team=b")))
        client.resume("long")
        self.await_state("long", "Running")
        with self.assertRaises(errors.Conflict) as caught:
            client.model("long", self.home.folder)
        self.assertEqual("ModelNotKept", caught.exception.code)
        threading.Timer(0.5, client.delete, ["long"]).start()
        with self.assertRaises(errors.JobDeleted):
            client.wait("long", timeout=60)
        self.down()

    def test_the_same_submission_makes_one_job_and_a_dry_run_none(self):
        client = self.client
        self.assertEqual("once", client.submit(quick("once"), dry_run=True)["metadata"]["name"])
        self.assertEqual([], list(client.list()))
        job = held("x")
        job["metadata"] = {"generateName": "made-"}
        names = {client.submit(job, idempotency_key="a")["metadata"]["name"] for _ in range(3)}
        self.assertEqual(1, len(names))
        job["spec"]["seed"] = 9
        with self.assertRaises(errors.Invalid) as caught:
            client.submit(job, idempotency_key="a")
        self.assertEqual("IdempotencyKeyReused", caught.exception.code)
        self.assertNotIn(client.submit(job)["metadata"]["name"], names)
        self.down()

    def test_lists_go_over_all_pages_and_watches_over_all_jobs(self):
        seen = []
        watch = self.client.watch_all(timeout=60)
        self.assertEqual("bookmark", next(watch).kind)
        with mock.patch("starling.client._PAGE", 2):
            for number in range(5):
                self.client.submit(held(f"job-{number}"))
            names = [job["name"] for job in self.client.list()]
        self.assertEqual({f"job-{number}" for number in range(5)}, set(names))
        self.client.delete("job-3")
        for event in watch:
            seen.append((event.kind, event.summary["name"] if event.summary else ""))
            if event.kind == "deleted":
                break
        self.assertEqual(("deleted", "job-3"), seen[-1])
        self.assertLessEqual({("added", name) for name in names}, set(seen))
        with self.assertRaises(errors.TimedOut):
            list(self.client.watch_all(timeout=0.5))
        self.down()


class Wrong(ClientCase):
    def test_a_wrong_job_names_each_field_its_pointer_and_the_remedy(self):
        wrong = held("wrong")
        wrong["spec"]["stop"] = {"epochs": -1}
        wrong["spec"]["replicaSpecs"]["worker"] = {"replcas": 2}
        with self.assertRaises(errors.Invalid) as caught:
            self.client.submit(wrong)
        error = caught.exception
        self.assertEqual((422, "InvalidJob", "The job is invalid"),
                         (error.status, error.code, error.title))
        pointers = {field.pointer: field.detail for field in error.errors}
        self.assertLessEqual({"#/spec/stop/epochs", "#/spec/replicaSpecs/worker/replcas"},
                             set(pointers))
        self.assertIn('did you mean "replicas"?', pointers["#/spec/replicaSpecs/worker/replcas"])
        self.assertIn("starling explain", error.remedy)
        for field in error.errors:
            self.assertIn(f"{field.path}: {field.detail}", str(error))
        self.assertIn(error.remedy, str(error))
        self.down()

    def test_who_asks_and_for_what(self):
        url = self.client._transport.endpoint.url()
        with self.assertRaises(errors.Unauthorized) as caught:
            Client(url, "0" * 64).get("x")
        self.assertIn("Authorization: Bearer", caught.exception.remedy)
        self.assertNotIn("0" * 64, str(caught.exception))
        with self.assertRaises(errors.Unauthorized):
            list(Client(url, "0" * 64).watch("x", timeout=20))
        for call in (self.client.get, self.client.delete, self.client.suspend, self.client.wait,
                     lambda name: list(self.client.watch(name)),
                     lambda name: list(self.client.logs(name))):
            with self.assertRaises(errors.NotFound):
                call("nobody")
        with self.assertRaises(errors.Invalid):
            self.client.get("../../../etc/passwd")
        with self.assertRaises(errors.ConfigurationError):
            self.client.submit(os.path.join(self.home.folder, "no-such-file.yaml"))
        with self.assertRaises(errors.ConfigurationError):
            self.client.submit({"spec": float("nan")})
        self.assertEqual([], list(Client(url).list()), "the home's own address has its own token")
        self.down()

    def test_a_home_whose_control_plane_is_not_up_says_how_to_start_one(self):
        self.down()
        began = time.monotonic()
        with self.assertRaises(errors.StarlingError) as caught:
            self.client.get("digits")
        self.assertRegex(str(caught.exception), "is the server up|starling up")
        self.assertLess(time.monotonic() - began, 10)
        with tempfile.TemporaryDirectory() as empty, mock.patch.dict(
                os.environ, {"STARLING_HOME": empty}):
            with self.assertRaisesRegex(errors.ConfigurationError, "run `starling up`"):
                Client().get("digits")
        with self.assertRaisesRegex(errors.ConfigurationError, "is no server's address"):
            Client("ftp://example")
        with self.assertRaisesRegex(errors.ConfigurationError, "no certificates"):
            Client("https://localhost:1", ca_file="/dev/null")

    def test_relative_paths_begin_where_the_file_or_the_program_is(self):
        text = read(EXAMPLE).replace("uri: data/digits-train.csv", "uri: 'data/digits-train.csv'")
        text += "# uri: beside it\n"
        os.chdir(os.path.join(REPOSITORY, "examples"))
        self.addCleanup(os.chdir, REPOSITORY)
        csv = self.client.submit(text, dry_run=True)["spec"]["dataset"]["train"]["csv"]
        self.assertEqual(os.path.join(REPOSITORY, "examples/data/digits-train.csv"), csv["uri"])
        self.assertEqual("label", csv["labelColumn"])
        elsewhere, _ = self.through()  # a server that sees other files, for all the client knows
        with self.assertRaises(errors.Invalid) as caught:
            elsewhere.submit(EXAMPLE)
        self.assertEqual(["#/spec/dataset/train/csv/uri", "#/spec/dataset/validation/csv/uri"],
                         [field.pointer for field in caught.exception.errors])
        self.down()


class Network(ClientCase):
    """What breaks on the way changes nothing but the time that it takes."""

    def test_a_watch_whose_connection_is_cut_again_and_again_misses_no_end(self):
        client, proxy = self.through(cut=lambda number, head: 6000 if number < 6 else None)
        self.client.submit(quick("cut", delay="100ms"))
        with mock.patch("starling._events.random.uniform", return_value=0.01):
            events = list(client.watch("cut", timeout=240))
        self.assertEqual("Succeeded", [e.job for e in events if e.job][-1]["status"]["state"])
        self.assertGreater(len(proxy.requests), 2, "it was cut")
        ids = [re.search(r"Last-Event-ID: (\d+)", head) for head in proxy.requests]
        self.assertIsNone(ids[0])
        self.assertTrue(any(ids[1:]), "it said where it was")
        versions = [int(event.job["metadata"]["resourceVersion"]) for event in events if event.job]
        self.assertEqual(sorted(set(versions)), versions, "nothing is told twice")
        self.down()

    def test_logs_that_are_followed_through_cuts_have_each_line_once(self):
        self.client.submit(quick("told", delay="50ms"))
        client, proxy = self.through(cut=lambda number, head: 2000 + 1500 * number)
        with mock.patch("starling._events.random.uniform", return_value=0.01):
            lines = list(client.logs("told", follow=True, timeout=240))
        self.assertGreater(len(proxy.requests), 1, "it was cut")
        self.check_lines("told", lines)
        with self.assertRaisesRegex(errors.LogCut, "without tail"):
            list(self.through(cut=lambda number, head: 1000)[0].logs("told", tail=30, timeout=60))
        self.down()

    def test_a_model_goes_on_where_it_was_cut_and_a_wrong_byte_is_noticed(self):
        self.client.submit(quick("kept"))
        job = self.client.wait("kept", timeout=240)
        digest = job["status"]["result"]["model"]["sha256"]
        is_model = re.compile(r"/model HTTP")
        client, proxy = self.through(
            cut=lambda number, head: 15_000 if is_model.search(head) and number < 4 else None)
        to = os.path.join(self.home.folder, "cut.safetensors")
        client.model("kept", to)
        self.assertEqual(digest, sha256(to))
        ranges = [re.search(r"Range: bytes=(\d+)-", head) for head in proxy.requests]
        starts = [int(found[1]) for found in ranges if found]
        self.assertEqual(3, len(starts), proxy.requests)
        self.assertEqual(sorted(set(starts)), starts, "each part begins behind the one before")

        bad, _ = self.through(change=lambda piece: piece.replace(b"\0\0\0", b"\0\1\0"))
        with self.assertRaisesRegex(errors.IntegrityError, digest):
            bad.model("kept", to)
        self.assertEqual(digest, sha256(to),
                         "what was there is still there")
        dead, _ = self.through(cut=lambda number, head: 0 if is_model.search(head) else None)
        with mock.patch("starling._wire.random.uniform", return_value=0.01):
            with self.assertRaises(errors.ConnectionFailed):
                dead.model("kept", to + ".dead")
        self.assertEqual([], [name for name in os.listdir(self.home.folder)
                              if "safetensors" in name and name != "cut.safetensors"])
        with self.assertRaises(OSError):
            self.client.model("kept", "/proc/no-such-folder/model")
        self.down()

    def test_a_server_killed_under_a_watch_is_found_again(self):
        self.client.submit(jobs.digits("killed", epochs=3))
        events, failed = [], []

        def follow():
            try:
                events.extend(self.client.watch("killed", timeout=240))
            except errors.StarlingError as error:
                failed.append(error)

        watcher = threading.Thread(target=follow)
        watcher.start()
        self.home.await_step(10, "killed")
        for controller in self.home.controllers():
            kill(controller)
        until(lambda: not self.home.controllers(), 10, "the controller is dead")
        self.home.run("up")
        watcher.join(120)
        self.assertEqual([], failed)
        self.assertEqual("Succeeded", [e.job for e in events if e.job][-1]["status"]["state"])
        self.down()

    def test_what_was_deleted_while_the_server_was_away_is_told(self):
        uids = {self.client.submit(held(name))["metadata"]["uid"]: name for name in ("one", "two")}
        for name in uids.values():
            self.await_state(name, "Suspended")
        watch = self.client.watch_all(timeout=60)
        watch_one = self.client.watch("one", timeout=60)
        self.assertEqual({"one", "two"}, {next(watch).summary["name"] for _ in uids})
        self.assertEqual("added", next(watch_one).kind)
        for controller in self.home.controllers():
            kill(controller)
        until(lambda: not self.home.controllers(), 10, "the controller is dead")
        self.home.run("delete", "one", "--no-wait")
        self.home.run("up")
        events = iter(event for event in watch if event.kind == "deleted")
        self.assertEqual("one", uids[next(events).uid])
        self.assertEqual("deleted", [event.kind for event in watch_one][-1])
        self.down()

    def test_a_lost_answer_is_asked_for_again_where_that_is_safe_alone(self):
        def lose_first(number, head):
            return 0 if number == 0 else None

        client, proxy = self.through(cut=lose_first)
        job = held("x")
        job["metadata"] = {"generateName": "lost-"}
        name = client.submit(job)["metadata"]["name"]
        self.assertEqual([name], [found["name"] for found in self.client.list()])
        self.assertEqual(2, len(proxy.requests))
        client, proxy = self.through(cut=lose_first)
        self.assertEqual(name, client.get(name)["metadata"]["name"])
        for change in (lambda client: client.resume(name), lambda client: client.delete(name),
                       lambda client: client.patch(name, {"metadata": {"labels": {"a": "b"}}})):
            client, proxy = self.through(cut=lose_first)
            with self.assertRaises(errors.ConnectionFailed) as caught:
                change(client)
            self.assertTrue(caught.exception.sent)
            self.assertEqual(1, len(proxy.requests), "nobody knows whether it has happened")
        self.down()

    def test_tls_with_the_authority_that_was_named_and_no_other(self):
        context, certificate = certified(self.home.folder)
        client, proxy = self.through(tls=context)
        with self.assertRaisesRegex(errors.ConnectionFailed, "STARLING_CA_FILE"):
            client.submit(held("tls"))
        self.assertEqual([], proxy.requests, "no token was sent")
        client = Client(proxy.url, self.token, ca_file=certificate)
        client.submit(held("tls"))
        environment = {"STARLING_CA_FILE": certificate, "STARLING_SERVER": proxy.url,
                       "STARLING_TOKEN": self.token}
        with mock.patch.dict(os.environ, environment):
            self.assertEqual("tls", Client().get("tls")["metadata"]["name"])
        self.down()


class Hostile(unittest.TestCase):
    """Servers that are none."""

    def ask(self, talk, call, timeout=2.0):
        server = Talker(talk)
        self.addCleanup(server.close)
        began = time.monotonic()
        try:
            call(Client(server.url, "token", timeout=timeout))
        finally:
            self.seconds = time.monotonic() - began
            self.connections = server.connections

    def test_a_server_that_never_answers_is_given_up_on(self):
        def listen(connection):
            while connection.recv(65536):
                pass

        for call in (lambda client: client.get("x"), lambda client: client.suspend("x"),
                     lambda client: list(client.watch("x")), lambda client: list(client.logs("x")),
                     lambda client: client.submit({})):
            with self.assertRaises(errors.TimedOut):
                self.ask(listen, call, timeout=1.0)
            self.assertLess(self.seconds, 2)
            self.assertEqual(1, self.connections)

    def test_a_server_that_says_a_byte_at_a_time_is_given_up_on_too(self):
        def drip(connection):
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n" + b"x" * 50:
                connection.sendall(bytes([byte]))
                time.sleep(0.1)

        for call in (lambda client: client.get("x"), lambda client: list(client.watch("x"))):
            with self.assertRaises(errors.TimedOut):
                self.ask(drip, call, timeout=1.0)
            self.assertLess(self.seconds, 2)

    def test_answers_that_are_none(self):
        def say(text):
            def talk(connection):
                connection.recv(65536)
                connection.sendall(text)
            return talk

        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        with mock.patch("starling._wire.random.uniform", return_value=0.01):
            for text in (b"", b"\0" * 100, b"HTTP/1.1 200 OK\r\nContent-Len", head + b"9\r\n\r\n{",
                         head + b"3\r\n\r\n{{{", head + b"nothing\r\n\r\n",
                         b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"):
                with self.subTest(text=text[:60]), self.assertRaises(errors.ConnectionFailed):
                    self.ask(say(text), lambda client: client.get("x"))
        teapot = b"HTTP/1.1 418 I'm a teapot\r\nContent-Length: 5\r\n\r\nno tea"
        with self.assertRaises(errors.ApiError) as caught:
            self.ask(say(teapot), lambda client: client.get("x"))
        self.assertEqual(418, caught.exception.status)
        moved = (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.example/\r\n"
                 b"Content-Length: 0\r\n\r\n")
        with self.assertRaises(errors.ApiError):
            self.ask(say(moved), lambda client: client.get("x"))

    def test_a_stream_without_an_end_of_line_does_not_fill_the_memory(self):
        def endless(connection):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: ")
            while True:
                connection.sendall(b"x" * 65536)

        with self.assertRaises(errors.TimedOut):
            with mock.patch("starling._events.LONGEST_LINE", 1 << 20):
                self.ask(endless, lambda client: list(client.watch("x", timeout=3)))
        self.assertGreater(self.connections, 1, "the line was given up, and the server asked again")


class HowTo(Case):
    def run_block(self, *command):
        folder = os.path.dirname(self.home.program("starling"))
        environment = dict(self.home.environment, PATH=f"{folder}:{os.environ['PATH']}",
                           PYTHONPATH=os.path.join(REPOSITORY, "python"))
        done = subprocess.run(command, cwd=self.home.folder, env=environment, capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr + self.home.describe())
        return done.stdout

    def test_the_page_works_as_it_stands(self):
        page = read(os.path.join(REPOSITORY, "docs/how-to/python.md"))
        _install, up, down = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        python = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
        os.symlink(os.path.join(REPOSITORY, "examples"), os.path.join(self.home.folder, "examples"))
        self.run_block("bash", "-ec", up)
        told = self.run_block(sys.executable, "-c", python)
        self.assertIn("Succeeded", told)
        self.assertIn("#/spec/stop/epochs must be", told)
        self.assertTrue(os.path.exists(os.path.join(self.home.folder, "digits.safetensors")))
        self.run_block("bash", "-ec", down)
        self.home.assert_nothing_runs()

    def test_the_page_about_loops_of_ones_own_works_as_it_stands(self):
        page = read(os.path.join(REPOSITORY, "docs/how-to/own-loop.md"))
        fit, on_a_gpu = pages.blocks(page, "python")
        compile(on_a_gpu, "own-loop.md", "exec")  # JAX is not here
        self.home.write("fit.py", fit)
        self.home.write("job.yaml", *pages.blocks(page, "yaml"))
        self.run_block("bash", "-ec", *pages.blocks(page, "sh"))
        job = self.home.job("fit")
        self.assertEqual((40, 640), (job["status"]["result"]["epochs"], job["status"]["result"]["steps"]))
        self.assertLess(job["status"]["result"]["metrics"]["loss"], 1e-3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
