#!/usr/bin/env python3
"""The metadata of a cluster move from the embedded store to etcd and back, while a load pushes and pulls.

  move_metadata_test.py --bin-dir build/bin

No call of the load fails, the sum is exact, tables can be created after each move, a coordinator does not begin with the
store that was left, and stores that are used are refused. Exit status: 0 passed; 1 failed; 77 left out.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, Process, run_command, start_etcd
from meter import Bars, Table


class Move:
    def __init__(self, args, directory):
        self.bin_dir, self.directory = args.bin_dir, directory
        self.etcd, port = start_etcd(directory)
        self.cluster = Cluster(args.bin_dir, directory, 2, server_flags=("--host-bytes=64MiB",))
        embedded = self.cluster.coordinator
        data_dir = next(a for a in embedded.command if a.startswith("--data-dir="))
        in_etcd = f"--metadata=etcd://127.0.0.1:{port}/moved"
        self.stores = {"embedded": data_dir, "etcd": in_etcd}
        self.coordinators = {
            "embedded": embedded,
            "etcd": Process("coordinator", [in_etcd if a == data_dir else a for a in embedded.command],
                            f"{directory}/coordinator-etcd.log")}

    def metadata(self, verb, file, store, *more):
        """(exit status, all that it says)"""
        status, out, err = run_command(self.bin_dir, self.cluster.address, "metadata", verb, f"{self.directory}/{file}",
                                       self.stores[store], *more)
        return status, out + err

    def must(self, verb, file, store, *more):
        status, said = self.metadata(verb, file, store, *more)
        if status != 0:
            raise RuntimeError(f"metadata {verb} {store}: {said}")
        return said

    def refused(self, words, verb, file, store, *more):
        status, said = self.metadata(verb, file, store, *more)
        if status == 0 or words not in said:
            raise RuntimeError(f"metadata {verb} {store} ended with {status}, wanted \"{words}\": {said}")

    def does_not_begin(self, store):
        done = subprocess.run(self.coordinators[store].command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode == 0 or "were exported from here" not in done.stderr:
            raise RuntimeError(f"a coordinator on {store} ended with {done.returncode}: {done.stderr}")

    def move(self, before, after):
        file = f"{before}.hotbed"
        self.refused("uses" if before == "etcd" else "is locked", "export", file, before)
        self.coordinators[before].stop()
        self.must("export", file, before, "--dry-run")
        said = self.must("export", file, before)
        if "2 servers" not in said:
            raise RuntimeError(said)
        self.refused("exists and stays", "export", file, before)
        self.does_not_begin(before)
        self.must("import", file, after, "--dry-run")
        self.must("import", file, after)
        self.refused("They stay as they are", "import", file, after)
        self.coordinators[after].start()
        self.refused("uses" if after == "etcd" else "is locked", "import", file, after)

    def close(self):
        for process in (*self.coordinators.values(), *self.cluster.servers, self.etcd):
            process.kill()


def check(args, move):
    cluster = move.cluster
    cluster.start()
    table = Table(args.bin_dir, cluster.address, "t", 20_000, 16, "replicated=2")
    table.wait_for(2)
    load = table.meter("load", "--seconds=600", "--ids=64", "--push-flights=2", "--pull-flights=2")
    try:
        while table.sum() == 0:
            if load.child.poll() is not None:
                raise RuntimeError("the load has ended")
            time.sleep(0.1)
        for number, (before, after) in enumerate((("embedded", "etcd"), ("etcd", "embedded"))):
            move.move(before, after)
            Table(args.bin_dir, cluster.address, f"after{number}", 1000, 8)
    finally:
        load = load.stop()
    bars = Bars()
    bars.at_most("errors seen by the load", load["errors"], 0)
    bars.at_most("difference of the sum", abs(table.sum() - load["ids_acknowledged"]), 0)
    bars.at_least("ids pushed", load["ids_acknowledged"], 1000)
    bars.at_least("tables", len(cluster.json("table", "list")), 3)
    return bars.status()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    args = parser.parse_args()
    if shutil.which("etcd") is None:
        print("left out: it needs etcd (Debian: etcd-server)")
        return 77
    directory = tempfile.mkdtemp(prefix="hotbed_move_")
    move = Move(args, directory)
    try:
        return check(args, move)
    finally:
        move.close()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
