#!/usr/bin/env python3
"""Two servers reach the coordinator, the clients and all others, but not each other: their shards continue without one of them.

  cut_members_test.py --bin-dir build/bin [--servers 3] [--seed N]

With a third server each shard gets its second replica there. With two servers it continues with one replica, and gets its second
one back when the network heals. Needs root for network namespaces. Exit status: 0 all well; 77 skipped; anything else a failure.
"""

import sys

from cases import main_of_story
from checker import EXACT, Checker

GET_ON_SECONDS = 60
REPLICAS_SECONDS = 90  # one that was not heard of is left alone for half a minute


def run(args, seed, cluster, network, directory):
    cluster.start()
    checker = Checker(args.bin_dir, directory, cluster.address, seed, clients=2, rows=4000, dim=16, tables="r2-hashed",
                      hosts=[network.host() for _ in range(2)])
    try:
        checker.create()
        checker.start()
        checker.wait_for_steps(20, GET_ON_SECONDS)
        one, other = (server.host for server in cluster.servers[:2])
        network.isolate(one, [other])
        seconds = checker.wait_for_steps(20, GET_ON_SECONDS)
        if args.servers > 2:
            cluster.wait_for_replicas(REPLICAS_SECONDS)
        network.heal_all()
        cluster.wait_for_replicas(REPLICAS_SECONDS)
        status, said = checker.finish(GET_ON_SECONDS)
        if status == EXACT:
            status, said = checker.verify()
        if status != EXACT:
            raise RuntimeError(said)
        if not any(e["kind"] == "cut_off" for e in cluster.json("events")):
            raise RuntimeError(f"no event tells of it:\n{cluster.run('events')[1]}")
        print(f"cut off from each other, every client got on within {seconds:.1f} s; {said}")
    finally:
        checker.kill()


if __name__ == "__main__":
    sys.exit(main_of_story(__doc__, run))
