# SPDX-License-Identifier: Apache-2.0
"""Many accounts that use one replica of REST in a cluster, and one of them that asks for far more than
it may: what tests and bench/service_accounts.py share."""
import json
import os
import re
import sys

import kubectl as k
from rest_api import HOST, authority

sys.path.insert(0, os.path.join(k.REPOSITORY, "tests/e2e"))
from kube_api import Api  # noqa: E402  pylint: disable=wrong-import-position
from rest_load import Load  # noqa: E402  pylint: disable=wrong-import-position

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
GREEDY = "greedy"
GREED = {"guess": 500}  # a second, of names that nobody has asked about before
# Of all others together, a second.
RATES = {"submit": 5, "change": 5, "get": 20, "list": 5}


class Accounts:
    """`count` accounts, and the greedy one. All may edit the jobs of their namespace."""

    def __init__(self, count):
        api = Api(os.environ["KUBECONFIG"])
        self.names = [f"caller-{number}" for number in range(count)]
        self.tokens = {}
        for name in [*self.names, GREEDY]:
            api.create(ACCOUNTS, {"metadata": {"name": name}})
            self.tokens[name] = api.create(f"{ACCOUNTS}/{name}/token", {
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                "spec": {"audiences": []}})["status"]["token"]
        k.kubectl("create", "rolebinding", "callers", "-n", "default", "--clusterrole=edit",
                  "--group=system:serviceaccounts:default")
        k.eventually(lambda: "trainingjobs" in json.dumps(k.get("clusterrole", "edit")["rules"]),
                     "Starling's rights are part of Kubernetes' own roles")
        self._api = api

    def reviews(self):
        """How many reviews of tokens and of rights the API server has made so far."""
        counted = 0
        for line in self._api.call("GET", "/metrics").splitlines():
            if re.match(r'apiserver_request_total\{.*resource="(tokenreviews|subjectaccessreviews)"',
                        line):
                counted += float(line.split()[-1])
        return counted

    def load(self, port, jobs, seconds, prefix, greedy=False, rates=None, connections=16):
        """What came of a stretch of requests of all accounts but the greedy one, and what of the greedy
        one's, if it asks too."""
        common = {"port": port, "host": HOST, "authority": authority(), "jobs": jobs,
                  "seconds": seconds, "prefix": prefix,
                  "submitted": json.dumps(k.digits("NAME", runPolicy={"suspend": True}))}
        loads = [Load("request", {**common, "rates": rates or RATES, "connections": connections,
                                  "tokens": [self.tokens[name] for name in self.names]})]
        if greedy:
            loads.append(Load("request", {**common, "rates": GREED, "connections": 8,
                                          "token": self.tokens[GREEDY]}))
        said = [load.hear() for load in loads]
        for load in loads:
            load.close()
        return said[0], said[1] if greedy else None
