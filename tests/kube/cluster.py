#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test cluster: a control plane, two nodes with real containers, Services and DNS.

usage: cluster.py up [--node-grace SECONDS] [--bin FOLDER] [--owner PID] | down | power-off NODE
                  | power-on NODE | load ARCHIVE | status

All of it lies in the folder .cluster of the tree (STARLING_CLUSTER names another) and runs on this
machine as processes, network namespaces and cgroups, which `down` removes whatever state they are
in. There is one cluster a machine: /run/starling-cluster says in which folder it lies and which
process owns it, if any does. Once its owner has ended, `up` in any tree takes it away first, so that
tests which were cut short leave no machine without a cluster. For tests, kube_case.py has more.
"""
import argparse
import calendar
import concurrent.futures
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import cgroups
import dns
import leftovers
import network
from control_plane import ControlPlane, Options
from image import IMAGE, Builder
from node import Node
from processes import Found, Processes, start_time
from programs import REPOSITORY, Programs, Skip, need_command, run_main
from waiting import wait_for

FOLDER = os.environ.get("STARLING_CLUSTER", os.path.join(REPOSITORY, ".cluster"))
NODES = {"node1": 1, "node2": 2}
# Where a node needs a minute and more to be missed, tests of node loss would mostly wait.
NODE_GRACE = 40
SHARED_VOLUMES = 10
SYSTEM = "starling-system"
CHART = os.path.join(REPOSITORY, "charts/starling")
# Which cluster runs on this machine: {"folder": ..., "owner": {"pid", "started"} or null}.
MACHINE = "/run/starling-cluster"
PYTORCH_IMAGE = "docker.io/library/pytorch-ddp:dev"


class Cluster:
    """One cluster, up or down. Thread-compatible."""

    def __init__(self, folder=FOLDER):
        self.folder = folder
        self.programs = None
        self.plane = None
        self.nodes = {}
        self.processes = None
        self._switched_on = {}  # by name, seconds since 1970
        if self.is_up():
            with open(self._path("options.json"), encoding="utf-8") as file:
                self._assemble(json.load(file)["node_grace"])

    def is_up(self):
        """Whether `up` has finished here, and nobody has taken it down."""
        return os.path.exists(self.kubeconfig)

    @property
    def kubeconfig(self):
        return self._path("kubeconfig")

    @property
    def shared(self):
        """The folder that both nodes see, in pods the volumes of the storage class `shared`."""
        return self._path("shared")

    # Up and down.

    def up(self, bin_folder, node_grace=NODE_GRACE, tell=lambda what: None, owner=None):
        """`tell` hears how far it is; `owner` is the process that the cluster must not outlive."""
        check_machine()
        if network.exists():
            _take_away_abandoned()
        self.programs = Programs("etcd", "kubernetes", "coredns")
        os.makedirs(self.folder, exist_ok=True)
        record_machine(self.folder, owner)
        self._write("options.json", json.dumps({"node_grace": node_grace}))
        self._write("sysctls.json", json.dumps(
            {name: leftovers.read_sysctl(name) for name in leftovers.SYSCTLS}))
        os.makedirs(self.shared, exist_ok=True)
        network.up()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            images = pool.submit(self._build_images, bin_folder)
            self._assemble(node_grace)
            plane = pool.submit(self.plane.start)
            # The nodes need no API server to take images in.
            powered = [pool.submit(node.power_on) for node in self.nodes.values()]
            for done in [plane, *powered]:
                done.result()
            tell("the control plane and two nodes run; the image is being built")
            archives = images.result()
            tell("both nodes take the image in")
            loads = [pool.submit(self._load_into, node, archives) for node in self.nodes.values()]
            dns.start(self.processes, self.programs["coredns"], self.folder, self.plane.kubeconfig)
            self._create_volumes()
            for done in loads:
                done.result()
        for name in self.nodes:
            self.await_ready(name)
        shutil.copy(self.plane.kubeconfig, self.kubeconfig)

    def down(self):
        """Removes whatever there is, after a failed `up` and a second `down` too."""
        if os.geteuid() != 0:
            raise Skip("the cluster's namespaces need root")
        if os.path.isdir(self.folder):
            self._remove()

    def _remove(self):
        if os.path.exists(self.kubeconfig):
            os.unlink(self.kubeconfig)
        for name, index in NODES.items():
            Node(name, index, [], self._path(name), None, None).remove()
        for folder in ("processes", "plane/processes"):
            Processes(self._path(folder), bound=False).end_all()
        network.down()
        if os.path.exists(MACHINE):
            os.unlink(MACHINE)
        if os.path.exists(self._path("sysctls.json")):
            with open(self._path("sysctls.json"), encoding="utf-8") as file:
                for name, value in json.load(file).items():
                    leftovers.write_sysctl(name, value)
        _remove_tree(self.folder)

    # Nodes.

    def await_ready(self, name, status="True", deadline=60):
        """Waits for the node's condition Ready: True, or after a power cut Unknown. What a node said
        before it was switched on here does not count."""
        def found():
            node = self.plane.api.find(f"/api/v1/nodes/{name}") or {}
            for condition in node.get("status", {}).get("conditions", []):
                if condition["type"] == "Ready":
                    said = calendar.timegm(time.strptime(condition["lastHeartbeatTime"],
                                                         "%Y-%m-%dT%H:%M:%SZ"))
                    return condition["status"] == status and (
                        status != "True" or said >= self._switched_on.get(name, 0))
            return False
        wait_for(found, deadline, f"{name} has the condition Ready={status}")

    def power_off(self, name):
        self.nodes[name].power_off()

    def power_on(self, name):
        self._switched_on[name] = int(time.time())
        self.nodes[name].power_on()

    # Images.

    def image_bytes(self):
        """Of the project's image, all layers unpacked."""
        return os.path.getsize(self._path("starling.tar"))

    def load(self, archive):
        """Gives an image in Docker's archive format to both nodes."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda node: node.import_image(archive),
                          [node for node in self.nodes.values() if node.is_on()]))

    def load_pytorch(self):
        """Gives both nodes the image of examples/pytorch-ddp: Debian's PyTorch and a program; nothing of
        Starling. Its name."""
        archive = self._path("pytorch.tar")
        builder = Builder()
        with builder.locked():
            builder.build_other(os.path.join(REPOSITORY, "examples/pytorch-ddp/Dockerfile"), REPOSITORY,
                                PYTORCH_IMAGE, archive)
        self.load(archive)
        os.unlink(archive)
        return PYTORCH_IMAGE

    def _build_images(self, bin_folder):
        builder = Builder()
        archives = [self._path("starling-pause.tar"), self._path("starling.tar")]
        builder.pause(archives[0])
        builder.build(IMAGE, bin_folder, archives[1])
        return archives

    @staticmethod
    def _load_into(node, archives):
        for archive in archives:
            node.import_image(archive)

    # The operator.

    def install_operator(self, *flags, image=IMAGE):
        """By helm, in place of what is installed; whether that went well, None where there is no
        chart. Its namespace is one that Pod Security restricts."""
        if not os.path.exists(os.path.join(CHART, "Chart.yaml")):
            return None
        namespace = {"name": SYSTEM, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
        if self.plane.api.find(f"/api/v1/namespaces/{SYSTEM}") is None:
            self.plane.api.create("/api/v1/namespaces", {"metadata": namespace})
        repository, _, tag = image.rpartition(":")
        return self._helm("upgrade", "--install", "starling", CHART, "--hide-notes",
                          "--set", f"image.repository={repository}", "--set", f"image.tag={tag}",
                          *flags)

    def uninstall_operator(self):
        """Whether that went well; jobs stay."""
        return self._helm("uninstall", "starling")

    def _helm(self, *arguments):
        done = subprocess.run([Programs("helm")["helm"], *arguments, "--namespace", SYSTEM, "--wait",
                               "--timeout", "60s"], check=False,
                              env=dict(os.environ, KUBECONFIG=self.kubeconfig))
        return done.returncode == 0

    # Parts.

    def _assemble(self, node_grace):
        if self.programs is None:
            self.programs = Programs("etcd", "kubernetes", "coredns")
        plane_folder = self._path("plane")
        os.makedirs(plane_folder, exist_ok=True)
        options = Options(address=network.GATEWAY, controller_manager=True, scheduler=True,
                          node_grace=node_grace, real_nodes=True)
        self.plane = ControlPlane(plane_folder, self.programs, options, bound=False)
        self.processes = Processes(self._path("processes"), bound=False)
        for name, index in NODES.items():
            others = [other for other in NODES.values() if other != index]
            self.nodes[name] = Node(name, index, others, self._path(name), self.plane,
                                    self.programs)

    def _create_volumes(self):
        """PersistentVolumes in the shared folder, for whoever claims the storage class `shared`."""
        self.plane.api.create("/apis/storage.k8s.io/v1/storageclasses", {
            "metadata": {"name": "shared"}, "provisioner": "kubernetes.io/no-provisioner"})
        for index in range(SHARED_VOLUMES):
            path = os.path.join(self.shared, f"volume-{index}")
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o777)
            self.plane.api.create("/api/v1/persistentvolumes", {
                "metadata": {"name": f"shared-{index}"},
                "spec": {"storageClassName": "shared", "capacity": {"storage": "10Gi"},
                         "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                         "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": path}}})

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _write(self, name, content):
        with open(self._path(name), "w", encoding="utf-8") as file:
            file.write(content)


def _remove_tree(folder):
    """The nodes' images are some ten thousand files, each of which waits for the disk: several at a
    time."""
    snapshots = glob.glob(os.path.join(folder, "*/lib/containerd/*/snapshots/*/fs/*"))
    folders = [path for path in snapshots if os.path.isdir(path) and not os.path.islink(path)]
    deeper = [path for top in folders for path in glob.glob(os.path.join(glob.escape(top), "*/"))]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda path: shutil.rmtree(path.rstrip("/"), ignore_errors=True), deeper))
    shutil.rmtree(folder)


def record_machine(folder, owner):
    """Says on this machine that its cluster lies in that folder, and which process owns it, if any."""
    with open(MACHINE, "w", encoding="utf-8") as file:
        json.dump({"folder": os.path.abspath(folder),
                   "owner": owner and Found(owner, start_time(owner)).record()}, file)


def _take_away_abandoned():
    """The cluster of this machine, if its owner has ended; else this raises and names its folder.

    One whose folder is not recorded is abandoned when no process is left in it.
    """
    folder = ""
    abandoned = not any(cgroups.processes(f"starling-{name}") for name in NODES)
    if os.path.exists(MACHINE):
        with open(MACHINE, encoding="utf-8") as file:
            recorded = json.load(file)
        folder, owner = recorded["folder"], recorded["owner"]
        abandoned = owner is not None and not Found(**owner).running()
    if not abandoned:
        raise RuntimeError("a cluster runs on this machine already" + (f", in {folder}" if folder else "") +
                           "; take it down first with `make cluster-down` in its tree")
    Cluster(folder if os.path.isdir(folder) else tempfile.mkdtemp())._remove()


def check_machine():
    """Skip with the reason where no cluster can run."""
    if os.geteuid() != 0:
        raise Skip("the cluster's namespaces need root")
    for command, package in (("ip", "iproute2"), ("iptables", "iptables"), ("runc", "runc"),
                             ("containerd", "containerd"), ("nsenter", "util-linux"),
                             ("buildah", "buildah"), ("debootstrap", "debootstrap")):
        need_command(command, package)
    if not os.path.exists("/usr/lib/cni/bridge"):
        raise Skip("/usr/lib/cni/bridge is missing; install the package "
                   "containernetworking-plugins (cmake/packages-kube.txt)")
    tried = subprocess.run(["unshare", "--mount", "--net", "--pid", "--uts", "--fork",
                            "sh", "-c", "ip link add probe0 type bridge && "
                            "ip link add probe1 type veth peer name probe2"],
                           capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        raise Skip(f"this machine allows no namespaces, bridges or cables: {tried.stderr.strip()}")
    if not cgroups.hierarchies() or not os.access(cgroups.hierarchies()[0], os.W_OK):
        raise Skip("cgroups cannot be written here")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    up.add_argument("--node-grace", type=int, default=NODE_GRACE, metavar="SECONDS")
    up.add_argument("--bin", default=os.path.join(REPOSITORY, "build/release/bin"))
    up.add_argument("--owner", type=int, metavar="PID")
    up.add_argument("--no-operator", action="store_true")
    commands.add_parser("down")
    commands.add_parser("status")
    for name in ("power-off", "power-on"):
        commands.add_parser(name).add_argument("node", choices=NODES)
    commands.add_parser("load").add_argument("archive")
    options = parser.parse_args()
    cluster = Cluster()
    if options.command == "up":
        return _up(cluster, options)
    if options.command == "down":
        was_there = os.path.isdir(cluster.folder)
        began = time.monotonic()
        cluster.down()
        print(f"the cluster is gone after {time.monotonic() - began:.0f} s, and nothing of it is left"
              if was_there else "no cluster is up")
        return 0
    if not cluster.is_up():
        print("no cluster is up; make one with `make cluster`", file=sys.stderr)
        return 1
    if options.command == "load":
        cluster.load(options.archive)
    elif options.command == "status":
        for name, node in cluster.nodes.items():
            print(f"{name}: {'on' if node.is_on() else 'off'}")
    else:
        _switch(cluster, options)
    return 0


def _up(cluster, options):
    if cluster.is_up():
        print(f"a cluster is up: export KUBECONFIG={cluster.kubeconfig}")
        return 0
    began = time.monotonic()

    def tell(what):
        print(f"[{time.monotonic() - began:3.0f} s] {what}", flush=True)
    try:
        cluster.up(options.bin, options.node_grace, tell, options.owner)
    except Skip:
        raise
    except BaseException:
        print(f"the cluster did not come up; logs are in {cluster.folder}, and "
              "`make cluster-down` removes what there is", file=sys.stderr)
        raise
    if not options.no_operator:
        tell("the operator is being installed")
    operator = None if options.no_operator else cluster.install_operator()
    if operator is False:
        print("the operator was not installed: the cluster is up without it", file=sys.stderr)
    print(f"a cluster of two nodes is up after {time.monotonic() - began:.0f} s, "
          f"{'with' if operator else 'without'} the operator. To use it:\n"
          f"  export KUBECONFIG={cluster.kubeconfig}\n"
          f"  export PATH={os.path.dirname(cluster.programs['kubectl'])}:"
          f"{os.path.dirname(Programs('helm')['helm'])}:$PATH    # kubectl, helm\n"
          "  kubectl get nodes\n"
          "  make cluster-power-off NODE=node1    # a power cut\n"
          "  make cluster-power-on NODE=node1\n"
          "  make cluster-down")
    return 1 if operator is False else 0


def _switch(cluster, options):
    node = cluster.nodes[options.node]
    on = options.command == "power-on"
    if node.is_on() == on:
        print(f"{options.node} is {'on' if on else 'off'} already")
        return
    began = time.monotonic()
    if on:
        cluster.power_on(options.node)
        cluster.await_ready(options.node)
        print(f"{options.node} is on, and Ready after {time.monotonic() - began:.1f} s")
    else:
        cluster.power_off(options.node)
        print(f"{options.node} is off, with all that ran there; Kubernetes calls it NotReady after "
              f"{cluster.plane.options.node_grace} s\n"
              f"  make cluster-power-on NODE={options.node}")


if __name__ == "__main__":
    run_main(main)
