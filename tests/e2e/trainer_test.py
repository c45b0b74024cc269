"""hotbed-train-ctr against a cluster: several processes train one model, and another one scores it from the cluster alone."""

import json
import math
import os
import random
import subprocess
import unittest

import local


def trainer(up, *args):
    return [local.program("hotbed-train-ctr"), "--coordinator", up.coordinator, "-o", "json", *map(str, args)]


class TrainerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = local.Directory()
        cls.up = local.Up(os.path.join(cls.directory.path, "data"), "--servers", 2, "--port", 0,
                          "--host-bytes", "128MiB")

    @classmethod
    def tearDownClass(cls):
        cls.up.stop()
        cls.directory.__exit__()

    def path(self, name):
        return os.path.join(self.directory.path, name)

    def run_json(self, *args):
        code, out, err = local.run("hotbed-train-ctr", "--coordinator", self.up.coordinator, "-o", "json", *args)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def ratings(self, name, seed):
        """60 users and 40 items with biases far from zero around a mean of 3.5."""
        draw, taste = random.Random(seed), random.Random(1)
        users, items = ([taste.gauss(0, 0.5) for _ in range(n)] for n in (60, 40))
        with open(self.path(name), "w", encoding="utf-8") as file:
            for _ in range(1500):
                u, i = draw.randrange(60), draw.randrange(40)
                file.write(f"{u}\t{i}\t{3.5 + users[u] + items[i] + draw.gauss(0, 0.2):.4f}\n")
        return self.path(name)

    def test_a_ratings_model_is_scored_from_the_cluster_alone(self):
        train, test = self.ratings("train.tsv", 2), self.ratings("test.tsv", 3)
        args = ("--format=ratings", f"--train={train}", f"--test={test}", "--table-prefix=movies", "--epochs=10")
        command = lambda part: trainer(self.up, *args, "--parts=2", f"--part={part}",
                                       f"--predictions={self.path(f'part{part}.txt')}")
        both = [subprocess.Popen(command(part), env=local.clean_environment(), stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for part in (0, 1)]
        for process in both:
            _, err = process.communicate(timeout=local.WAIT_SECONDS)
            self.assertEqual(process.returncode, 0, err)
        os.remove(train)
        first = self.run_json("--score", test, "--table-prefix=movies", "--predictions", self.path("score.txt"))
        self.assertEqual((first["format"], first["scored_examples"]), ("ratings", 1500))
        with open(test, encoding="utf-8") as lines, open(self.path("score.txt"), encoding="utf-8") as scores:
            squares = [(float(line.split()[2]) - float(score)) ** 2 for line, score in zip(lines, scores, strict=True)]
        self.assertAlmostEqual(first["rmse"], math.sqrt(sum(squares) / 1500), delta=1e-5)
        # Without the offset of 3.5 the error would be above 3.
        self.assertLess(first["rmse"], 0.5)

    def test_a_model_predicts_the_same_after_training_and_when_scored(self):
        data, test = self.path("clicks.tsv"), self.path("unseen.tsv")
        for path, seed in ((data, 5), (test, 6)):
            code, _, err = local.run("hotbed", "datagen", "criteo", "--rows", 3000, "--seed", seed, "--out", path)
            self.assertEqual(code, 0, err)
        trained = self.run_json("--train", data, "--test", test, "--factors=5", "--table-prefix=clicks",
                                "--predictions", self.path("trained.txt"))
        scored = self.run_json("--score", test, "--table-prefix=clicks", "--predictions", self.path("scored.txt"))
        self.assertEqual(scored["scored_examples"], 3000)
        self.assertEqual((scored["auc"], scored["log_loss"]), (trained["auc"], trained["log_loss"]))
        with open(self.path("trained.txt"), encoding="utf-8") as a, open(self.path("scored.txt"), encoding="utf-8") as b:
            lines = a.readlines()
            self.assertEqual(lines, b.readlines())
        self.assertTrue(all(0 < float(line) < 1 for line in lines))
        # The tables keep what they are a model of.
        code, _, err = local.run("hotbed-train-ctr", "--coordinator", self.up.coordinator, "--train", data,
                                 "--factors=7", "--table-prefix=clicks")
        self.assertEqual(code, 1)
        self.assertIn("criteo with 5 factors", err)

    def test_fresh_rows_are_counted(self):
        train = self.ratings("fresh.tsv", 4)
        args = ("--format=ratings", f"--train={train}", "--epochs=2", "--threads=1")
        usual = self.run_json(*args, "--table-prefix=usual")["fresh_rows"]
        self.assertEqual(usual, {"ready": 0, "refreshed": 0, "late": 0})
        trained = self.run_json(*args, "--table-prefix=fresh", "--fresh-rows")
        # Each batch has rows that the push of the batch before it changed.
        self.assertGreater(trained["fresh_rows"]["refreshed"] + trained["fresh_rows"]["late"], 100)
        self.assertEqual(sum(trained["fresh_rows"].values()), trained["rows_pushed"])

    def test_what_cannot_be_scored_is_named(self):
        score = ("hotbed-train-ctr", "--coordinator", self.up.coordinator, "--score", "/no/such/file")
        code, _, err = local.run(*score, "--table-prefix=never")
        self.assertEqual(code, 1)
        self.assertIn("--table-prefix=never", err)
        code, _, err = local.run(*score, "--train=/no/such/file")
        self.assertEqual(code, 1)
        self.assertIn("exclude each other", err)


if __name__ == "__main__":
    unittest.main()
