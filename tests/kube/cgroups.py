# SPDX-License-Identifier: Apache-2.0
"""A node's folders in every cgroup hierarchy: made before its kubelet starts, removed after it.

Where the machine has one unified hierarchy there is one folder, with version 1 one in each.
"""
import os

from waiting import wait_for

ROOT = "/sys/fs/cgroup"


def hierarchies():
    if os.path.exists(f"{ROOT}/cgroup.controllers"):
        return [ROOT]
    return [os.path.join(ROOT, name) for name in sorted(os.listdir(ROOT))
            if os.path.exists(f"{ROOT}/{name}/cgroup.procs") and not os.path.islink(f"{ROOT}/{name}")]


def folders(name):
    return [os.path.join(hierarchy, name) for hierarchy in hierarchies()]


def processes(name):
    """Those in it or below it, as the machine numbers them."""
    found = set()
    for top in folders(name):
        for path, _, files in os.walk(top):
            if "cgroup.procs" in files:
                with open(os.path.join(path, "cgroup.procs"), encoding="utf-8") as file:
                    found |= set(map(int, file.read().split()))
    return found


def create(name):
    for folder in folders(name):
        os.makedirs(folder, exist_ok=True)
        if "/cpuset" in folder:
            # Version 1: a new cpuset has no processor and no memory until it is given some.
            for file in ("cpuset.cpus", "cpuset.mems"):
                _copy(os.path.join(os.path.dirname(folder), file), os.path.join(folder, file))


def remove(name):
    """Waits for their last processes to end, then removes them depth first."""
    wait_for(lambda: not any([_remove_tree(folder) for folder in folders(name)]), 15,
             f"cgroups {name} are empty and gone")


def _remove_tree(folder):
    """Whether something of it is left."""
    for path, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(path)
        except OSError:
            pass
    return os.path.exists(folder)


def _copy(source, target):
    with open(source, encoding="utf-8") as file:
        value = file.read().strip()
    if value:
        with open(target, "w", encoding="utf-8") as file:
            file.write(value)
