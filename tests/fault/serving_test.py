#!/usr/bin/env python3
"""Two serving servers follow a table while trainers push; they, a source and the coordinator are killed, shards move and split.

  serving_test.py --bin-dir build/bin [--format int8] [--durability log] [--seed N]

In the end the lookups of both replicas equal the table's rows in the format, to the bit, and rows that do not exist are told.
With durability class checkpoint a kill loses changes that were served: those rows must go. With class log, readers of a second table,
of two members per shard, look up all the while, also while a replica and a primary are paused: no lookup fails, and none shows less
than its age promises. A table that is dropped is served no more. Exit status: 0 all well; anything else a failure.
"""

import argparse
import json
import random
import subprocess
import sys
import time

from cluster import ClusterTest, run_test
from meter import Table

ROWS = 20_000
DIM = 8
SHARDS = 4


class Serving(ClusterTest):
    def __init__(self, args, directory):
        flags = ["--host-bytes=128MiB"] + (["--checkpoint-interval-ms=1000"] if args.durability == "checkpoint" else [])
        super().__init__(args, directory, 3, flags)
        self.random = random.Random(args.seed)
        device = ["--device=emulated", "--device-bytes=12MiB"]
        # The one that is killed and comes back goes on from its disk.
        self.serving = [self.cluster.add_serving("r0", f"--data-dir={directory}/r0", *device), self.cluster.add_serving("r1", *device),
                        self.cluster.add_serving("r2")]

    def copies(self, name="t"):
        """State by server, of a table's copies; nothing while the coordinator is away or the table is not served."""
        status, out, _ = self.cluster.run("serve", "status", "-o", "json", "--timeout=5s")
        tables = json.loads(out)["tables"] if status == 0 else []
        return {copy["server"]: copy["state"] for table in tables if table["table"] == name for copy in table["copies"]}

    def wait_ready(self, count=2):
        self.wait_for(f"{count} copies are ready", lambda: list(self.copies().values()) == ["ready"] * count)

    def check(self, servers):
        found = self.end_checker(self.start_checker("t", self.args.format, ROWS, self.settle_seconds, servers))
        if found["rows"] == 0 or found["servers"] < servers:
            raise RuntimeError(f"too little was compared: {found}")

    def load(self, seed):
        return self.table.meter("load", "--seconds=300", "--rate=100", "--ids=64", "--pull-flights=1", seed=seed)

    def move_one(self):
        moved = self.random.choice(self.table.shards())
        name = next(s.name for s in self.cluster.servers if s.name not in moved["members"])
        self.command("shard", "move", moved["shard"], "--to", name)

    def kill_servers(self, victims, load):
        lossy = self.args.durability == "checkpoint"
        for server in victims:
            server.kill()
        if lossy:  # the trainer's pushes are lost, and it ends with them
            load.child.kill()
            load.child.communicate()
        for server in victims:
            server.start()
        self.table.wait_for(replicas=1)

    def watch(self):
        """Readers, and the only trainer, of table w."""
        table = Table(self.args.bin_dir, self.cluster.address, "w", ROWS, DIM, "replicated=2", shards=SHARDS)
        table.wait_for(replicas=2)
        self.command("serve", "add", "w", "--replicas=2")
        self.wait_for("copies of w are ready", lambda: list(self.copies("w").values()) == ["ready"] * 2)
        return self.start_checker("w", "watch", ROWS, stdin=subprocess.PIPE)

    def end_watch(self, watch):
        found = self.end_checker(watch)
        if found["pushes"] < 100 or found["lookups"] < 100 or found["copy_changes"] < 1:
            raise RuntimeError(f"too little was watched: {found}")

    def pause(self, process):
        process.pause()
        time.sleep(self.args.pause)
        process.resume()

    def run(self):
        self.cluster.start()
        for server in self.serving[:2]:
            server.start()
        self.command("rebalance", "off")
        self.table = Table(self.args.bin_dir, self.cluster.address, "t", ROWS, DIM, self.args.durability, shards=SHARDS)
        self.table.wait_for(replicas=1)
        load = self.load(1)
        self.command("serve", "add", "t", f"--format={self.args.format}", "--replicas=2")
        self.wait_ready()
        lossy = self.args.durability == "checkpoint"
        watch = None if lossy else self.watch()
        self.move_one()
        self.serving[0].kill()
        self.command("shard", "split", "t/1")
        self.serving[0].start()
        self.wait_ready()
        if lossy:
            time.sleep(1.5)  # there is a checkpoint, of a part of the changes
        self.cluster.coordinator.kill()
        self.cluster.coordinator.start()
        self.kill_servers(self.cluster.servers if lossy else self.cluster.servers[:1], load)
        if lossy:
            load = self.load(2)
        else:
            self.pause(self.serving[1])
            self.pause(self.cluster.servers[1])
        time.sleep(1)
        load.stop()
        self.wait_ready()
        self.check(servers=2)
        if watch is not None:
            self.end_watch(watch)
        # One that is away for good is replaced.
        self.serving[2].start()
        self.serving[1].kill()
        self.wait_for("the third server has the copy of the second", lambda: self.copies() == {"r0": "ready", "r2": "ready"})
        self.check(servers=2)
        self.command("table", "drop", "t", "--yes")
        self.wait_for("a dropped table is served no more", lambda: not self.copies())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--format", default="int8")
    parser.add_argument("--durability", default="log")
    parser.add_argument("--pause", type=float, default=8, help="seconds, of a replica and then of a primary")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    return run_test(Serving, args, "serving")


if __name__ == "__main__":
    sys.exit(main())
