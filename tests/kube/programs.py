# SPDX-License-Identifier: Apache-2.0
"""The test cluster's programs: built once from the Go modules in tools/, found in their cache.

Skip is how anything here says that this machine cannot run it; main programs turn it into exit
code 77, which ctest counts as skipped, with the reason.
"""
import os
import subprocess
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(FOLDER))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                     "starling/kube")
SKIPPED = 77


class Skip(Exception):
    """This machine lacks something; the text names it and how to get it."""


class Programs:
    """Paths of programs by name: Programs("etcd", "kubernetes")["kube-apiserver"]."""

    def __init__(self, *tools):
        built = subprocess.run([os.path.join(FOLDER, "tools/build.sh"), *tools],
                               stdout=subprocess.PIPE, text=True, check=False)
        if built.returncode == SKIPPED:
            raise Skip("Go is missing, and the test cluster's programs are not built yet; "
                       "install Go 1.24 or newer")
        if built.returncode != 0:
            raise RuntimeError(f"tests/kube/tools/build.sh {' '.join(tools)} failed")
        self.folders = built.stdout.split()

    def __getitem__(self, name):
        for folder in self.folders:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
        raise KeyError(f"none of {self.folders} has the program {name}")

    def path(self):
        """The programs' folders before PATH's."""
        return os.pathsep.join([*self.folders, os.environ.get("PATH", "/usr/bin:/bin")])


def need_command(name, package):
    """The path of a system program, or Skip."""
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/sbin"]:
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK):
            return path
    raise Skip(f"{name} is missing; install the package {package} (cmake/packages-kube.txt)")


def run_main(main):
    """Runs a program's main function; Skip becomes exit code 77."""
    try:
        sys.exit(main())
    except Skip as reason:
        print(f"skipped: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)
