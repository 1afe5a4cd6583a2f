"""The rendered arguments, run: by the real binary, on files where the mounts would be."""

import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import matrix
from helm import BINARY, EXAMPLE, FENCEPOST, below_fencepost, containers, one, pods, sidecar, template

MOUNTS = "/etc/fencepost"


def fill(place, store):
    """What the Secrets would hold."""
    for folder, files in {
        "store": {"url": store}, "owner": {"url": store}, "etcd-password": {"password": "secret"}, "etcd-tls": {},
    }.items():
        (place / folder).mkdir(parents=True)
        for name, text in files.items():
            (place / folder / name).write_text(text)
    tls = place / "etcd-tls"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
         "/CN=etcd", "-keyout", tls / "tls.key", "-out", tls / "tls.crt"],
        check=True, capture_output=True,
    )
    (tls / "ca.crt").write_text((tls / "tls.crt").read_text())


def environment(container):
    given = {e["name"]: e.get("value", "from-a-secret") for e in container.get("env", [])}
    expand = lambda value: re.sub(r"\$\((\w+)\)", lambda m: given.get(m[1], m[0]), value)
    return {"PATH": os.environ["PATH"], **{name: expand(value) for name, value in given.items()}}


class Run(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        fill(self.place / "mounts", f"sqlite:{self.place}/test.db")

    def arguments(self, container):
        """The container's own, with the mounts and the binary where they are here."""
        return [
            argument.replace(MOUNTS, str(self.place / "mounts")).replace("/fencepost", str(BINARY))
            if argument.startswith("/") else argument.replace(MOUNTS, str(self.place / "mounts"))
            for argument in container["args"]
        ]

    def run_to_end(self, container, *more, **variables):
        done = subprocess.run(
            [BINARY, *self.arguments(container), *more], env={**environment(container), **variables},
            capture_output=True, text=True, timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def test_the_binary_takes_every_argument(self):
        rendered = [(name, template(FENCEPOST, values)) for name, values in (matrix.BOTH | matrix.SHARED).items()]
        for name, values in (matrix.BOTH | matrix.SIDECAR).items():
            rendered.append((name, template(EXAMPLE, {"job": {"enabled": False}, **below_fencepost(values)})))
        looked_at = 0
        for name, documents in rendered:
            for where, pod in pods(documents):
                for container in containers(pod):
                    if container["name"] != "fencepost":
                        continue
                    with self.subTest(name, where=where):
                        arguments = self.arguments(container)
                        self.assertEqual(arguments[0], "serve")
                        # `config` takes what `serve` takes, and opens what it names.
                        done = subprocess.run(
                            [BINARY, "config", *arguments[1:]], env=environment(container), capture_output=True, text=True,
                        )
                        self.assertEqual(done.returncode, 0, done.stderr)
                        looked_at += 1
        self.assertGreater(looked_at, 30)

    def test_migration_server_and_helm_test(self):
        """The life of a release: the Job, the Deployment, `helm test`."""
        documents = template(values={"migration": {"enabled": True}})
        job = one(documents, "Job")["spec"]["template"]["spec"]["containers"][0]
        self.assertIn("up to date", self.run_to_end(job))

        proxy = sidecar(documents)
        log = (self.place / "log").open("w")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            [BINARY, *self.arguments(proxy), "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--log-format=json"],
            env=environment(proxy), stderr=log,
        )
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        deadline = time.monotonic() + 60
        while '"fencepost is ready"' not in (text := (self.place / "log").read_text()):
            self.assertIsNone(server.poll(), text)
            self.assertLess(time.monotonic(), deadline, text)
            time.sleep(0.05)
        address = re.search(r'"listen":"([^"]+)"', text)[1]

        test = one(documents, "Pod")["spec"]
        check, write = test["initContainers"][0], test["containers"][0]
        self.run_to_end(check)
        self.run_to_end(write, FENCEPOST_URL=f"http://{address}")
        stored = subprocess.run(
            [BINARY, "get", "--url", f"http://{address}", "fencepost-test/rel"], check=True, capture_output=True, text=True,
        )
        self.assertEqual(stored.stdout.strip(), "written")
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=60), 0)
