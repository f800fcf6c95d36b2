# SPDX-License-Identifier: Apache-2.0
"""The test cluster itself: two nodes, pods that reach each other, a power cut, nothing left.

usage: cluster_test.py Up | TwoNodes | Outages | Down

Up leaves the cluster to the tests after it (STARLING_CLUSTER says where it is), Down takes it away.
"""
import json
import os
import subprocess
import sys
import unittest

import leftovers
import network
from cluster import FOLDER as CLUSTER, check_machine, record_machine
from kube_case import KubeCase, KubectlError, run_tests, sleeper
from programs import FOLDER, SKIPPED, Skip

# Answers every connection with the pod's own name.
SERVER = ("exec perl -MIO::Socket::INET -e '"
          "$s = IO::Socket::INET->new(Listen => 5, LocalPort => 7070, ReuseAddr => 1) or die $!;"
          "while ($c = $s->accept) { print $c $ENV{HOSTNAME}; close $c }'")
# What was on the machine before the cluster.
BEFORE = CLUSTER + ".before.json"


class Pods(KubeCase):
    def start_servers(self):
        labels = {"labels": {"app": "peers"}}
        self.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"},
                    "spec": {"clusterIP": "None", "publishNotReadyAddresses": True,
                             "selector": labels["labels"]}},
                   {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "front"},
                    "spec": {"selector": labels["labels"],
                             "ports": [{"port": 80, "targetPort": 7070}]}})
        for name, node in (("peer-1", "node1"), ("peer-2", "node2")):
            pod = sleeper(name, node, SERVER, **labels)
            pod["spec"]["subdomain"] = "peers"
            self.apply(pod)
        self.await_ready("peer-1", "peer-2")

    def ask(self, pod, host, port, check=True):
        script = f"exec 3<>/dev/tcp/{host}/{port} && cat <&3"
        return self.execute(pod, "timeout", "5", "bash", "-c", script, check=check)


class TwoNodes(Pods):
    def test_pods_reach_each_other_by_address_by_name_and_by_service(self):
        self.start_servers()
        address = self.address_of("peer-2")
        # A pod listens at once, or a moment after its container started.
        self.wait_for(lambda: self.ask("peer-1", address, 7070, check=False) == "peer-2", 20,
                      "peer-1 reaches peer-2 by its address")
        self.assertEqual("peer-2", self.ask("peer-1", "peer-2.peers", 7070))
        self.assertEqual("peer-1", self.ask("peer-2", f"peer-1.peers.{self.namespace}", 7070))
        # A ClusterIP leads to both pods, to the caller itself too.
        answers = set()
        self.wait_for(lambda: answers.add(self.ask("peer-1", "front", 80, check=False)) or
                      {"peer-1", "peer-2"} <= answers, 30, lambda: f"both answer: {answers}")

        with self.assertRaises(KubectlError, msg="a port where nobody listens"):
            self.ask("peer-1", address, 7071)
        with self.assertRaises(KubectlError, msg="a name outside the cluster"):
            self.execute("peer-1", "timeout", "5", "getent", "hosts", "example.org")

    def test_the_image_runs_as_nobody_and_has_everything(self):
        self.apply(sleeper("image", "node1"))
        self.await_ready("image")
        self.assertEqual("65532", self.execute("image", "id", "-u").strip())
        self.assertIn("digits-train.csv", self.execute("image", "ls", "/opt/starling/data"))
        with self.assertRaises(KubectlError, msg="the root file system is read-only"):
            self.execute("image", "touch", "/opt/starling/x")
        for program in ("starling", "starling-controller", "starling-coordinator",
                        "starling-server", "starling-worker", "starling-supervisor"):
            libraries = self.execute("image", "ldd", f"/usr/local/bin/{program}", check=False)
            self.assertNotIn("not found", libraries, program)
        # Debian's libtorch brings 600 MB that it never calls.
        self.assertLess(self.cluster.image_bytes(), 450e6)

    def test_killing_a_process_of_a_pod_is_seen(self):
        self.apply(sleeper("victim", "node2"))
        self.await_ready("victim")
        self.assertEqual(0, self.kill_in_pod("victim", "starling-worker"))
        # A container that has started may not have become its program yet.
        self.wait_for(lambda: self.kill_in_pod("victim", "sleep") == 1, 30,
                      "there is a process to kill")

        def restarts():
            return self.pods()["victim"]["status"]["containerStatuses"][0]["restartCount"]
        self.wait_for(lambda: restarts() > 0, 30, "its kubelet restarts the container")


