"""Charts, rendered by a real Helm."""

import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FENCEPOST = ROOT / "charts" / "fencepost"
EXAMPLE = ROOT / "charts" / "example"
BINARY = ROOT / "target" / "debug" / "fencepost"
HELMS = {"helm 3": os.environ["HELM3"], "helm 4": os.environ["HELM4"]}
KUBECTL = os.environ["KUBECTL"]
VERSIONS = [f"1.{minor}" for minor in range(29, 37)]
NEWEST = VERSIONS[-1]

# Goes with the process.
PLACE = tempfile.TemporaryDirectory()


class Refused(Exception):
    """Helm said no; the message says why."""


@cache
def packaged(chart, helm):
    """The chart with its dependencies inside, in a place of its own."""
    if not (chart / "Chart.yaml").read_text().count("dependencies:"):
        return chart
    copy = Path(tempfile.mkdtemp(dir=PLACE.name))
    for part in {FENCEPOST, chart}:
        subprocess.run(["cp", "-r", part, copy / part.name], check=True)
    subprocess.run([helm, "dependency", "update", copy / chart.name], check=True, capture_output=True)
    return copy / chart.name


def call(helm, *arguments, values=None):
    given = ["--values", "-"] if values else []
    done = subprocess.run(
        [helm, *map(str, arguments), *given],
        input=yaml.safe_dump(values) if values else "",
        capture_output=True, text=True,
    )
    if done.returncode != 0:
        raise Refused(done.stderr + done.stdout)
    return done.stdout


def template(chart=FENCEPOST, values=None, helm=None, version=NEWEST, flags=()):
    """The rendered documents. The chart by itself is guarded or insecure; the latter where nothing else is said."""
    helm = helm or HELMS["helm 3"]
    if chart == FENCEPOST:
        values = {"insecure": True} | (values or {})
    text = call(
        helm, "template", "rel", packaged(chart, helm), "--namespace", "apps",
        "--kube-version", f"{version}.0", *flags, values=values,
    )
    return [document for document in yaml.safe_load_all(text) if document]


def lint(chart, helm, values=None):
    if chart == FENCEPOST:
        values = {"insecure": True} | (values or {})
    return call(helm, "lint", "--strict", packaged(chart, helm), values=values)


def one(documents, kind):
    found = [document for document in documents if document["kind"] == kind]
    assert len(found) == 1, f"{kind}: {len(found)} of {[d['kind'] for d in documents]}"
    return found[0]


def pods(documents):
    """Every pod there is, with a name to call it by: (name, spec)."""
    for document in documents:
        name = f"{document['kind']} {document['metadata']['name']}"
        spec = document.get("spec", {})
        if document["kind"] == "Pod":
            yield name, spec
        elif document["kind"] == "CronJob":
            yield name, spec["jobTemplate"]["spec"]["template"]["spec"]
        elif "template" in spec:
            yield name, spec["template"]["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def sidecar(documents, kind="Deployment"):
    """The container `fencepost` in the pod of that kind."""
    pod = next(pod for name, pod in pods(documents) if name.startswith(kind))
    return next(c for c in containers(pod) if c["name"] == "fencepost")


def below_fencepost(values):
    return {"fencepost": values}
