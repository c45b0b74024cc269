#!/usr/bin/env python3
"""Shards are cut in two under load, while servers are killed: every push is applied once.

  split_test.py --bin-dir build/bin [--tables log,r2,checkpoint] [--seed N]

Three servers hold a table, which a meter pushes to and pulls from all the time. All of its shards are split, then split
again, some are moved; a server is killed at a random moment of a further split (not with class checkpoint, which forgets).
In the end the table holds the sum of all acknowledged pushes, also after all servers were killed and started again.
Exit status: 0 all well; anything else a failure.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time

from cluster import Cluster, json_of_command, run_command
from meter import Table

ROWS = 20_000
DIM = 16
SHARDS = 8
DURABILITY = {"log": "log", "r2": "replicated=2", "checkpoint": "checkpoint"}


class Split:
    def __init__(self, args, kind, directory):
        self.bin_dir = args.bin_dir
        self.kind = kind
        self.random = random.Random(f"{args.seed}-{kind}")
        self.replicas = 2 if kind == "r2" else 1
        flags = ("--host-bytes=256MiB", "--checkpoint-interval-ms=2000") if kind == "checkpoint" else ("--host-bytes=256MiB",)
        self.cluster = Cluster(args.bin_dir, directory, 3, server_flags=flags)

    def command(self, *words):
        status, out, err = run_command(self.bin_dir, self.cluster.address, *words, "--timeout=30s")
        if status != 0:
            raise RuntimeError(f"hotbed {' '.join(words)} ended with {status}: {err or out}")
        return out

    def split(self, shards):
        begin = time.monotonic()
        self.command("shard", "split", f"t/{shards}")
        return time.monotonic() - begin

    def load(self):
        return self.table.meter("load", "--seconds=300", "--rate=200", "--ids=64", "--pull-flights=1", "--slow-ms=20")

    def check_tiling(self, count):
        ranges = sorted(s["range"] for s in self.table.shards())
        ends = [first for first, _ in ranges] + [ROWS]
        if len(ranges) != count or ends[0] != 0 or any(limit != end for (_, limit), end in zip(ranges, ends[1:])):
            raise RuntimeError(f"{count} shards were expected, there are {ranges}")

    def split_and_kill(self):
        """A server dies around the time of the cut, before or after the commit."""
        victim = self.random.choice(self.cluster.servers)
        before = {s["shard"]: s["range"] for s in self.table.shards()}
        self.command("shard", "split", f"t/0-{len(before) - 1}", "--no-wait")
        time.sleep(self.random.uniform(0, 0.15))
        victim.kill()
        time.sleep(self.random.uniform(0, 1.5))
        victim.start()
        self.table.wait_for(replicas=self.replicas)
        # Cuts that its death has stopped are asked for again, until all are done.
        end = time.monotonic() + 60
        while time.monotonic() < end:
            whole = [s["shard"] for s in self.table.shards() if before.get(s["shard"]) == s["range"]]
            if not whole:
                break
            for shard in whole:  # refused where one is asked for or was just made, or the shard is not served yet
                middle = sum(before[shard]) // 2
                run_command(self.bin_dir, self.cluster.address, "shard", "split", shard, f"--at={middle}", "--no-wait",
                            "--timeout=30s")
            time.sleep(1)
        self.table.wait_for(replicas=self.replicas)
        self.check_tiling(2 * len(before))

    def run(self):
        self.cluster.start()
        self.command("rebalance", "off")
        self.table = Table(self.bin_dir, self.cluster.address, "t", ROWS, DIM, DURABILITY[self.kind], shards=SHARDS)
        self.table.wait_for(replicas=self.replicas)
        expected = self.table.meter("fill").result()["ids_acknowledged"]
        load = self.load()
        time.sleep(0.5)
        seconds = self.split("all")
        self.check_tiling(2 * SHARDS)
        self.split("1")
        self.split(f"{SHARDS}")  # a shard that was cut from another one
        self.split("all")
        self.check_tiling(4 * SHARDS + 4)
        pushed = load.stop()
        expected += pushed["ids_acknowledged"]
        self.expect(expected, pushed)
        print(f"{self.kind}: {SHARDS} shards cut in {seconds * 1e3:.0f} ms; {pushed['pushes']} pushes, p99 "
              f"{pushed['push_us_p99'] / 1e3:.0f} ms, the longest {pushed['push_us_p100'] / 1e3:.0f} ms", flush=True)
        load = self.load()
        self.command("shard", "move", "t/3", "--to", self.elsewhere(3))
        self.check_tiling(4 * SHARDS + 4)
        if self.kind != "checkpoint":
            self.split_and_kill()
        pushed = load.stop()
        expected += pushed["ids_acknowledged"]
        self.expect(expected, pushed)
        print(f"{self.kind}: moved{'' if self.kind == 'checkpoint' else ', and a server killed'}; {pushed['pushes']} pushes, "
              f"the longest {pushed['push_us_p100'] / 1e3:.0f} ms", flush=True)
        if self.kind != "checkpoint":
            for server in self.cluster.servers:
                server.kill()
            for server in self.cluster.servers:
                server.start()
            self.table.wait_for(replicas=self.replicas)
            self.expect(expected, pushed)

    def elsewhere(self, shard):
        members = next(s["members"] for s in self.table.shards() if s["shard"] == f"t/{shard}")
        return next(s.name for s in self.cluster.servers if s.name not in members)

    def expect(self, expected, pushed):
        if self.table.sum() != expected or pushed["errors"] != 0:
            raise RuntimeError(f"{self.kind}: the table holds {self.table.sum()}, pushed were {expected}; errors: {pushed['errors']} "
                               f"{pushed['first_error']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--tables", default="log,r2,checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    for kind in args.tables.split(","):
        directory = tempfile.mkdtemp(prefix="hotbed_split_")
        test = Split(args, kind, directory)
        try:
            test.run()
        except RuntimeError as error:
            print(error)
            for server in test.cluster.servers:
                print(server.tail(60))
            print(f"again: {sys.argv[0]} --bin-dir {args.bin_dir} --tables {kind} --seed {args.seed}")
            return 1
        finally:
            test.cluster.stop()
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
