"""Replicas, live moves, drains, added servers and fail-over by the command line, against `hotbed up`, under load."""

import json
import os
import re
import signal
import subprocess
import unittest

import local


def fields_of(document):
    """The names of all fields of a JSON document, however deep."""
    if isinstance(document, list):
        return set().union(*map(fields_of, document))
    return set(document).union(*map(fields_of, document.values())) if isinstance(document, dict) else set()


class Moves(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = local.Directory()
        cls.data = os.path.join(cls.directory.path, "data")
        cls.up = local.Up(cls.data, "--servers", 3, "--port", 0, "--host-bytes", "128MiB")
        # Each test moves shards itself; the cluster must not move any by itself.
        cls.up.json("rebalance", "off")
        cls.up.json("table", "create", "kept", "--dim", 16, "--rows", 200000, "--durability", "replicated=2")
        cls.up.json("table", "create", "logged", "--dim", 16, "--rows", 200000)
        local.eventually("all replicas are there", cls.complete)

    @classmethod
    def tearDownClass(cls):
        cls.up.stop()
        cls.directory.__exit__()

    @classmethod
    def complete(cls):
        """True when every shard is active and no table is short of replicas."""
        tables = cls.up.json("status")["tables"]
        return all(t["shards_active"] == t["shards"] and t["shards_short_of_replicas"] == 0 for t in tables)

    def shards(self, table):
        return self.up.json("shard", "list", "--table", table)

    def holders(self, table):
        return {s["shard"]: sorted(s["members"]) for s in self.shards(table)}

    def test_replicas_are_shown_and_on_two_servers(self):
        for shard in self.shards("kept"):
            self.assertEqual(len(set(shard["members"])), 2, shard)
            self.assertEqual(shard["members"].count(shard["primary"]), 1)
        described = self.up.json("table", "describe", "kept")
        self.assertEqual((described["durability"], described["replicas"]), ("replicated=2", 2))
        self.assertIn("2 of each shard", self.up.cli("table", "describe", "kept")[1])
        status = self.up.json("status")
        self.assertEqual({s["failure_domain"] for s in status["servers"]} >= {"s0", "s1", "s2"}, True)
        code, out, _ = self.up.cli("shard", "list", "--table", "kept")
        self.assertEqual(code, 0)
        self.assertIn("backups", out.splitlines()[0])

    def test_the_console_shows_the_cluster(self):
        admin = next(p["admin_address"] for p in self.up.info["processes"] if p["name"] == "coordinator")
        page = local.http(admin, "/console", accept="text/html", agent="Mozilla/5.0")[2]
        program = local.http(admin, "/console.js")[2]
        self.assertEqual(local.http(admin, "/console.css")[:2], (200, "text/css; charset=utf-8"))
        self.assertEqual(re.findall(r"https?://|style=|\bon\w+=\"|innerHTML", page + program.replace("http://www.w3.org/2000/svg", "")),
                         [], "the page takes something from elsewhere, or what its policy forbids")
        for name in re.findall(r"byId\('([a-z-]+)'\)", program):
            self.assertIn(f'id="{name}"', page)
        document = json.loads(local.http(admin, "/api/cluster")[2])
        planned = fields_of(json.loads(local.http(admin, "/api/plan")[2]))
        for part, item in (("servers", "server"), ("servers", "s"), ("tables", "t"), ("shards", "shard"), ("moves", "m")):
            has = document[part] if part == "moves" else document[part][0]
            for field in re.findall(rf"\b{item}\.([a-z_]+)\b(?!\()", program):
                known = field in has or field in document["shards"][0] or field in document["tables"][0] or field in {"replace"}
                self.assertTrue(known or field in planned,
                                f"the program reads {item}.{field}, which neither /api/cluster nor /api/plan has")
        names = {s["name"] for s in self.up.json("status")["servers"]}  # another test adds one
        self.assertEqual({s["name"] for s in document["servers"]}, names)
        self.assertLessEqual({s["state"] for s in document["servers"]}, {"live", "draining"})
        tables = {t["name"]: t["replicas"] for t in document["tables"]}
        self.assertEqual((tables["kept"], tables["logged"]), (2, 1))
        listed = {s["shard"]: (s["epoch"], s["range"][0]) for s in self.shards("kept")}
        kept = next(t["id"] for t in document["tables"] if t["name"] == "kept")
        self.assertEqual({f"kept/{s['index']}" for s in document["shards"] if s["table"] == kept}, set(listed))
        told = {e["text"] for e in self.up.json("events", "--limit", "1000")}
        self.assertTrue({e["text"] for e in document["events"]} & told, "the last events are shown")

    def test_a_shard_moves_there_and_back_and_refusals_say_why(self):
        shard = self.shards("logged")[0]
        target = next(s for s in ("s0", "s1", "s2") if s != shard["primary"])
        dry = self.up.json("shard", "move", shard["shard"], "--to", target, "--dry-run")
        self.assertEqual((dry["dry_run"], len(dry["moves"])), (True, 1))
        self.assertEqual(self.shards("logged")[0]["primary"], shard["primary"])
        moved = self.up.json("shard", "move", shard["shard"], "--to", target)
        self.assertTrue(moved["done"])
        self.assertEqual(self.holders("logged")[shard["shard"]], [target])
        code, _, err = self.up.cli("shard", "move", shard["shard"], "--to", target)
        self.assertEqual(code, 1)
        self.assertIn(f"on {target} already", err)
        code, out, err = self.up.cli("shard", "move", shard["shard"], "--to", shard["primary"])
        self.assertEqual(code, 0, err)
        self.assertIn("done in", out)
        self.assertIn("1 of 1 move", err)
        for args, words in ((("logged/99999", "--to", "s1"), "has the shards 0-"),
                            (("lgged/0", "--to", "s1"), "did you mean 'logged'?"),
                            (("logged/0", "--to", "s77"), "there is no server 's77'")):
            code, _, err = self.up.cli("shard", "move", *args)
            self.assertEqual(code, 1, args)
            self.assertIn(words, err)
        text = self.up.cli("events")[1]
        self.assertIn(shard["shard"], text)

    def test_a_move_under_load_loses_nothing_and_is_watched(self):
        bench = subprocess.Popen(
            [local.program("hotbed"), "bench", "mixed", "--coordinator", self.up.coordinator, "--seconds", "6",
             "--repeats", "1", "--rows", "100000", "--dim", "16", "--no-roofs", "-o", "json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=local.clean_environment(),
            stdin=subprocess.DEVNULL)
        try:
            name = local.eventually("the bench's table is there", lambda: next(
                (t["name"] for t in self.up.json("table", "list") if t["name"].startswith("bench-")), None))
            for target in ("s0", "s1"):
                done = self.up.json("shard", "move", f"{name}/all", "--to", target, "--bandwidth", "500MiB/s")
                self.assertTrue(done["done"])
                self.assertEqual({s["primary"] for s in self.shards(name)}, {target})
        finally:
            out, err = bench.communicate(timeout=local.WAIT_SECONDS)
        self.assertEqual(bench.returncode, 0, err)
        self.assertGreater(json.loads(out)["rows_per_s"], 0)
        self.up.json("shard", "limit", "--bandwidth", "none")
        self.assertEqual(self.up.json("shard", "limit")["bytes_per_s"], 0)

    def test_an_added_server_is_filled_and_drained(self):
        code, out, err = self.up.cli("up", "--add-server", "--data-dir", self.data, "-o", "json")
        self.assertEqual(code, 0, err)
        name = json.loads(out)["name"]
        self.assertEqual(name, "s3")
        local.eventually("it is live", lambda: any(s["name"] == name and s["live"]
                                                   for s in self.up.json("status")["servers"]))
        before = self.holders("kept")
        moved = self.up.json("shard", "move", "kept/0-3", "--to", name)
        self.assertTrue(moved["done"])
        after = self.holders("kept")
        self.assertEqual({s for s in after if name in after[s]}, {"kept/0", "kept/1", "kept/2", "kept/3"})
        self.assertTrue(all(len(set(m)) == 2 for m in after.values()), after)
        drained = self.up.json("shard", "drain", name)
        self.assertTrue(drained["done"])
        self.assertFalse([s for s in self.up.json("shard", "list") if name in s["members"] + s["learners"]])
        self.assertTrue(next(s for s in self.up.json("status")["servers"] if s["name"] == name)["draining"])
        code, _, err = self.up.cli("shard", "move", "kept/0", "--to", name)
        self.assertEqual(code, 1)
        self.assertIn("drain", err)
        self.assertEqual(self.up.cli("shard", "drain", name, "--undo")[0], 0)
        self.assertEqual(set(after), set(before))

    def test_a_wait_that_is_interrupted_leaves_the_move_going(self):
        self.up.json("shard", "pause")
        try:
            shard = self.shards("logged")[1]
            target = next(s for s in ("s0", "s1", "s2") if s != shard["primary"])
            waiting = subprocess.Popen(
                [local.program("hotbed"), "shard", "move", shard["shard"], "--to", target, "--coordinator",
                 self.up.coordinator], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=local.clean_environment(), stdin=subprocess.DEVNULL)
            local.eventually("it is under way", lambda: self.up.json("shard", "moves")["moves_total"] > 0)
            waiting.send_signal(signal.SIGINT)
            _, err = waiting.communicate(timeout=local.WAIT_SECONDS)
            self.assertEqual(waiting.returncode, 1)
            self.assertIn("the moves go on", err)
            request = re.search(r"hotbed shard abort (\d+)", err).group(1)
            listed = self.up.json("shard", "moves", request)
            self.assertTrue(listed["paused"])
            self.assertEqual([m["shard"] for m in listed["moves"]], [shard["shard"]])
            self.assertEqual(self.up.json("shard", "abort", request)["moves"], 1)
        finally:
            self.up.json("shard", "resume")
        local.eventually("nothing is under way", lambda: self.up.json("shard", "moves")["moves_total"] == 0)
        self.assertEqual(self.holders("logged")[shard["shard"]], [shard["primary"]])

    def plan(self, strategy, tables, **options):
        """A problem of these tables on the three servers, for `plan compute` and `plan apply --input`."""
        return {"tables": tables,
                "topology": {"servers": [{"name": s, "host_bytes": 10**9} for s in ("s2", "s0", "s1")]},
                "planner": {"strategy": strategy, **options}}

    def primaries(self, table):
        return [(s["primary"], tuple(s["range"]), tuple(s["columns"])) for s in self.shards(table)]

    def test_tables_are_created_and_moved_by_plans_of_any_strategy(self):
        tables = [{"name": "by_rows", "rows": 3000, "dim": 8, "optimizer": "sgd"},
                  {"name": "by_columns", "rows": 100, "dim": 8, "optimizer": "sgd"}]
        with local.Directory() as directory:
            def write(name, value):
                path = os.path.join(directory, name)
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(value, file)
                return path

            rows = self.plan("basic", tables, row_slice_threshold=20000, column_slice_threshold=400)
            code, plan, err = local.run("hotbed", "plan", "compute", "--input", write("problem.json", rows), "-o", "json")
            self.assertEqual(code, 0, err + plan)
            stored = write("plan.json", json.loads(plan))
            listed = write("tables.json", tables)
            made = self.up.json("table", "create", "--file", listed, "--plan", stored)
            self.assertEqual([(t["name"], t["servers"]) for t in made], [("by_rows", 3), ("by_columns", 2)])
            self.assertEqual(self.primaries("by_rows"), [("s2", (0, 1000), (0, 8)), ("s0", (1000, 2000), (0, 8)),
                                                         ("s1", (2000, 3000), (0, 8))])
            self.assertEqual([(p, c) for p, _, c in self.primaries("by_columns")], [("s2", (0, 4)), ("s0", (4, 8))])
            self.assertEqual(self.up.json("plan", "apply", stored)["moves"], [], "they are as the plan has them")
            local.eventually("all shards serve", self.complete)

            # Whole tables by another strategy, under a plan's problem; then back by the stored plan.
            whole = write("whole.json", self.plan("memory_balanced", tables, column_slice_threshold=10**6))
            dry = self.up.json("plan", "apply", "--input", whole, "--dry-run")
            self.assertEqual((dry["dry_run"], len(dry["moves"])), (True, 3))
            moved = self.up.json("plan", "apply", "--input", whole)
            self.assertTrue(moved["done"])
            self.assertEqual({p for p, _, _ in self.primaries("by_rows")}, {"s2"})
            self.assertEqual({p for p, _, _ in self.primaries("by_columns")}, {"s0"})
            self.assertTrue(self.up.json("plan", "apply", stored)["done"])
            self.assertEqual([p for p, _, _ in self.primaries("by_rows")], ["s2", "s0", "s1"])
            self.assertEqual([p for p, _, _ in self.primaries("by_columns")], ["s2", "s0"])

            # Where the plan has parts of a shard on different servers, it is split first.
            ranges = [("s2", 0, 500), ("s0", 500, 2500), ("s1", 2500, 3000)]
            finer = write("finer.json", {"strategy": "basic", "tables": [{"name": "by_rows", "shards": [
                {"server": server, "rows": [first, limit], "columns": [0, 8]} for server, first, limit in ranges]}]})
            dry = self.up.json("plan", "apply", finer, "--dry-run")
            self.assertEqual([(c["shard"], c["at"]) for c in dry["cuts"]], [(0, [500]), (2, [2500])])
            self.assertEqual([p for p, _, _ in self.primaries("by_rows")], ["s2", "s0", "s1"])
            self.assertTrue(self.up.json("plan", "apply", finer)["done"])
            held = sorted((r[0], p) for p, r, _ in self.primaries("by_rows"))
            self.assertEqual(held, [(0, "s2"), (500, "s0"), (1000, "s0"), (2000, "s0"), (2500, "s1")])
            again = self.up.json("plan", "apply", finer)
            self.assertEqual((again["cuts"], again["moves"]), ([], []))

            # With --merge, the neighbours that a plan has in one range become one shard again.
            dry = self.up.json("plan", "apply", stored, "--merge", "--dry-run")
            self.assertEqual(sorted(m["at"] for m in dry["merges"]), [500, 2500])
            self.assertEqual(len(self.primaries("by_rows")), 5)
            merged = self.up.json("plan", "apply", stored, "--merge", "--timeout", "60s")
            self.assertEqual(len(merged["merges"]), 2)
            held = sorted((r, p) for p, r, _ in self.primaries("by_rows"))
            self.assertEqual(held, [((0, 1000), "s2"), ((1000, 2000), "s0"), ((2000, 3000), "s1")])
            self.assertEqual(self.up.json("plan", "apply", stored, "--merge")["merges"], [])

    def test_rebalancing_is_switched(self):
        self.assertTrue(self.up.json("rebalance", "on")["rebalance"]["on"])
        self.assertFalse(self.up.json("rebalance", "off")["rebalance"]["on"])
        self.assertFalse(self.up.json("rebalance", "status")["on"])
        checks = {c["check"]: c["verdict"] for c in self.up.json("doctor")}
        self.assertEqual(checks["rebalancing"], "warning")


class Loss(unittest.TestCase):
    def test_a_killed_server_is_failed_over_and_comes_back_as_a_replica(self):
        with local.Directory() as directory:
            up = local.Up(os.path.join(directory, "data"), "--servers", 3, "--port", 0, "--host-bytes", "128MiB")
            try:
                up.json("rebalance", "off")
                up.json("table", "create", "kept", "--dim", 4, "--rows", 100000, "--durability", "replicated=2",
                        "--init", "constant:1")

                def complete():
                    table = up.json("status")["tables"][0]
                    return table["shards_active"] == table["shards"] and table["shards_short_of_replicas"] == 0

                local.eventually("all replicas are there", complete)
                os.kill(up.pids()["s1"], signal.SIGKILL)
                rows = up.json("row", "get", "kept", *range(0, 100000, 9999))
                self.assertTrue(all(r["weights"] == [1, 1, 1, 1] for r in rows))
                local.eventually("all replicas are there again", complete)
                kinds = {e["kind"] for e in up.json("events")}
                self.assertIn("server_down", kinds)
            finally:
                code, err = up.stop()
            self.assertEqual(code, 0, err)


if __name__ == "__main__":
    unittest.main()
