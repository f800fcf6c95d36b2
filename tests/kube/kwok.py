# SPDX-License-Identifier: Apache-2.0
"""Simulated nodes: kwok says that their pods run, and that they succeeded where they ask for it.

A pod with the annotation `starling.dev/complete: "true"` succeeds as soon as it runs; every other
one runs until it is deleted. Each node has a kwok of its own, as each real one has a kubelet: one
for all takes up changes one by one, falls behind where many jobs come at once, is cut off by the
API server, and then tells it once more what it told already. Real nodes may stand beside them.
"""
import os

CONFIGURATION = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 4
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-initialize}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      {{ $lastTransitionTime := or .metadata.creationTimestamp $now }}
      conditions:
      {{ range NodeConditions }}
      - {type: {{ .type | Quote }}, status: {{ .status | Quote }}, reason: {{ .reason | Quote }}, message: {{ .message | Quote }}, lastHeartbeatTime: {{ $now | Quote }}, lastTransitionTime: {{ $lastTransitionTime | Quote }}}
      {{ end }}
      addresses:
      - {type: InternalIP, address: {{ NodeIP | Quote }}}
      daemonEndpoints: {kubeletEndpoint: {Port: {{ NodePort }}}}
      nodeInfo: {architecture: amd64, operatingSystem: linux, osImage: "", kernelVersion: "", kubeletVersion: fake, kubeProxyVersion: fake, containerRuntimeVersion: "", bootID: "", machineID: "", systemUUID: ""}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.podIP', operator: DoesNotExist}
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
      - {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
      - {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: true, started: true, restartCount: 0, state: {running: {startedAt: {{ $now | Quote }}}}}
      {{ end }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
      phase: Running
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-complete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchAnnotations: {starling.dev/complete: "true"}
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: DoesNotExist}
    - {key: '.status.phase', operator: In, values: ["Running"]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      containerStatuses:
      {{ range .spec.containers }}
      - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, imageID: "", ready: false, started: false, restartCount: 0, state: {terminated: {exitCode: 0, reason: Completed, startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}}}
      {{ end }}
      phase: Succeeded
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: '.metadata.deletionTimestamp', operator: Exists}
  next:
    finalizers: {empty: true}
    delete: true
"""


def process(index):
    return f"kwok-{index}"


def start(processes, program, folder, kubeconfig, count):
    """One process for each of the nodes kwok-0 ..., as process() names it."""
    path = os.path.join(folder, "kwok.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(CONFIGURATION)
    for index in range(count):
        processes.start(process(index), [
            program, f"--config={path}", f"--kubeconfig={kubeconfig}",
            f"--manage-single-node=kwok-{index}", "--node-ip=127.0.0.1",
            "--node-lease-duration-seconds=40"])


def create_nodes(api, count, taint=None):
    """Nodes kwok-0 ... of 32 cores each; their label is type=kwok."""
    room = {"cpu": "32", "memory": "256Gi", "pods": "10000"}
    for index in range(count):
        name = f"kwok-{index}"
        api.create("/api/v1/nodes", {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {
                "type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64"}},
            "spec": {"taints": [taint]} if taint else {},
            "status": {"allocatable": room, "capacity": room}})
