#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""REST in a cluster: jobs by a service account's token, two replicas that share what they must, one
of them killed under fifty watchers."""
import hashlib
import json
import os
import signal
import subprocess
import tempfile
import time
import unittest

import kubectl as k
from controller import Controller, free_port, install_chart
from rest_api import JOBS, Client, RestApi, Watcher, authority, bind, make_account, token_of

WATCHERS = 50
WATCHED = 12
SUCCEEDED = {"status": {"state": "Succeeded", "conditions": [
    {"type": "Succeeded", "status": "True", "reason": "TargetReached", "message": "",
     "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}


def suspended(name, **spec):
    return k.digits(name, runPolicy={"suspend": True}, **spec)


class Rest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="starling-rest-")
        install_chart("--set=webhook.enabled=false")
        make_account("editor")
        bind("edit", "editor")
        k.eventually(lambda: "trainingjobs" in json.dumps(k.get("clusterrole", "edit")["rules"]),
                     "Starling's rights are part of Kubernetes' own roles")
        cls.controller = Controller(cls.folder.name, "--webhook-port=0")
        cls.controller.start()
        cls.token = token_of("editor", "default")

    @classmethod
    def tearDownClass(cls):
        cls.controller.stop()
        cls.folder.cleanup()

    def setUp(self):
        self.volume = tempfile.mkdtemp(dir=self.folder.name)
        self.apis = [RestApi(self.folder.name, f"--models=file:///checkpoints={self.volume}",
                             name=f"{self._testMethodName}-{i}") for i in (0, 1)]
        for api in self.apis:
            self.addCleanup(api.end, signal.SIGKILL)
        for api in self.apis:
            api.await_ready()
        self.rest = Client(self.token, *self.apis)

    def tearDown(self):
        k.kubectl("delete", "tj", "--all")

    def ok(self, answer, status=200):
        self.assertEqual(status, answer.status, answer)
        return answer.body

    def test_a_job_is_submitted_watched_scaled_suspended_and_deleted(self):
        created = self.rest.ask("POST", JOBS, k.digits("digits"))
        uid = self.ok(created, 201)["metadata"]["uid"]
        watch = self.rest.stream(f"{JOBS}/digits?watch=1")
        self.assertEqual(uid, watch.until("added")[0].data["object"]["metadata"]["uid"])
        k.eventually(lambda: len(self.ok(self.rest.ask("GET", f"{JOBS}/digits/pods"))["items"]) == 3,
                     "a coordinator and two workers are made")
        scaled = self.ok(self.rest.ask("PUT", f"{JOBS}/digits/scale", {"replicas": 3}))
        self.assertEqual(3, scaled["roles"]["worker"]["replicas"])
        k.eventually(lambda: len(self.ok(self.rest.ask("GET", f"{JOBS}/digits/pods"))["items"]) == 4,
                     "and one more")
        # Bounds are the API server's own rules.
        self.assertEqual(422, self.rest.ask("PUT", f"{JOBS}/digits/scale", {"replicas": 9}).status)
        tag = self.rest.ask("GET", f"{JOBS}/digits").headers["ETag"]
        stale = self.rest.ask("POST", f"{JOBS}/digits:suspend", If_Match='"1"')
        self.assertEqual(412, stale.status)
        self.ok(self.rest.ask("POST", f"{JOBS}/digits:suspend"), 202)
        self.assertNotEqual(tag, self.rest.ask("GET", f"{JOBS}/digits").headers["ETag"])
        # No node runs its pods, so that nothing is saved and they are waited for.
        text = self.ok(self.rest.ask("GET", f"{JOBS}/digits/logs"))
        self.assertEqual(b"", text)
        self.assertTrue(self.ok(self.rest.ask("GET", f"{JOBS}/digits/events"))["items"])
        self.assertEqual(409, self.rest.ask("GET", f"{JOBS}/digits/model").status)
        self.ok(self.rest.ask("DELETE", f"{JOBS}/digits"))
        end = watch.until("end")
        self.assertEqual({"reason": "JobFinished"}, end[-1].data)
        self.assertEqual("deleted", end[-2].name)
        k.eventually(lambda: self.rest.ask("GET", f"{JOBS}/digits").status == 404, "it is gone")

    def test_a_model_on_a_volume_that_the_service_has_is_fetched_whole_and_in_parts(self):
        content = os.urandom(200_000)
        uids = {}
        for name in ("mine", "yours"):
            job = self.ok(self.rest.ask("POST", JOBS, suspended(name)), 201)
            uids[name] = job["metadata"]["uid"]
            folder = os.path.join(self.volume, "team", uids[name])
            os.makedirs(folder)
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write(content)
        digest = hashlib.sha256(content).hexdigest()

        def tell(uri):
            k.kubectl("patch", "tj", "mine", "--subresource=status", "--type=merge", "-p", json.dumps(
                {"status": {"result": {"model": {"uri": uri, "sha256": digest}}}}))
            k.eventually(lambda: self.ok(self.rest.ask("GET", f"{JOBS}/mine"))["status"].get(
                "result", {}).get("model", {}).get("uri") == uri, "the service has heard of it")
        tell(f"file:///checkpoints/team/{uids['mine']}/model.safetensors")
        whole = self.rest.ask("GET", f"{JOBS}/mine/model")
        self.assertEqual(content, self.ok(whole))
        self.assertEqual(f'"{digest}"', whole.headers["ETag"])
        part = self.rest.ask("GET", f"{JOBS}/mine/model", Range="bytes=100-199")
        self.assertEqual(content[100:200], self.ok(part, 206))
        self.assertEqual(304, self.rest.ask("GET", f"{JOBS}/mine/model",
                                            If_None_Match=f'"{digest}"').status)
        for uri, told in ((f"file:///checkpoints/team/{uids['yours']}/model.safetensors",
                           "not this job's own folder"),
                          (f"file:///elsewhere/{uids['mine']}/model.safetensors", "api.models")):
            tell(uri)
            refused = self.rest.ask("GET", f"{JOBS}/mine/model")
            self.assertEqual((409, "ModelNotKept"), (refused.status, refused.body["code"]))
            self.assertIn(told, refused.body["detail"])

    def test_who_forwards_a_port_finds_this_host_in_its_certificate(self):
        command = [os.path.join(os.environ["STARLING_BIN"], "starling"), "get", "jobs"]
        for name, content in (("token", self.token), ("ca.crt", authority())):
            with open(os.path.join(self.folder.name, name), "w", encoding="ascii") as file:
                file.write(content)
        where = ["-n", "default", "--token-file", f"{self.folder.name}/token", "--ca-file", f"{self.folder.name}/ca.crt"]
        done = subprocess.run([*command, "--server", f"https://localhost:{self.apis[0].port}", *where],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(0, done.returncode, done.stderr)
        other = subprocess.run([*command, "--server", f"https://127.0.0.1:{self.apis[0].port}", *where],
                               capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(0, other.returncode, "it is checked whose certificate it is")

    def test_replicas_are_one_service(self):
        first, second = (Client(self.token, api) for api in self.apis)
        for name in ("a", "b", "c"):
            self.ok(first.ask("POST", JOBS, suspended(name)), 201)
            # What was written by the one is read by the other, and by itself at once.
            self.assertEqual(200, first.ask("GET", f"{JOBS}/{name}").status)
            self.assertEqual(200, second.ask("GET", f"{JOBS}/{name}").status)
        k.eventually(lambda: len(second.ask("GET", JOBS).body["items"]) == 3, "both list all")
        page = self.ok(first.ask("GET", f"{JOBS}?limit=2"))
        rest = self.ok(second.ask("GET", f"{JOBS}?limit=2&continue={page['continue']}"))
        names = {item["name"] for item in page["items"] + rest["items"]}
        self.assertEqual({"a", "b", "c"}, names)
        job = suspended("x")
        job["metadata"] = {"generateName": "made-"}
        made = [client.ask("POST", JOBS, job, Idempotency_Key="key")
                for client in (first, second, first)]
        self.assertEqual([201, 200, 200], [answer.status for answer in made])
        self.assertEqual(1, len({answer.body["metadata"]["uid"] for answer in made}))

    def test_one_of_two_is_killed_under_fifty_watchers_and_nobody_misses_an_end(self):
        self.controller.stop()  # here the test says how jobs end
        self.addCleanup(self.controller.start)
        uids = {}
        for i in range(WATCHED):
            uids[f"job-{i}"] = self.ok(self.rest.ask("POST", JOBS, suspended(f"job-{i}")),
                                       201)["metadata"]["uid"]
        watchers = [Watcher(Client(self.token, *(self.apis if i % 2 else self.apis[::-1])))
                    for i in range(WATCHERS)]
        for watcher in watchers:
            watcher.start()
        self.addCleanup(lambda: [watcher.stop() for watcher in watchers])
        k.eventually(lambda: all(len(w.states) >= WATCHED for w in watchers), "all have heard")
        names = list(uids)
        for number, name in enumerate(names):
            if number == 4:
                self.apis[0].end(signal.SIGKILL)
            if number % 3 == 2:
                k.kubectl("delete", "tj", name, "--wait=false")
            else:
                k.kubectl("patch", "tj", name, "--subresource=status", "--type=merge", "-p",
                          json.dumps(SUCCEEDED))
        ends = {uids[name]: None if number % 3 == 2 else "Succeeded"
                for number, name in enumerate(names)}

        def missed():
            return [(uid, watcher.states.get(uid, "unheard")) for watcher in watchers
                    for uid, end in ends.items() if watcher.states.get(uid, "unheard") != end]
        k.eventually(lambda: not missed(), lambda: f"all know all ends: {missed()[:5]}", 30)
        for watcher in watchers:
            watcher.stop()
        self.assertEqual([], [watcher.failures for watcher in watchers if watcher.failures])
        broken = [watcher for watcher in watchers if watcher.breaks]
        self.assertGreaterEqual(len(broken), WATCHERS // 2, "half of them were cut")

    def test_asked_to_end_it_says_goodbye_and_the_probes_tell(self):
        alone = Client(self.token, self.apis[1])
        stream = alone.stream(f"{JOBS}?watch=1")
        stream.until("bookmark")
        self.assertEqual(0, self.apis[1].end())
        self.assertEqual({"reason": "Shutdown"}, stream.until("end")[-1].data)
        self.assertEqual(200, self.rest.ask("GET", JOBS).status, "the other one answers")

    def test_hundreds_of_idle_connections_leave_probes_and_callers_alone(self):
        api = self.apis[0]
        held = [Client(None, api).connect() for _ in range(200)]
        try:
            for _ in range(5):
                began = time.monotonic()
                self.assertTrue(api.is_ready())
                self.assertEqual(200, Client(self.token, api).ask("GET", JOBS).status)
                self.assertLess(time.monotonic() - began, 8)
        finally:
            for connection in held:
                connection.close()


class WithoutAnApiServer(unittest.TestCase):
    def test_it_waits_unready_and_alive(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kubeconfig")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"current-context": "it", "users": [{"name": "it", "user": {}}],
                           "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                           "clusters": [{"name": "it", "cluster": {
                               "server": f"http://127.0.0.1:{free_port()}"}}]}, file)
            api = RestApi.__new__(RestApi)
            api.start(folder, "away", path, "--rest-bind-address=127.0.0.1:0")
            try:
                k.eventually(lambda: api.probe("/healthz") == 200, "it lives")
                self.assertEqual(503, api.probe("/readyz"))
                time.sleep(1)
                self.assertEqual((200, 503), (api.probe("/healthz"), api.probe("/readyz")))
            finally:
                self.assertEqual(0, api.end())


if __name__ == "__main__":
    k.helm_or_skip()
    unittest.main()
