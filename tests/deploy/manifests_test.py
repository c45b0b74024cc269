"""Images and manifests without running them: what they name exists, and what must fit together does. Seconds."""

import os
import re
import shutil
import subprocess
import sys
import unittest

import yaml

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [os.path.join(SOURCE, "tests", "e2e"), os.path.join(SOURCE, "docker")]

import kustomize  # noqa: E402
import local  # noqa: E402
import sbom  # noqa: E402

KUSTOMIZE = os.path.join(SOURCE, "deploy", "kustomize")
OVERLAYS = ("single", "ha", "gpu", "secure", "serving", "secure-serving")
UNITS = ("hotbed-server", "hotbed-serving", "hotbed-coordinator")
MARGIN_SECONDS = 10
# Set for the programs, and none of their settings.
OTHER_VARIABLES = {"POD_NAME", "POD_NAMESPACE", "NODE_ZONE"}


def text_of(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def version():
    return re.search(r"project\(hotbed VERSION ([0-9.]+)", text_of("CMakeLists.txt"))[1]


def help_of(*command):
    code, out, err = local.run(*command, "--help")
    assert code == 0, err
    return out


def settings_of(daemon):
    return set(re.findall(r"^  --([a-z0-9-]+)=", help_of(daemon), re.M))


def seconds(text):
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


def size(text):
    number, unit = re.fullmatch(r"(\d+)([KMGT]i)B?", text).groups()
    return int(number) << {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[unit]


class Commands(unittest.TestCase):
    """Command lines and variables, wherever they stand."""

    def setUp(self):
        self.settings = {d: settings_of(d) for d in ("hotbed-server", "hotbed-coordinator", "hotbed-train-ctr")}

    def check(self, where, command, variables):
        program = os.path.basename(command[0])
        self.assertEqual(command[0], f"/usr/bin/{program}", where)
        if program == "hotbed":
            words = [w for w in command[1:] if not w.startswith("--")]
            told = help_of("hotbed", *words) + help_of("hotbed")
            for word in command[1:]:
                if word.startswith("--"):
                    self.assertRegex(told, rf"(?m)^\s*(-\w,)?{re.escape(word.partition('=')[0])}\b", f"{where}: {command}")
        else:
            for word in command[1:]:
                name = word.removeprefix("--").partition("=")[0]
                self.assertIn(name, self.settings[program] | {"config"}, f"{where}: {command}")
            for name in variables:
                if name not in OTHER_VARIABLES:
                    self.assertIn(name.removeprefix("HOTBED_").lower().replace("_", "-"), self.settings[program], f"{where}: {name}")

    def test_of_pods(self):
        seen = 0
        for overlay in OVERLAYS:
            for item in kustomize.build(os.path.join(KUSTOMIZE, "overlays", overlay)):
                if item["kind"] != "StatefulSet":
                    continue
                for container in item["spec"]["template"]["spec"]["containers"]:
                    self.check(overlay, container["command"], [v["name"] for v in container["env"]])
                    hook = container.get("lifecycle", {}).get("preStop", {}).get("exec")
                    if hook:
                        self.check(overlay, hook["command"], [])
                        seen += 1
        self.assertEqual(seen, len(OVERLAYS) + 2)  # servers of each, and serving servers

    def test_of_config_maps(self):
        for overlay in OVERLAYS:
            for item in kustomize.build(os.path.join(KUSTOMIZE, "overlays", overlay)):
                if item["kind"] == "ConfigMap":
                    component = item["metadata"]["labels"]["app.kubernetes.io/component"]
                    daemon = "hotbed-coordinator" if component == "coordinator" else "hotbed-server"
                    for text in item["data"].values():
                        self.assertLessEqual(set(yaml.safe_load(text)), self.settings[daemon], overlay)

    def test_of_compose(self):
        document = yaml.safe_load(text_of("docker", "compose.yaml"))
        services = document["services"]
        ours = {name: s for name, s in services.items() if s["image"].startswith("hotbed:")}
        runs = [s["command"][0] for s in services.values() if "command" in s]
        for program, times in (("/usr/bin/hotbed-server", 5), ("/usr/bin/hotbed-coordinator", 2), ("/usr/local/bin/etcd", 3)):
            self.assertEqual(runs.count(program), times, program)
        for name, service in ours.items():
            self.assertEqual(service["image"], f"hotbed:{version()}")
            self.check(name, service["command"], service.get("environment", {}))
            self.assertTrue(service["read_only"] and service["cap_drop"] == ["ALL"], name)
            self.assertTrue(all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name)
        # Each service is called by its name, and each that is called is there.
        named = {"HOTBED_COORDINATOR", "HOTBED_METADATA", "HOTBED_ADVERTISE", "HOTBED_ADVERTISE_ADMIN", "ETCD_INITIAL_CLUSTER",
                 "ETCD_ADVERTISE_CLIENT_URLS", "ETCD_INITIAL_ADVERTISE_PEER_URLS"}
        for name, service in services.items():
            variables = service.get("environment", {})
            for variable in named & set(variables):
                for host in re.findall(r"([a-z][a-z0-9-]*):\d+", variables[variable]):
                    self.assertIn(host, services, f"{name}: {variable}")
            for own in ("HOTBED_ADVERTISE", "HOTBED_ADVERTISE_ADMIN", "ETCD_ADVERTISE_CLIENT_URLS", "ETCD_NAME"):
                self.assertIn(name, variables.get(own, name), f"{name}: {own}")
            for wanted in service.get("depends_on", []):
                self.assertIn(wanted, services, name)
            for volume in service.get("volumes", []):
                source = volume.partition(":")[0]
                self.assertTrue(source.startswith(".") or source in document["volumes"], f"{name}: {volume}")
        members = {f"{name}=http://{name}:2380" for name in services if name.startswith("etcd-")}
        self.assertEqual(set(services["etcd-0"]["environment"]["ETCD_INITIAL_CLUSTER"].split(",")), members)
        if shutil.which("etcd") is not None:
            told = subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False)
            for variable in services["etcd-0"]["environment"]:
                flag = variable.removeprefix("ETCD_").lower().replace("_", "-")
                self.assertRegex(told.stdout + told.stderr, rf"(?m)^\s*--{flag}\b", variable)
        scraped = yaml.safe_load(text_of("docker", "prometheus.yaml"))["scrape_configs"][0]["static_configs"][0]["targets"]
        for target in scraped:
            self.assertIn(target.partition(":")[0], ours)
        for mount in services["prometheus"]["volumes"]:
            self.assertTrue(os.path.exists(os.path.join(SOURCE, "docker", mount.split(":")[0])), mount)

    def test_of_the_image(self):
        text = text_of("docker", "Dockerfile")
        stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.M)
        self.assertLessEqual({"deps", "build", "test", "runtime", "runtime-cuda"}, set(stages))
        self.assertEqual(set(re.findall(r"^ARG VERSION=(\S+)$", text, re.M)), {version()})
        check = re.search(r"^HEALTHCHECK .*? CMD (\[.*\])$", text, re.M)[1]
        self.check("HEALTHCHECK", yaml.safe_load(check), [])
        for source in re.findall(r"^COPY (?!--from)(\S+) ", text, re.M):
            self.assertTrue(os.path.exists(os.path.join(SOURCE, source)), source)
        for command in re.findall(r"\./dev (\w+)", text):
            self.assertRegex(text_of("dev"), rf"(?m)^  {command}[ )\[]")

    def test_of_units(self):
        for name in UNITS:
            unit = text_of("deploy", "systemd", f"{name}.service")
            self.check(name, re.search(r"^ExecStart=(.*)$", unit, re.M)[1].split(), [])
            stop = seconds(re.search(r"^TimeoutStopSec=(.*)$", unit, re.M)[1])
            sample = text_of("deploy", f"{name}.yaml")
            drain = re.search(r"^(?:# )?drain-ms-max: (.*)$", sample, re.M)
            self.assertGreaterEqual(stop, (seconds(drain[1]) if drain else 0) + MARGIN_SECONDS)

    def test_the_sample_of_serving_servers_has_known_keys(self):
        keys = set(yaml.safe_load(text_of("deploy", "hotbed-serving.yaml")))
        self.assertLessEqual(keys, self.settings["hotbed-server"])
        self.assertLessEqual({"name", "role", "coordinator", "http-listen"}, keys)

    def test_units_are_confined(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze (Debian: systemd)")
        for name in UNITS:
            unit = os.path.join(SOURCE, "deploy", "systemd", f"{name}.service")
            done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=15", "--no-pager", unit],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout[-400:] + done.stderr)


class Manifests(unittest.TestCase):
    def objects(self, overlay):
        return kustomize.by_name(kustomize.build(os.path.join(KUSTOMIZE, "overlays", overlay)))

    def with_servers(self):
        """Each overlay with the components that are hotbed-server: (overlay, objects, component)."""
        for overlay in OVERLAYS:
            objects = self.objects(overlay)
            for component in ("server", "serving"):
                if component == "server" or "serving" in overlay:
                    yield overlay, objects, component

    def test_our_kustomize_is_kubectls(self):
        if shutil.which("kubectl") is None:
            self.skipTest("no kubectl")
        for overlay in OVERLAYS:
            folder = os.path.join(KUSTOMIZE, "overlays", overlay)
            done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            theirs = kustomize.by_name(yaml.safe_load_all(kustomize.without_hashes(done.stdout)))
            self.assertEqual(self.objects(overlay), theirs)

    def test_grace_and_memory_fit_the_configuration(self):
        for overlay, objects, component in self.with_servers():
            config = yaml.safe_load(objects["ConfigMap", f"hotbed-{component}"]["data"][f"{component}-config.yaml"])
            pod = objects["StatefulSet", f"hotbed-{component}"]["spec"]["template"]["spec"]
            (server,) = pod["containers"]
            hook = server["lifecycle"]["preStop"]["exec"]["command"]
            wait = seconds(next(w for w in hook if w.startswith("--wait=")).partition("=")[2])
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], wait + seconds(config["drain-ms-max"]) + MARGIN_SECONDS)
            self.assertGreaterEqual(size(server["resources"]["limits"]["memory"]), size(config["host-bytes"]) * 7 / 6)

    def test_pods_are_confined_and_probed_three_ways(self):
        for overlay in OVERLAYS:
            for (kind, name), item in self.objects(overlay).items():
                if kind != "StatefulSet":
                    continue
                self.assertEqual(item["spec"]["podManagementPolicy"], "Parallel")
                pod = item["spec"]["template"]["spec"]
                self.assertTrue(pod["securityContext"]["runAsNonRoot"], name)
                self.assertIs(pod["enableServiceLinks"], False)
                (container,) = pod["containers"]
                self.assertRegex(container["image"], rf"^hotbed:{re.escape(version())}(-cuda)?$")
                self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"], name)
                self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
                paths = [container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")]
                self.assertEqual(paths, ["/healthz", "/readyz", "/healthz"])
                patience = {probe: container[f"{probe}Probe"]["periodSeconds"] * container[f"{probe}Probe"]["failureThreshold"]
                            for probe in ("startup", "readiness", "liveness")}
                self.assertGreater(patience["startup"], patience["liveness"])
                self.assertGreater(patience["liveness"], patience["readiness"])

    def test_selectors_meet_their_pods(self):
        def labels(objects, component):
            return objects["StatefulSet", f"hotbed-{component}"]["spec"]["template"]["metadata"]["labels"].items()
        for _, objects, component in self.with_servers():
            for name in (component, "coordinator"):
                service = objects["Service", f"hotbed-{name}"]["spec"]
                self.assertLessEqual(service["selector"].items(), labels(objects, name))
                self.assertTrue(service["publishNotReadyAddresses"])
            self.assertEqual(objects["Service", f"hotbed-{component}"]["spec"]["clusterIP"], "None")
            pods = labels(objects, component)
            budget = objects["PodDisruptionBudget", f"hotbed-{component}"]["spec"]
            self.assertLessEqual(budget["selector"]["matchLabels"].items(), pods)
            self.assertLessEqual(objects["NetworkPolicy", "hotbed"]["spec"]["podSelector"]["matchLabels"].items(), pods)

    def test_lookups_by_http_go_to_serving_pods_that_are_ready(self):
        for _, objects, component in self.with_servers():
            if component != "serving":
                continue
            template = objects["StatefulSet", "hotbed-serving"]["spec"]["template"]
            labels = template["metadata"]["labels"].items()
            service = objects["Service", "hotbed-lookup"]["spec"]
            policy = objects["NetworkPolicy", "hotbed-lookup"]["spec"]
            self.assertLessEqual(service["selector"].items(), labels)
            self.assertLessEqual(policy["podSelector"]["matchLabels"].items(), labels)
            self.assertFalse(service["selector"].items() <= objects["StatefulSet", "hotbed-server"]["spec"]["template"]["metadata"]["labels"].items())
            # A pod that loads, or is about to stop, gets none.
            self.assertNotIn("publishNotReadyAddresses", service)
            self.assertNotIn("clusterIP", service)
            (container,) = template["spec"]["containers"]
            (port,) = service["ports"]
            self.assertIn({"name": port["targetPort"], "containerPort": 7480}, container["ports"])
            self.assertEqual([rule["ports"] for rule in policy["ingress"]], [[{"port": 7480}]])
            variables = {v["name"]: v.get("value") for v in container["env"]}
            self.assertEqual(variables["HOTBED_HTTP_LISTEN"], "0.0.0.0:7480")
            self.assertIn("--wait-min=5s", container["lifecycle"]["preStop"]["exec"]["command"])

    def test_with_tls_every_port_for_rows_has_it(self):
        for overlay, objects, component in self.with_servers():
            (container,) = objects["StatefulSet", f"hotbed-{component}"]["spec"]["template"]["spec"]["containers"]
            variables = {v["name"]: v.get("value") for v in container["env"]}
            secure = overlay.startswith("secure")
            self.assertEqual(variables.get("HOTBED_SECURE") == "on", secure, (overlay, component))
            self.assertEqual(variables.get("HOTBED_HTTP_SECURE") == "on", secure and component == "serving", (overlay, component))

    def test_every_pod_may_have_an_object_store(self):
        for overlay in OVERLAYS:
            for (kind, name), item in self.objects(overlay).items():
                if kind == "StatefulSet":
                    (container,) = item["spec"]["template"]["spec"]["containers"]
                    self.assertEqual(container["envFrom"], [{"secretRef": {"name": "hotbed-object-store", "optional": True}}], (overlay, name))


class BillOfMaterials(unittest.TestCase):
    STATUS = ("Package: libb\nStatus: install ok installed\nVersion: 1.2+deb12u1\nArchitecture: amd64\nSource: b (1.2)\n\n"
              "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: amd64\n\n"
              "Package: a\nStatus: install ok installed\nVersion: 3\nArchitecture: all\n")

    def test_installed_packages_and_no_others(self):
        packages = sbom.installed(self.STATUS)
        self.assertEqual(packages, [("a", "3", "all", "a"), ("libb", "1.2+deb12u1", "amd64", "b")])
        document = sbom.document(packages, "0.1.0")
        self.assertEqual(document["packages"][1]["externalRefs"][0]["referenceLocator"], "pkg:deb/debian/libb@1.2%2Bdeb12u1?arch=amd64")
        self.assertEqual(document, sbom.document(packages, "0.1.0"))
        self.assertNotEqual(document["documentNamespace"], sbom.document(packages[:1], "0.1.0")["documentNamespace"])


if __name__ == "__main__":
    unittest.main()
