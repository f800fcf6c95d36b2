# SPDX-License-Identifier: Apache-2.0
"""What a cluster could leave on the machine, as text lines: equal before and after, or it did."""
import os
import subprocess

import cgroups
from programs import CACHE

PROGRAMS = {"containerd", "containerd-shim-runc-v2", "runc", "unshare", "pause", "coredns", "etcd"}
OTHERS = {"kubectl", "helm", "versitygw"}
# The kubelet sets these for the whole machine.
SYSCTLS = ["vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
           "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"]


def snapshot():
    """A set of lines, one for each thing."""
    found = set()
    for kind, lines in (("process", _processes()), ("cgroup", _cgroups()), ("mount", _mounts()),
                        ("link", _command("ip", "-o", "link", "show")),
                        ("route", _command("ip", "route", "show", "table", "all")),
                        ("namespace", _command("ip", "netns", "list")),
                        ("firewall", _command("iptables-save")),
                        ("sysctl", [f"{name}={read_sysctl(name)}" for name in SYSCTLS]),
                        ("run", [name for name in os.listdir("/run") if "starling" in name])):
        found |= {f"{kind}: {line}" for line in lines}
    return found


def read_sysctl(name):
    try:
        with open(f"/proc/sys/{name}", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_sysctl(name, value):
    if value and read_sysctl(name) != value:
        with open(f"/proc/sys/{name}", "w", encoding="utf-8") as file:
            file.write(value)


def _processes():
    """But for clients, and what other tests run meanwhile: an object store, and API servers that
    stand alone (with_api_server.py). They come and go."""
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            program = os.readlink(f"/proc/{pid}/exe")
            with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                arguments = file.read()
        except OSError:
            continue
        name = os.path.basename(program)
        if "/starling-kube-" in arguments or name in OTHERS:
            continue
        if program.startswith(CACHE) or name in PROGRAMS:
            lines.append(f"{pid} {program}")
    return lines


def _cgroups():
    return [os.path.join(hierarchy, name) for hierarchy in cgroups.hierarchies()
            for name in os.listdir(hierarchy) if name.startswith("starling-")]


def _mounts():
    """But for the folder of named network namespaces, on which `ip netns` mounts itself once a boot
    for whoever comes later; each namespace in it is a mount of its own."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        mounts = [line.split()[:3] for line in file]
    return [" ".join(mount) for mount in mounts if mount[1] != "/run/netns"]


def _command(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Counters and index numbers of interfaces differ from one look to the next.
    return [_stable(line) for line in done.stdout.splitlines() if not line.startswith(("#", ":"))]


def _stable(line):
    number, colon, rest = line.partition(": ")
    return rest if colon and number.isdigit() else line
