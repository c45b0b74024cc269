"""Metrics, alert rules and dashboards: what stands in them is what running processes export."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAST_TIME = "_last_timestamp_seconds"
sys.path += [os.path.join(SOURCE, "tests", "e2e"), os.path.join(SOURCE, "deploy", "observability")]

import alerts  # noqa: E402
import generate  # noqa: E402
import local  # noqa: E402
import metric_registry  # noqa: E402

RULES = os.path.join(SOURCE, "deploy", "observability", "rules.yaml")
SAMPLE = re.compile(r"^(?P<name>[a-z0-9_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
# Exported only where there is the thing that they count.
RARE = re.compile(r"^hotbed_(access_|serving_(device_|hedged|http|lookup|missing|refused|relayed|versions_taken)|server_(device_|followed_|numbers_not_given)|coordinator_(group_|trainers|backup|fail_over))")


def samples(text):
    """(name, labels, value) of each sample of a scrape."""
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if match:
            labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match["labels"] or ""))
            yield match["name"], labels, match["value"]


def families(text):
    """Name to (type, help)."""
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    return {name: (kind, helps[name]) for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)}


class Sources(unittest.TestCase):
    def test_files_are_as_the_sources_have_them(self):
        script = os.path.join(SOURCE, "deploy", "observability", "generate.py")
        done = subprocess.run([sys.executable, "-B", script, "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_every_metric_has_help_and_unit(self):
        metrics = metric_registry.registry(SOURCE)
        self.assertGreater(len(metrics), 100)
        for metric in metrics.values():
            self.assertRegex(metric.help, r"^[A-Z0-9].*\.$", metric.name)
            self.assertTrue(metric.unit, metric.name)

    def test_a_name_that_is_not_exported_is_found(self):
        metrics = metric_registry.registry(SOURCE)
        self.assertEqual(generate.unknown_names("rate(hotbed_server_pull_seconds_bucket[5m])", metrics), set())
        self.assertEqual(generate.unknown_names("hotbed_server_pull_seconds > 1", metrics), {"hotbed_server_pull_seconds"})
        self.assertEqual(generate.unknown_names("rate(hotbed_no_such_total[5m])", metrics), {"hotbed_no_such_total"})
        self.assertEqual(generate.unknown_names("hotbed_server_log_bytes_sum", metrics), {"hotbed_server_log_bytes_sum"})

    def test_dashboards_are_json_with_a_choice_of_the_data_source(self):
        for name in generate.DASHBOARDS:
            with open(os.path.join(SOURCE, "deploy", "observability", "dashboards", f"{name}.json"), encoding="utf-8") as file:
                dashboard = json.load(file)
            self.assertIn("datasource", [v["name"] for v in dashboard["templating"]["list"]])
            for panel in dashboard["panels"]:
                self.assertTrue(panel["targets"], panel["title"])


class Scrapes(unittest.TestCase):
    """A small cluster with tables of several kinds that were pulled and pushed."""

    @classmethod
    def setUpClass(cls):
        cls.directory = local.Directory()
        data = os.path.join(cls.directory.path, "data")
        cls.up = local.Up(data, "--servers", 2, "--serving", 1, "--port", 0, "--host-bytes", "128MiB")
        try:
            cls.up.json("table", "create", "kept", "--dim", 8, "--rows", 20000, "--durability", "replicated=2")
            cls.up.json("table", "create", "loose", "--dim", 8, "--hashed", "--durability", "checkpoint", "--touches")
            local.eventually("all replicas are there", cls.complete)
            cls.up.json("row", "get", "kept", 1, 2, 3)
            cls.up.json("serve", "add", "kept", "loose")
            local.eventually("the tables are served", cls.served)
            status = cls.up.json("status")
            admins = {s["name"]: s["admin_address"] for s in status["servers"]}
            admins["serving"] = cls.up.json("serve", "status")["servers"][0]["admin_address"]
            admins["coordinator"] = next(p["admin_address"] for p in cls.up.info["processes"] if p["name"] == "coordinator")
            cls.scrapes = {name: local.http(address, "/metrics")[2] for name, address in admins.items()}
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.up.stop()
        cls.directory.__exit__()

    @classmethod
    def complete(cls):
        tables = cls.up.json("status")["tables"]
        return all(t["shards_active"] == t["shards"] and t["shards_short_of_replicas"] == 0 for t in tables)

    @classmethod
    def served(cls):
        copies = [copy for table in cls.up.json("serve", "status")["tables"] for copy in table["copies"]]
        return [copy["state"] for copy in copies] == ["ready"] * 2

    def test_the_page_has_what_the_processes_export(self):
        metrics = metric_registry.registry(SOURCE)
        seen = set()
        for process, text in self.scrapes.items():
            role = "coordinator" if process == "coordinator" else "server"
            for name, (kind, told) in families(text).items():
                if name.endswith(LAST_TIME):  # of a RareCounter
                    self.assertIn(name.removesuffix(LAST_TIME) + "_total", metrics, process)
                    continue
                self.assertIn(name, metrics, f"{process} exports it, and the sources have no literal of it")
                self.assertEqual((metrics[name].kind, metrics[name].help), (kind, told), name)
                self.assertIn(metrics[name].exporter, (role, "both"), name)
                seen.add(name)
            for name, labels, _ in samples(text):
                stem = name if name in metrics else re.sub(r"_(bucket|sum|count)$", "", name)
                if name.endswith(LAST_TIME):
                    stem = name.removesuffix(LAST_TIME) + "_total"
                self.assertEqual(sorted(set(labels) - {"le"}), sorted(metrics[stem].labels), name)
        self.assertEqual([name for name in metrics if name not in seen and not RARE.match(name)], [])

    def test_no_alert_of_a_healthy_cluster_and_each_of_a_sick_one(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("no promtool (Debian: prometheus)")
        tests = [self.healthy(), *map(self.sick, alerts.ALERTS)]
        with tempfile.TemporaryDirectory() as directory:
            for process, text in self.scrapes.items():
                checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
                self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""), process)
            path = os.path.join(directory, "test.json")  # JSON is YAML
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"rule_files": [RULES], "evaluation_interval": "1m", "tests": tests}, file)
            done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def healthy(self):
        """The scrapes as series that stay as they are: no rule fires."""
        series = []
        for process, text in self.scrapes.items():
            for name, labels, value in samples(text):
                inside = ",".join(f'{k}="{v}"' for k, v in {**labels, "instance": process, "job": "hotbed"}.items())
                series.append({"series": f"{name}{{{inside}}}", "values": f"{float(value):.17g}x120"})
        return {"interval": "1m", "input_series": series, "name": "a healthy cluster",
                "promql_expr_test": [{"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "100m", "exp_samples": []}]}

    def sick(self, alert):
        return {"interval": "1m", "input_series": [{"series": s, "values": v} for s, v in alert.fires], "name": alert.name,
                "promql_expr_test": [{
                    "expr": f'count(ALERTS{{alertstate="firing",alertname="{alert.name}"}}) > bool 0',
                    "eval_time": "80m" if alert.lasts == "1h" else "45m",
                    "exp_samples": [{"labels": "{}", "value": 1}]}]}


if __name__ == "__main__":
    unittest.main()
