# SPDX-License-Identifier: Apache-2.0
"""The first process of a node: starts containerd, kubelet and kube-proxy, and collects orphans.

It runs in process, mount and host name namespaces of its own: when it is killed the kernel ends all
of the node at once, which is a power cut. /run, /var/log and /var/lib are the node's own. Started
by node.py with one argument, the JSON file of what to do.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import time


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def start(service):
    with open(service["log"], "ab") as log:
        return subprocess.Popen(service["command"], stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, start_new_session=True)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    socket.sethostname(plan["name"])
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/var/log")
    mount("--bind", plan["lib"], "/var/lib")
    for folder in ("/run/lock", "/var/log/containers"):
        os.makedirs(folder, exist_ok=True)

    running = {}
    while True:
        for service in plan["services"]:
            awaited = service.get("after")
            if service["name"] not in running.values() and (
                    awaited is None or os.path.exists(awaited)):
                running[start(service).pid] = service["name"]
        # A service that ends is started again a moment later, as a real node's manager does.
        if len(running) == len(plan["services"]):
            running.pop(os.wait()[0], None)
        else:
            collect(running)
            time.sleep(0.05)


def collect(running):
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        running.pop(pid, None)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    main()
