"""The word-vector example as a program: a short training on its own cluster, compared with the same training on local arrays."""

import json
import os
import subprocess
import tempfile
import unittest

import local

BIBLE = "/usr/bin/bible"


def train(*args, timeout=120):
    return local.run("hotbed-train-words", *args, timeout=timeout)


class WordsExampleTest(unittest.TestCase):
    def small_text(self, folder, lines):
        """The first verses of the text, if it is installed."""
        if not os.path.exists(BIBLE):
            self.skipTest("bible-kjv is not installed")
        done = subprocess.run([BIBLE, "-f", "gen1:1-rev22:21"], capture_output=True, text=True, check=True,
                              stdin=subprocess.DEVNULL)
        verses = done.stdout.splitlines(keepends=True)
        self.assertEqual(len(verses), 31102)
        path = os.path.join(folder, "verses.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(verses[:lines])
        return path

    def test_one_trainer_on_a_cluster_is_the_training_on_arrays(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.small_text(folder, 2500)
            code, out, err = train("--text", text, "--epochs=2", "--trainers=1", "--in-flight=1", "--local-runs=1",
                                   "--servers=2", "--dim=24", "-o", "json")
        self.assertEqual(code, 0, err)
        result = json.loads(out)
        cluster, arrays = result["cluster"], result["local"][0]
        self.assertEqual(cluster["pairs"], arrays["pairs"])
        self.assertEqual(cluster["rows_pushed"], arrays["rows_pushed"])
        for ours, theirs in zip(cluster["epoch_loss"], arrays["epoch_loss"], strict=True):
            self.assertAlmostEqual(ours, theirs, delta=1e-5 * theirs)
        self.assertAlmostEqual(cluster["context_auc"], arrays["context_auc"], delta=1e-3)
        self.assertLess(cluster["epoch_loss"][1], cluster["epoch_loss"][0])
        self.assertGreater(cluster["context_auc"], result["frequency_auc"] + 0.05)
        self.assertEqual(len(result["neighbours"]) + len(result["missing_words"]), 10)

    def test_several_trainers_on_the_whole_text_for_a_moment(self):
        if not os.path.exists(BIBLE):
            self.skipTest("bible-kjv is not installed")
        code, out, err = train("--seconds=3", "--local-runs=0", "--words=god,nosuchword")
        self.assertEqual(code, 0, err)
        self.assertIn("29,5", out)  # sentences
        self.assertIn("not in the vocabulary: nosuchword", out)
        self.assertIn("words/s", err)  # progress
        self.assertIn("loss", err)

    def test_bad_input_is_named(self):
        code, _, err = train("--text=/no/such/file")
        self.assertEqual(code, 1)
        self.assertIn("/no/such/file", err)
        code, _, err = train("--window=0")
        self.assertEqual(code, 2)
        self.assertIn("--window", err)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "short.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("only a few words\n")
            code, _, err = train("--text", path)
        self.assertEqual(code, 1)
        self.assertIn("--min-count", err)


if __name__ == "__main__":
    unittest.main()
