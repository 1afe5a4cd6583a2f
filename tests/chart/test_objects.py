"""What else the chart makes, and what it leaves out unless it is asked."""

import json
import re
import subprocess
import unittest

import yaml

import matrix
from helm import EXAMPLE, FENCEPOST, HELMS, ROOT, below_fencepost, call, one, sidecar, template

# What a real cluster has, and `helm template` has not.
CLUSTER = ["--api-versions", "apiregistration.k8s.io/v1"]


class Objects(unittest.TestCase):
    def kinds(self, *arguments, **more):
        return sorted(document["kind"] for document in template(*arguments, **more))

    def test_what_is_there_by_default(self):
        self.assertEqual(self.kinds(), ["Deployment", "Pod", "PodDisruptionBudget", "Service"])
        # As a part of another chart it adds nothing but what is included.
        self.assertEqual(self.kinds(EXAMPLE), ["CronJob", "Deployment"])

    def test_the_service_leads_to_the_pods_and_not_to_the_admin_port(self):
        documents = template(values=matrix.EVERYTHING)
        service, deployment = one(documents, "Service"), one(documents, "Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        for selector in [
            service["spec"]["selector"],
            deployment["spec"]["selector"]["matchLabels"],
            one(documents, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
            one(documents, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        ]:
            self.assertLessEqual(selector.items(), labels.items())
            for other in ["Job", "Pod"]:
                pod = one(documents, other)
                theirs = (pod["spec"].get("template") or pod)["metadata"]["labels"]
                self.assertFalse(selector.items() <= theirs.items(), f"{other} would be taken for a proxy")
        self.assertEqual([port["targetPort"] for port in service["spec"]["ports"]], ["fencepost"])

    def test_labels_of_ones_own_do_not_replace_the_chart_s(self):
        values = {"shared": {"podLabels": {"fencepost/proxy": "mine"}}}
        labels = one(template(values=values), "Deployment")["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(labels["fencepost/proxy"], "shared")

    def test_nobody_gets_in_unless_named(self):
        policy = one(template(values=matrix.SHARED["nobody may reach it"]), "NetworkPolicy")
        self.assertEqual(policy["spec"]["ingress"], [])
        policy = one(template(values=matrix.EVERYTHING), "NetworkPolicy")
        ports = {rule["ports"][0]["port"]: rule["from"] for rule in policy["spec"]["ingress"]}
        *clients, test = ports[7420]
        self.assertEqual(clients, matrix.EVERYTHING["networkPolicy"]["clients"])
        labels = one(template(values=matrix.EVERYTHING), "Pod")["metadata"]["labels"]
        self.assertEqual(test["podSelector"]["matchLabels"], labels, "and `helm test`")
        self.assertEqual(ports[7421], matrix.EVERYTHING["networkPolicy"]["metrics"])
        self.assertEqual(policy["spec"]["egress"][0]["ports"][0]["port"], 53)

    def test_the_migration_comes_first_and_uses_its_own_address(self):
        job = one(template(values=matrix.EVERYTHING), "Job")
        self.assertEqual(job["metadata"]["annotations"]["helm.sh/hook"], "pre-install,pre-upgrade")
        pod = job["spec"]["template"]["spec"]
        # The account that the release makes is not there yet.
        self.assertEqual(pod["serviceAccountName"], "default")
        self.assertEqual([v["secret"]["secretName"] for v in pod["volumes"]], ["fencepost-owner"])

    def test_the_monitor_finds_both_kinds_of_pods(self):
        documents = template(EXAMPLE, below_fencepost({"podMonitor": {"enabled": True}, "shared": {"enabled": True}, "insecure": True}))
        monitor = one(documents, "PodMonitor")
        self.assertEqual(monitor["spec"]["selector"], {"matchExpressions": [{"key": "fencepost/proxy", "operator": "Exists"}]})
        port = monitor["spec"]["podMetricsEndpoints"][0]["port"]
        for document in documents:
            if document["kind"] == "Deployment":
                pod = document["spec"]["template"]
                self.assertIn("fencepost/proxy", pod["metadata"]["labels"])
                container = sidecar([document])
                self.assertIn(port, [p["name"] for p in container["ports"]])

    def test_alerts_and_dashboard_arrive_as_they_are(self):
        documents = template(values=matrix.EVERYTHING)
        files = FENCEPOST / "files"
        self.assertEqual(json.loads(one(documents, "ConfigMap")["data"]["fencepost.json"]),
                         json.loads((files / "dashboard.json").read_text()))
        self.assertEqual(one(documents, "PrometheusRule")["spec"], yaml.safe_load((files / "alerts.yaml").read_text()))
        subprocess.run(["promtool", "check", "rules", files / "alerts.yaml"], check=True, capture_output=True)

    def test_an_alert_links_to_its_runbook_where_the_repository_is_known(self):
        def runbooks(repository):
            rules = {"prometheusRule": {"enabled": True, "repository": repository}}
            groups = one(template(values=rules), "PrometheusRule")["spec"]["groups"]
            return [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]

        paths = runbooks("")
        for path in paths:
            self.assertTrue((ROOT / path).is_file(), path)
        base = "https://git.example.com/fencepost/blob/v0.1.0"
        for repository in [base, base + "/"]:
            self.assertEqual(runbooks(repository), [f"{base}/{path}" for path in paths])

    def test_sleeping_before_the_end_where_the_kubelet_can(self):
        plain = {"job": {"enabled": False}, **below_fencepost({"sidecar": {"native": False, "preStopSeconds": 7}})}
        sleep = {"sleep": {"seconds": 7}}
        self.assertEqual(sidecar(template(EXAMPLE, plain, version="1.30", flags=CLUSTER))["lifecycle"]["preStop"], sleep)
        # A hook that does nothing would be refused.
        self.assertNotIn("preStop", sidecar(template(EXAMPLE, plain, version="1.29", flags=CLUSTER))["lifecycle"])
        self.assertNotIn("lifecycle", sidecar(template(version="1.29", flags=CLUSTER)))
        self.assertIn("preStop", sidecar(template())["lifecycle"])

    def test_a_plain_container_is_beside_the_application_and_first(self):
        plain = {"job": {"enabled": False}, **below_fencepost({"sidecar": {"native": False}})}
        pod = one(template(EXAMPLE, plain), "Deployment")["spec"]["template"]["spec"]
        self.assertNotIn("initContainers", pod)
        self.assertEqual([c["name"] for c in pod["containers"]], ["fencepost", "application"])
        # The kubelet waits for this hook before it starts the next one.
        self.assertEqual(pod["containers"][0]["lifecycle"]["postStart"]["exec"]["command"][:2], ["/fencepost", "healthcheck"])

    def test_a_pod_ends_only_after_application_and_drain(self):
        slow = below_fencepost({"sidecar": {"applicationGraceSeconds": 300}, "drainSeconds": 20})
        pod = one(template(EXAMPLE, slow), "Deployment")["spec"]["template"]["spec"]
        self.assertEqual(pod["terminationGracePeriodSeconds"], 325)

    def test_notes_say_what_is_next_and_warn(self):
        def notes(**values):
            # Helm 3 does not show them without a cluster.
            text = call(HELMS["helm 4"], "install", "rel", FENCEPOST, "--dry-run=client", values={"insecure": True} | values)
            return text.partition("NOTES:")[2]

        plain = notes(test={"enabled": True})
        for part in ["helm test rel", "create secret generic fencepost-store", "nobody migrates", "may read, write and lock everything"]:
            self.assertIn(part, plain)
        careful = notes(
            insecure=False, tls={"secretName": "t"}, auth={"tokensSecretName": "t", "policyConfigMapName": "p"},
            migration={"enabled": True}, networkPolicy={"enabled": True}, image={"digest": "sha256:" + "a" * 64},
        )
        self.assertNotIn("WARNING", careful)
        careless = notes(authority="none", shared={"replicas": 1, "service": {"type": "NodePort"}})
        self.assertEqual(careless.count("WARNING"), 5)

    def test_versions_are_those_of_the_program(self):
        version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
        chart = (FENCEPOST / "Chart.yaml").read_text()
        self.assertIn(f"\nversion: {version}\n", chart)
        self.assertIn(f'\nappVersion: "{version}"\n', chart)
        self.assertIn(f'\n  tag: "{version}"\n', (FENCEPOST / "values.yaml").read_text())
