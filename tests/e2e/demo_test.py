"""`hotbed demo` on little data: it succeeds, and its numbers are consistent."""

import json
import os
import unittest

import local


class Demo(unittest.TestCase):
    def test_small_demo(self):
        with local.Directory() as directory:
            args = ("demo", "--rows", 60000, "--work-dir", directory, "-o", "json")
            code, out, err = local.run("hotbed", *args, timeout=240)
            self.assertEqual(code, 0, err)
            result = json.loads(out)
            self.assertGreaterEqual(result["data"]["auc_best"], 0.80)
            self.assertLessEqual(result["data"]["auc_best_linear"], result["data"]["auc_best"] - 0.04)
            self.assertGreater(result["training"]["auc"], 0.5)
            self.assertGreater(result["ledger"]["pushes"], 0)
            self.assertEqual(result["ledger"]["weights_checked"], 320000)
            self.assertGreater(result["kill"]["recovery_seconds"], 0)
            self.assertGreater(result["moves"]["shards"], 0)
            self.assertGreater(result["loss"]["shards"], 0)
            self.assertGreater(result["loss"]["fail_over_seconds"], 0)
            self.assertLess(result["loss"]["fail_over_seconds"], 10)
            for phase in result["phases"]:
                self.assertEqual(phase["errors"], 0, phase)
            self.assertGreater(sum(phase["pulls"] for phase in result["phases"]), 0)
            self.assertEqual(result["online"]["lookups"], 2000)
            self.assertGreaterEqual(result["online"]["p99_seconds"], result["online"]["p50_seconds"])
            # Only the data stay for the next run.
            self.assertEqual(sorted(os.listdir(directory)), ["criteo-60000-1.tsv", "criteo-60000-1.tsv.json"])

    def test_failure_tells_the_step_and_where_the_logs_are(self):
        code, _, err = local.run("hotbed", "demo", "--work-dir", "/proc/hotbed")
        self.assertEqual(code, 1)
        self.assertIn("/proc/hotbed", err)


if __name__ == "__main__":
    unittest.main()
