#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may do what by REST: every row of docs/reference/rest-rights.md, asked with real tokens of a
real API server, and what the audit log and the service's own log say of it afterwards.

usage: rest_rights_test.py AUDIT_LOG
"""
import json
import os
import sys
import tempfile
import time
import unittest

import kubectl as k
from controller import NAMESPACE, install_chart
from rest_api import Client, RestApi, bind, make_account, token_of

PAGE = os.path.join(k.REPOSITORY, "docs/reference/rest-rights.md")
API = os.path.join(k.REPOSITORY, "docs/reference/openapi.json")
JOBS = "/v1/namespaces/default/jobs"
FORGED = ("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6ZGVmYXVsdDplZGl0b3IifQ."
          "Zm9yZ2Vk")
# There is neither a model nor a timeline, which only who may have them is told.
WHEN_ALLOWED = {"getModel": 409, "getTrace": 404}
BODIES = {
    "createJob": lambda name: k.digits(name, runPolicy={"suspend": True}),
    "validateJob": k.digits,
    "planJob": k.digits,
    "replaceJob": lambda name: k.digits(name, runPolicy={"suspend": True}),
    "patchJob": lambda name: {"metadata": {"labels": {"a": "b"}}},
    "setScale": lambda name: {"role": "worker", "replicas": 3},
}


def rows():
    """Of the page: the operation's id, and by column the status."""
    columns, found = [], []
    with open(PAGE, encoding="utf-8") as page:
        for line in page:
            if not line.startswith("| "):
                continue
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells[0] == "Request":
                columns = cells[2:]
            elif cells[0].startswith("`"):
                found.append((cells[0].strip("`"), dict(zip(columns, map(int, cells[2:])))))
    return found


def operations():
    with open(API, encoding="utf-8") as file:
        paths = json.load(file)["paths"]
    return {operation["operationId"]: (method.upper(), path)
            for path, methods in paths.items() for method, operation in methods.items()}


