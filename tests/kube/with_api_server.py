#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command beside a Kubernetes API server of its own, and ends everything with it.

usage: with_api_server.py [--controller-manager] [--scheduler] [--kwok NODES]
                          [--api-server-flag=FLAG]... -- COMMAND [ARGUMENT]...

The command finds in its environment:
  KUBECONFIG            a cluster administrator's
  PATH                  kubectl of the server's release first
  STARLING_TEST_ETCD    etcd's URL: to compact it is to make watches begin anew (410)
  STARLING_TEST_KUBE    the folder with logs (processes/) and certificates (pki/)

Without --controller-manager nothing is collected and namespaces are never finalized, but pods can be
created in any. The exit code is the command's; 77 with a reason where this machine lacks something.
Set STARLING_TEST_KEEP to keep the folder, which is kept too when the server fails.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

from control_plane import ControlPlane, Options
from processes import die_with_parent, tail
from programs import Programs, run_main


def parse(arguments):
    own, command = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        own, command = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--controller-manager", action="store_true")
    parser.add_argument("--scheduler", action="store_true")
    parser.add_argument("--kwok", type=int, default=0, metavar="NODES")
    parser.add_argument("--node-grace", type=int, default=40, metavar="SECONDS")
    parser.add_argument("--api-server-flag", action="append", default=[], metavar="FLAG")
    options = parser.parse_args(own)
    if not command:
        parser.error("a command after -- is missing")
    return options, command


class Ended(BaseException):
    """A signal asked this program to end."""


def on_signal(number, _frame):
    raise Ended(number)


def run(command, plane, programs):
    environment = dict(os.environ, KUBECONFIG=plane.kubeconfig, PATH=programs.path(),
                       STARLING_TEST_ETCD=plane.etcd, STARLING_TEST_KUBE=plane.folder)
    process = subprocess.Popen(command, env=environment, start_new_session=True,
                               preexec_fn=die_with_parent)
    try:
        code = process.wait()
        return code if code >= 0 else 128 - code
    finally:
        # The command may have started others; its process group is its own.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def main():
    options, command = parse(sys.argv[1:])
    programs = Programs("etcd", "kubernetes", *(["kwok"] if options.kwok else []))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    folder = tempfile.mkdtemp(prefix="starling-kube-")
    keep = bool(os.environ.get("STARLING_TEST_KEEP"))
    plane = None
    try:
        plane = ControlPlane(folder, programs, Options(
            controller_manager=options.controller_manager, scheduler=options.scheduler,
            kwok_nodes=options.kwok, node_grace=options.node_grace,
            api_server_flags=tuple(options.api_server_flag)))
        try:
            plane.start()
        except (AssertionError, RuntimeError) as error:
            keep = True
            print(f"the API server did not start: {error}\n"
                  f"{tail(plane.processes.log('kube-apiserver'))}\nlogs are in {folder}/processes",
                  file=sys.stderr)
            return 1
        return run(command, plane, programs)
    except Ended as ended:
        return 128 + ended.args[0]
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if plane is not None:
            plane.end()
        if keep:
            print(f"kept {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run_main(main)
