#!/usr/bin/env python3
"""Both servers of a table of two replicas are killed, and one disk loses records: the whole replica counts, whoever is back first.

  lost_members_test.py --bin-dir build/bin [--case tail,log,away] [--seed N]

tail  4 KiB are missing from the newest segment of one log; both servers start together.
log   the log of one server is gone; that server starts first, the other one a second later. It refuses to start, and comes back
      with --adopt-incomplete once the other one serves.
away  as `tail`, but the machine lost power, and the whole replica stays away for longer than --refill-wait-ms. It is passed over,
      kept when it is back, and counts when a person chooses it.

In the end every weight is exact, and both servers hold it. Exit status: 0 all well; anything else a failure.
"""

import argparse
import glob
import os
import random
import shutil
import sys
import tempfile
import time

from checker import EXACT, Checker
from cluster import Cluster, json_of_command, run_command

SECONDS = 60
AWAY_REFILL_WAIT_MS = 1000


def crc32c(data):
    """CRC-32C (Castagnoli, reflected), as common/files/crc32c.h."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class LostMembers:
    def __init__(self, args, case, seed, directory):
        self.case = case
        self.directory = directory
        self.bin_dir = args.bin_dir
        self.cluster = Cluster(args.bin_dir, directory, servers=2,
                               # Unsynced, so that a power loss may take the end of the log.
                               server_flags=("--host-bytes=64MiB", "--log-sync-interval-ms=3600000"))
        if case == "away":
            self.cluster.coordinator.command.append(f"--refill-wait-ms={AWAY_REFILL_WAIT_MS}")
        self.checker = Checker(args.bin_dir, directory, self.cluster.address, seed, clients=2, rows=2000, dim=16, tables="r2")
        self.whole, self.emptier = random.Random(f"{seed} {case}").sample(self.cluster.servers, 2)

    def json(self, *command):
        return json_of_command(self.bin_dir, self.cluster.address, *command)

    def run_hotbed(self, *command):
        return run_command(self.bin_dir, self.cluster.address, *command)

    def data(self, server, *path):
        return os.path.join(self.directory, server.name, *path)

    def wait_for(self, what, check):
        deadline = time.monotonic() + SECONDS
        while True:
            last = check()
            if last:
                return last
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {SECONDS} s: {what}\n{self.run_hotbed('status')[1]}\n{self.run_hotbed('events')[1]}")
            time.sleep(0.05)

    def records(self):
        return self.json("shard", "list")

    def table(self):
        return self.json("status")["tables"][0]["name"]

    def wait_for_primaries(self, server):
        def on_it():
            return all(r["active"] and r["primary"] == server.name for r in self.records())
        self.wait_for(f"all shards served by {server.name}", on_it)

    def wait_for_replicas(self):
        def complete():
            return all(t["shards_short_of_replicas"] == 0 and t["shards_active"] == t["shards"] for t in self.json("status")["tables"])
        self.wait_for("two replicas of every shard", complete)

    def events(self, kind):
        return [e["text"] for e in self.json("events") if e["kind"] == kind]

    def lose_tail(self):
        newest = max(glob.glob(self.data(self.emptier, "log", "*.log")))
        size = os.path.getsize(newest)
        assert size > 8192, f"{newest} has {size} bytes only"
        os.truncate(newest, size - 4096)

    def run(self):
        self.cluster.start()
        self.checker.create()
        self.checker.start()
        self.checker.wait_for_steps(200, SECONDS)
        self.expect_exact(*self.checker.finish(SECONDS))
        # Both before the coordinator can make one of them the primary alone.
        for server in self.cluster.servers:
            server.pause()
        for server in self.cluster.servers:
            server.kill()
        getattr(self, self.case)()
        self.wait_for_replicas()
        self.expect_exact(*self.checker.verify())
        # Each of them alone, too.
        self.whole.kill()
        status, said = self.checker.verify()
        self.expect_exact(status, said)
        doubts = self.json("status")["in_doubt"]
        if doubts:
            raise RuntimeError(f"still in doubt: {doubts}")
        return said

    def expect_exact(self, status, said):
        if status != EXACT:
            raise RuntimeError(f"{said}\n{self.run_hotbed('events')[1]}")

    def tail(self):
        self.lose_tail()
        for server in (self.emptier, self.whole):
            server.begin()
        for server in (self.emptier, self.whole):
            server.wait_until_serving()
        self.wait_for_primaries(self.whole)

    def log(self):
        shutil.rmtree(self.data(self.emptier, "log"))
        refused = False
        self.emptier.begin()
        time.sleep(1)
        self.expect_doctor(f"{self.emptier.name} (")  # down
        self.whole.start()
        try:
            self.emptier.wait_until_serving()
        except RuntimeError:
            refused = True
        self.wait_for_primaries(self.whole)
        if not refused:
            return
        self.emptier.kill()
        self.emptier.command = [*self.emptier.command, "--adopt-incomplete"]
        self.emptier.start()

    def lose_power(self, server):
        """As a start after a power loss finds the directory: written under another boot id."""
        path = self.data(server, "IDENTITY")
        with open(path) as f:
            lines = f.read().split("crc32c: ")[0].splitlines()
        text = "".join(("boot: of another boot" if line.startswith("boot: ") else line) + "\n" for line in lines)
        with open(path, "w") as f:
            f.write(f"{text}crc32c: {crc32c(text.encode())}\n")

    def away(self):
        self.lose_tail()
        self.lose_power(self.emptier)
        self.emptier.start()
        self.wait_for("an event that names the one passed over",
                      lambda: any(f"goes on without {self.whole.name}" in text for text in self.events("passed_over")))
        self.wait_for_primaries(self.emptier)
        self.expect_doctor("may hold more and was not heard of")
        self.whole.start()
        self.wait_for("an event that says who holds more", lambda: self.events("holds_more"))
        self.expect_doctor(f"{self.whole.name} holds more")
        shards = self.json("status")["in_doubt"]
        code, _, said = self.run_hotbed("shard", "choose", self.table(), "all", "--server", self.whole.name, "--yes")
        if code == 0 or "stop" not in said:
            raise RuntimeError(f"a replica was replaced while it serves: {said}")
        # The person goes back to the whole replica, and then gives up the other one.
        self.emptier.kill()
        self.wait_for("no shard is served", lambda: self.choose(self.whole, len(shards)))
        self.wait_for_primaries(self.whole)
        self.emptier.start()
        self.choose(self.whole, None)

    def choose(self, server, count):
        """Whether `count` shards, or all that are in doubt, were decided."""
        code, out, said = self.run_hotbed("shard", "choose", self.table(), "all", "--server", server.name, "--yes", "-o", "json")
        if code != 0 and "nothing is to be chosen" not in said and "serves the shard" not in said:
            raise RuntimeError(said)
        return count is None or (code == 0 and out.count('"epoch"') == count)

    def expect_doctor(self, text):
        _, out, _ = self.run_hotbed("doctor", f"--data-dir={self.directory}")
        if text not in out:
            raise RuntimeError(f"doctor does not say '{text}':\n{out}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--case", default="tail,log,away")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 32)
    for case in args.case.split(","):
        directory = tempfile.mkdtemp(prefix="hotbed-lost-members-")
        run = LostMembers(args, case, seed, directory)
        try:
            print(f"{case}: {run.run()}", flush=True)
        except (RuntimeError, AssertionError) as error:
            print(f"{case} FAILED: {error}\nreplay: {sys.argv[0]} --bin-dir {args.bin_dir} --case {case} --seed {seed}\nkept: {directory}")
            return 1
        finally:
            run.checker.kill()
            run.cluster.stop()
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
