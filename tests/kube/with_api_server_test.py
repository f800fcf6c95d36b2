# SPDX-License-Identifier: Apache-2.0
"""with_api_server.py: the command sees a real API server, and nothing outlives it."""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

from processes import start_time
from programs import FOLDER, SKIPPED, Programs, Skip
from waiting import wait_for

SCRIPT = os.path.join(FOLDER, "with_api_server.py")


def run(*arguments, **environment):
    return subprocess.run([sys.executable, "-B", SCRIPT, *arguments], text=True,
                          capture_output=True, env=dict(os.environ, **environment), check=False,
                          timeout=1500)


def processes_with(text):
    """Pids of the running processes that have it in their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if text.encode() in file.read() and start_time(int(pid)) is not None:
                    found.append(int(pid))
        except OSError:
            continue
    return found


class WithApiServer(unittest.TestCase):
    def test_its_exit_code_is_the_commands(self):
        done = run("--", "sh", "-c", "kubectl get namespaces -o name; exit 7")
        self.assertEqual(7, done.returncode, done.stderr)
        self.assertIn("namespace/default", done.stdout)

    def test_pods_are_scheduled_run_and_complete_on_simulated_nodes(self):
        done = run("--controller-manager", "--scheduler", "--kwok", "2", "--", "sh", "-ec",
                   "kubectl run runs --image=x; "
                   "kubectl run ends --image=x --annotations=starling.dev/complete=true; "
                   "kubectl wait --for=condition=Ready pod/runs --timeout=30s; "
                   "kubectl wait --for=jsonpath={.status.phase}=Succeeded pod/ends --timeout=30s; "
                   "kubectl delete pod runs --timeout=30s; kubectl get pods -o name")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual("pod/ends", done.stdout.splitlines()[-1])

    def test_a_signal_ends_everything(self):
        for number in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(number=number), tempfile.TemporaryDirectory() as folder:
                told = os.path.join(folder, "told")
                process = subprocess.Popen(
                    [sys.executable, "-B", SCRIPT, "--", "sh", "-c",
                     f"echo $STARLING_TEST_KUBE >{told}.new; mv {told}.new {told}; exec sleep 1000"],
                    stderr=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=folder))
                wait_for(lambda: os.path.exists(told), 60, "the command runs")
                self.assertTrue(processes_with(folder), "etcd and the API server run")
                process.send_signal(number)
                code = process.wait(30)
                self.assertEqual(128 + number if number == signal.SIGTERM else -number, code)
                wait_for(lambda: not processes_with(folder), 10,
                         lambda: f"everything ends: {processes_with(folder)}")

    def test_without_go_it_is_skipped_by_name(self):
        with tempfile.TemporaryDirectory() as empty:
            done = run("--", "true", PATH="/usr/bin:/bin", XDG_CACHE_HOME=empty)
        self.assertEqual(SKIPPED, done.returncode)
        self.assertIn("Go is missing", done.stderr)


if __name__ == "__main__":
    try:
        Programs("etcd", "kubernetes", "kwok")
    except Skip as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
