# SPDX-License-Identifier: Apache-2.0
"""kubectl and helm as these tests use them. with_api_server.py has set KUBECONFIG and PATH."""
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
CRD = os.path.join(REPOSITORY, "crds/starling.dev_trainingjobs.yaml")
CHART = os.path.join(REPOSITORY, "charts/starling")
sys.path.insert(0, os.path.join(REPOSITORY, "tests/kube"))

from programs import Programs, Skip, SKIPPED  # noqa: E402  pylint: disable=wrong-import-position


class Failed(Exception):
    """A command that was to succeed did not; the text is what it said."""


def run(*arguments, stdin=None, env=None):
    """stdout of a command that must succeed."""
    done = subprocess.run(arguments, input=stdin, capture_output=True, text=True, check=False,
                          timeout=120, env=env)
    if done.returncode != 0:
        raise Failed(f"{' '.join(arguments)}: {done.stderr or done.stdout}")
    return done.stdout


def helm_or_skip():
    """helm's path; a machine that cannot have it skips the whole test and says why."""
    try:
        return Programs("helm")["helm"]
    except Skip as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)


def kubectl(*arguments, stdin=None):
    return run("kubectl", *arguments, stdin=stdin)


def refusal(*arguments, stdin=None):
    """What kubectl says where it must fail; "" if it does not."""
    try:
        kubectl(*arguments, stdin=stdin)
    except Failed as failed:
        return str(failed)
    return ""


def get(*arguments):
    return json.loads(kubectl("get", *arguments, "-o", "json"))


def exists(*arguments):
    return kubectl("get", *arguments, "--ignore-not-found", "-o", "name") != ""


def uid(*arguments):
    """Of an object; "" where there is none."""
    return kubectl("get", *arguments, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")


def create(job):
    return kubectl("create", "-f", "-", stdin=json.dumps(job))


def eventually(holds, what, deadline=60):
    end = time.monotonic() + deadline
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(
                f"not within {deadline} s: {what() if callable(what) else what}")
        time.sleep(0.1)


def install_crd():
    kubectl("apply", "--server-side", "-f", CRD)
    # `kubectl wait` for its condition fails while it has none at all.
    eventually(lambda: refusal("get", "tj") == "", "the API server serves TrainingJobs")


def digits(name="digits", **spec):
    """A small valid job; fields of the spec may be given, None takes one out."""
    job = {
        "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"workload": {"classification": {"model": {"mlp": {"hidden": [8]}}}},
                 "dataset": {"train": {"synthetic": {}}},
                 "replicaSpecs": {"worker": {"replicas": 2, "maxReplicas": 8}}, **spec}}
    job["spec"] = {name: value for name, value in job["spec"].items() if value is not None}
    return job


def container(name="own", **spec):
    template = {"spec": {"containers": [{"name": "trainer", "image": "x", "command": ["train"]}]}}
    return digits(name, **{"workload": {"container": {}}, "dataset": None,
                           "replicaSpecs": {"worker": {"template": template}}, **spec})