class Rights(unittest.TestCase):
    audit = ""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="starling-rights-")
        install_chart("--set=webhook.enabled=false")
        for account in ("nobody", "viewer", "editor", "admin", "scaler"):
            make_account(account)
        for role, account in (("view", "viewer"), ("edit", "editor"), ("admin", "admin")):
            bind(role, account)
            k.kubectl("create", "clusterrolebinding", f"all-jobs-{account}",
                      f"--clusterrole={role}", f"--serviceaccount=default:{account}")
        k.eventually(lambda: "trainingjobs" in json.dumps(k.get("clusterrole", "view")["rules"]) and
                     "trainingjobs" in json.dumps(k.get("clusterrole", "admin")["rules"]),
                     "Starling's rights are part of Kubernetes' own roles")
        k.create({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                  "metadata": {"name": "scaler", "namespace": "default"},
                  "rules": [{"apiGroups": ["starling.dev"], "resources": ["trainingjobs/scale"],
                             "verbs": ["update"]}]})
        k.kubectl("create", "rolebinding", "scaler", "--role=scaler",
                  "--serviceaccount=default:scaler")
        cls.api = RestApi(cls.folder.name, "--rest-caller-reads=0", "--rest-caller-writes=0")
        cls.api.await_ready()
        cls.tokens = {
            "no token": None, "unknown": FORGED,
            "no rights": token_of("nobody", "default"), "view": token_of("viewer", "default"),
            "edit": token_of("editor", "default"), "admin": token_of("admin", "default"),
            "starling": token_of("admin", "default", "--audience=starling"),
            "scaler": token_of("scaler", "default")}
        cls.clients = {column: Client(token, cls.api) for column, token in cls.tokens.items()}
        cls.operations = operations()

    @classmethod
    def tearDownClass(cls):
        cls.api.end()
        cls.folder.cleanup()

    @classmethod
    def client(cls, column):
        return cls.clients[column]

    def ask(self, column, operation, name="present"):
        method, path = self.operations[operation]
        path = path.replace("{namespace}", "default").replace("{name}", name)
        body = BODIES.get(operation, lambda _: None)(name)
        headers = {"Content_Type": "application/merge-patch+json"} \
            if operation == "patchJob" else {}
        return self.client(column).ask(method, path, body, **headers)

    def renew(self):
        """The job `present` is there, and `made` is not."""
        admin = self.client("admin")
        if admin.ask("GET", f"{JOBS}/made").status == 200:
            self.assertEqual(200, admin.ask("DELETE", f"{JOBS}/made").status)
        if admin.ask("GET", f"{JOBS}/present").status == 404:
            job = k.digits("present", runPolicy={"suspend": True})
            self.assertEqual(201, admin.ask("POST", JOBS, job).status)

    def test_every_row_is_as_the_page_says(self):
        table = rows()
        self.assertEqual({operation for operation, _ in table}, set(self.operations))
        for operation, columns in table:
            columns["admin"] = columns["edit"]
            for column, status in columns.items():
                self.renew()
                with self.subTest(operation=operation, column=column):
                    name = "made" if operation == "createJob" else "present"
                    answer = self.ask(column, operation, name)
                    if status < 300:
                        status = WHEN_ALLOWED.get(operation, status)
                    self.assertEqual(status, answer.status, answer)
                    if status in (401, 403):
                        self.check_refusal(operation, column, answer)

    def check_refusal(self, operation, column, answer):
        """It is the same for a job that is not there."""
        other = self.ask(column, operation, "absent")
        self.assertEqual((answer.status, answer.body["detail"]),
                         (other.status, other.body["detail"]))
        self.assertEqual("WWW-Authenticate" in answer.headers, answer.status == 401)

    def test_a_namespaces_rights_end_with_it(self):
        k.kubectl("create", "namespace", "elsewhere")
        make_account("guest", "elsewhere")
        bind("admin", "guest", "elsewhere")
        guest = Client(token_of("guest", "elsewhere"), self.api)
        job = k.digits("theirs", runPolicy={"suspend": True})
        job["metadata"]["namespace"] = "elsewhere"
        self.assertEqual(201, guest.ask("POST", "/v1/namespaces/elsewhere/jobs", job).status)
        self.assertEqual(200, guest.ask("GET", "/v1/namespaces/elsewhere/jobs").status)
        self.assertEqual(403, guest.ask("GET", "/v1/jobs").status)
        self.assertEqual(403, guest.ask("GET", JOBS).status)
        self.assertEqual(403, guest.ask("GET", "/v1/namespaces/none/jobs").status)
        # What the path says counts: a body cannot lead elsewhere.
        job["metadata"] = {"name": "smuggled", "namespace": "default"}
        self.assertEqual(422, guest.ask("POST", "/v1/namespaces/elsewhere/jobs", job).status)
        k.kubectl("delete", "namespace", "elsewhere", "--wait=false")

    def test_who_may_only_scale_may_scale(self):
        self.renew()
        self.assertEqual(200, self.ask("scaler", "setScale").status)
        self.assertEqual(3, k.get("tj", "present")["spec"]["replicaSpecs"]["worker"]["replicas"])
        for operation in ("getJob", "patchJob", "deleteJob", "suspendJob", "listPods"):
            self.assertEqual(403, self.ask("scaler", operation).status, operation)

    def test_writes_are_the_callers_and_nobody_is_impersonated(self):
        self.renew()
        self.assertEqual(200, self.ask("edit", "patchJob").status)
        self.assertEqual(202, self.ask("edit", "suspendJob").status)
        with open(self.audit, encoding="utf-8") as file:
            requests = [json.loads(line) for line in file if line.strip()]
        self.assertFalse([r for r in requests if "impersonatedUser" in r])
        writes = {(r["user"]["username"], r["verb"]) for r in requests
                  if r.get("objectRef", {}).get("resource") == "trainingjobs" and
                  r["userAgent"].startswith("starling-api/")
                  and r["verb"] not in ("get", "list", "watch")}
        users = {user for user, _ in writes}
        self.assertIn("system:serviceaccount:default:editor", users)
        self.assertNotIn(f"system:serviceaccount:{NAMESPACE}:starling-api", users)
        own = {(r["objectRef"].get("apiGroup", ""), r["objectRef"]["resource"], r["verb"])
               for r in requests if "objectRef" in r and
               r["user"]["username"] == f"system:serviceaccount:{NAMESPACE}:starling-api"}
        self.assertEqual(own, {
            ("starling.dev", "trainingjobs", "get"), ("starling.dev", "trainingjobs", "list"),
            ("starling.dev", "trainingjobs", "watch"),
            ("starling.dev", "trainingtemplates", "list"),
            ("starling.dev", "clustertrainingtemplates", "list"),
            ("authentication.k8s.io", "tokenreviews", "create"),
            ("authorization.k8s.io", "subjectaccessreviews", "create"),
            ("", "secrets", "get"), ("", "secrets", "update")}, "the rights are the least that work")

    def test_a_withdrawn_token_ends_its_requests_and_streams(self):
        make_account("leaver")
        bind("view", "leaver")
        leaver = Client(token_of("leaver", "default"), self.api)
        self.renew()
        stream = leaver.stream(f"{JOBS}?watch=1", timeout=120)
        stream.until("bookmark")
        k.kubectl("delete", "serviceaccount", "leaver")
        k.eventually(lambda: leaver.ask("GET", JOBS).status == 401, "its token counts no more", 20)
        began = time.monotonic()
        self.assertEqual({"reason": "TokenExpired"}, stream.until("end")[-1].data)
        self.assertLess(time.monotonic() - began, 80)

    def test_nobody_comes_in_while_nobody_can_judge_and_no_token_is_in_any_log(self):
        text = self.api.read_log()
        self.assertTrue(text)
        for column, token in self.tokens.items():
            if token is None:
                continue
            for part in token.split("."):
                self.assertNotIn(part, text, column)


if __name__ == "__main__":
    k.helm_or_skip()
    Rights.audit = sys.argv.pop(1)
    unittest.main()
