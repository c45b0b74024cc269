#!/usr/bin/env python3
"""The time of day jumps by hours and days in servers, coordinator and clients: nothing is lost, and nobody loses a lease by it.

  clock_test.py --bin-dir build/bin [--seconds 6] [--seed N]

Each process has a clock of its own (libhotbed-clock-shim.so): one server starts under a changed one, and all jump to and fro.
Exit status: 0 all well; anything else a failure.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time

from checker import EXACT, Checker
from cluster import Cluster, json_of_command, run_command

JUMPS = (0, 3600, -3600, 86400 * 3, -86400 * 3, 86400 * 400)


class ClockRun:
    def __init__(self, args, seed, directory):
        self.args = args
        self.random = random.Random(seed)
        self.directory = directory
        self.cluster = Cluster(args.bin_dir, directory, servers=3, server_flags=("--host-bytes=64MiB",))
        self.checker = Checker(args.bin_dir, directory, self.cluster.address, seed, tables=args.tables)
        self.shim = os.path.join(args.bin_dir, "libhotbed-clock-shim.so")
        self.offsets = []
        for process in [*self.cluster.processes(), *self.checker.workers]:
            path = f"{process.log_path}.clock"
            process.env.update(LD_PRELOAD=self.shim, HOTBED_CLOCK_SHIM=path)
            self.offsets.append(path)
            self.jump(path, 0)
        self.jump(self.offsets[1], -86400 * 30)  # a server that starts a month behind

    def jump(self, path, seconds):
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(f"{seconds}\n")
        os.rename(path + ".new", path)

    def epochs(self):
        shards = json_of_command(self.args.bin_dir, self.cluster.address, "shard", "list")
        return {s["shard"]: s["epoch"] for s in shards}

    def run(self):
        self.cluster.start()
        self.checker.create()
        self.checker.start()
        self.checker.wait_for_steps(10, 60)
        before = self.epochs()
        jumps = 0
        end = time.monotonic() + self.args.seconds
        while time.monotonic() < end:
            self.jump(self.random.choice(self.offsets), self.random.choice(JUMPS))
            jumps += 1
            time.sleep(0.1)
            status, said = self.checker.status()
            if status != EXACT:
                raise RuntimeError(said)
        if self.epochs() != before:
            events = run_command(self.args.bin_dir, self.cluster.address, "events")[1]
            raise RuntimeError(f"epochs changed, though nobody died: {before} to {self.epochs()}\n{events}")
        took = self.checker.wait_for_steps(10, 10)
        victim = self.random.choice(self.cluster.servers)
        victim.kill()
        victim.start()
        self.checker.wait_for_steps(10, 60)
        status, said = self.checker.finish(60)
        if status == EXACT:
            status, said = self.checker.verify()
        if status != EXACT:
            raise RuntimeError(said)
        pause = self.checker.progress()["push_max_us"] / 1e6
        print(f"{jumps} jumps, no epoch changed, 10 steps of each client took {took:.2f} s after; longest push {pause:.2f} s; {said}")

    def stop(self):
        self.checker.kill()
        self.cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--tables", default="log,log-hashed")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}; replay: {' '.join(sys.argv)} --seed={seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="hotbed_clock_")
    run = ClockRun(args, seed, directory)
    try:
        run.run()
        return 0
    except RuntimeError as error:
        print(error)
        return 1
    finally:
        run.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
