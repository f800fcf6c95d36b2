# SPDX-License-Identifier: Apache-2.0
"""`starling --server`: every verb over REST, its exit codes, and connections that break."""
import collections
import glob
import json
import os
import re
import subprocess
import tempfile
import time
import unittest

import jobs
from case import Case
from home import REPOSITORY, kill, read, until
from python_proxy import Proxy, Talker, certified

DIGITS = os.path.join(REPOSITORY, "examples/digits.yaml")


class ServerCase(Case):
    """A home with a control plane, and a command line elsewhere that knows its address alone."""

    def setUp(self):
        super().setUp()
        self.home.run("up")
        self.url = json.loads(read(f"{self.home.home}/controller.json"))["restUrl"]
        self.token = f"{self.home.home}/api.token"
        self.elsewhere = tempfile.TemporaryDirectory()
        self.addCleanup(self.elsewhere.cleanup)

    def down(self):
        self.home.run("down")
        self.home.assert_nothing_runs()

    def environment(self, **more):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("STARLING_", "XDG_"))}
        return {**environment, "STARLING_HOME": self.elsewhere.name, **more}

    def start(self, *arguments, url=None, **more):
        chosen = ["--server", url or self.url, "--token-file", self.token]
        return subprocess.Popen([self.home.program("starling"), *arguments, *chosen], text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=self.environment(**more),
                                cwd=self.home.folder)

    def cli(self, *arguments, code=0, url=None, timeout=120, **more):
        """What it prints on stdout, and then on stderr."""
        process = self.start(*arguments, url=url, **more)
        out, error = process.communicate(timeout=timeout)
        self.assertEqual(code, process.returncode, out + error)
        return out + error

    def plain(self, *arguments, code=0, **more):
        """Without flags that choose a server."""
        done = subprocess.run([self.home.program("starling"), *arguments], text=True,
                              capture_output=True, timeout=60, env=self.environment(**more))
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def file(self, name, **changes):
        return self.home.write(f"{name}.json", jobs.digits(name, **changes))

    def held(self, name):
        return self.file(name, runPolicy={"suspend": True})

    def worker(self, job):
        """A worker that has trained, and its log: which indices there are nobody knows."""
        logs = {}
        folder = f"{self.home.job_folder(job)}/pods"
        for pod in os.listdir(folder):
            if "-worker-" in pod:
                logs[pod.rpartition("-")[0]] = read(f"{folder}/{pod}/log")
        return max(logs.items(), key=lambda item: len(item[1]))

    def proxy(self, **options):
        proxy = Proxy(int(self.url.rpartition(":")[2]), **options)
        self.addCleanup(proxy.close)
        return proxy


