"""The Helm chart, rendered by Go's own template engine: the same objects as kustomize's, valid for several Kubernetes versions.

Needs Go and Sprig (Debian: golang-go, golang-github-masterminds-sprig-dev), yaml and kubernetes-validate (PyPI). ./dev verify has them.
"""

import copy
import os
import shutil
import subprocess
import tempfile
import unittest

import yaml

import kustomize

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(SOURCE, "deploy", "helm", "hotbed")
OVERLAYS = ("single", "ha", "gpu", "secure", "serving", "secure-serving")
VERSIONS = ("1.25", "1.28", "1.31", "1.34", "1.37")
# What tells who made an object, and not what it is.
MAKERS = ("helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version")


def bare(item):
    """Without what only one of the two makes, with the configuration as its keys."""
    item = copy.deepcopy(item)
    for label in MAKERS:
        item["metadata"].get("labels", {}).pop(label, None)
    if item["kind"] == "ConfigMap":
        item["data"] = {name: yaml.safe_load(text) for name, text in item["data"].items()}
    if item["kind"] == "StatefulSet":
        metadata = item["spec"]["template"]["metadata"]
        metadata.get("annotations", {}).pop("checksum/config", None)
        if not metadata.get("annotations"):
            metadata.pop("annotations", None)
        item["spec"]["volumeClaimTemplates"].sort(key=lambda claim: claim["metadata"]["name"])
        for container in item["spec"]["template"]["spec"]["containers"]:
            container["env"].sort(key=lambda variable: variable["name"])
            container["volumeMounts"].sort(key=lambda mount: mount["name"])
    return item


class Chart(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if shutil.which("go") is None:
            raise unittest.SkipTest("no Go (Debian: golang-go, golang-github-masterminds-sprig-dev)")
        cls.directory = tempfile.mkdtemp(prefix="hotbed_chart_")
        cls.program = os.path.join(cls.directory, "render_chart")
        env = {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": os.path.join(cls.directory, "cache")}
        source = os.path.join(SOURCE, "tests", "deploy", "render_chart.go")
        subprocess.run(["go", "build", "-o", cls.program, source], env=env, check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def render(self, *values, release="hotbed"):
        """Values are paths or dictionaries."""
        paths = []
        for i, value in enumerate(values):
            if isinstance(value, dict):
                path = os.path.join(self.directory, f"values-{i}.yaml")
                with open(path, "w", encoding="utf-8") as file:
                    yaml.safe_dump(value, file)
                paths.append(path)
            else:
                paths.append(value)
        done = subprocess.run([self.program, CHART, release, "test", *paths], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return kustomize.by_name(o for o in yaml.safe_load_all(done.stdout) if o)

    def server(self, *values, **flags):
        objects = self.render(*values, **flags)
        return next(o for (kind, name), o in objects.items() if kind == "StatefulSet" and name.endswith("-server"))

    def test_the_same_objects_as_kustomize(self):
        for overlay in OVERLAYS:
            ours = self.render(os.path.join(CHART, "ci", f"{overlay}.yaml"))
            theirs = kustomize.by_name(kustomize.build(os.path.join(SOURCE, "deploy", "kustomize", "overlays", overlay)))
            self.assertEqual(sorted(ours), sorted(theirs))
            for key, item in ours.items():
                self.assertEqual(bare(item), bare(theirs[key]), (overlay, key))

    def test_objects_are_valid(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("no kubernetes-validate (PyPI)")
        seen = 0
        for overlay in OVERLAYS:
            for item in self.render(os.path.join(CHART, "ci", f"{overlay}.yaml")).values():
                if item["apiVersion"].startswith("monitoring.coreos.com"):
                    continue
                for version in VERSIONS:
                    kubernetes_validate.validate(item, version, strict=True)
                    seen += 1
        self.assertGreater(seen, 100)

    def test_the_schemas_find_errors(self):
        try:
            import kubernetes_validate
        except ImportError:
            self.skipTest("no kubernetes-validate (PyPI)")
        item = self.server()
        item["spec"]["podManagment"] = "Parallel"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(item, VERSIONS[0], strict=True)

    def test_a_change_of_the_configuration_restarts_and_nothing_else_does(self):
        def checksum(*values):
            return self.server(*values)["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        self.assertEqual(checksum(), checksum({"servers": {"replicas": 5}}))
        self.assertEqual(checksum(), checksum({"coordinator": {"config": "secure: off-beyond-loopback\nrefill-wait-ms: 20s"}}))
        self.assertNotEqual(checksum(), checksum({"servers": {"config": "host-bytes: 5GiB"}}))

    def test_the_block_of_configuration_is_passed_on(self):
        objects = self.render({"servers": {"config": "host-bytes: 5GiB\npool-threads: 4\n"}})
        config = yaml.safe_load(objects["ConfigMap", "hotbed-server"]["data"]["server-config.yaml"])
        self.assertEqual(config, {"log-format": "json", "drain-ms-max": "30s", "host-bytes": "5GiB", "pool-threads": 4})

    def test_zones_are_domains_and_never_less_than_nodes(self):
        env = self.server({"servers": {"failureDomain": "zone"}})["spec"]["template"]["spec"]["containers"][0]["env"]
        domain = next(v for v in env if v["name"] == "HOTBED_FAILURE_DOMAIN")
        # Without the label all are "zone-": one domain, so that no two replicas share a node.
        self.assertEqual(domain["value"], "zone-$(NODE_ZONE)")
        self.assertLess([v["name"] for v in env].index("NODE_ZONE"), env.index(domain))
        with self.assertRaisesRegex(RuntimeError, 'failureDomain is "rack"; allowed: node, zone'):
            self.server({"servers": {"failureDomain": "rack"}})

    def test_grace_follows_the_waits(self):
        pod = self.server({"servers": {"retireSeconds": 100, "drainSeconds": 50}})["spec"]["template"]["spec"]
        self.assertEqual(pod["terminationGracePeriodSeconds"], 165)
        self.assertIn("--wait=100s", pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"])

    def test_names_follow_the_release(self):
        objects = self.render(os.path.join(CHART, "ci", "ha.yaml"), release="blue")
        self.assertTrue(all(name.startswith("blue") for _, name in objects))
        env = {v["name"]: v.get("value") for v in self.server(release="blue")["spec"]["template"]["spec"]["containers"][0]["env"]}
        self.assertEqual(env["HOTBED_COORDINATOR"], "blue-coordinator:7400")
        self.assertEqual(env["HOTBED_ADVERTISE"], "$(HOTBED_NAME).blue-server.$(POD_NAMESPACE).svc:7500")

    def test_parts_can_be_left_out_and_labelled(self):
        self.assertNotIn(("NetworkPolicy", "hotbed"), self.render({"networkPolicy": False}))
        self.assertNotIn(("ServiceMonitor", "hotbed"), self.render())
        monitor = self.render({"monitoring": {"enabled": True, "labels": {"release": "prometheus"}}})["ServiceMonitor", "hotbed"]
        self.assertEqual(monitor["metadata"]["labels"]["release"], "prometheus")


if __name__ == "__main__":
    unittest.main()
