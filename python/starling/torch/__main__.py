# SPDX-License-Identifier: Apache-2.0
"""Runs an unchanged program for DistributedDataParallel as an elastic job of this machine:

    python3 -m starling.torch [--workers N] [--set PATH=VALUE]... --wrap train.py ARGUMENT...

The workers run this file too, as the job's script, with --wrap and what stands behind it; so may a job
file of your own (workload.pytorch). What the program may use: starling/torch/_wrap.py.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile

import starling.embed
from starling.torch import _wrap


def _starling() -> str:
    """The program: in PATH, or beside the package."""
    beside = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../starling"))
    found = shutil.which("starling") or (beside if os.access(beside, os.X_OK) else None)
    if found is None:
        sys.exit("starling: there is no program called starling in PATH; install it, or run this file as the "
                 "script of a job (workload.pytorch)")
    return found


def _job(options: argparse.Namespace) -> dict[str, object]:
    name = os.path.splitext(os.path.basename(options.wrap[0]))[0].lower().replace("_", "-")
    script = [os.path.abspath(options.wrap[0]), *options.wrap[1:]]
    return {"apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"workload": {"pytorch": {"script": os.path.abspath(__file__),
                                              "args": ["--wrap", *script], "python": sys.executable}},
                     "replicaSpecs": {"worker": {"replicas": options.workers}}}}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m starling.torch", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE",
                        help="a field of the job, such as spec.seed=7")
    parser.add_argument("--wrap", nargs=argparse.REMAINDER, required=True,
                        help="the program and its arguments")
    options = parser.parse_args()
    if not options.wrap:
        parser.error("--wrap: which program?")
    if not os.path.exists(options.wrap[0]):
        parser.error(f"--wrap: there is no program {options.wrap[0]}")
    if starling.embed._opened:
        _wrap.run(options.wrap)
        return
    starling_program = _starling()
    handle, path = tempfile.mkstemp(prefix="starling-", suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(_job(options), file)
    overrides = [word for value in options.set for word in ("--set", value)]
    os.execv(starling_program, [starling_program, "run", path, *overrides])


if __name__ == "__main__":
    main()
