# SPDX-License-Identifier: Apache-2.0
"""The test cluster's network: one bridge on the machine, a network namespace for each node.

The machine is 10.200.0.1 on the bridge and node i is 10.200.0.1i with the pods 10.244.i.0/24; every
one routes the others' pods. Services exist only inside the nodes, where kube-proxy runs: on the
machine their range is unreachable, so that nothing leaves through its uplink.
"""
import os
import subprocess

from control_plane import SERVICE_RANGE
from waiting import wait_for

BRIDGE = "starling0"
GATEWAY = "10.200.0.1"


def address(index):
    return f"10.200.0.{10 + index}"


def pods(index):
    return f"10.244.{index}.0/24"


def namespace(name):
    return f"starling-{name}"


def namespace_path(name):
    return f"/run/netns/{namespace(name)}"


def exists():
    return os.path.exists(f"/sys/class/net/{BRIDGE}")


def up():
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")
    _ip("route", "replace", "unreachable", SERVICE_RANGE)


def down():
    _ip("route", "del", "unreachable", SERVICE_RANGE, check=False)
    if exists():
        _ip("link", "del", BRIDGE)


def add_node(name, index, others):
    """A namespace with the node's address; `others` are the indexes of the other nodes."""
    remove_node(name)
    inside, link = namespace(name), _link(name)
    _ip("netns", "add", inside)
    # As a machine's card it keeps its address over a power cut: else the other nodes, which know
    # the old one, reach nothing there for some twenty seconds after it is Ready again.
    _ip("link", "add", link, "type", "veth", "peer", "name", "eth0",
        "address", f"02:00:00:00:00:{index:02x}", "netns", inside)
    _ip("link", "set", link, "master", BRIDGE, "up")
    _ip("-n", inside, "link", "set", "lo", "up")
    _ip("-n", inside, "address", "add", f"{address(index)}/24", "dev", "eth0")
    _ip("-n", inside, "link", "set", "eth0", "up")
    _ip("-n", inside, "route", "add", "default", "via", GATEWAY)
    for other in others:
        _ip("-n", inside, "route", "add", pods(other), "via", address(other))
    _ip("route", "replace", pods(index), "via", address(index), "dev", BRIDGE)
    _run(["nsenter", f"--net={namespace_path(name)}", "sh", "-c",
          "echo 1 >/proc/sys/net/ipv4/ip_forward"])


def remove_node(name):
    if os.path.exists(namespace_path(name)):
        _ip("netns", "del", namespace(name))
    # The kernel ends a namespace in the background; its cable must be gone before the next.
    _ip("link", "del", _link(name), check=False)
    wait_for(lambda: not os.path.exists(f"/sys/class/net/{_link(name)}"), 10,
             f"the link {_link(name)} is gone")


def _link(name):
    return f"stl-{name}"


def _ip(*arguments, check=True):
    return _run(["ip", *arguments], check)


def _run(command, check=True):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout
