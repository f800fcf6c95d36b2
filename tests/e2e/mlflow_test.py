# SPDX-License-Identifier: Apache-2.0
"""spec.export.mlflow, against a tracking server that speaks MLflow's REST API and nothing else."""
import http.server
import json
import os
import re
import threading
import unittest
import urllib.parse

import jobs
from case import Case
from home import REPOSITORY, kill, until

API = "/api/2.0/mlflow/"
PAGE = os.path.join(REPOSITORY, "docs/how-to/mlflow.md")


class Tracking(http.server.ThreadingHTTPServer):
    """Experiments, and runs with all that was told of them."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.experiments = {"Default": "0"}
        self.runs = {}
        self.told = []  # key, step, value
        self.tokens = set()
        self.hold = threading.Event()  # set: answers come at once
        self.hold.set()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def uri(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self):
        self.hold.set()
        self.shutdown()
        self.server_close()

    def answer(self, what, asked):
        if what == "experiments/get-by-name":
            number = self.experiments.get(asked["experiment_name"])
            return number and {"experiment": {"experiment_id": number}}
        if what == "experiments/create":
            number = self.experiments[asked["name"]] = str(len(self.experiments))
            return {"experiment_id": number}
        if what == "runs/search":
            tag, value = re.fullmatch(r"tags\.`(.*)` = '(.*)'", asked["filter"]).groups()
            found = [run for run in self.runs.values()
                     if run["info"]["experiment_id"] in asked["experiment_ids"]
                     and {"key": tag, "value": value} in run["data"]["tags"]]
            return {"runs": found[:asked["max_results"]]} if found else {}
        if what == "runs/create":
            number = f"run{len(self.runs)}"
            self.runs[number] = {
                "info": {"run_id": number, "status": "RUNNING", "run_name": asked["run_name"],
                         "experiment_id": asked["experiment_id"]},
                "data": {"tags": asked["tags"], "metrics": []}}
            return {"run": self.runs[number]}
        run = self.runs.get(asked["run_id"])
        if run is None:
            return None
        if what == "runs/log-batch":
            for metric in asked["metrics"]:
                self.told.append((metric["key"], metric["step"], metric["value"]))
                kept = [one for one in run["data"]["metrics"] if one["key"] != metric["key"]]
                run["data"]["metrics"] = [*kept, metric]
            return {}
        if what == "runs/update":
            run["info"]["status"] = asked["status"]
            return {"run_info": run["info"]}
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def _serve(self, path, asked):
        self.server.hold.wait(60)
        self.server.tokens.add(self.headers.get("Authorization"))
        answer = self.server.answer(path.removeprefix(API), asked)
        body = json.dumps({"error_code": "RESOURCE_DOES_NOT_EXIST"} if answer is None else answer)
        self.send_response(404 if answer is None else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self):  # pylint: disable=invalid-name
        path, _, query = self.path.partition("?")
        self._serve(path, dict(urllib.parse.parse_qsl(query)))

    def do_POST(self):  # pylint: disable=invalid-name
        self._serve(self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))


class Mlflow(Case):
    def setUp(self):
        super().setUp()
        self.server = Tracking()
        self.addCleanup(self.server.end)

    def job(self, **changes):
        job = jobs.digits(export={"mlflow": {"uri": self.server.uri, "experiment": "trials"}},
                          **changes)
        job["spec"]["replicaSpecs"]["coordinator"] = {"template": {"spec": {"containers": [
            {"name": "trainer", "env": [{"name": "MLFLOW_TRACKING_TOKEN", "value": "a-token"}]}]}}}
        return job

    def check(self, job):
        """One run, each step of each metric once and in order, and at the end what the result says."""
        self.assertEqual(["run0"], list(self.server.runs))
        run = self.server.runs["run0"]
        self.assertEqual(("FINISHED", "digits"), (run["info"]["status"], run["info"]["run_name"]))
        self.assertEqual([{"key": "starling.job_uid", "value": job["metadata"]["uid"]}],
                         run["data"]["tags"])
        by_name = {}
        for name, step, value in self.server.told:
            by_name.setdefault(name, []).append((step, value))
        for name, points in by_name.items():
            steps = [step for step, _ in points]
            self.assertEqual(sorted(set(steps)), steps, name)
        result = self.result(job)
        for name, value in result["metrics"].items():
            self.assertEqual((result["steps"], value), by_name[name][-1], name)
        self.assertLessEqual({"loss", "samplesPerSecond"}, set(by_name))

    def test_a_job_is_a_run_whoever_tells_of_it(self):
        command = self.home.start("run", self.home.write("job.yaml", self.job(epochs=12)), "-o",
                                  "json")
        until(lambda: len(self.server.told) > 3, 60, self.home.describe)
        self.assertTrue(kill(self.home.role_pid("digits-coordinator-0")))
        self.check(self.finish(command))
        self.assertEqual({"Bearer a-token"}, self.server.tokens)

    def test_a_server_that_does_not_answer_holds_nobody_up(self):
        self.server.hold.clear()
        job = self.run_job(self.job(epochs=6))
        self.assertEqual("Succeeded", job["status"]["state"])
        self.assertEqual([], self.server.told)

    def test_the_page_shows_what_is_done(self):
        """Its job, with this server for the one that it names."""
        with open(PAGE, encoding="utf-8") as file:
            blocks = file.read().split("```")
        source = next(block for block in blocks if block.startswith("yaml\n")).partition("\n")[2]
        source = source.replace("http://localhost:5000", self.server.uri)
        source = source.replace("examples/", os.path.join(REPOSITORY, "examples/"))
        self.home.run("run", self.home.write("digits-tracked.yaml", source), timeout=120)
        self.assertEqual({"digits-tracked"},
                         {run["info"]["run_name"] for run in self.server.runs.values()})
        self.assertEqual("1", self.server.experiments["starling"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
