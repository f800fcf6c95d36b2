#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the CRDs into the API server that KUBECONFIG names, then becomes the command.

usage: with_crds.py COMMAND [ARGUMENT]...
"""
import os
import pathlib
import subprocess
import sys
import time

CRDS = pathlib.Path(__file__).resolve().parents[3] / "crds"
subprocess.run(["kubectl", "apply", "--server-side", "-f", CRDS], check=True,
               stdout=subprocess.DEVNULL)
# `kubectl wait` for a condition fails where there is none yet: ask for what it is to make possible.
end = time.monotonic() + 30
while subprocess.run(["kubectl", "get", "trainingjobs"], check=False,
                     capture_output=True).returncode != 0:
    if time.monotonic() > end:
        sys.exit("with_crds.py: the API server serves no TrainingJobs within 30 s")
    time.sleep(0.1)
os.execvp(sys.argv[1], sys.argv[1:])
