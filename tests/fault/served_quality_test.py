#!/usr/bin/env python3
"""How much rounding costs a click model: it is trained, then served in several formats, and unseen lines are scored from each.

  served_quality_test.py --bin-dir build/bin [--lines N] [--seed N]

The area under the ROC curve of each format is compared with that of the served fp32 rows; the differences allowed are in ALLOWED.
Exit status: 0 all well; anything else a failure.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time

from cluster import Cluster

ALLOWED = {"fp16": 0.0005, "int8": 0.002, "int4": 0.01}
LOADED_SECONDS = 60


class Model:
    def __init__(self, args, directory):
        self.args, self.directory = args, directory
        self.cluster = Cluster(args.bin_dir, directory, 1, server_flags=["--host-bytes=512MiB"])
        self.serving = self.cluster.add_serving("r0", host_bytes="512MiB")

    def program(self, name, *words):
        done = subprocess.run([os.path.join(self.args.bin_dir, name), *words], capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{name} {' '.join(words)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def trainer(self, *words):
        return json.loads(self.program("hotbed-train-ctr", f"--coordinator={self.cluster.address}", *words, "-o", "json"))

    def lines(self):
        """Two files of as many lines of one planted model: to train on, and to score."""
        path = os.path.join(self.directory, "clicks.tsv")
        count = self.args.lines
        self.program("hotbed", "datagen", "criteo", "--rows", str(2 * count), "--seed", str(self.args.seed), "--out", path)
        files = [os.path.join(self.directory, name) for name in ("seen.tsv", "unseen.tsv")]
        with open(path, encoding="ascii") as clicks:
            for name in files:
                with open(name, "w", encoding="ascii") as part:
                    part.writelines(itertools.islice(clicks, count))
        return files

    def tables(self):
        listed = self.cluster.json("table", "list")
        return [table["name"] for table in listed if not table["name"].endswith("_model")]

    def served_auc(self, table_format, unseen):
        """Serves the tables in the format until they are scored."""
        self.cluster.json("serve", "add", *self.tables(), f"--format={table_format}")
        deadline = time.monotonic() + LOADED_SECONDS
        while True:
            served = self.cluster.json("serve", "status")["tables"]
            if all(copy["state"] == "ready" for table in served for copy in table["copies"]) and served:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"not loaded within {LOADED_SECONDS} s: {served}")
            time.sleep(0.1)
        auc = self.trainer(f"--score={unseen}", "--served=true")["auc"]
        self.cluster.json("serve", "remove", *self.tables())
        return auc


def run(args, directory):
    model = Model(args, directory)
    model.cluster.start()
    model.serving.start()
    try:
        seen, unseen = model.lines()
        trained = model.trainer(f"--train={seen}", "--test-fraction=0")
        found = {name: model.served_auc(name, unseen) for name in ["fp32", *ALLOWED]}
        found["trained rows"] = model.trainer(f"--score={unseen}")["auc"]
    finally:
        model.serving.stop()
        model.cluster.stop()
    print(json.dumps({"lines": trained["examples"], "auc": found}), flush=True)
    if found["fp32"] < 0.55:
        raise RuntimeError(f"the model has learned too little to tell anything: {found}")
    for name, allowed in ALLOWED.items():
        if abs(found[name] - found["fp32"]) > allowed:
            raise RuntimeError(f"{name} differs from fp32 by {abs(found[name] - found['fp32']):.5f}, allowed are {allowed}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hotbed_quality_", dir=os.environ.get("TEST_TMPDIR")) as directory:
        try:
            run(args, directory)
        except Exception as error:  # the replay command belongs to every failure
            print(f"served_quality_test: {error}\nreplay: served_quality_test.py --bin-dir {args.bin_dir} --lines {args.lines}"
                  f" --seed {args.seed}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
