"""Both Helms render all values to the same, and every version of Kubernetes has a place for it."""

import shutil
import tempfile
import unittest
from pathlib import Path

import kubernetes_validate

import matrix
from helm import EXAMPLE, FENCEPOST, HELMS, VERSIONS, Refused, below_fencepost, lint, template

# The Prometheus operator's; their schemas are not Kubernetes'.
FOREIGN = {"PodMonitor", "PrometheusRule"}


def charts():
    for name, values in (matrix.BOTH | matrix.SHARED).items():
        yield f"fencepost, {name}", FENCEPOST, values
    for name, values in (matrix.BOTH | matrix.SIDECAR).items():
        native = values.get("sidecar", {}).get("native", True)
        yield f"example, {name}", EXAMPLE, {"job": {"enabled": native}, **below_fencepost(values)}


class Render(unittest.TestCase):
    def test_every_version_of_kubernetes_accepts_it(self):
        for name, chart, values in charts():
            rendered = [template(chart, values, helm) for helm in HELMS.values()]
            self.assertEqual(rendered[0], rendered[1], name)
            for document in rendered[0]:
                if document["kind"] in FOREIGN:
                    continue
                for version in VERSIONS:
                    with self.subTest(name, kind=document["kind"], version=version):
                        kubernetes_validate.validate(document, version, strict=True)

    def test_a_field_that_there_is_not_would_be_noticed(self):
        deployment = next(d for d in template() if d["kind"] == "Deployment")
        deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
        for version in VERSIONS:
            with self.assertRaises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(deployment, version, strict=True)

    def test_lint_has_nothing_to_say(self):
        for helm in HELMS.values():
            lint(FENCEPOST, helm)
            lint(EXAMPLE, helm)
            lint(FENCEPOST, helm, matrix.EVERYTHING)

    def test_bad_values_are_refused(self):
        for name, (values, reason) in matrix.REFUSED.items():
            for helm in HELMS.values():
                for chart, given in [(FENCEPOST, values), (EXAMPLE, below_fencepost(values))]:
                    with self.subTest(name, helm=helm, chart=chart.name):
                        with self.assertRaises(Refused) as refused:
                            template(chart, given, helm)
                        self.assertIn(reason, str(refused.exception))

    def test_it_can_be_part_of_a_chart_with_globals(self):
        values = {"global": {"imageRegistry": "mirror.example", "theirs": {"a": 1}}, **below_fencepost({"shared": {"enabled": True}, "insecure": True})}
        for helm in HELMS.values():
            images = {
                container["image"]
                for document in template(EXAMPLE, values, helm) if document["kind"] == "Deployment"
                for container in document["spec"]["template"]["spec"].get("initContainers", [])
            }
            self.assertEqual(images, {"mirror.example/fencepost:0.1.0"})

    def test_a_cluster_that_is_too_old_is_told(self):
        cluster = ["--api-versions", "apiregistration.k8s.io/v1"]
        for helm in HELMS.values():
            with self.assertRaises(Refused) as refused:
                template(EXAMPLE, None, helm, "1.28", cluster)
            self.assertIn("needs Kubernetes 1.29", str(refused.exception))
            plain = {"job": {"enabled": False}, **below_fencepost({"sidecar": {"native": False}})}
            template(EXAMPLE, plain, helm, "1.28", cluster)
            template(EXAMPLE, None, helm, "1.29", cluster)
            with self.assertRaises(Refused):
                template(FENCEPOST, None, helm, "1.24")

    def test_who_gives_it_another_name_is_told(self):
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place) / "example"
            shutil.copytree(EXAMPLE, copy)
            chart = (copy / "Chart.yaml").read_text()
            (copy / "Chart.yaml").write_text(chart.replace("- name: fencepost", "- name: fencepost\n    alias: proxy"))
            values = (copy / "values.yaml").read_text()
            (copy / "values.yaml").write_text(values.replace("fencepost:\n", "proxy:\n"))
            templates = copy / "templates"
            (templates / "cronjob.yaml").unlink()
            deployment = (templates / "deployment.yaml").read_text()
            (templates / "deployment.yaml").write_text(deployment.replace(".Values.fencepost.sidecar", ".Values.proxy.sidecar"))
            with self.assertRaises(Refused) as refused:
                template(copy)
            self.assertIn("no values named `fencepost`", str(refused.exception))
