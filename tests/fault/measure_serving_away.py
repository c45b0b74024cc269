#!/usr/bin/env python3
"""One of two copies of a table is stopped, and then killed, for a minute, while trainers push and readers look up.

  measure_serving_away.py --bin-dir build/bin [--seconds 60] [--format int8] [--disk]

It prints how long after its return the copy is as young as the other one, checks that in the end the rows of both equal those of the table
to the bit of the format, and that no lookup of another table, of which the same servers have copies, failed meanwhile or showed less than
its age promises. With --disk the copy goes on from its disk. Exit status: 0 all well; anything else a failure.
"""

import argparse
import sys
import time

from cluster import run_test
from serving_test import DIM, ROWS, SHARDS, Serving
from meter import Table

AGE_MS = 1000  # of a copy that follows well, twice over


class Away(Serving):
    def is_young(self, server):
        tables = self.status()["tables"]
        return any(copy["server"] == server and copy["state"] == "ready" and copy["age_ms"] < AGE_MS
                   for table in tables if table["table"] == "t" for copy in table["copies"])

    def converge(self, how, away):
        if how == "stopped":
            away.pause()
        else:
            away.kill()
        time.sleep(self.args.seconds)
        if self.is_young(away.name):
            raise RuntimeError(f"{away.name}, {how}, counts as young: be away for longer")
        back = time.monotonic()
        if how == "stopped":
            away.resume()
        else:
            away.start()
        self.wait_for(f"{away.name}, {how} for {self.args.seconds} s, is young", lambda: self.is_young(away.name))
        print(f"{how} for {self.args.seconds} s: {time.monotonic() - back:.1f} s after its return it is less than {AGE_MS} ms old", flush=True)

    def run(self):
        self.cluster.start()
        for server in self.serving[:2]:
            server.start()
        self.table = Table(self.args.bin_dir, self.cluster.address, "t", ROWS, DIM, "log", shards=SHARDS)
        self.table.wait_for(replicas=1)
        load = self.load(1)
        self.command("serve", "add", "t", f"--format={self.args.format}", "--replicas=2")
        self.wait_ready()
        watch = self.watch()
        away = self.serving[0 if self.args.disk else 1]
        self.converge("stopped", away)
        self.converge("killed", away)
        load.stop()
        self.check(servers=2)
        self.end_watch(watch)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--seconds", type=float, default=60, help="of each absence")
    parser.add_argument("--format", default="int8")
    parser.add_argument("--disk", action="store_true")
    args = parser.parse_args()
    args.seed, args.durability = 1, "log"
    return run_test(Away, args, "away")


if __name__ == "__main__":
    sys.exit(main())
