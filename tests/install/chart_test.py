#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Helm chart: what it renders is what an API server takes; install, upgrade, uninstall."""
import json
import os
import unittest

import kubectl as k

NAMESPACE = "starling-system"


def helm(*arguments):
    return k.run(HELM, *arguments)


def template(*arguments):
    return helm("template", "starling", k.CHART, "--namespace", NAMESPACE,
                "--kube-version=v1.34.4", *arguments)


def install(*arguments):
    # No kubelet runs the pods here, so nobody waits for them.
    return helm("upgrade", "--install", "starling", k.CHART, "--namespace", NAMESPACE,
                "--create-namespace", *arguments)


KINDS = [f"{kind}.starling.dev" for kind in
         ("trainingjobs", "trainingtemplates", "clustertrainingtemplates")]


class Chart(unittest.TestCase):
    def tearDown(self):
        k.run("sh", "-c", f"'{HELM}' uninstall starling --namespace {NAMESPACE} --ignore-not-found")
        # A kind that goes before anybody could list it is stuck for minutes: the server looks for its
        # objects, finds that their cache is not ready, and waits longer each time.
        for kind in KINDS:
            if k.exists("crd", kind):
                k.eventually(lambda kind=kind: k.refusal("get", kind) == "", f"{kind} is served")
        k.kubectl("delete", "crd", *KINDS, "--ignore-not-found")
        k.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")

    def test_lints_and_every_variant_is_taken_by_the_server(self):
        helm("lint", "--strict", "--kube-version=v1.34.4", k.CHART)
        k.kubectl("create", "namespace", NAMESPACE)
        k.install_crd()
        for values in ([], ["--set=replicas=1,watchNamespace=default"],
                       ["--set=webhook.enabled=false,crds.install=false,rbac.create=false"],
                       ["--set=webhook.failurePolicy=Fail,priorityClassName=high,logLevel=debug",
                        "--set=imagePullSecrets[0].name=a,nodeSelector.a=b,podLabels.c=d",
                        "--set=extraArgs[0]=--sync-period=1m,podAnnotations.e=f"],
                       ["--set=api.replicas=1,api.networkPolicy.enabled=false",
                        "--set=api.tls.secretName=a,api.service.type=LoadBalancer"],
                       ["--set=api.ingress.enabled=true,api.ingress.host=jobs.example",
                        "--set=api.ingress.className=nginx,api.ingress.tlsSecretName=a",
                        "--set=api.ingress.annotations.a=b,api.podLabels.c=d",
                        "--set=api.networkPolicy.from[0].namespaceSelector.matchLabels.a=b"],
                       ["--set=api.replicas=1,api.history.store=sqlite",
                        "--set=api.history.sqlite.storageClassName=fast,api.history.sqlite.size=1Gi"],
                       ["--set=api.replicas=1,api.history.store=sqlite,watchNamespace=default",
                        "--set=api.history.sqlite.existingClaim=mine,api.tls.secretName=a"],
                       ["--set=api.models[0].uri=file:///checkpoints,api.tls.secretName=a",
                        "--set=api.models[0].volume.nfs.server=files.example",
                        "--set=api.models[0].volume.nfs.path=/exports"],
                       ["--set=api.history.store=postgresql,api.history.age=24h",
                        "--set=api.history.postgresql.secretName=database"],
                       ["--set=api.enabled=false"]):
            text = template(*values)
            # All fields are known and in order: the server itself is the judge.
            k.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-",
                      stdin=text)

    def test_pod_monitors_give_series_the_labels_that_dashboards_go_by(self):
        """The Prometheus operator's CRDs are not here, so no server judges them. What they find in a
        cluster: tests/kube/service_test.py."""
        self.assertNotIn("PodMonitor", template())
        text = template("--set=monitoring.enabled=true,monitoring.labels.release=prometheus",
                        "--show-only", "templates/podmonitors.yaml")
        self.assertEqual(3, text.count("kind: PodMonitor"))
        self.assertEqual(3, text.count("release: prometheus"))
        for label in ("job_namespace", "job_name", "role"):
            self.assertIn(f"targetLabel: {label}", text)
        self.assertEqual(3, text.count("honorLabels: true"))
        self.assertNotIn("starling-api", template("--set=monitoring.enabled=true,api.enabled=false",
                                                  "--show-only", "templates/podmonitors.yaml"))

    def test_wrong_values_are_refused_by_their_schema(self):
        for wrong in ("monitoring.interval=soon", "replicas=0", "webhook.failurePolicy=Perhaps", "replica=2",
                      "api.models[0].uri=s3://a", "api.history.store=disk", "api.history.age=soon", "api.history.sqlite.size=big",
                      "logLevel=loud", "api.replicas=0", "api.tls.secret=a", "api.service.type=None"):
            with self.assertRaisesRegex(k.Failed, "values don't meet the specifications"):
                template("--set", wrong)

    def test_the_history_lies_where_its_store_says_and_no_password_in_a_flag(self):
        def api(*values):
            return template("--show-only", "templates/api.yaml", *values)
        self.assertNotIn("history", api(), "nothing is kept unless it is asked for")
        self.assertNotIn("events.k8s.io", api())
        text = api("--set=api.history.store=sqlite,api.replicas=1")
        for part in ("--history-file=/var/lib/starling/history.db", "--history-age=2160h",
                     "--history-bytes=1073741824", "type: Recreate", "claimName: starling-history",
                     "kind: PersistentVolumeClaim", "resources: [namespaces]"):
            self.assertIn(part, text)
        self.assertNotIn("kind: PersistentVolumeClaim", api(
            "--set=api.history.store=sqlite,api.replicas=1,api.history.sqlite.existingClaim=mine"))
        with self.assertRaisesRegex(k.Failed, "api.replicas=1"):
            api("--set=api.history.store=sqlite")
        text = api("--set=api.history.store=postgresql,api.history.postgresql.secretName=database")
        self.assertRegex(text, r"STARLING_HISTORY_URL\s+valueFrom:\s+secretKeyRef:\s+name: database\s+"
                               r"key: url")
        self.assertIn("port: 5432", text)
        self.assertNotIn("--history-url", text)
        with self.assertRaisesRegex(k.Failed, "secretName: is needed"):
            api("--set=api.history.store=postgresql")

    def test_the_pods_of_the_deployments_pass_pod_security_restricted(self):
        k.kubectl("create", "namespace", NAMESPACE)
        k.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        for name, file in (("starling-controller", "deployment"), ("starling-api", "api")):
            with self.subTest(name=name):
                if not k.exists("serviceaccount", name, "-n", NAMESPACE):
                    k.kubectl("create", "serviceaccount", name, "-n", NAMESPACE)
                text = template("--show-only", f"templates/{file}.yaml", "--set=replicas=1",
                                "--set=api.tls.secretName=a,rbac.create=false")
                k.kubectl("apply", "-f", "-", stdin=text)
                rendered = k.get("deployment", name, "-n", NAMESPACE)["spec"]["template"]
                pod = {"apiVersion": "v1", "kind": "Pod", "spec": rendered["spec"],
                       "metadata": {"name": "a", "namespace": NAMESPACE}}
                k.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
                pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
                self.assertIn("violates PodSecurity", k.refusal(
                    "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod)))

    def test_certificates_of_cert_manager_are_asked_for_and_mounted(self):
        text = template("--show-only", "templates/api.yaml",
                        "--set=api.tls.certManager.issuerRef.name=ours",
                        "--set=api.tls.certManager.issuerRef.kind=ClusterIssuer")
        self.assertIn("kind: Certificate\n", text)
        self.assertIn("secretName: starling-api-tls", text)
        self.assertIn("--tls-folder=/etc/starling/tls", text)
        self.assertNotIn("--tls-folder", template("--show-only", "templates/api.yaml"))

    def test_jobs_outlive_upgrade_and_uninstall_and_a_new_installation_adopts_them(self):
        install()
        k.eventually(lambda: k.refusal("get", "tj") == "", "TrainingJobs are served")
        k.create(k.digits())
        uid = k.get("tj", "digits")["metadata"]["uid"]
        k.kubectl("patch", "validatingwebhookconfiguration", "starling", "--type=json", "-p",
                  '[{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"YQ=="}]')
        k.kubectl("patch", "secret", "starling-api", "-n", NAMESPACE, "--type=merge", "-p",
                  '{"data":{"signing-key":"YQ=="}}')
        # The CRD of an older release: the upgrade brings the new field back.
        k.kubectl("patch", "crd", "trainingjobs.starling.dev", "--type=json", "-p", json.dumps(
            [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/3"}]))
        install("--set=replicas=1", "--set=image.tag=next")
        self.assertEqual(k.get("deployment", "starling-controller", "-n", NAMESPACE)
                         ["spec"]["template"]["spec"]["containers"][0]["image"], "starling:next")
        self.assertIn("PROGRESS", k.kubectl("get", "tj"))
        self.assertFalse(k.exists("pdb", "starling-controller", "-n", NAMESPACE))
        self.assertEqual(k.get("secret", "starling-api", "-n", NAMESPACE)["data"]["signing-key"],
                         "YQ==", "an upgrade keeps what replicas share")
        webhook = k.get("validatingwebhookconfiguration", "starling")["webhooks"][0]
        self.assertEqual(webhook["clientConfig"]["caBundle"], "YQ==", "an upgrade keeps the bundle")
        helm("uninstall", "starling", "--namespace", NAMESPACE, "--wait")
        self.assertEqual(k.get("tj", "digits")["metadata"]["uid"], uid)
        for kind in ("validatingwebhookconfiguration", "mutatingwebhookconfiguration",
                     "validatingadmissionpolicy", "clusterrole", "clusterrolebinding"):
            self.assertNotIn("starling", k.kubectl("get", kind, "-o", "name"))
        self.assertFalse(k.exists("deployment,service,role,rolebinding", "-n", NAMESPACE))
        install()
        self.assertEqual(k.get("tj", "digits")["metadata"]["uid"], uid)

    def test_the_webhook_is_asked_about_specs_only_and_its_absence_stops_nothing(self):
        install()
        k.eventually(lambda: k.refusal("get", "tj") == "", "TrainingJobs are served")
        k.create(k.digits())
        k.kubectl("patch", "validatingwebhookconfiguration", "starling", "--type=json", "-p",
                  '[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Fail"}]')
        wanted = json.dumps({"spec": {"stop": {"epochs": 3}}})
        k.eventually(lambda: "failed calling webhook" in k.refusal(
            "patch", "tj", "digits", "--type=merge", "--dry-run=server", "-p", wanted),
            "nobody answers and the policy is Fail")
        k.kubectl("label", "tj", "digits", "a=b")
        k.kubectl("delete", "tj", "digits")


if __name__ == "__main__":
    HELM = k.helm_or_skip()
    os.environ["HELM_CACHE_HOME"] = os.environ["HELM_CONFIG_HOME"] = \
        os.environ["HELM_DATA_HOME"] = os.path.join(os.environ["STARLING_TEST_KUBE"], "helm")
    unittest.main()