class Verbs(ServerCase):
    def test_run_tells_the_story_to_its_end(self):
        told = self.cli("run", self.file("digits", epochs=2), "-o", "json")
        job = json.loads([line for line in told.splitlines() if line.startswith("{")][0])
        self.assertEqual("Succeeded", job["status"]["state"])
        self.assertIn("digits: created", told)
        self.assertIn("succeeded", told.lower())
        self.assertIn("Succeeded", self.cli("get", "jobs"))
        self.assertIn("unchanged", self.cli("submit", self.file("digits", epochs=2)))
        self.cli("watch", "digits")
        pod, written = self.worker("digits")
        self.assertEqual(written, self.cli("logs", pod))
        self.assertEqual(written.splitlines()[-2:],
                         self.cli("logs", pod, "--tail", "2").splitlines())
        told = self.cli("logs", "-f", "digits").splitlines()
        self.assertEqual(written.splitlines(), [line.removeprefix(f"[{pod}] ") for line in told
                                                if line.startswith(f"[{pod}] ")])
        self.assertTrue([line for line in told if line.startswith("[digits-coordinator-")])
        shown = self.cli("describe", "tj/digits")
        for part in ("Conditions:", "Events:", "Succeeded"):
            self.assertIn(part, shown)
        self.cli("delete", "digits")
        self.cli("get", "job", "digits", code=3)
        until(lambda: "trainingjob.starling.dev/digits" in
              self.cli("get", "jobs", "--history", "-o", "name"), 60, self.home.describe)
        self.assertIn("DELETED", self.cli("get", "jobs", "--history"))
        past = json.loads(self.cli("get", "job", "digits", "--history", "-o", "json"))
        self.assertEqual(job["metadata"]["uid"], past["metadata"]["uid"])
        shown = self.cli("describe", "digits")
        for part in ("Deleted:", "Conditions:", "Curves", "Succeeded"):
            self.assertIn(part, shown)
        self.cli("describe", "digits", "--uid", "another", code=3)
        self.down()

    def test_submit_applies_and_takes_back_what_the_file_no_longer_has(self):
        self.assertIn("created", self.cli("submit", self.held("applied")))
        self.assertIn("unchanged", self.cli("submit", self.held("applied")))
        file = self.held("applied")
        more = ("--set", "spec.validation.patience=3", "--set",
                "spec.replicaSpecs.worker.replicas=4")
        self.assertIn("configured", self.cli("submit", file, *more))
        # Somebody else's label, and a scale that no file knows of.
        self.cli("scale", "applied", "--replicas", "5")
        job = self.home.job("applied")
        self.assertEqual((3, 5), (job["spec"]["validation"]["patience"],
                                  job["spec"]["replicaSpecs"]["worker"]["replicas"]))
        self.assertIn("configured", self.cli("submit", self.held("applied")))
        job = self.home.job("applied")
        self.assertNotIn("patience", job["spec"].get("validation", {}))
        self.assertEqual(2, job["spec"]["replicaSpecs"]["worker"]["replicas"], "the file says so")
        uid = job["metadata"]["uid"]
        self.assertIn("created", self.cli("submit", self.held("applied"), "--replace"))
        self.assertNotEqual(uid, self.home.job("applied")["metadata"]["uid"])
        self.down()

    def test_edits_and_lists(self):
        self.cli("submit", self.file("long", epochs=300))
        until(lambda: self.home.state("long") == "Running", 60, self.home.describe)
        self.assertIn("scaled", self.cli("scale", "tj/long", "--replicas", "3"))
        until(lambda: self.cli("get", "pods").count("long-worker-") == 3, 60, self.home.describe)
        names = self.cli("get", "pods", "-l", "starling.dev/job=long", "-o", "name").split()
        pod = [name for name in names if "worker" in name][0].rpartition("/")[2]
        self.assertEqual("Pod", json.loads(self.cli("get", "pod", pod, "-o", "json"))["kind"])
        self.cli("get", "events")
        self.assertRegex(self.cli("checkpoint", "long"), r"checkpoint \S+ written at step \d+\n")
        self.cli("suspend", "long", "--wait")
        self.assertEqual("Suspended", self.home.state("long"))
        self.cli("suspend", "long")
        self.cli("resume", "long")
        until(lambda: self.home.state("long") == "Running", 60, self.home.describe)
        self.assertIn("no parameter servers", self.cli("scale", "long", "--role",
                                                       "parameter-server", "--replicas", "1",
                                                       code=2))
        self.assertIn("trainingjob.starling.dev/long", self.cli("get", "jobs", "-A", "-o", "name"))
        self.assertIn("no trainingjobs in namespace other", self.cli("get", "jobs", "-n", "other"))
        proxy = self.proxy()
        watching = self.start("watch", "long", url=proxy.url)
        until(lambda: [head for head in proxy.requests if "watch=true" in head], 60, "it watches")
        self.cli("delete", "long")
        self.assertIn("was deleted", watching.communicate(timeout=60)[1])
        self.assertEqual(3, watching.returncode)
        self.down()

    def test_what_is_wrong_is_told_in_the_words_of_validate(self):
        wrong = self.home.write("wrong.json", jobs.digits("wrong", stop={"epochs": 2}))
        here = self.plain("validate", wrong, "--set", "spec.stop.epochs=-1", code=2)
        self.assertEqual(here, self.cli("validate", wrong, "--set", "spec.stop.epochs=-1", code=2))
        self.assertIn("globalBatchSize", self.cli("validate", wrong))
        text = self.cli("submit", DIGITS, code=2)
        self.assertIn("spec.dataset.train.csv.uri: is a relative path", text)
        self.cli("get", "job", "wrong", code=3)
        for words in (("scale", "x", "--replicas", "2"), ("suspend", "x"), ("resume", "x"),
                      ("checkpoint", "x"),
                      ("delete", "x"), ("logs", "x"), ("logs", "x-worker-0"), ("describe", "x"),
                      ("watch", "x"), ("get", "pods", "x-worker-0")):
            self.cli(*words, code=3)
        for words in (("up",), ("down",)):
            self.assertIn("without --server", self.cli(*words, code=2))
        self.down()


