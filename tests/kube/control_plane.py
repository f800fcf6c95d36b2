# SPDX-License-Identifier: Apache-2.0
"""etcd and the API server, and as asked for: controller manager, scheduler, simulated nodes.

Everything listens on free ports of one address. The authority's certificates and the kubeconfig
files lie in the plane's folder, logs and pids in its folder `processes`.
"""
import dataclasses
import json
import os
import random
import socket

import kwok
from kube_api import Api
from pki import Authority
from processes import Processes
from waiting import wait_for

SERVICE_RANGE = "10.96.0.0/16"
POD_RANGE = "10.244.0.0/16"
# (file, subject): one certificate for each who talks to the API server.
CLIENTS = [
    ("admin", "/O=system:masters/CN=admin"),
    ("controller-manager", "/CN=system:kube-controller-manager"),
    ("scheduler", "/CN=system:kube-scheduler"),
    ("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client"),
]
UNTHROTTLED = ["--kube-api-qps=1000", "--kube-api-burst=2000"]


@dataclasses.dataclass
class Options:
    address: str = "127.0.0.1"        # where the API server listens and is reached
    controller_manager: bool = False
    scheduler: bool = False
    kwok_nodes: int = 0
    node_grace: int = 40              # seconds until a silent node is NotReady
    real_nodes: bool = False          # kubelets: Services, webhooks by endpoint, tokens
    api_server_flags: tuple = ()


def free_port(address, taken=()):
    """A free TCP port below the range that the kernel gives to outgoing connections."""
    while True:
        port = random.randrange(20000, 32000)
        if port in taken or 30000 <= port:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
                return port
            except OSError:
                continue


class ControlPlane:
    def __init__(self, folder, programs, options, bound=True):
        self.folder = folder
        self.options = options
        self.processes = Processes(os.path.join(folder, "processes"), bound)
        self._programs = programs
        self.ports = self._choose_ports()
        self.server = f"https://{options.address}:{self.ports['api']}"
        self.etcd = f"http://127.0.0.1:{self.ports['etcd']}"
        self.authority = Authority(os.path.join(folder, "pki"))
        self._issue()
        self.kubeconfig = self.kubeconfig_of("admin")
        self.api = Api(self.kubeconfig)

    def _choose_ports(self):
        path = os.path.join(self.folder, "ports.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        ports = {}
        for name in ("etcd", "peer", "api", "controller-manager", "scheduler"):
            address = self.options.address if name == "api" else "127.0.0.1"
            ports[name] = free_port(address, ports.values())
        with open(path, "w", encoding="utf-8") as file:
            json.dump(ports, file)
        return ports

    def _issue(self):
        self.authority.issue("api-server", "/CN=kube-apiserver",
                             addresses={self.options.address, "127.0.0.1", "10.96.0.1"},
                             names=["localhost", "kubernetes.default.svc"])
        for name, subject in CLIENTS:
            self.authority.issue(name, subject)
        self.authority.key_pair("service-account")

    def kubeconfig_of(self, name):
        path = os.path.join(self.folder, f"{name}.kubeconfig")
        return self.authority.kubeconfig(path, self.server, name)

    # Start and end.

    def start(self, deadline=60):
        self.start_etcd()
        self.start_api_server(deadline)
        if self.options.controller_manager:
            self.start_controller_manager()
        if self.options.scheduler:
            self.start_scheduler()
        if self.options.kwok_nodes:
            kwok.create_nodes(self.api, self.options.kwok_nodes)
            kwok.start(self.processes, self._programs["kwok"], self.folder, self.kubeconfig,
                       self.options.kwok_nodes)
        if self.options.controller_manager:
            # Without it the API server refuses every pod of the namespace.
            self._await(lambda: self.api.find("/api/v1/namespaces/default/serviceaccounts/default"),
                        deadline, "the service account default exists")

    def end(self):
        self.processes.end_all()

    def _await(self, holds, deadline, what):
        def checked():
            self.processes.check_running()
            return holds()
        return wait_for(checked, deadline, what)

    def start_etcd(self):
        peer = f"http://127.0.0.1:{self.ports['peer']}"
        self.processes.start("etcd", [
            self._programs["etcd"], "--name=starling", "--unsafe-no-fsync", "--log-level=warn",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={self.etcd}", f"--advertise-client-urls={self.etcd}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=starling={peer}"])

    def start_api_server(self, deadline=60):
        """Starts it, again after stop_api_server(), and waits until it is ready."""
        self.processes.start("kube-apiserver", [
            self._programs["kube-apiserver"], *self._api_server_flags(),
            *self.options.api_server_flags])
        self._await(self.api.ready, deadline, lambda: "the API server is ready")

    def stop_api_server(self):
        self.processes.end("kube-apiserver")

    def _api_server_flags(self):
        pki = self.authority
        flags = [
            f"--etcd-servers={self.etcd}", f"--bind-address={self.options.address}",
            f"--secure-port={self.ports['api']}", f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--client-ca-file={pki.certificate('ca')}",
            f"--tls-cert-file={pki.certificate('api-server')}",
            f"--tls-private-key-file={pki.key('api-server')}",
            f"--service-account-key-file={pki.key_pair('service-account')}",
            f"--service-account-signing-key-file={pki.key('service-account')}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--kubelet-client-certificate={pki.certificate('kubelet-client')}",
            f"--kubelet-client-key={pki.key('kubelet-client')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node,RBAC", "--allow-privileged", "--profiling=false"]
        if self.options.real_nodes:
            # The API server finds webhooks by their endpoints: no kube-proxy runs where it does.
            flags += [f"--advertise-address={self.options.address}",
                      "--enable-aggregator-routing=true"]
        else:
            flags += ["--endpoint-reconciler-type=none"]
        if not self.options.controller_manager:
            # Nobody makes the namespaces' service accounts; pods could not be created.
            flags += ["--disable-admission-plugins=ServiceAccount"]
        return flags

    def start_controller_manager(self):
        config = self.kubeconfig_of("controller-manager")
        pki = self.authority
        self.processes.start("kube-controller-manager", [
            self._programs["kube-controller-manager"], f"--kubeconfig={config}",
            "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--secure-port={self.ports['controller-manager']}",
            f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
            "--use-service-account-credentials", f"--root-ca-file={pki.certificate('ca')}",
            f"--service-account-private-key-file={pki.key('service-account')}",
            f"--cluster-signing-cert-file={pki.certificate('ca')}",
            f"--cluster-signing-key-file={pki.key('ca')}",
            f"--node-monitor-grace-period={self.options.node_grace}s",
            f"--node-monitor-period={5 if self.options.node_grace >= 40 else 1}s",
            "--controllers=*,-cloud-node-lifecycle-controller", *UNTHROTTLED])

    def start_scheduler(self):
        config = self.kubeconfig_of("scheduler")
        self.processes.start("kube-scheduler", [
            self._programs["kube-scheduler"], f"--kubeconfig={config}", "--leader-elect=false",
            "--bind-address=127.0.0.1", f"--secure-port={self.ports['scheduler']}",
            f"--authentication-kubeconfig={config}", f"--authorization-kubeconfig={config}",
            *UNTHROTTLED])
