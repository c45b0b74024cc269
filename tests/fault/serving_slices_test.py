#!/usr/bin/env python3
"""Tables with column slices are served by one and by two servers while trainers push to them and delete rows.

  serving_slices_test.py --bin-dir build/bin

A shard of one slice moves, and primaries and a copy with a disk are killed and come back. Meanwhile each served row
is whole or absent. In the end both copies have the rows of the trainers, to the bit of the format, and none that was deleted.
Exit status: 0 all well; anything else a failure.
"""

import argparse
import os
import subprocess
import sys
import time

from cluster import ClusterTest, run_test
from meter import Table

ROWS = 3_000
DELETED_ROWS = 500
DIM = 10
SLICES = 3  # of 4, 3 and 3 columns
RANGES = 2


class SlicedServing(ClusterTest):
    def __init__(self, args, directory):
        super().__init__(args, directory, 2, ["--host-bytes=128MiB"])
        self.serving = [self.cluster.add_serving("r0", f"--data-dir={directory}/r0"), self.cluster.add_serving("r1")]

    def wait_ready(self, count):
        self.wait_for(f"{count} copies are ready", lambda: ["ready"] * count == [
            copy["state"] for table in self.status()["tables"] for copy in table["copies"]])

    def check(self, servers):
        found = self.end_checker(self.start_checker("t", "int8", ROWS, self.settle_seconds, servers))
        if found["rows"] != ROWS or found["servers"] != servers:
            raise RuntimeError(f"too little was compared: {found}")

    def check_top_k(self):
        """The row itself is the nearest one, and its score is that of the served rows."""
        rows = self.json("topk", "t", "--served", "--id", ROWS - 1, "--k", 5, "--metric", "l2")[0]["rows"]
        if len(rows) != 5:
            raise RuntimeError(f"the nearest rows: {rows}")

    def run(self):
        self.cluster.start()
        self.serving[0].start()
        self.command("rebalance", "off")
        sliced = ("--column-slices", SLICES)
        table = Table(self.args.bin_dir, self.cluster.address, "t", ROWS, DIM, shards=RANGES * SLICES, more=sliced)
        hashed = Table(self.args.bin_dir, self.cluster.address, "h", ROWS, DIM, hashed=True, shards=RANGES * SLICES, more=sliced)
        hashed.wait_for(replicas=1)
        table.wait_for(replicas=1)
        table.meter("fill").result()
        self.command("serve", "add", "t", "--format=int8")
        self.command("serve", "add", "h")
        self.wait_ready(2)
        self.check(servers=1)
        # Changes, deletes and absences, with two copies of each.
        load = table.meter("load", "--seconds=300", "--rate=100", "--ids=64", "--pull-flights=1")
        deletes = self.start_checker("h", "deletes", DELETED_ROWS, stdin=subprocess.PIPE)
        self.serving[1].start()
        self.command("serve", "add", "t", "h", "--replicas=2")
        self.wait_ready(4)
        for moved in (table.shards()[RANGES], hashed.shards()[RANGES]):  # of the second slice
            self.command("shard", "move", moved["shard"], "--to", next(
                server.name for server in self.cluster.servers if server.name not in moved["members"]))
        self.serving[0].kill()
        self.cluster.servers[0].kill()
        self.cluster.servers[0].start()
        self.serving[0].start()
        table.wait_for(replicas=1)
        time.sleep(2)
        load.stop()
        found = self.end_checker(deletes)
        if found["turns"] < 50 or found["lookups"] < 50:
            raise RuntimeError(f"too little was watched: {found}")
        self.wait_ready(4)
        self.check(servers=2)
        self.check_top_k()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    return run_test(SlicedServing, parser.parse_args(), "serving_slices")


if __name__ == "__main__":
    sys.exit(main())
