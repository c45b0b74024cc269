"""Every command of the CLI against `hotbed up --servers 3`, real processes."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import local

ID_MAX = 2**64 - 1


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = local.Directory()
        cls.up = local.Up(os.path.join(cls.directory.path, "data"), "--servers", 3, "--port", 0,
                          "--host-bytes", "128MiB")

    @classmethod
    def tearDownClass(cls):
        cls.up.stop()
        cls.directory.__exit__()

    def test_status_shows_live_servers(self):
        status = self.up.json("status")
        self.assertEqual([s["name"] for s in status["servers"]], ["s0", "s1", "s2"])
        self.assertTrue(all(s["live"] for s in status["servers"]))
        code, text, _ = self.up.cli("status")
        self.assertEqual(code, 0)
        self.assertIn("3 of 3 servers live", text)

    def test_coordinator_comes_from_the_environment_too(self):
        code, out, err = local.run("hotbed", "status", "-o", "json", env={"HOTBED_COORDINATOR": self.up.coordinator})
        self.assertEqual(code, 0, err)
        self.assertEqual(len(json.loads(out)["servers"]), 3)

    def test_rows_that_come_and_go(self):
        self.up.json("table", "create", "seen", "--dim", 4, "--hashed", "--touches", "--ttl-steps", 5, "--init", "zero")
        self.assertEqual(self.up.json("table", "expire", "seen", "--dry-run"),
                         {"table": "seen", "rows": 0, "expires": 0, "evicts": 0})
        self.assertEqual(self.up.json("row", "get", "seen", 17)[0]["touches"],
                         {"count": 0, "time_s": 0, "step": 0, "candidate": False})
        code, _, err = self.up.cli("table", "expire", "seen", "--dry-run", "--evict-by", "luck")
        self.assertEqual(code, 1)
        self.assertIn("lru, lfu, norm", err)
        code, _, err = self.up.cli("table", "expire", "seen")
        self.assertNotEqual(code, 0)
        self.assertIn("--dry-run", err)
        code, _, err = self.up.cli("table", "create", "bad", "--dim", 4, "--rows", 10, "--ttl-s", 5)
        self.assertNotEqual(code, 0)
        self.assertIn("ttl_s is 5", err)
        altered = self.up.json("table", "alter", "seen", "--ttl-steps", 9, "--rows-max", 100)
        self.assertEqual(altered["changes"][-1]["life"]["ttl_steps"], 9)
        altered = self.up.json("table", "alter", "seen", "--ttl-steps", 0)
        self.assertEqual([(life["ttl_steps"], life["rows_max"]) for life in (c["life"] for c in altered["changes"])], [(0, 100)])
        for flags, refused in ((("--admit-after", 3), "every replica admits rows by it"),
                               (("--touches",), "rows are stored in this layout"),
                               (("--evict-by", "score"), "allowed: lru, lfu or norm without shows")):
            code, _, err = self.up.cli("table", "alter", "seen", *flags)
            self.assertNotEqual(code, 0)
            self.assertIn(refused, err)
        self.up.json("table", "drop", "seen", "--yes")
        self.up.json("table", "create", "shown", "--dim", 4, "--hashed", "--touches", "--shows", "--rows-max", 9, "--evict-by", "score")
        self.assertEqual(self.up.json("row", "get", "shown", 17)[0]["touches"]["shows"], 0)
        self.assertEqual(self.up.json("table", "expire", "shown", "--dry-run", "--score-least", 2)["expires"], 0)
        self.up.json("table", "drop", "shown", "--yes")

    def test_table_life(self):
        create = ("table", "create", "life", "--dim", 8, "--rows", 100000, "--optimizer", "adam", "--lr", "0.5",
                  "--init", "uniform:-0.25,0.25", "--durability", "log")
        self.assertEqual(self.up.json(*create, "--dry-run")["created"], False)
        self.assertNotIn("life", [t["name"] for t in self.up.json("table", "list")])
        made = self.up.json(*create)
        self.assertTrue(made["created"])
        self.assertGreaterEqual(made["shards"], 8)
        self.assertIn(made["servers"], (1, 2, 3))  # measured load of other tables may keep servers out
        code, _, err = self.up.cli(*create)
        self.assertEqual(code, 1)
        self.assertIn("life", err)
        self.assertFalse(self.up.json(*create, "--if-not-exists")["created"])
        code, _, err = self.up.cli("table", "create", "life", "--dim", 16, "--rows", 100000, "--if-not-exists")
        self.assertEqual(code, 1)
        described = self.up.json("table", "describe", "life")
        self.assertEqual(described["optimizer"]["kind"], "adam")
        self.assertEqual(described["initializer"], "uniform:-0.25,0.25")
        self.assertEqual(described["shards"][-1]["range"][1], 100000)
        self.assertFalse(self.up.json("table", "drop", "life", "--dry-run")["dropped"])
        self.assertTrue(self.up.json("table", "drop", "life", "--yes")["dropped"])
        code, _, err = self.up.cli("table", "describe", "life")
        self.assertEqual(code, 1)
        self.assertIn("no table 'life'", err)
        code, _, err = self.up.cli("row", "get", "life", 1)
        self.assertEqual(code, 1)

    def test_a_table_has_shares_of_memory_that_change_at_once(self):
        self.up.json("table", "create", "shared", "--dim", 4, "--rows", 100, "--memory-share-min", "0.25")
        described = self.up.json("table", "describe", "shared")
        self.assertEqual((described["memory_share_min"], described["memory_share_max"]), (0.25, 1))
        self.assertEqual(described["memory"]["hit_ratio"], None, "nobody has read it")
        self.assertTrue(self.up.json("table", "alter", "shared", "--memory-share-max", "0.5")["altered"])
        described = self.up.json("table", "describe", "shared")
        self.assertEqual(described["changes"], [{"at_step": 1, "memory_share_max": 0.5}])
        _, text, _ = self.up.cli("table", "describe", "shared")
        self.assertIn("at least 25 % of a server's; at most 50 % of a server's", text)
        for args, words in ((("--memory-share-max", "0.1"), "memory_share_min is 0.25, allowed: at most"),
                            (("--memory-share-max", "2"), "memory_share_max is 2, allowed: (0, 1]")):
            code, _, err = self.up.cli("table", "alter", "shared", *args)
            self.assertEqual(code, 1, args)
            self.assertIn(words, err)

    def test_a_table_is_altered_from_a_step_on(self):
        self.up.json("table", "create", "altered", "--dim", 4, "--rows", 100, "--optimizer", "adamw", "--lr", "0.1",
                     "--schedule", "cosine", "--total-steps", 1000, "--padding-id", 0, "--consistency", "bounded:2")
        change = ("table", "alter", "altered", "--lr", "0.05", "--min-factor", "0.25", "--at-step", 500)
        planned = self.up.json(*change, "--dry-run")
        self.assertEqual((planned["altered"], len(planned["changes"])), (False, 1))
        self.assertEqual(self.up.json("table", "describe", "altered")["changes"], [])
        self.assertTrue(self.up.json(*change)["altered"])
        self.assertFalse(self.up.json(*change)["altered"], "it is so already")
        described = self.up.json("table", "describe", "altered")
        self.assertEqual(described["changes"][0]["at_step"], 500)
        self.assertEqual(described["changes"][0]["learning_rate"], 0.05)
        self.assertEqual(described["changes"][0]["schedule"]["total_steps"], 1000)
        self.assertEqual(described["changes"][0]["schedule"]["min_factor"], 0.25)
        code, text, _ = self.up.cli("table", "describe", "altered")
        self.assertIn("from step 500", text)
        for args, words in ((("--lr", 1, "--at-step", 499), "at_step is 499, allowed: 500"),
                            (("--lr", -1, "--at-step", 600), "learning_rate is -1, allowed: finite and >= 0"),
                            (("--dim", 8, "--at-step", 600), "make a new table"),
                            (("--at-step", 600), "nothing to change")):
            code, _, err = self.up.cli("table", "alter", "altered", *args)
            self.assertEqual(code, 1, args)
            self.assertIn(words, err)
        self.assertEqual(len(self.up.json("table", "describe", "altered")["changes"]), 1)
        with local.Directory() as directory:
            path = os.path.join(directory, "described.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(described, file)
            self.assertFalse(self.up.json("table", "create", "--file", path, "--if-not-exists")[0]["created"])
            described["optimizer"]["beta1"] = 0.5
            with open(path, "w", encoding="utf-8") as file:
                json.dump(described, file)
            code, _, err = self.up.cli("table", "create", "--file", path, "--if-not-exists")
            self.assertEqual(code, 1)
            self.assertIn("optimizer.beta1: 0.9 -> 0.5", err)

    def test_options_out_of_range_are_refused_by_name(self):
        for args, words in ((("--lr", -1), "optimizer.learning_rate is -1, allowed: finite and >= 0"),
                            (("--beta1", 1), "optimizer.beta1 is 1, allowed: [0, 1)"),
                            (("--momentum", 1), "optimizer.momentum is 1, allowed: [0, 1)"),
                            (("--optimizer", "adma"), "did you mean 'adam'?"),
                            (("--padding-id", 10), "padding_id is 10, allowed: an id of the table, 0..9"),
                            (("--lazy-decay",), "optimizer.lazy_decay is true, allowed"),
                            (("--stochastic-rounding",), "optimizer.stochastic_rounding is true"),
                            (("--clip-value", "nan"), "optimizer.clip_value is nan"),
                            (("--optimizer", "ftrl", "--lr", 0), "optimizer.learning_rate is 0, allowed: finite and > 0"),
                            (("--column-slices", 5), "column_slices is 5, allowed: 1..4")):
            with self.subTest(args):
                code, _, err = self.up.cli("table", "create", "refused", "--dim", 4, "--rows", 10, *args)
                self.assertEqual(code, 2, err)
                self.assertIn(words, err)
        self.assertNotIn("refused", [t["name"] for t in self.up.json("table", "list")])

    def test_rows_of_a_hashed_table_by_any_id(self):
        self.up.json("table", "create", "any", "--dim", 4, "--hashed", "--init", "constant:1")
        rows = self.up.json("row", "get", "any", 0, ID_MAX, -1, -(2**63), "0x10", 2**53 + 1)
        self.assertEqual([r["id"] for r in rows], [0, ID_MAX, ID_MAX, 2**63, 16, 2**53 + 1])
        for row in rows:
            self.assertFalse(row["exists"])
            self.assertEqual(row["weights"], [1, 1, 1, 1])
            self.assertRegex(row["shard"], r"^any/\d+$")
            self.assertRegex(row["server"], r"^s[012]$")
        code, text, _ = self.up.cli("row", "get", "any", -1)
        self.assertEqual(code, 0)
        self.assertIn(str(ID_MAX), text)
        self.assertIn("exists no: there is no row (never pushed, deleted, or not admitted yet)", text)

    def test_rows_of_a_silent_server_are_left_out_on_request(self):
        self.up.json("table", "create", "partly", "--dim", 2, "--rows", 3000, "--init", "constant:1")
        places = {row["id"]: row["server"] for row in self.up.json("row", "get", "partly", *range(0, 3000, 100))}
        silent = places[0]
        os.kill(self.up.pids()[silent], signal.SIGSTOP)
        try:
            rows = self.up.json("row", "get", "partly", "--partial", "--timeout", "2s", *places)
            _, text, _ = self.up.cli("row", "get", "partly", "--partial", "--timeout", "2s", 0)
        finally:
            os.kill(self.up.pids()[silent], signal.SIGCONT)
        for row in rows:  # on a busy machine others may be missing, too
            self.assertTrue(row["missing"] or places[row["id"]] != silent, row)
            self.assertEqual(row["weights"], [0, 0] if row["missing"] else [1, 1])
        self.assertIn("not answered", text)
        local.eventually("no row is missing",
                         lambda: not any(r["missing"] for r in self.up.json("row", "get", "partly", "--partial", *places)))

    def test_rows_of_a_bounded_table_stay_inside(self):
        self.up.json("table", "create", "few", "--dim", 2, "--rows", 10, "--init", "zero")
        self.assertEqual(self.up.json("row", "get", "few", 9)[0]["weights"], [0, 0])
        code, _, err = self.up.cli("row", "get", "few", 10)
        self.assertEqual(code, 1)
        self.assertIn("few", err)
        self.assertIn("10", err)

    def test_first_values_are_scaled_by_the_dim_unless_asked_for(self):
        self.up.json("table", "create", "scaled", "--dim", 16, "--rows", 1000, "--seed", 5)
        self.assertEqual(self.up.json("table", "describe", "scaled")["initializer"], "uniform:-0.25,0.25")
        weights = [w for row in self.up.json("row", "get", "scaled", *range(0, 1000, 50)) for w in row["weights"]]
        self.assertTrue(all(-0.25 <= w < 0.25 for w in weights))
        self.assertAlmostEqual(sum(w * w for w in weights) / len(weights), 0.25**2 / 3, delta=0.005)

    def test_shards_and_plan_cover_the_table(self):
        self.up.json("table", "create", "cover", "--dim", 64, "--rows", 1000000)
        shards = self.up.json("shard", "list", "--table", "cover")
        edges = [tuple(s["range"]) for s in shards]
        self.assertEqual(edges[0][0], 0)
        self.assertEqual(edges[-1][1], 1000000)
        self.assertTrue(all(a[1] == b[0] for a, b in zip(edges, edges[1:])))
        local.eventually("all shards active",
                         lambda: all(s["active"] for s in self.up.json("shard", "list", "--table", "cover")))
        placed = next(t for t in self.up.json("plan", "show")["tables"] if t["name"] == "cover")["shards"]
        # Measured load of the other tables may keep a server out of a new table.
        self.assertLessEqual({s["server"] for s in placed}, {"s0", "s1", "s2"})
        self.assertEqual(sorted((s["server"], tuple(s["rows"])) for s in placed),
                         sorted((s["primary"], tuple(s["range"])) for s in shards))
        code, text, _ = self.up.cli("plan", "show")
        self.assertEqual(code, 0)
        self.assertIn("The placement in force, plan revision", text)
        self.assertIn("What binds", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        with local.Directory() as directory:
            stored = os.path.join(directory, "live.json")
            with open(stored, "w", encoding="utf-8") as file:
                json.dump(self.up.json("plan", "show"), file)
            self.assertEqual(local.run("hotbed", "plan", "show", stored)[0], 0)

    def test_a_replan_is_shown_and_changes_nothing(self):
        self.up.json("table", "create", "replanned", "--dim", 16, "--rows", 100000)
        before = self.up.json("shard", "list", "--table", "replanned")
        again = self.up.json("plan", "apply", "--dry-run")
        self.assertEqual(again["unreachable"], [])
        self.assertGreaterEqual(again["max_server_ms"]["before"], again["max_server_ms"]["after"])
        drained = self.up.json("plan", "apply", "--dry-run", "--drain", "s1")
        leaving = [m for m in drained["moves"] if m["table"] == "replanned" and m["from"] == "s1"]
        self.assertEqual(sorted(tuple(m["rows"]) for m in leaving),
                         sorted(tuple(s["range"]) for s in before if s["primary"] == "s1"))
        self.assertTrue(all(m["to"] in ("s0", "s2") for m in drained["moves"]))
        self.assertEqual(drained["move_bytes"], sum(m["bytes"] for m in drained["moves"]))
        code, text, _ = self.up.cli("plan", "apply", "--dry-run", "--drain", "s1")
        self.assertEqual(code, 0)
        self.assertIn("s1 is draining", text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        code, out, _ = self.up.cli("plan", "apply", "--dry-run", "--drain", "s1", "--move-bytes-max", "1KiB")
        self.assertEqual(code, 1)
        self.assertIn("move_bytes_max", out)
        code, _, err = self.up.cli("plan", "apply", "--drain", "s1")
        self.assertEqual(code, 1)
        self.assertIn("nothing was changed", err)
        self.assertEqual([(s["primary"], s["range"], s["epoch"]) for s in before],
                         [(s["primary"], s["range"], s["epoch"])
                          for s in self.up.json("shard", "list", "--table", "replanned")])

    def test_tables_from_a_file_are_created_together(self):
        with local.Directory() as directory:
            path = os.path.join(directory, "tables.json")

            def write(tables):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(tables, file)

            tables = [{"name": f"together-{i}", "dim": 8, "rows": 100 * (i + 1), "init": "constant:1"} for i in range(70)]
            write(tables[:5] + [{"name": "together-bad", "dim": 8, "rows": 0}])
            code, _, err = self.up.cli("table", "create", "--file", path)
            self.assertEqual(code, 1)
            self.assertIn("tables[5]", err)
            self.assertFalse([t for t in self.up.json("table", "list") if t["name"].startswith("together")])
            write(tables + [{"name": "together-hashed", "dim": 4, "hashed": True, "shards": 12, "optimizer": "adam"}])
            made = self.up.json("table", "create", "--file", path)
            self.assertTrue(all(t["created"] for t in made))
            self.assertEqual([t["id"] for t in made], list(range(made[0]["id"], made[0]["id"] + 71)))
            self.assertEqual((made[70]["shards"], made[70]["optimizer"]["kind"]), (12, "adam"))
            on = [s["primary"] for s in self.up.json("shard", "list") if re.match(r"together-\d+/", s["shard"])]
            self.assertEqual(len(on), 70)
            self.assertEqual({server: on.count(server) >= 20 for server in on}, {"s0": True, "s1": True, "s2": True})
            self.assertEqual(self.up.json("row", "get", "together-69", 6999)[0]["weights"], [1] * 8)
            code, _, err = self.up.cli("table", "create", "--file", path)
            self.assertEqual(code, 1)
            self.assertIn("together-0", err)
            again = self.up.json("table", "create", "--file", path, "--if-not-exists")
            self.assertFalse(any(t["created"] for t in again))

    def test_composed_tables_have_one_name(self):
        create = ("table", "create", "pairs", "--dim", 8, "--rows", 10000, "--compose", "quotient-remainder", "--padding-id=-1")
        dry = self.up.json(*create, "--dry-run")
        self.assertEqual((dry["created"], dry["parts"]), (False, ["pairs/quotient", "pairs/remainder"]))
        self.assertTrue(self.up.json(*create)["created"])
        self.assertFalse(self.up.json(*create, "--if-not-exists")["created"])
        described = self.up.json("table", "describe", "pairs")
        self.assertEqual(described["parameters"], {"composed": 1600, "plain": 80000, "saved": 78400})
        self.assertEqual([(p["rows"], p["dim"]) for p in described["parts"]], [(100, 8), (100, 8)])
        self.assertEqual(described["padding_id"], 9999)
        _, text, _ = self.up.cli("table", "describe", "pairs")
        self.assertIn("pairs/quotient[id / 100] * pairs/remainder[id mod 100]", text)
        self.assertIn("1,600 instead of 80,000, 78,400 (98.00 %) saved", text)
        listed = {t["name"]: t for t in self.up.json("table", "list")}
        self.assertEqual(listed["pairs"]["compose"], "quotient-remainder")
        self.assertEqual(listed["pairs/quotient"]["part_of"], "pairs")
        composed, = self.up.json("row", "get", "pairs", 205)
        (q,), (r,) = (self.up.json("row", "get", f"pairs/{part}", row) for part, row in (("quotient", 2), ("remainder", 5)))
        for made, a, b in zip(composed["weights"], q["weights"], r["weights"]):
            self.assertAlmostEqual(made, a * b, places=6)
        self.assertTrue(self.up.json("table", "alter", "pairs", "--learning-rate", "0.5", "--at-step", 9)["altered"])
        self.assertEqual(self.up.json("table", "describe", "pairs/remainder")["changes"][0]["learning_rate"], 0.5)
        again = self.directory.path + "/pairs.json"
        with open(again, "w", encoding="utf-8") as file:
            json.dump({**described, "name": "pairs2"}, file)
        self.assertEqual([t["name"] for t in self.up.json("table", "create", "--file", again)],
                         ["pairs2/quotient", "pairs2/remainder"])
        for args, code, words in (
                (("create", "pairs", "--dim", 8, "--rows", 5), 1, "it is a composed table"),
                (("create", "pairs/quotient", "--dim", 8, "--rows", 5, "--compose", "block", "--block-dims", 2), 1,
                 'is a part of composed table "pairs"'),
                (("create", "x", "--dim", 8, "--rows", 9, "--compose", "block", "--block-dims", 9), 2, "1..8 each"),
                (("create", "x", "--dim", 8, "--rows", 9, "--compose", "block", "--block-dims", 2, "--optimizer", "sgd",
                  "--column-slices", 4), 2, 'a part does not fit: table "x/block0": column_slices is 4'),
                (("create", "x", "--dim", 8, "--rows", 9, "--compose", "frequency", "--block-dims", 2), 2, "--histogram"),
                (("drop", "pairs/quotient", "--yes"), 1, 'drop "pairs"'), (("memory", "pairs"), 1, "takes its parts: pairs/q")):
            found, _, err = self.up.cli("table", *args)
            self.assertEqual(found, code, err)
            self.assertIn(words, err)
        self.assertEqual(self.up.json("table", "drop", "pairs", "--yes")["parts"], 2)
        self.assertTrue(self.up.json("table", "drop", "pairs2", "--yes")["dropped"])
        self.assertNotIn("pairs/quotient", [t["name"] for t in self.up.json("table", "list")])

    def test_frequency_blocks_follow_a_histogram(self):
        ids, counts = (os.path.join(self.directory.path, name) for name in ("ids.txt", "counts.npy"))
        with open(ids, "w", encoding="utf-8") as file:
            file.write("\n".join(str(i) for i in range(40) for _ in range(1 if i >= 10 else 90)) + "\n40,41\n")
        measured = self.up.json("table", "histogram", ids, "--rows", 40, "--dim", 16, "--blocks", 4, "--out", counts)
        self.assertEqual((measured["ids"], measured["outside"], measured["distinct"]), (932, 2, 40))
        self.assertEqual([block["dim"] for block in measured["blocks"]], [16, 2, 2, 2])
        made = self.up.json("table", "create", "clicks", "--dim", 16, "--histogram", counts, "--blocks", 4)
        self.assertEqual((made["rows"], made["block_dims"], len(made["parts"])), (40, "16,2,2,2", 8))
        row, = self.up.json("row", "get", "clicks", 3)
        block, = self.up.json("row", "get", "clicks/block0", 3)
        self.assertEqual(row["weights"], block["weights"])
        code, _, err = self.up.cli("table", "histogram", counts, "--rows", 40, "--out", counts)
        self.assertEqual(code, 1)
        self.assertIn("counts.npy", err)
        with open(ids, "a", encoding="utf-8") as file:
            file.write("seven\n")
        code, _, err = self.up.cli("table", "histogram", ids, "--rows", 40)
        self.assertEqual(code, 1)
        self.assertIn("line 932: 'seven' is no id", err)
        self.assertTrue(self.up.json("table", "drop", "clicks", "--yes")["dropped"])

    def test_calibration_is_a_file_that_plans_are_made_with(self):
        with local.Directory() as directory:
            path = os.path.join(directory, "calibration.json")
            code, out, err = local.run("hotbed", "plan", "calibrate", "--seconds", 1, "--dir", directory, "--out", path,
                                       "-o", "json")
            self.assertEqual(code, 0, err)
            with open(path, encoding="utf-8") as file:
                constants = json.load(file)
            self.assertEqual(constants, json.loads(out))
            self.assertEqual(os.listdir(directory), ["calibration.json"])
            for name, value in constants.items():
                if name != "about":
                    self.assertGreater(value, 0 if name.endswith("bandwidth") else -1, name)
            self.assertIn("segment_ns", constants["about"])
            problem = os.path.join(directory, "input.json")
            plain = {"tables": [{"name": "t", "rows": 1000, "dim": 4}],
                     "topology": {"servers": [{"name": "s", "host_bytes": 10**9}]}, "planner": {"strategy": "cost"}}
            with open(problem, "w", encoding="utf-8") as file:
                json.dump(plain, file)
            by_flag = local.run("hotbed", "plan", "compute", "--input", problem, "--constants", path, "-o", "json")
            self.assertEqual(by_flag[0], 0, by_flag[2])
            with open(problem, "w", encoding="utf-8") as file:
                json.dump({**plain, "constants": constants}, file)
            self.assertEqual(local.run("hotbed", "plan", "compute", "--input", problem, "-o", "json"), by_flag)

    def test_doctor_is_content(self):
        local.eventually("all shards active", lambda: all(s["active"] for s in self.up.json("shard", "list")))
        checks = {c["check"]: c["verdict"] for c in self.up.json("doctor")}
        for name in ("coordinator", "servers", "shards", "ready", "versions"):
            self.assertEqual(checks[name], "ok")

    def test_admin_ports(self):
        for process in self.up.info["processes"]:
            address = process["admin_address"]
            with self.subTest(process["name"]):
                self.assertEqual(local.http(address, "/healthz")[0], 200)
                local.eventually("ready", lambda a=address: local.http(a, "/readyz")[0] == 200)
                status, kind, body = local.http(address, "/statusz", "text/html", "Mozilla/5.0")
                self.assertEqual((status, kind.split(";")[0]), (200, "text/html"))
                self.assertIn("<table", body)
                self.assertEqual(local.http(address, "/statusz")[1].split(";")[0], "text/plain")
                self.assertIsInstance(json.loads(local.http(address, "/api/status")[2]), dict)
                self.assertEqual(local.http(address, "/")[0], 200)  # redirected

    @unittest.skipIf(shutil.which("promtool") is None, "promtool is missing (Debian package prometheus)")
    def test_metrics_are_clean(self):
        for process in self.up.info["processes"]:
            with self.subTest(process["name"]):
                metrics = local.http(process["admin_address"], "/metrics")[2]
                said = subprocess.run(["promtool", "check", "metrics"], input=metrics, text=True, capture_output=True,
                                      check=False)
                self.assertEqual((said.returncode, said.stdout + said.stderr), (0, ""))
                own = re.findall(r"^# TYPE (hotbed_\w+)", metrics, re.M)
                self.assertGreater(len(own), 3)

    def test_version(self):
        code, out, _ = local.run("hotbed", "version", "-o", "json")
        self.assertEqual(code, 0)
        self.assertEqual(json.loads(out)["wire_version"], 2)

    def test_bench_moves_rows(self):
        for kind in ("push", "pull", "mixed", "lookup"):
            with self.subTest(kind):
                report = self.up.json("bench", kind, "--seconds", "0.3", "--repeats", 1, "--rows", 20000,
                                      "--dim", 16, "--no-roofs")
                self.assertIsInstance(report, dict)
                self.assertEqual(report["load"], {"optimizer": "rowwise-adagrad", "weight_type": "fp32",
                                                  "wire": "fp32", "column_slices": 1, "consistency": "async"})
        name = next(t["name"] for t in self.up.json("table", "list") if t["name"].startswith("bench-"))
        rows = self.up.json("row", "get", name, *range(100))
        self.assertTrue(any(r["exists"] for r in rows), "no row of the bench's table was ever pushed to")
        # Such a table is never trained, so its rows are assigned before they are read.
        none = self.up.json("bench", "pull", "--seconds", "0.1", "--repeats", 1, "--rows", 1000, "--optimizer", "none",
                            "--no-roofs")
        self.assertGreater(none["rows_per_s"], 0)

    def test_bench_compares_pushes_to_a_log_with_the_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            report = self.up.json("bench", "push", "--seconds", "0.1", "--repeats", 1, "--rows", 20000, "--dir", folder)
        roofs = {roof["name"]: roof for roof in report["roofs"]}
        direct = roofs["direct appends, same bytes, 4 in flight"]
        if "refused" in direct:
            self.assertIn("O_DIRECT", direct["refused"])
        else:
            self.assertGreater(direct["rows_per_s"], 0)
        self.assertGreater(roofs["plain appends, same bytes"]["rows_per_s"], 0)

    def test_a_table_in_column_slices_everywhere(self):
        load = ("--seconds", "0.3", "--repeats", 1, "--rows", 20000, "--dim", 18, "--no-roofs", "--optimizer", "adagrad",
                "--weight-type", "fp16", "--column-slices", 4)
        for kind, wire in (("push", "bf16"), ("pull", "int8"), ("lookup", "fp16"), ("mixed", "fp32")):
            with self.subTest(kind):
                report = self.up.json("bench", kind, "--wire", wire, *load)
                self.assertEqual(report["load"], {"optimizer": "adagrad", "weight_type": "fp16", "wire": wire,
                                                  "column_slices": 4, "consistency": "async"})
                self.assertGreater(report["rows_per_s"], 0)
        code, text, _ = self.up.cli("bench", "pull", *load)
        self.assertEqual(code, 0)
        self.assertIn("optimizer adagrad, weight type fp16, wire fp32, column slices 4", text)
        name = next(t["name"] for t in self.up.json("table", "list") if t["name"].endswith("-4slices-0"))
        shards = self.up.json("shard", "list", "--table", name)
        self.assertEqual(sorted({tuple(s["columns"]) for s in shards}), [(0, 5), (5, 10), (10, 14), (14, 18)])
        self.assertEqual(len(shards) % 4, 0)
        row = next(r for r in self.up.json("row", "get", name, *range(100)) if r["exists"])
        self.assertEqual(len(row["weights"]), 18)
        self.assertTrue(all(w != 0 for w in row["weights"]), "columns that no slice answered")
        self.assertEqual(len(row["slices"]["shards"]), 4)
        self.assertEqual(len(set(row["slices"]["shards"])), 4)
        text = self.up.cli("table", "describe", name)[1]
        self.assertIn("ids over all slices", text)
        self.assertIn("5..9", self.up.cli("shard", "list", "--table", name)[1])
        placed = next(t for t in self.up.json("plan", "show")["tables"] if t["name"] == name)["shards"]
        self.assertEqual(sorted((tuple(s["rows"]), tuple(s["columns"])) for s in placed),
                         sorted((tuple(s["range"]), tuple(s["columns"])) for s in shards))
        again = self.up.json("plan", "apply", "--dry-run")
        self.assertEqual(sorted(tuple(s["columns"]) for t in again["plan"]["tables"] if t["name"] == name
                                for s in t["shards"]), sorted(tuple(s["columns"]) for s in shards))
        self.assertEqual(self.up.json("table", "drop", name, "--yes")["dropped"], True)


class Restarts(unittest.TestCase):
    def test_a_killed_process_comes_back_and_a_restart_is_equal(self):
        with local.Directory() as directory:
            data = os.path.join(directory, "data")
            up = local.Up(data, "--servers", 2, "--port", 0, "--host-bytes", "128MiB")
            try:
                up.json("table", "create", "kept", "--dim", 4, "--hashed")
                for victim in ("s1", "coordinator"):
                    os.kill(up.pids()[victim], signal.SIGKILL)
                    address = next(p["admin_address"] for p in up.info["processes"] if p["name"] == victim)
                    local.eventually(f"{victim} serves again",
                                     lambda a=address: local.http(a, "/readyz")[0] == 200)
                local.eventually("all live", lambda: all(s["live"] for s in up.json("status")["servers"]))
                code, _, err = local.run("hotbed", "up", "--data-dir", data)
                self.assertEqual(code, 1)
                self.assertIn("in use", err)
            finally:
                code, err = up.stop()
            self.assertEqual(code, 0, err)
            self.assertIn("s1 ended: killed by signal 9", err)
            again = local.Up(data)
            try:
                self.assertEqual([(p["name"], p["address"]) for p in again.info["processes"]],
                                 [(p["name"], p["address"]) for p in up.info["processes"]])
                self.assertEqual([t["name"] for t in again.json("table", "list")], ["kept"])
            finally:
                code, err = again.stop(signal.SIGTERM)
            self.assertEqual(code, 0, err)
            for process in again.info["processes"]:
                with self.assertRaises(ProcessLookupError):
                    os.kill(process["pid"], 0)

    def test_children_die_with_a_killed_supervisor(self):
        with local.Directory() as directory:
            up = local.Up(os.path.join(directory, "data"), "--servers", 1, "--port", 0, "--host-bytes", "128MiB")
            pids = up.pids().values()
            up.stop(signal.SIGKILL)

            def gone():
                alive = []
                for pid in pids:
                    try:
                        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
                            if stat.read().rsplit(")", 1)[1].split()[0] != "Z":
                                alive.append(pid)
                    except FileNotFoundError:
                        pass
                return not alive

            local.eventually("no child is left", gone)


if __name__ == "__main__":
    unittest.main()
