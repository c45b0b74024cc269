#!/usr/bin/env python3
"""A table is followed while trainers push, shards are moved and split, and servers are killed.

  changes_test.py --bin-dir build/bin [--tables log,r2,checkpoint] [--seed N]

In the end the follower's map of rows equals what pulls return, to the bit, and no shard was told out of order. With class
checkpoint a kill loses changes that were told: the follower must hear of it. Elsewhere nothing may come again.
Exit status: 0 all well; anything else a failure.
"""

import json
import os
import subprocess
import sys
import time

from table_story import TableStory, main

DIM = 8
SHARDS = 4


class Follower:
    def __init__(self, bin_dir, coordinator, table):
        self.child = subprocess.Popen([os.path.join(bin_dir, "hotbed-change-follower"), coordinator, table], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def result(self):
        out, err = self.child.communicate("nobody pushes\n", timeout=120)
        if self.child.returncode != 0:
            raise RuntimeError(f"the follower ended with {self.child.returncode}: {err}")
        return json.loads(out)


class Changes(TableStory):
    CHECKPOINT_MS = 1000
    follower = None

    def move_one(self):
        moved = self.random.choice(self.table.shards())
        self.command("shard", "move", moved["shard"], "--to", self.elsewhere(moved))

    def kill_one(self):
        victim = self.random.choice(self.cluster.servers)
        victim.kill()
        time.sleep(self.random.uniform(0, 1))
        victim.start()
        self.table.wait_for(replicas=self.replicas)

    def lose_changes(self, load):
        """All servers are killed while pushes run. The trainer, whose pushes were lost, ends with them."""
        self.kill_all()
        load.child.kill()
        load.child.communicate()
        self.start_all()

    def run(self):
        self.begin(DIM, SHARDS)
        loads = [self.load(seed=1)]
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
        loads.append(self.load(seed=2))
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

    def stop(self):
        if self.follower is not None and self.follower.child.poll() is None:
            self.follower.child.kill()
        super().stop()


if __name__ == "__main__":
    sys.exit(main(Changes, __doc__, kinds="log,r2,checkpoint"))
