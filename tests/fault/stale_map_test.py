#!/usr/bin/env python3
"""A client that has not heard of the coordinator for an hour's worth of changes: it follows the shards all the same, without an error.

  stale_map_test.py --bin-dir build/bin [--tables log,r2] [--seed N]

The clients' hosts are cut off from the coordinator both ways; then every shard changes its epoch several times: every server is
killed and started in turn, and (where the command line program can) every shard moves to every server. Needs root for network
namespaces. Exit status: 0 all well; 77 skipped; anything else a failure.
"""

import sys

from cases import main_of_story
from checker import EXACT, Checker

GET_ON_SECONDS = 60


def epochs(cluster):
    return {s["shard"]: s["epoch"] for s in cluster.json("shard", "list")}


def change_everything(args, cluster, checker):
    for server in cluster.servers:
        server.kill()
        server.start()
        checker.wait_for_steps(5, GET_ON_SECONDS)
    if args.no_moves:
        return
    for server in cluster.servers:
        status, _, err = cluster.run("shard", "move", "all", "--to", server.name, seconds=120)
        if status != 0:
            raise RuntimeError(f"shard move all --to {server.name}: {err}")
        checker.wait_for_steps(5, GET_ON_SECONDS)


def run(args, seed, cluster, network, directory):
    cluster.start()
    hosts = [network.host() for _ in range(2)]
    checker = Checker(args.bin_dir, directory, cluster.address, seed, clients=2, rows=4000, dim=16, tables=args.tables, hosts=hosts)
    try:
        checker.create()
        checker.start()
        checker.wait_for_steps(20, GET_ON_SECONDS)
        for host in hosts:
            network.isolate(host, [cluster.coordinator.host])
        before = epochs(cluster)
        change_everything(args, cluster, checker)
        changed = {s: e - before[s] for s, e in epochs(cluster).items()}
        if min(changed.values()) < 1:
            raise RuntimeError(f"a shard did not change its epoch: {changed}")
        progress = checker.progress()
        network.heal_all()
        status, said = checker.finish(GET_ON_SECONDS)
        if status == EXACT:
            status, said = checker.verify()
        if status != EXACT:
            raise RuntimeError(said)
        if progress["errors"] != 0:
            raise RuntimeError(f"{progress['errors']} errors seen by clients")
        print(f"epochs went on by {min(changed.values())} to {max(changed.values())}; {progress['wrong_epoch']} answers WRONG_EPOCH, "
              f"longest push {progress['push_max_us'] / 1e6:.2f} s, pull {progress['pull_max_us'] / 1e6:.2f} s, no error; {said}")
    finally:
        checker.kill()


if __name__ == "__main__":
    sys.exit(main_of_story(__doc__, run, options={"--tables": {"default": "log,log-hashed"},
                                                       "--no-moves": {"action": "store_true"}}))
