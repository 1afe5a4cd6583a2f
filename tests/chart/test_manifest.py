"""`fencepost manifest` prints what the chart renders. The binary carries the rendered text, with
placeholders; here it is rendered again."""

import os
import subprocess
import unittest

import yaml

import kubernetes_validate
from helm import BINARY, HELMS, KUBECTL, ROOT, VERSIONS, call, packaged

CHART = ROOT / "tests" / "chart" / "manifest"
TEXTS = ROOT / "src" / "cli" / "manifest"
PLACEHOLDERS = {
    "image": {"repository": "image-placeholder", "tag": "0"},
    "store": {"secretName": "secret-placeholder", "secretKey": "key-placeholder"},
    "authority": "etcd://authority-placeholder:1",
}

APPLICATION = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      initContainers: [{name: init, image: "init:1"}]
      containers: [{name: app, image: "app:1"}]
      volumes: [{name: data, emptyDir: {}}]
"""


def rendered(native):
    values = {"fencepost": {**PLACEHOLDERS, "sidecar": {"native": native}}}
    texts = {
        call(helm, "template", "rel", packaged(CHART, helm), "--kube-version", "1.36.0", values=values)
        for helm in HELMS.values()
    }
    assert len(texts) == 1, "the two Helms differ"
    lines = [line for line in texts.pop().splitlines() if line.strip() and not line.startswith(("---", "#"))]
    return "\n".join(lines) + "\n"


def manifest(*flags):
    return subprocess.run([BINARY, "manifest", *flags], check=True, capture_output=True, text=True).stdout


class Manifest(unittest.TestCase):
    def test_the_binary_carries_what_the_chart_renders(self):
        for name, native in [("native.yaml", True), ("container.yaml", False)]:
            text = rendered(native)
            if os.environ.get("UPDATE"):
                (TEXTS / name).write_text(text)
            self.assertEqual((TEXTS / name).read_text(), text, f"{name} is out of date: UPDATE=1 scripts/test-chart")

    def test_kubectl_patches_a_deployment_with_it(self):
        for flags in [(), ("--container",)]:
            patched = subprocess.run(
                [KUBECTL, "patch", "--local", "-f", "-", "--type", "strategic", "-o", "yaml", "--patch", manifest(*flags)],
                input=APPLICATION, check=True, capture_output=True, text=True,
            )
            deployment = yaml.safe_load(patched.stdout)
            for version in VERSIONS:
                kubernetes_validate.validate(deployment, version, strict=True)
            pod = deployment["spec"]["template"]["spec"]
            place = "containers" if flags else "initContainers"
            self.assertEqual(sorted(c["name"] for c in pod[place]), sorted(["fencepost", "app" if flags else "init"]))
            self.assertEqual(pod[place][0]["name"], "fencepost", "it starts first")
            self.assertIn("data", [volume["name"] for volume in pod["volumes"]])
