"""A table on three servers that a meter pushes to and pulls from, while something is done to it.

A story is a subclass of TableStory with a method `run`, which raises RuntimeError where the table is not as it should be.
`main` runs it once per kind of table; what a kind is, DURABILITY says.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile

from cluster import Cluster, run_command
from meter import Table

DURABILITY = {"log": "log", "r2": "replicated=2", "checkpoint": "checkpoint"}


class TableStory:
    ROWS = 20_000
    CHECKPOINT_MS = 2000

    def __init__(self, args, kind, directory):
        self.bin_dir, self.kind = args.bin_dir, kind
        self.random = random.Random(f"{args.seed}-{kind}")
        self.replicas = 2 if kind == "r2" else 1
        checkpoints = (f"--checkpoint-interval-ms={self.CHECKPOINT_MS}",) if kind == "checkpoint" else ()
        self.cluster = Cluster(args.bin_dir, directory, 3, server_flags=("--host-bytes=256MiB", *checkpoints))

    def command(self, *words):
        status, out, err = run_command(self.bin_dir, self.cluster.address, *words, "--timeout=30s")
        if status != 0:
            raise RuntimeError(f"hotbed {' '.join(words)} ended with {status}: {err or out}")
        return out

    def begin(self, dim, shards):
        """Starts the servers and makes the table "t"."""
        self.cluster.start()
        self.command("rebalance", "off")
        self.table = Table(self.bin_dir, self.cluster.address, "t", self.ROWS, dim, DURABILITY[self.kind], shards=shards)
        self.table.wait_for(replicas=self.replicas)

    def load(self, **more):
        return self.table.meter("load", "--seconds=300", "--rate=200", "--ids=64", "--pull-flights=1", "--slow-ms=20", **more)

    def elsewhere(self, shard):
        """A server that does not hold the shard (an object of the command `describe`)."""
        return next(s.name for s in self.cluster.servers if s.name not in shard["members"])

    def check_sum(self, expected, pushed):
        if self.table.sum() != expected or pushed["errors"] != 0:
            raise RuntimeError(f"{self.kind}: the table holds {self.table.sum()}, pushed were {expected}; errors: {pushed['errors']} "
                               f"{pushed['first_error']}")

    def kill_all(self):
        for server in self.cluster.servers:
            server.kill()

    def start_all(self):
        for server in self.cluster.servers:
            server.start()
        self.table.wait_for(replicas=self.replicas)

    def stop(self):
        self.cluster.stop()


def main(story, doc, kinds):
    """Exit status: 0 all well, 1 a failure, after the logs and the command that does it again."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--tables", default=kinds, help="kinds of tables: log, r2 (two replicas), checkpoint (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    for kind in args.tables.split(","):
        directory = tempfile.mkdtemp(prefix=f"hotbed_{story.__name__.lower()}_")
        test = story(args, kind, directory)
        try:
            test.run()
        except RuntimeError as error:
            print(error)
            for server in test.cluster.servers:
                print(server.tail(60))
            print(f"again: {sys.argv[0]} --bin-dir {args.bin_dir} --tables {kind} --seed {args.seed}")
            return 1
        finally:
            test.stop()
            shutil.rmtree(directory, ignore_errors=True)
    return 0
