#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs the CRDs into the API server that KUBECONFIG names, then becomes the command.

usage: with_crds.py COMMAND [ARGUMENT]...
"""
import os
import pathlib
import subprocess
import sys

CRDS = pathlib.Path(__file__).resolve().parents[3] / "crds"
subprocess.run(["kubectl", "apply", "--server-side", "-f", CRDS], check=True,
               stdout=subprocess.DEVNULL)
subprocess.run(["kubectl", "wait", "--for=condition=Established", "--timeout=30s", "-f", CRDS],
               check=True, stdout=subprocess.DEVNULL)
os.execvp(sys.argv[1], sys.argv[1:])
