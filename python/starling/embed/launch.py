# SPDX-License-Identifier: Apache-2.0
"""Starts a script as a member: python3 -m starling.embed.launch FLAGS -- script.py ARGUMENTS

FLAGS are those of the job's roles (starling-worker has the same). The job's coordinator is answered
from the start, while the script still imports what it needs; it is a member from starling.join on.
STARLING_MODEL names the file in which the job's model will lie. Exit codes are the roles': 0 let go or finished, 1 failed, 2 what the process was given is wrong.
"""
from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Sequence

import starling.embed
from starling.embed import _library


def main(arguments: Sequence[str]) -> None:
    """Runs the script in this process, as Python would."""
    if "--" not in arguments:
        _fail(_library.BAD_INPUT, "write: starling.embed.launch FLAGS -- script.py ARGUMENTS")
    separator = list(arguments).index("--")
    flags, command = arguments[:separator], arguments[separator + 1:]
    if not command:
        _fail(_library.BAD_INPUT, "no script is given behind --")
    if not os.path.exists(command[0]):
        _fail(_library.BAD_INPUT, f"there is no script {command[0]}")
    try:
        library = _library.Library()
        library.open(flags)
        starling.embed._opened.append(library)
        starling.embed._command = list(command)
        if "--job-dir" in flags:
            os.environ["STARLING_MODEL"] = os.path.join(flags[flags.index("--job-dir") + 1],
                                                        "model.safetensors")
        sys.argv = list(command)
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        runpy.run_path(command[0], run_name="__main__")
    except _library.LoopError as error:
        _fail(error.code, str(error))
    except ModuleNotFoundError as error:
        traceback.print_exc()
        _fail(_library.BAD_INPUT, f"{sys.executable} has no module {error.name}: name a Python that has it "
              "in spec.workload.pytorch.python")


def _fail(code: int, message: str) -> None:
    print(f"starling: {message}", file=sys.stderr, flush=True)
    raise SystemExit(2 if code == _library.BAD_INPUT else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
