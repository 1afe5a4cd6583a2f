"""What no schema says: every pod is locked down, probed where it listens, and given time to end."""

import unittest

import matrix
from helm import EXAMPLE, FENCEPOST, below_fencepost, containers, pods, template

ALLOWED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def all_pods():
    for name, values in (matrix.BOTH | matrix.SHARED).items():
        for pod in pods(template(FENCEPOST, values)):
            yield f"{name}: {pod[0]}", values, pod[1]
    for name, values in (matrix.BOTH | matrix.SIDECAR).items():
        native = values.get("sidecar", {}).get("native", True)
        for pod in pods(template(EXAMPLE, {"job": {"enabled": native}, **below_fencepost(values)})):
            yield f"{name}: {pod[0]}", values, pod[1]


class Pods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pods = list(all_pods())

    def each_container(self):
        for name, values, pod in self.pods:
            for container in containers(pod):
                yield f"{name}: {container['name']}", values, pod, container

    def test_pod_security_restricted(self):
        for name, _, pod in self.pods:
            with self.subTest(name):
                for field in ["hostNetwork", "hostPID", "hostIPC"]:
                    self.assertNotIn(field, pod)
                for volume in pod.get("volumes", []):
                    self.assertLessEqual(set(volume) - {"name"}, ALLOWED_VOLUMES)
        for where, _, pod, container in self.each_container():
            with self.subTest(where):
                context = container["securityContext"]
                self.assertIs(context["allowPrivilegeEscalation"], False)
                self.assertIs(context["runAsNonRoot"], True)
                self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertFalse(context.get("privileged", False))
                for port in container.get("ports", []):
                    self.assertNotIn("hostPort", port)

    def test_more_than_restricted(self):
        for where, values, pod, container in self.each_container():
            with self.subTest(where):
                context = container["securityContext"]
                self.assertIs(context["readOnlyRootFilesystem"], True)
                if "runAsUser" not in values:
                    self.assertEqual(context["runAsUser"], 65532)
                self.assertIn("memory", container["resources"]["limits"])
                self.assertLessEqual({"cpu", "memory"}, set(container["resources"]["requests"]))
                self.assertFalse(container["image"].endswith(":latest"))
                self.assertTrue(":" in container["image"])

    def test_no_token(self):
        for where, _, pod, container in self.each_container():
            with self.subTest(where):
                self.assertIs(pod["automountServiceAccountToken"], False)
                if container.get("restartPolicy") == "Always":
                    # In a pod that has a token after all, this one does not get it.
                    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
                    self.assertIn("/var/run/secrets/kubernetes.io/serviceaccount", paths)

    def test_mounts_and_volumes_belong_together(self):
        for name, _, pod in self.pods:
            with self.subTest(name):
                volumes = [volume["name"] for volume in pod.get("volumes", [])]
                mounted = [m["name"] for c in containers(pod) for m in c.get("volumeMounts", [])]
                self.assertEqual(len(volumes), len(set(volumes)))
                self.assertEqual(set(volumes), set(mounted))
                for container in containers(pod):
                    for mount in container.get("volumeMounts", []):
                        self.assertIs(mount["readOnly"], True)

    def test_no_secret_in_an_argument(self):
        for where, _, _, container in self.each_container():
            with self.subTest(where):
                for argument in container.get("args", []):
                    self.assertNotRegex(argument, r"--etcd-password=|--store=|://[^/]*:[^/@]*@")

    def test_probes_go_to_the_admin_port(self):
        for where, _, _, container in self.each_container():
            with self.subTest(where):
                probes = {kind: container[kind] for kind in container if kind.endswith("Probe")}
                if container["name"] != "fencepost":
                    continue
                self.assertLessEqual({"livenessProbe"}, set(probes))
                names = {port["name"]: port["containerPort"] for port in container["ports"]}
                self.assertTrue(all(len(name) <= 15 for name in names))
                paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
                expected = {"startupProbe": "/startupz", "readinessProbe": "/readyz", "livenessProbe": "/livez"}
                self.assertLessEqual(paths.items(), expected.items())
                for probe in probes.values():
                    self.assertEqual(names[probe["httpGet"]["port"]], 7421)
                    # The server itself takes up to two seconds to answer one.
                    self.assertGreater(probe["timeoutSeconds"], 2)

    def test_only_init_containers_that_stay_have_a_restart_policy(self):
        for name, values, pod in self.pods:
            with self.subTest(name):
                for container in pod["containers"]:
                    self.assertNotIn("restartPolicy", container)
                for container in pod.get("initContainers", []):
                    if container["name"] == "fencepost":
                        self.assertEqual(container["restartPolicy"], "Always")
                        self.assertIn("startupProbe", container)
                        # It is told to end only when the application has ended: nothing to wait for.
                        self.assertNotIn("lifecycle", container)
                    else:
                        self.assertNotIn("restartPolicy", container)

    def test_the_application_reaches_it_on_loopback_alone(self):
        for where, _, pod, container in self.each_container():
            with self.subTest(where):
                if container["name"] != "fencepost":
                    continue
                shared = any(port["name"] == "fencepost" for port in container["ports"])
                everywhere = "[::]" if "--admin-listen=[::]:7421" in container["args"] else "0.0.0.0"
                self.assertIn(f"--admin-listen={everywhere}:7421", container["args"])
                host = everywhere if shared else "127.0.0.1"
                self.assertIn(f"--listen={host}:7420", container["args"])

    def test_there_is_time_to_end(self):
        for name, _, pod in self.pods:
            proxies = [c for c in containers(pod) if c["name"] == "fencepost"]
            for proxy in proxies:
                with self.subTest(name):
                    drain = next(a for a in proxy["args"] if a.startswith("--drain="))
                    drain = int(drain.removeprefix("--drain=").removesuffix("s"))
                    wait = proxy.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
                    # A second more than the drain is what the server may take to release locks.
                    self.assertGreater(pod["terminationGracePeriodSeconds"], wait + drain + 1)
