# SPDX-License-Identifier: Apache-2.0
"""spec.export.otlp, and the trace of a job: from the request that submits it to spans and log lines."""
import http.server
import json
import os
import re
import threading
import unittest

import jobs
from case import Case
from home import REPOSITORY, kill, read, until
from rest_client import Client

JOBS = "/v1/namespaces/default/jobs"
PAGE = os.path.join(REPOSITORY, "docs/how-to/opentelemetry.md")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what it is sent."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.sent = []  # path, body
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def uri(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self):
        self.shutdown()
        self.server_close()

    def spans(self):
        return [span for path, body in list(self.sent) if path == "/v1/traces"
                for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]

    def gauges(self):
        """The newest value of each."""
        return {metric["name"]: metric["gauge"]["dataPoints"][0]
                for path, body in list(self.sent) if path == "/v1/metrics"
                for metric in body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]}


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):  # pylint: disable=invalid-name
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.sent.append((self.path, body))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b"{}")


class Otlp(Case):
    def setUp(self):
        super().setUp()
        self.collector = Collector()
        self.addCleanup(self.collector.end)

    def job(self, **changes):
        return jobs.digits(export={"otlp": {"uri": self.collector.uri}}, **changes)

    def test_a_submitted_job_belongs_to_the_trace_of_its_request(self):
        self.home.run("up")
        answer = Client(self.home.home).ask("POST", JOBS, self.job(workers=2, epochs=3),
                                            traceparent=f"00-{TRACE}-{PARENT}-01")
        self.assertEqual(201, answer.status, answer)
        self.home.await_step(20, timeout=60)
        kill(until(lambda: self.home.role_pid("digits-worker-1"), 30, "it runs"))
        until(lambda: self.home.state() == "Succeeded", 120, "it ends")
        spans = until(lambda: len(self.collector.spans()) >= 2 and self.collector.spans(), 10,
                      "spans are told")
        for span in spans:
            self.assertEqual((TRACE, PARENT), (span["traceId"], span["parentSpanId"]))
            self.assertLessEqual(int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"]))
        begins = [int(span["startTimeUnixNano"]) for span in spans]
        self.assertEqual(sorted(begins), begins)
        incidents = [event["name"] for span in spans for event in span["events"]]
        self.assertTrue([one for one in incidents if one.startswith("Worker")], incidents)
        result = self.home.job()["status"]["result"]
        gauges = self.collector.gauges()
        self.assertEqual(str(result["steps"]), gauges["starling.step"]["asInt"])
        self.assertEqual(result["metrics"]["validation/accuracy"],
                         gauges["starling.validation/accuracy"]["asDouble"])
        logs = self.home.run("logs", "digits-worker-0").stdout
        self.assertIn(f'"trace_id":"{TRACE}"', logs)
        self.home.run("down")

    def test_the_page_of_the_docs_is_true(self):
        text = read(PAGE)
        (source,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        source = source.replace("http://localhost:4318", self.collector.uri)
        source = source.replace("examples/", os.path.join(REPOSITORY, "examples/"))
        self.home.run("run", self.home.write("digits-traced.yaml", source), timeout=120)
        gauges = self.collector.gauges()
        for name in ("step", "loss", "samplesPerSecond", "validation/accuracy"):
            self.assertIn("starling." + name, gauges)
            self.assertIn(f"`starling.{name}`", text)
        (uid,) = {body["resourceMetrics"][0]["resource"]["attributes"][-1]["value"]["stringValue"]
                  for path, body in self.collector.sent if path == "/v1/metrics"}
        self.assertEqual({uid.replace("-", "")}, {span["traceId"] for span in self.collector.spans()})

    def test_a_collector_that_is_away_costs_nothing_but_what_it_is_told(self):
        self.collector.end()
        command = self.home.start("run", self.home.write("job.yaml", self.job(epochs=20)),
                                  "-o", "json")
        until(lambda: "ExportFailing" in json.dumps(self.home.job() or {}), 60, "it is told")
        self.assertEqual(0, command.wait(120))


if __name__ == "__main__":
    unittest.main(verbosity=2)
