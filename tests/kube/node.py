# SPDX-License-Identifier: Apache-2.0
"""One node of the test cluster: real containers in namespaces of their own, with a power switch.

power_off() kills everything of it at once, as a power cut does: no goodbye to the API server, no
SIGTERM to containers. power_on() starts it as a machine boots: images and the pods' logs are kept,
all else of the run before is gone. Its files lie in one folder; `lib` there is the node's /var/lib.
"""
import json
import os
import shutil
import signal
import subprocess

import cgroups
import network
from image import PAUSE
from processes import Processes, start_time, tail
from waiting import wait_for

SOCKET = "/run/containerd/containerd.sock"


class Node:
    def __init__(self, name, index, others, folder, plane, programs):
        self.name = name
        self.index = index
        self.folder = folder
        self._others = others
        self._plane = plane
        self._programs = programs
        self.processes = Processes(os.path.join(folder, "processes"), bound=False)

    # The power switch.

    def power_on(self):
        """Returns when containerd answers; the node is Ready a second or two later."""
        assert not self.is_on(), f"{self.name} is on"
        self._sweep()
        network.add_node(self.name, self.index, self._others)
        cgroups.create(self.cgroup)
        for path in ("lib/containerd", "lib/cni", "cni", "pod-logs"):
            os.makedirs(os.path.join(self.folder, path), exist_ok=True)
        self._configure()
        self.processes.start("node", [
            "nsenter", f"--net={network.namespace_path(self.name)}",
            "unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc",
            "python3", "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_init.py"),
            self._path("plan.json")])
        wait_for(self._containerd_answers, 30,
                 lambda: f"containerd of {self.name} answers:\n{tail(self._path('containerd.log'))}"
                         f"\n{tail(self.processes.log('node'))}")

    def power_off(self):
        """A power cut: returns when every process of the node is gone."""
        first = self.first_process()
        started = start_time(first) if first else None
        if first:
            os.kill(first, signal.SIGKILL)
        self.processes.end("node")
        if first:
            wait_for(lambda: start_time(first) != started or started is None, 10,
                     f"the first process of {self.name} ends", every=0.005)
        # Its cable too: what is on the way does not arrive.
        network.remove_node(self.name)

    def remove(self):
        if self.is_on():
            self.power_off()
        network.remove_node(self.name)
        cgroups.remove(self.cgroup)

    def is_on(self):
        return self.processes.running("node")

    # Looking inside.

    @property
    def cgroup(self):
        return f"starling-{self.name}"

    @property
    def address(self):
        return network.address(self.index)

    def first_process(self):
        """The node's process 1 as the machine numbers it, None while it has none."""
        if not self.is_on():
            return None
        outer = self.processes.get("node").pid
        try:
            with open(f"/proc/{outer}/task/{outer}/children", encoding="utf-8") as file:
                children = file.read().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def run(self, *command, check=True):
        """Runs a command of the machine inside the node's namespaces; its stdout."""
        first = self.first_process()
        assert first, f"{self.name} is off"
        done = subprocess.run(["nsenter", f"--target={first}", "--mount", "--net", "--pid", "--uts",
                               *command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} on {self.name} failed:\n{done.stderr}")
        return done.stdout

    def import_image(self, archive):
        self.run("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", archive)

    def _containerd_answers(self):
        if self.first_process() is None:
            return False
        try:
            return self.run("ctr", "--address", SOCKET, "version", check=True)
        except RuntimeError:
            return False

    # What a boot begins with.

    def _sweep(self):
        """What the run before left: a power cut cleans up nothing."""
        cgroups.remove(self.cgroup)
        for path in ("lib/kubelet", "lib/cni"):
            shutil.rmtree(self._path(path), ignore_errors=True)

    def _configure(self):
        authority, plane = self._plane.authority, self._plane
        authority.issue(self.name, f"/O=system:nodes/CN=system:node:{self.name}")
        authority.issue("proxy", "/CN=system:kube-proxy")
        kubelet = plane.kubeconfig_of(self.name)
        self._write("containerd.toml", self._containerd_config())
        self._write("cni/10-starling.conflist", json.dumps(self._cni_config()))
        self._write("kubelet.json", json.dumps(self._kubelet_config()))
        self._write("proxy.json", json.dumps(self._proxy_config(plane.kubeconfig_of("proxy"))))
        self._write("resolv.conf", f"nameserver {network.GATEWAY}\n")
        services = [
            ("containerd", ["/usr/bin/containerd", "--config", self._path("containerd.toml")], None),
            ("kubelet", [self._programs["kubelet"], f"--config={self._path('kubelet.json')}",
                         f"--kubeconfig={kubelet}", f"--hostname-override={self.name}",
                         f"--node-ip={self.address}", "--root-dir=/var/lib/kubelet"], SOCKET),
            ("kube-proxy", [self._programs["kube-proxy"],
                            f"--config={self._path('proxy.json')}"], None)]
        self._write("plan.json", json.dumps({
            "name": self.name, "lib": self._path("lib"),
            "services": [{"name": name, "command": command, "after": after,
                          "log": self._path(f"{name}.log")} for name, command, after in services]}))

    def _containerd_config(self):
        return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self._path('cni')}"
"""

    def _cni_config(self):
        return {"cniVersion": "0.4.0", "name": "starling", "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True,
            "ipam": {"type": "host-local", "dataDir": "/var/lib/cni/addresses",
                     "ranges": [[{"subnet": network.pods(self.index)}]],
                     "routes": [{"dst": "0.0.0.0/0"}]}}]}

    def _kubelet_config(self):
        grace = self._plane.options.node_grace
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.address, "readOnlyPort": 0, "failSwapOn": False,
            "authentication": {"x509": {"clientCAFile": self._plane.authority.certificate("ca")},
                               "anonymous": {"enabled": False}, "webhook": {"enabled": True}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [network.GATEWAY], "clusterDomain": "cluster.local",
            "resolvConf": self._path("resolv.conf"),
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.cgroup}",
            "enforceNodeAllocatable": [], "podLogsDir": self._path("pod-logs"),
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            # Images are the node's stock: on a full disk they would be collected, the pause too.
            "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "0%",
                             "imagefs.available": "0%"},
            "nodeLeaseDurationSeconds": grace,
            "nodeStatusUpdateFrequency": f"{max(1, min(10, grace // 4))}s",
            "syncFrequency": "10s"}

    def _proxy_config(self, kubeconfig):
        none = "0s"
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "iptables", "clusterCIDR": "10.244.0.0/16", "hostnameOverride": self.name,
            "clientConnection": {"kubeconfig": kubeconfig},
            "iptables": {"minSyncPeriod": "100ms"},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": none,
                          "tcpCloseWaitTimeout": none, "udpTimeout": none,
                          "udpStreamTimeout": none}}

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _write(self, name, content):
        with open(self._path(name), "w", encoding="utf-8") as file:
            file.write(content)
