#!/usr/bin/env python3
"""Shards are cut in two under load, while servers are killed: every push is applied once.

  split_test.py --bin-dir build/bin [--tables log,r2,checkpoint] [--seed N]

Three servers hold a table, which a meter pushes to and pulls from all the time. All of its shards are split, then split
again, some are moved; a server is killed at a random moment of a further split (not with class checkpoint, which forgets).
In the end the table holds the sum of all acknowledged pushes, also after all servers were killed and started again.
Exit status: 0 all well; anything else a failure.
"""

import sys
import time

from cluster import run_command
from table_story import TableStory, main

DIM = 16
SHARDS = 8


class Split(TableStory):
    def split(self, shards):
        begin = time.monotonic()
        self.command("shard", "split", f"t/{shards}")
        return time.monotonic() - begin

    def check_tiling(self, count):
        ranges = sorted(s["range"] for s in self.table.shards())
        ends = [first for first, _ in ranges] + [self.ROWS]
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
        self.begin(DIM, SHARDS)
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
        self.check_sum(expected, pushed)
        print(f"{self.kind}: {SHARDS} shards cut in {seconds * 1e3:.0f} ms; {pushed['pushes']} pushes, p99 "
              f"{pushed['push_us_p99'] / 1e3:.0f} ms, the longest {pushed['push_us_p100'] / 1e3:.0f} ms", flush=True)
        load = self.load()
        self.command("shard", "move", "t/3", "--to", self.elsewhere(next(s for s in self.table.shards() if s["shard"] == "t/3")))
        self.check_tiling(4 * SHARDS + 4)
        if self.kind != "checkpoint":
            self.split_and_kill()
        pushed = load.stop()
        expected += pushed["ids_acknowledged"]
        self.check_sum(expected, pushed)
        print(f"{self.kind}: moved{'' if self.kind == 'checkpoint' else ', and a server killed'}; {pushed['pushes']} pushes, "
              f"the longest {pushed['push_us_p100'] / 1e3:.0f} ms", flush=True)
        if self.kind != "checkpoint":
            self.kill_all()
            self.start_all()
            self.check_sum(expected, pushed)


if __name__ == "__main__":
    sys.exit(main(Split, __doc__, kinds="log,r2,checkpoint"))
