"""The rendered sidecar, as a reviewer reads it. UPDATE=1 accepts a change; read the diff."""

import os
import unittest
from pathlib import Path

import yaml

import matrix
from helm import EXAMPLE, HELMS, below_fencepost, one, template

SNAPSHOTS = Path(__file__).parent / "snapshots"


class Snapshots(unittest.TestCase):
    def check(self, name, document):
        text = yaml.safe_dump(document, sort_keys=False, width=100)
        path = SNAPSHOTS / f"{name}.yaml"
        if os.environ.get("UPDATE"):
            path.write_text(text)
        self.assertEqual(path.read_text(), text)

    def check_sidecar(self, name, values):
        for helm in HELMS.values():
            native = values.get("sidecar", {}).get("native", True)
            given = {"job": {"enabled": False}, **below_fencepost(values)}
            pod = one(template(EXAMPLE, given, helm), "Deployment")["spec"]["template"]
            container = pod["spec"]["initContainers" if native else "containers"][0]
            self.check(name, {
                "labels": pod["metadata"]["labels"],
                "terminationGracePeriodSeconds": pod["spec"]["terminationGracePeriodSeconds"],
                "container": container,
                "volumes": pod["spec"]["volumes"],
            })

    def test_sidecar(self):
        self.check_sidecar("sidecar", {})

    def test_sidecar_on_etcd(self):
        self.check_sidecar("sidecar-etcd", matrix.ETCD)

    def test_plain_container(self):
        self.check_sidecar("container", {"sidecar": {"native": False}})

    def test_shared(self):
        self.check("shared", one(template(), "Deployment"))