class Outages(Pods):
    """What no other test's pods could bear beside them."""

    def test_a_power_cut_silences_a_node_until_it_returns(self):
        self.start_servers()
        with self.power_cut("node1"):
            self.assertEqual("", self.ask("peer-2", "peer-1.peers", 7070, check=False))
        self.wait_for(lambda: self.ask("peer-2", "peer-1.peers", 7070, check=False) == "peer-1", 60,
                      lambda: f"peer-1 is back\n{self.describe()}")

    def test_a_silent_api_server_stops_no_pod(self):
        self.start_servers()
        address = self.address_of("peer-2")
        with self.api_server_down():
            with self.assertRaises(KubectlError):
                self.kubectl("get", "pods", "--request-timeout=2s")
            script = f"exec 3<>/dev/tcp/{address}/7070 && cat <&3"
            answer = self.cluster.nodes["node1"].run("timeout", "5", "bash", "-c", script)
            self.assertEqual("peer-2", answer)
        self.assertEqual({"peer-1", "peer-2"}, set(self.pods()))


class Up(unittest.TestCase):
    def test_a_cluster_that_is_up_shows_on_the_machine(self):
        """It is told by all that Down looks for."""
        run_cluster("down")  # one of a run that was cut short
        before = leftovers.snapshot()
        with open(BEFORE, "w", encoding="utf-8") as file:
            json.dump(sorted(before), file)
        self.abandon_cluster()
        folder = os.environ.get("STARLING_BIN")
        # Whoever runs the tests owns it: if they are cut short, the next ones take it away.
        up = run_cluster("up", "--owner", str(os.getppid()), *(["--bin", folder] if folder else []))
        if up.returncode == SKIPPED:
            os.unlink(BEFORE)
            self.skipTest(up.stderr)
        self.assertEqual(0, up.returncode, up.stderr)
        print(up.stdout)
        self.assertIn(f"a cluster runs on this machine already, in {os.path.abspath(CLUSTER)}",
                      run_cluster("up", folder=CLUSTER + ".other").stderr)
        during = leftovers.snapshot()
        for kind in ("process", "cgroup", "mount", "link", "route", "namespace"):
            self.assertTrue([line for line in during - before if line.startswith(kind)],
                            f"a running cluster shows as {kind}")

    def abandon_cluster(self):
        """What is left where the tests of another tree were cut short and their tree was removed."""
        try:
            check_machine()
        except Skip:
            return
        with subprocess.Popen(["sleep", "60"]) as owner:
            record_machine(CLUSTER + ".removed", owner.pid)
            owner.kill()
        network.up()
        network.add_node("node1", 1, [])


class Down(unittest.TestCase):
    def test_down_leaves_nothing(self):
        """Of a cluster whose nodes have lost their power, whose pods and programs were killed."""
        if not os.path.exists(BEFORE):
            self.skipTest("Up has brought up no cluster here")
        with open(BEFORE, encoding="utf-8") as file:
            before = set(json.load(file))
        down = run_cluster("down")
        self.assertEqual(0, down.returncode, down.stderr)
        self.assertFalse(os.path.exists(CLUSTER))
        left = leftovers.snapshot() - before
        self.assertFalse(left, "left behind:\n" + "\n".join(sorted(left)))
        os.unlink(BEFORE)


def run_cluster(*arguments, folder=CLUSTER):
    return subprocess.run([sys.executable, "-B", os.path.join(FOLDER, "cluster.py"), *arguments],
                          env=dict(os.environ, STARLING_CLUSTER=folder), capture_output=True, text=True,
                          check=False)


if __name__ == "__main__":
    if sys.argv[1:2] in (["Up"], ["Down"]):
        result = unittest.main(exit=False, verbosity=2).result
        sys.exit(SKIPPED if result.skipped else not result.wasSuccessful())
    else:
        run_tests(operator=False)
