#!/usr/bin/env python3
"""Two servers reach the coordinator, the clients and all others, but not each other: their shards continue without one of them.

  cut_members_test.py --bin-dir build/bin [--servers 3] [--seed N]

With a third server each shard gets its second replica there. With two servers it continues with one replica, and gets its second
one back when the network heals. Needs root for network namespaces. Exit status: 0 all well; 77 skipped; anything else a failure.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile

import sandbox
from checker import EXACT, Checker
from net_cluster import NetCluster
from network import Network

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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    sandbox.enter()
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    print(f"seed {seed}; replay: {' '.join(sys.argv)} --seed={seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="hotbed_cut_")
    network = Network()
    cluster = NetCluster(args.bin_dir, directory, network, args.servers, server_flags=("--host-bytes=64MiB",))
    try:
        run(args, seed, cluster, network, directory)
        return 0
    except RuntimeError as error:
        print(error)
        return 1
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
