#!/usr/bin/env python3
"""A rolling restart of all servers under load: replicas stay where they are, and at most what changed meanwhile is sent.

  rolling_restart_test.py --bin-dir build/bin

Three servers hold a table of two replicas, and read replicas of a small one. Each server in turn is told to stop and is started again.
Every push is applied once, and the bytes of snapshot transfers are counted. Exit status: 0 all well; anything else a failure.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import urllib.request

from cluster import Cluster, json_of_command, run_command
from meter import Table

ROWS = 40_000
DIM = 64
# What changed travels as records of the log. A replica that was silent for very long on a busy machine may be sent whole;
# all of the 16 would be twice this table's rows. Refills elsewhere show in `holders != before`.
SENT_BYTES_MAX = ROWS * DIM * 4 // 2


def sent_bytes(admin):
    """Bytes of snapshot transfers that the server has sent since it began."""
    with urllib.request.urlopen(f"http://{admin}/api/metrics", timeout=10) as reply:
        return sum(m["value"] for m in json.load(reply) if m["name"] == "hotbed_server_snapshot_sent_bytes_total")


def holders(table):
    return {s["shard"]: sorted(s["members"]) for s in table.shards()}


def restart_all(cluster, table, everywhere):
    """The bytes sent by the processes that were stopped."""
    sent = 0
    for server, admin in zip(cluster.servers, cluster.admin):
        sent += sent_bytes(admin)
        status = server.stop()
        if status != 0:
            raise RuntimeError(f"{server.name} ended with {status}:\n{server.tail()}")
        server.start()
        table.wait_for(replicas=2)
        everywhere.wait_for(replicas=1)
    return sent


def run(args, cluster):
    cluster.start()
    run_command(args.bin_dir, cluster.address, "rebalance", "off")
    table = Table(args.bin_dir, cluster.address, "kept", ROWS, DIM, "replicated=2", shards=6)
    everywhere = Table(args.bin_dir, cluster.address, "everywhere", ROWS // 10, DIM, more=["--data-parallel"])
    table.wait_for(replicas=2)
    everywhere.wait_for(replicas=1)
    everywhere.meter("fill").result()
    filled = table.meter("fill").result()["ids_acknowledged"]
    before = holders(table)
    at_first = sum(map(sent_bytes, cluster.admin))
    load = table.meter("shards", "--seconds=120", "--pace-ms=50", "--ids=4")
    sent = restart_all(cluster, table, everywhere)
    pushed = load.stop()
    sent += sum(map(sent_bytes, cluster.admin)) - at_first
    if holders(table) != before:
        raise RuntimeError(f"replicas are elsewhere: {before} became {holders(table)}")
    expected = filled + pushed["ids_acknowledged"]
    if table.sum() != expected or pushed["errors"] != 0:
        raise RuntimeError(f"the table holds {table.sum()}, pushed were {expected}; errors: {pushed['errors']}")
    refills = [e["text"] for e in json_of_command(args.bin_dir, cluster.address, "events") if e["kind"] == "refill"]
    told = (f"{sent:.0f} bytes sent for {ROWS * DIM * 4} bytes of rows; {pushed['pushes']} pushes, "
            f"the longest {pushed['push_us_p100'] / 1e3:.0f} ms; refills: {refills}")
    if sent > SENT_BYTES_MAX:
        for server in cluster.servers:
            print("".join(line for line in server.tail(400).splitlines(True) if "all rows" in line or "snapshot" in line))
        raise RuntimeError(f"{told}: more than {SENT_BYTES_MAX} bytes")
    print(told)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    directory = tempfile.mkdtemp(prefix="hotbed_rolling_")
    cluster = Cluster(args.bin_dir, directory, 3, server_flags=("--host-bytes=256MiB", "--replica-tail-bytes=48MiB"))
    # Nobody is given up, however slow this machine is. A refill that does not wait comes at once.
    cluster.coordinator.command.append("--refill-wait-ms=120s")
    try:
        run(args, cluster)
        return 0
    except RuntimeError as error:
        print(error)
        return 1
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
