#!/usr/bin/env python3
"""A table is followed while trainers push, shards are moved and split, and servers are killed.

  changes_test.py --bin-dir build/bin [--tables log,r2,checkpoint] [--seed N]

In the end the follower's map of rows equals what pulls return, to the bit, and no shard was told out of order. With class
checkpoint a kill loses changes that were told: the follower must hear of it. Elsewhere nothing may come again.
Exit status: 0 all well; anything else a failure.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, run_command
from meter import Table

ROWS = 20_000
DIM = 8
SHARDS = 4
DURABILITY = {"log": "log", "r2": "replicated=2", "checkpoint": "checkpoint"}


class Follower:
    def __init__(self, bin_dir, coordinator, table):
        self.child = subprocess.Popen([os.path.join(bin_dir, "hotbed-change-follower"), coordinator, table], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self):
        out, err = self.child.communicate("nobody pushes\n", timeout=120)
        if self.child.returncode != 0:
            raise RuntimeError(f"the follower ended with {self.child.returncode}: {err}")
        return json.loads(out)


class Changes:
    def __init__(self, args, kind, directory):
        self.bin_dir, self.kind = args.bin_dir, kind
        self.random = random.Random(f"{args.seed}-{kind}")
        self.replicas = 2 if kind == "r2" else 1
        flags = ["--host-bytes=128MiB"] + (["--checkpoint-interval-ms=1000"] if kind == "checkpoint" else [])
        self.cluster = Cluster(args.bin_dir, directory, 3, server_flags=flags)

    def command(self, *words):
        status, out, err = run_command(self.bin_dir, self.cluster.address, *words, "--timeout=30s")
        if status != 0:
            raise RuntimeError(f"hotbed {' '.join(words)} ended with {status}: {err or out}")

    def load(self, seed):
        return self.table.meter("load", "--seconds=300", "--rate=200", "--ids=64", "--pull-flights=1", seed=seed)

    def move_one(self):
        shards = self.table.shards()
        moved = self.random.choice(shards)
        name = next(s.name for s in self.cluster.servers if s.name not in moved["members"])
        self.command("shard", "move", moved["shard"], "--to", name)

    def kill_one(self):
        victim = self.random.choice(self.cluster.servers)
        victim.kill()
        time.sleep(self.random.uniform(0, 1))
        victim.start()
        self.table.wait_for(replicas=self.replicas)

    def lose_changes(self, load):
        """All servers are killed while pushes run. The trainer, whose pushes were lost, ends with them."""
        for server in self.cluster.servers:
            server.kill()
        load.child.kill()
        load.child.communicate()
        for server in self.cluster.servers:
            server.start()
        self.table.wait_for(replicas=self.replicas)

    def run(self):
        self.cluster.start()
        self.command("rebalance", "off")
        self.table = Table(self.bin_dir, self.cluster.address, "t", ROWS, DIM, DURABILITY[self.kind], shards=SHARDS)
        self.table.wait_for(replicas=self.replicas)
        loads = [self.load(1)]
        self.follower = Follower(self.bin_dir, self.cluster.address, "t")
        time.sleep(1)
        self.move_one()
        self.command("shard", "split", "t/1")
        self.move_one()
        if self.kind == "checkpoint":
            time.sleep(1.5)  # there is a checkpoint, of a part of the changes
            self.lose_changes(loads.pop())
        else:
            self.kill_one()
        loads.append(self.load(2))
        self.command("shard", "split", "t/0-2")
        time.sleep(0.5)
        if self.kind != "checkpoint":
            self.kill_one()
        for load in loads:
            load.stop()
        told = self.follower.result()
        print(f"{self.kind}: {told}", flush=True)
        if told["rows"] == 0 or told["opened"] < 2:
            raise RuntimeError(f"{self.kind}: the follower saw nothing: {told}")
        if (told["again"] != 0) != (self.kind == "checkpoint"):
            raise RuntimeError(f"{self.kind}: {told['again']} shards came again")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--tables", default="log,r2,checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    for kind in args.tables.split(","):
        directory = tempfile.mkdtemp(prefix="hotbed_changes_")
        test = Changes(args, kind, directory)
        try:
            test.run()
        except RuntimeError as error:
            print(error)
            for server in test.cluster.servers:
                print(server.tail(60))
            print(f"again: {sys.argv[0]} --bin-dir {args.bin_dir} --tables {kind} --seed {args.seed}")
            return 1
        finally:
            if hasattr(test, "follower") and test.follower.child.poll() is None:
                test.follower.child.kill()
            test.cluster.stop()
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
