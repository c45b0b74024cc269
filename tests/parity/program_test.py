"""hotbed-parity as a program: flags, exit codes, what it says, and that its page tells all of it."""

import json
import os
import re
import subprocess
import tempfile
import unittest

import parity

HERE = os.path.dirname(os.path.abspath(__file__))
CASE = {"tables": [{"name": "t", "rows": 4, "dim": 2, "optimizer": "sgd", "lr": 0.5, "weights": [[1, 2], [3, 4], [5, 6], [7, 8]]}],
        "features": [{"feature": "f", "table": "t"}],
        "steps": [{"batch": {"keys": ["f"], "lengths": [2, 0], "ids": [1, 3]}, "gradients": {"loss": "sum"}}],
        "weights": ["t"]}


def start(*args, case=None):
    """(exit code, stdout, stderr)."""
    done = subprocess.run([os.path.join(parity.BIN, "hotbed-parity"), *map(str, args)], text=True, check=False,
                          input=None if case is None else json.dumps(case), capture_output=True, timeout=parity.WAIT_SECONDS)
    return done.returncode, done.stdout, done.stderr


class Program(unittest.TestCase):
    def run_case(self, case, *flags):
        code, out, err = start("-", "--coordinator", parity._cluster.address, *flags, case=case)
        return code, json.loads(out) if out else None, err

    def test_the_result_is_printed_inline(self):
        code, result, err = self.run_case(CASE)
        self.assertEqual(code, 0, err)
        self.assertTrue(result["ok"])
        step = result["steps"][0]
        self.assertEqual(step["values"], [[10, 12], [0, 0]])
        self.assertEqual(step["loss"], 22)
        self.assertEqual(step["pushed"]["outcome"], "applied")
        self.assertEqual(result["weights"]["t"]["rows"], [[1, 2], [2.5, 3.5], [5, 6], [6.5, 7.5]])

    def test_a_case_starts_its_own_cluster_and_restarts_it(self):
        with tempfile.TemporaryDirectory() as directory:
            path, out = os.path.join(directory, "case.json"), os.path.join(directory, "out")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**CASE, "steps": [*CASE["steps"], {"restart": "all"}, *CASE["steps"]]}, file)
            code, _, err = start(path, "--out", out, "--servers", 2, "--shards", 3)
            self.assertEqual(code, 0, err)
            with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
                result = json.load(file)
            self.assertEqual(result["tables"][0]["shards"], 3)
            self.assertEqual(result["steps"][2]["values"], "step2.values.npy")
            self.assertEqual(parity.np.load(os.path.join(out, "step2.values.npy")).tolist(), [[9, 11], [0, 0]])
            self.assertEqual(parity.np.load(os.path.join(out, "weights.t.npy")).tolist(), [[1, 2], [2, 3], [5, 6], [6, 7]])

    def test_tables_are_dropped_or_kept_for_the_next_case(self):
        name = parity.table_name("kept")
        case = {"tables": [{**CASE["tables"][0], "name": name}], "weights": [name]}
        self.assertEqual(self.run_case(case, "--keep")[0], 0)
        code, _, err = self.run_case(case)
        self.assertEqual(code, 1)
        self.assertIn(name, err)
        going_on = {"tables": [{"name": name, "rows": 4, "dim": 2, "existing": True}], "weights": [name],
                    "steps": [{"push": {"table": name, "ids": [0], "gradients": [[2, 2]]}}]}
        code, result, err = self.run_case(going_on)
        self.assertEqual(code, 0, err)
        self.assertEqual(result["weights"][name]["rows"][0], [0, 1])

    def test_expected_errors_are_successes_and_others_are_not(self):
        bad = {**CASE["steps"][0], "batch": {"keys": ["f"], "lengths": [3], "ids": [1, 3]}}
        code, result, err = self.run_case({**CASE, "steps": [bad, CASE["steps"][0]]})
        self.assertEqual(code, 1)
        self.assertIn("steps[0]", err)
        self.assertFalse(result["ok"])
        self.assertEqual(result["steps"][0]["error"]["code"], "INVALID_ARGUMENT")
        self.assertEqual(len(result["steps"]), 1)
        code, result, err = self.run_case({**CASE, "steps": [{**bad, "expect_error": ""}, CASE["steps"][0]]})
        self.assertEqual(code, 0, err)
        self.assertEqual(result["weights"]["t"]["rows"][3], [6.5, 7.5])
        code, _, err = self.run_case({**CASE, "steps": [{**bad, "expect_error": "the moon"}]})
        self.assertEqual(code, 1)
        self.assertIn("the moon", err)
        code, _, err = self.run_case({**CASE, "steps": [{**CASE["steps"][0], "expect_error": "anything"}]})
        self.assertEqual(code, 1)
        self.assertIn("there was none", err)
        code, result, err = self.run_case({"tables": [{"name": "t", "rows": 1, "dim": 0}], "expect_error": "dim"})
        self.assertEqual(code, 0, err)

    def test_what_cannot_be_read_is_a_usage_error(self):
        for case, words in (("{", "case"), ("[]", "object"), ('{"tabels": []}', "nearest known one is 'tables'")):
            done = subprocess.run([os.path.join(parity.BIN, "hotbed-parity"), "-", "--coordinator", "127.0.0.1:1"],
                                  input=case, text=True, capture_output=True, check=False, timeout=60)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(words, done.stderr)
        code, _, err = start("no-such-case.json")
        self.assertEqual(code, 2)
        self.assertIn("no-such-case.json", err)
        self.assertEqual(start("-", "--servers", 2, "--coordinator", "x:1")[0], 2)
        self.assertEqual(start()[0], 2)

    def test_only_its_own_cluster_is_restarted(self):
        code, _, err = self.run_case({**CASE, "steps": [{"restart": "all"}]})
        self.assertEqual(code, 1)
        self.assertIn("--servers", err)

    def test_the_page_names_every_flag_and_every_key(self):
        with open(os.path.join(HERE, "../../docs/parity.md"), encoding="utf-8") as file:
            page = file.read()
        code, out, _ = start("--help")
        self.assertEqual(code, 0)
        for flag in set(re.findall(r"--[a-z][a-z-]+", out)) - {"--help"}:
            self.assertTrue(flag in page, flag)
        with open(os.path.join(HERE, "case_file.cc"), encoding="utf-8") as file:
            lists = re.findall(r"\{((?:\s*\"[a-z_]+\",?)+)\s*\}", file.read())
        keys = {key for one in lists for key in re.findall(r'"([a-z_]+)"', one)}
        self.assertGreater(len(keys), 40)
        self.assertEqual([key for key in sorted(keys) if not re.search(rf"\b{key}\b", page)], [])


def setUpModule():
    parity.use_cluster()


if __name__ == "__main__":
    parity.main()
