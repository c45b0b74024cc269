#!/usr/bin/env python3
"""A served table that lookups ask for much gets further copies by itself, and loses them when they ask for little.

  hot_table_test.py --bin-dir build/bin

Three serving servers; the table may have 1 to 3 copies. Lookups by HTTP go to all servers meanwhile, and none fails. Exit status: 0 all
well; anything else a failure.
"""

import argparse
import json
import random
import re
import sys
import threading
import urllib.error
import urllib.request

from cluster import ClusterTest, run_test
from meter import Table

ROWS, DIM = 4_000, 8
COPIES = 3


class Lookups:
    """One after another; each asks a server by chance for `ids` rows."""

    def __init__(self, addresses, ids, pause):
        self.addresses, self.ids, self.pause = addresses, ids, pause
        self.ended = threading.Event()
        self.answers, self.errors = 0, []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while not self.ended.wait(self.pause):
            body = {"ids": random.sample(range(ROWS), self.ids), "encoding": "base64", "timeout_ms": 20_000}
            request = urllib.request.Request(random.choice(self.addresses) + "/v1/tables/t:lookup", json.dumps(body).encode())
            try:
                with opener.open(request, timeout=30) as answer:
                    answer.read()
                self.answers += 1
            except urllib.error.HTTPError as error:
                self.errors.append(f"{error.code} {error.read().decode()}")
            except OSError as error:
                self.errors.append(repr(error))

    def end(self):
        self.ended.set()
        self.thread.join()
        if self.errors or self.answers == 0:
            raise RuntimeError(f"{self.answers} lookups were answered, errors: {self.errors[:3]}")
        return self.answers


class HotTable(ClusterTest):
    def __init__(self, args, directory):
        super().__init__(args, directory, 1, ["--host-bytes=128MiB"])
        self.cluster.coordinator.command += ["--copy-rows-per-s-max=500", "--copy-raise-after-ms=600ms", "--copy-lower-after-ms=1s"]
        self.serving = [self.cluster.add_serving(f"r{i}", http=True) for i in range(COPIES)]

    def has(self, copies):
        """That many are wanted, there and ready."""
        (table,) = self.status()["tables"]
        return table["replicas"] == copies and [c["state"] for c in table["copies"]] == ["ready"] * copies

    def wait_copies(self, copies):
        self.wait_for(f"{copies} copies", lambda: self.has(copies))

    def run(self):
        self.cluster.start()
        for server in self.serving:
            server.start()
        table = Table(self.args.bin_dir, self.cluster.address, "t", ROWS, DIM, shards=2)
        table.wait_for(replicas=1)
        table.meter("fill").result()
        self.json("serve", "add", "t", f"--replicas=1..{COPIES}")
        self.wait_copies(1)
        addresses = [f"http://{server.http}" for server in self.serving]
        many = Lookups(addresses, ids=2_000, pause=0.01)
        self.wait_copies(COPIES)
        (found,) = self.status()["tables"]
        if (found["replicas_min"], found["replicas_max"]) != (1, COPIES):
            raise RuntimeError(f"other limits: {found}")
        print(f"{many.end()} lookups of 2,000 rows: {COPIES} copies", flush=True)
        few = Lookups(addresses, ids=1, pause=0.1)
        self.wait_copies(1)
        print(f"{few.end()} lookups of a row: 1 copy", flush=True)
        told = [e["text"] for e in self.json("events") if e["kind"] == "serving"]
        numbers = [int(n) for text in told for n in re.findall(r"; ([0-9]+) copies are wanted, as each of", text)]
        if numbers != [2, 3, 2, 1]:
            raise RuntimeError(f"events say that {numbers} copies are wanted: {told}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    args = parser.parse_args()
    return run_test(HotTable, args, "hot")


if __name__ == "__main__":
    sys.exit(main())
