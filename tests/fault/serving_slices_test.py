#!/usr/bin/env python3
"""Tables with column slices are served by one and by two servers while trainers push to them and delete rows.

  serving_slices_test.py --bin-dir build/bin

A shard of one slice moves, and primaries and a copy with a disk are killed and come back. Meanwhile each served row
is whole or absent. In the end both copies have the rows of the trainers, to the bit of the format, and none that was deleted.
Exit status: 0 all well; anything else a failure.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, Process, free_ports, run_command
from meter import Table

ROWS = 3_000
DELETED_ROWS = 500
DIM = 10
SLICES = 3  # of 4, 3 and 3 columns
RANGES = 2
SETTLE_SECONDS = 60


class SlicedServing:
    def __init__(self, args, directory):
        self.args, self.directory = args, directory
        self.cluster = Cluster(args.bin_dir, directory, 2, server_flags=["--host-bytes=128MiB"])
        self.serving = [self.serving_server(f"r{i}", disk=i == 0) for i in range(2)]

    def serving_server(self, name, disk):
        listen, admin = free_ports(2)
        return Process(name, [os.path.join(self.args.bin_dir, "hotbed-server"), "--role=serving", f"--name={name}",
                              f"--coordinator={self.cluster.address}", f"--listen=127.0.0.1:{listen}",
                              f"--admin-listen=127.0.0.1:{admin}", "--host-bytes=64MiB",
                              *([f"--data-dir={self.directory}/{name}"] if disk else [])], f"{self.directory}/{name}.log")

    def try_command(self, *words):
        return run_command(self.args.bin_dir, self.cluster.address, *map(str, words), "--timeout=30s")

    def command(self, *words):
        status, out, err = self.try_command(*words)
        if status != 0:
            raise RuntimeError(f"hotbed {' '.join(map(str, words))} ended with {status}: {err or out}")
        return out

    def shards_of(self, table):
        return json.loads(self.command("shard", "list", "--table", table, "-o", "json"))

    def copies(self):
        tables = json.loads(self.command("serve", "status", "-o", "json"))["tables"]
        return [copy for table in tables for copy in table["copies"]]

    def wait_ready(self, count):
        deadline = time.monotonic() + SETTLE_SECONDS
        while [copy["state"] for copy in self.copies()] != ["ready"] * count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not {count} copies are ready within {SETTLE_SECONDS} s: {self.copies()}")
            time.sleep(0.1)

    def checker(self, *words, **more):
        return subprocess.Popen([os.path.join(self.args.bin_dir, "hotbed-serving-checker"), self.cluster.address, *map(str, words)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def end(self, checker):
        out, err = checker.communicate(timeout=180)
        if checker.returncode != 0:
            raise RuntimeError(f"hotbed-serving-checker: {err}{out}")
        print(out.strip(), flush=True)
        return json.loads(out)

    def check(self, servers):
        found = self.end(self.checker("t", "int8", ROWS, SETTLE_SECONDS, servers))
        if found["rows"] != ROWS or found["servers"] != servers:
            raise RuntimeError(f"too little was compared: {found}")

    def check_top_k(self):
        """The row itself is the nearest one, and its score is that of the served rows."""
        words = ("topk", "t", "--served", "--id", ROWS - 1, "--k", 5, "--metric", "l2", "-o", "json")
        rows = json.loads(self.command(*words))[0]["rows"]
        if len(rows) != 5:
            raise RuntimeError(f"the nearest rows: {rows}")

    def run(self):
        self.cluster.start()
        self.serving[0].start()
        self.command("rebalance", "off")
        sliced = ("--column-slices", SLICES)
        table = Table(self.args.bin_dir, self.cluster.address, "t", ROWS, DIM, shards=RANGES * SLICES, more=sliced)
        Table(self.args.bin_dir, self.cluster.address, "h", ROWS, DIM, hashed=True, shards=RANGES * SLICES, more=sliced).wait_for(replicas=1)
        table.wait_for(replicas=1)
        table.meter("fill").result()
        self.command("serve", "add", "t", "--format=int8")
        self.command("serve", "add", "h")
        self.wait_ready(2)
        self.check(servers=1)
        # Changes, deletes and absences, with two copies of each.
        load = table.meter("load", "--seconds=300", "--rate=100", "--ids=64", "--pull-flights=1")
        deletes = self.checker("h", "deletes", DELETED_ROWS, stdin=subprocess.PIPE)
        self.serving[1].start()
        self.command("serve", "add", "t", "h", "--replicas=2")
        self.wait_ready(4)
        for moved in (table.shards()[RANGES], self.shards_of("h")[RANGES]):  # of the second slice
            self.command("shard", "move", moved["shard"], "--to", next(
                server.name for server in self.cluster.servers if server.name not in moved["members"]))
        self.serving[0].kill()
        self.cluster.servers[0].kill()
        self.cluster.servers[0].start()
        self.serving[0].start()
        table.wait_for(replicas=1)
        time.sleep(2)
        load.stop()
        found = self.end(deletes)
        if found["turns"] < 50 or found["lookups"] < 50:
            raise RuntimeError(f"too little was watched: {found}")
        self.wait_ready(4)
        self.check(servers=2)
        self.check_top_k()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    directory = tempfile.mkdtemp(prefix="hotbed_serving_slices_")
    test = SlicedServing(args, directory)
    try:
        test.run()
    except RuntimeError as error:
        print(error)
        for process in [*test.cluster.processes(), *test.serving]:
            print(process.name, process.tail(30))
        return 1
    finally:
        for server in test.serving:
            server.kill()
        test.cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
