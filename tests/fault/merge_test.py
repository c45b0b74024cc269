#!/usr/bin/env python3
"""Neighbouring shards are merged under load, while servers are killed: every push is applied once.

  merge_test.py --bin-dir build/bin [--tables log,r2,checkpoint] [--seed N]

Three servers hold a table, which a meter pushes to and pulls from all the time. Its shards are split and merged again; a
server is killed at a random moment of a further merge. In the end the table holds the sum of all acknowledged pushes, also
after all servers were killed and started again. A table of class checkpoint then holds what its last checkpoint has, which may
be from before the merges and splits, or from after them. Exit status: 0 all well; anything else a failure.
"""

import sys
import time

from cluster import run_command
from split_test import DIM, Split
from table_story import main

SHARDS = 3


class Merge(Split):
    CHECKPOINT_MS = 3_600_000  # none but those that merges wait for

    def neighbours(self):
        """Pairs of neighbours on the same servers with the same primary, each shard in one pair."""
        pairs, used = [], set()
        shards = sorted(self.table.shards(), key=lambda s: s["range"][0])
        for lower, upper in zip(shards, shards[1:]):
            same = lower["primary"] == upper["primary"] and sorted(lower["members"]) == sorted(upper["members"])
            if same and lower["shard"] not in used:
                used.add(upper["shard"])
                pairs.append((lower["shard"], upper["shard"].split("/")[1]))
        return pairs

    def merge(self, pairs):
        before = len(self.table.shards())
        for shard, other in pairs:
            self.command("shard", "merge", shard, f"--with={other}")
        self.check_tiling(before - len(pairs))
        return len(pairs)

    def merge_all(self):
        return self.merge(self.neighbours())

    def merge_on_each_server(self):
        primary = {s["shard"]: s["primary"] for s in self.table.shards()}
        return self.merge({primary[pair[0]]: pair for pair in self.neighbours()}.values())

    def merge_and_kill(self):
        """A server dies around the time of the merge, before or after the commit."""
        shard, other = self.neighbours()[0]
        before = len(self.table.shards())
        victim = self.random.choice(self.cluster.servers)
        self.command("shard", "merge", shard, f"--with={other}", "--no-wait")
        time.sleep(self.random.uniform(0, 0.15))
        victim.kill()
        time.sleep(self.random.uniform(0, 1))
        victim.start()
        self.table.wait_for(replicas=self.replicas)
        end = time.monotonic() + 60
        while len(self.table.shards()) == before and time.monotonic() < end:
            # Its death may have given another primary to one of the two.
            run_command(self.bin_dir, self.cluster.address, "shard", "merge", shard, f"--with={other}", "--no-wait",
                        "--timeout=30s")
            if (shard, other) not in self.neighbours():
                break
            time.sleep(0.5)
        self.table.wait_for(replicas=self.replicas)

    def push_for_a_moment(self):
        load = self.load()
        time.sleep(0.5)
        return load.stop()

    def kill_and_check(self, least, most):
        self.kill_all()
        self.start_all()
        held = self.table.sum()
        if not least <= held <= most:
            raise RuntimeError(f"{self.kind}: after a kill the table holds {held}, its checkpoint has {least} to {most}")
        return held

    def run_checkpoint(self):
        self.begin(DIM, SHARDS)
        self.split("all")
        kept = self.table.meter("fill").result()["ids_acknowledged"]
        # Before parts that were just cut are merged, a checkpoint has them.
        merged = self.merge_on_each_server()
        self.split("all")  # also those that were merged since the checkpoint
        pushed = self.push_for_a_moment()
        self.check_sum(kept + pushed["ids_acknowledged"], pushed)
        self.kill_and_check(kept, kept)
        pushed = self.push_for_a_moment()
        kept += pushed["ids_acknowledged"]
        self.check_sum(kept, pushed)
        load = self.load()
        merged += self.merge_on_each_server()
        pushed = load.stop()
        everything = kept + pushed["ids_acknowledged"]
        self.check_sum(everything, pushed)
        held = self.kill_and_check(kept, everything)
        pushed = self.push_for_a_moment()
        self.check_sum(held + pushed["ids_acknowledged"], pushed)
        print(f"{self.kind}: {merged} pairs merged, and the servers killed before and after the next checkpoint", flush=True)

    def run(self):
        if self.kind == "checkpoint":
            self.run_checkpoint()
        else:
            self.run_logged()

    def run_logged(self):
        self.begin(DIM, SHARDS)
        expected = self.table.meter("fill").result()["ids_acknowledged"]
        load = self.load()
        self.split("all")
        merged = self.merge_all()
        if merged < SHARDS:
            raise RuntimeError(f"{SHARDS} pairs of parts were to be merged, there were {merged}")
        self.split("all")  # shards that were merged
        self.merge_all()
        self.split("all")
        self.merge_and_kill()
        pushed = load.stop()
        expected += pushed["ids_acknowledged"]
        self.check_sum(expected, pushed)
        print(f"{self.kind}: {merged} pairs merged, split, merged again, and a server killed; {pushed['pushes']} pushes, p99 "
              f"{pushed['push_us_p99'] / 1e3:.0f} ms, the longest {pushed['push_us_p100'] / 1e3:.0f} ms", flush=True)
        self.kill_all()
        self.start_all()
        self.check_sum(expected, pushed)


if __name__ == "__main__":
    sys.exit(main(Merge, __doc__, kinds="log,r2,checkpoint"))
