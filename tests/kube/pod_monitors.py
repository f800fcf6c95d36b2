# SPDX-License-Identifier: Apache-2.0
"""The chart's PodMonitors as scrape configurations, made the way the Prometheus operator makes them, for
a Prometheus that runs beside the cluster with a service account's token.

The CRD here takes any PodMonitor: what of them is used is what the translation below knows, and it refuses
what it does not know.
"""
import re

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced",
             "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
             "versions": [{"name": "v1", "served": True, "storage": True, "schema": {
                 "openAPIV3Schema": {"type": "object",
                                     "x-kubernetes-preserve-unknown-fields": True}}}]}}
# What a Prometheus needs that discovers pods.
RIGHTS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
LABEL, PRESENT = "__meta_kubernetes_pod_label_", "__meta_kubernetes_pod_labelpresent_"


def scrape_configs(monitors, kubeconfig):
    return [_configuration(monitor, number, endpoint, kubeconfig) for monitor in monitors
            for number, endpoint in enumerate(monitor["spec"]["podMetricsEndpoints"])]


def _configuration(monitor, number, endpoint, kubeconfig):
    place, spec = monitor["metadata"], _only(monitor["spec"], "namespaceSelector", "selector",
                                             "podMetricsEndpoints")
    endpoint = _only(endpoint, "port", "interval", "honorLabels", "relabelings")
    discovery = {"role": "pod", "kubeconfig_file": kubeconfig}
    chosen = spec.get("namespaceSelector", {})
    if not chosen.get("any"):
        discovery["namespaces"] = {"names": chosen.get("matchNames", [place["namespace"]])}
    name = f"{place['namespace']}/{place['name']}"
    return {
        "job_name": f"podMonitor/{name}/{number}", "kubernetes_sd_configs": [discovery],
        "scrape_interval": endpoint["interval"], "scrape_timeout": endpoint["interval"],
        "honor_labels": endpoint["honorLabels"],
        "relabel_configs": [
            *_keep_selected(spec["selector"]),
            {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)",
             "action": "drop"},
            {"source_labels": ["__meta_kubernetes_pod_container_port_name"],
             "regex": endpoint["port"], "action": "keep"},
            *({"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
              for source, target in (("namespace", "namespace"), ("pod_name", "pod"),
                                     ("pod_container_name", "container"))),
            {"target_label": "job", "replacement": name},
            *({re.sub("[A-Z]", lambda found: "_" + found[0].lower(), key): value
               for key, value in relabeling.items()} for relabeling in endpoint["relabelings"])]}


def _keep_selected(selector):
    _only(selector, "matchLabels", "matchExpressions")
    for label, value in selector.get("matchLabels", {}).items():
        yield {"source_labels": [LABEL + _sanitized(label)], "regex": re.escape(value), "action": "keep"}
    for expression in selector.get("matchExpressions", []):
        assert expression["operator"] == "Exists", expression
        yield {"source_labels": [PRESENT + _sanitized(expression["key"])], "regex": "true",
               "action": "keep"}


def _sanitized(label):
    return re.sub(r"\W", "_", label)


def _only(given, *known):
    unknown = set(given) - set(known)
    assert not unknown, f"{unknown} of a PodMonitor is not translated"
    return given