class Choice(ServerCase):
    def test_how_a_server_is_chosen_and_with_which_token(self):
        self.cli("submit", self.held("there"))
        token = read(self.token).strip()
        self.assertIn("there", self.plain("get", "jobs", STARLING_SERVER=self.url + "/",
                                          STARLING_TOKEN=token))
        # The home's own service has the home's own token, and sees the home's files.
        self.assertIn("there", self.plain("get", "jobs", "--server", self.url,
                                          STARLING_HOME=self.home.home))
        self.assertIn("created", self.plain("submit", DIGITS, "--set", "spec.runPolicy.suspend=true",
                                            "--server", self.url, STARLING_HOME=self.home.home))
        self.assertNotIn("there", self.plain("get", "jobs", "--home", self.elsewhere.name,
                                             STARLING_SERVER=self.url))
        refused = self.plain("get", "jobs", "--server", self.url, code=1)
        self.assertIn("Authorization: Bearer", refused)
        wrong = self.plain("get", "jobs", "--server", self.url, code=1, STARLING_TOKEN="0" * 64)
        self.assertNotIn("0" * 64, wrong)
        for words, expected in ((("--server", self.url, "--cluster"), "--cluster"),
                                (("--token-file", self.token), "--server"),
                                (("--server", "nonsense"), "http")):
            self.assertIn(expected, self.plain("get", "jobs", *words, code=2))
        self.assertIn("STARLING_KUBECONFIG", self.plain(
            "get", "jobs", code=2, STARLING_SERVER=self.url, STARLING_KUBECONFIG="/nowhere"))
        self.assertIn("cannot be read", self.plain("get", "jobs", "--server", self.url,
                                                   "--token-file", "/no/token", code=3))
        self.down()

    def test_tls_with_the_authority_that_was_named_and_no_other(self):
        context, certificate = certified(self.home.folder)
        proxy = self.proxy(tls=context)
        self.assertIn("certificate", self.cli("get", "jobs", url=proxy.url, code=1))
        self.assertEqual([], proxy.requests, "no token was sent")
        self.cli("submit", self.held("tls"), "--ca-file", certificate, url=proxy.url)
        self.assertIn("tls", self.cli("get", "jobs", url=proxy.url, STARLING_CA_FILE=certificate))
        self.down()

    def test_a_server_that_is_none(self):
        def web_page(connection):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello")

        server = Talker(web_page)
        self.addCleanup(server.close)
        self.assertIn("is this the address of Starling's REST service?",
                      self.cli("get", "jobs", url=server.url, code=3))
        self.cli("get", "jobs", url="http://127.0.0.1:1", code=1)
        self.down()


class Network(ServerCase):
    def test_run_and_logs_go_on_through_cuts(self):
        asked = collections.Counter()

        def cut(number, head):
            stream = re.search(r"^GET [^ ]*(watch=true|/logs)", head)
            if not stream or asked[stream[1]] == 10:
                return None
            asked[stream[1]] += 1
            return 5000 if stream[1] == "watch=true" else 700 + 300 * asked[stream[1]]

        proxy = self.proxy(cut=cut)
        running = self.start("run", self.file("cut", epochs=2), url=proxy.url)
        until(lambda: self.home.steps("cut") > 0, 60, self.home.describe)
        pod, _ = self.worker("cut")
        told = self.cli("logs", "-f", pod, url=proxy.url)
        out, error = running.communicate(timeout=120)
        self.assertEqual(0, running.returncode, out + error)
        self.assertIn("Succeeded", self.cli("get", "jobs"))
        self.assertTrue([head for head in proxy.requests if "Last-Event-ID" in head],
                        "the watch was cut, and said where it was")
        self.assertGreater(asked["/logs"], 1, "the log was cut")
        self.assertEqual(read(glob.glob(f"{self.home.job_folder('cut')}/pods/{pod}-*/log")[0]), told)
        self.down()

    def test_a_control_plane_killed_under_a_watch_is_found_again(self):
        port = str(int(self.url.rpartition(":")[2]))
        self.home.run("down")
        controller = [self.home.program("starling-controller"), "--home", self.home.home,
                      "--rest-port", port]

        def start():
            os.path.exists(f"{self.home.home}/controller.json") and os.remove(
                f"{self.home.home}/controller.json")
            process = subprocess.Popen(controller, env=self.home.environment,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
            until(lambda: os.path.exists(f"{self.home.home}/controller.json"), 30, "it is ready")
            return process

        first = start()
        running = self.start("run", self.file("killed", epochs=3))
        self.home.await_step(10, "killed")
        kill(first.pid)
        first.wait(10)
        time.sleep(0.5)  # the command meets a closed port meanwhile
        second = start()
        out, error = running.communicate(timeout=120)
        self.assertEqual(0, running.returncode, out + error)
        self.assertIn("Succeeded", self.cli("get", "jobs"))
        second.terminate()
        second.wait(60)
        self.home.assert_nothing_runs()

    def test_a_create_whose_answer_was_lost_makes_one_job(self):
        lost = []

        def cut(number, head):
            if not head.startswith("POST") or lost:
                return None
            lost.append(number)
            return 0

        proxy = self.proxy(cut=cut)
        self.assertIn("created", self.cli("submit", self.held("once"), url=proxy.url))
        self.assertEqual(2, len([head for head in proxy.requests if head.startswith("POST")]))
        self.down()


if __name__ == "__main__":
    unittest.main(verbosity=2)
