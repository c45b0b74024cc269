#!/usr/bin/env python3
"""Live moves of a gigabyte of rows in shards while pushes and pulls run: how long pushes wait, errors, throughput lost.

  measure_moves.py --bin-dir build/bin [--mib 1024] [--bandwidth 100MiB/s] [--durability log] [--quiet]

Two servers hold the table, every shard of one of them moves to a third and back. Bars: pushes blocked 50 ms p99 (over the shards
that moved: the longest push of each beyond the p99 without moves), errors 0, throughput while copying at least 0.8 of that of
before. With --quiet nobody pushes or pulls, and each move begins when all servers have come to rest. Bars then: the source and the
target take at most 0.5 s of processor time each per 256 MiB. Exit status: 0 bars met; 1 missed; 3 it could not be measured.
"""

import json
import os
import sys
import time

from cluster import run_command
from meter import NS, Bars, Table, arguments_of, now_ns, quantile, rate, run_on_cluster

DIM = 64
BASELINE_SECONDS = 10
REST_SHARE = 0.03  # of a core, that a server takes at rest
REST_SECONDS_MAX = 300


def processor_seconds(cluster):
    """The processor time of each server so far, by its name."""
    spent = {}
    for server in cluster.servers:
        with open(f"/proc/{server.child.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        spent[server.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent


def wait_for_rest(cluster):
    """Until every server takes next to no processor time for two seconds: what a fill or a move left to do is done."""
    deadline = time.monotonic() + REST_SECONDS_MAX
    calm = 0
    while calm < 2:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the servers did not come to rest within {REST_SECONDS_MAX} s")
        before = processor_seconds(cluster)
        time.sleep(1)
        now = processor_seconds(cluster)
        calm = calm + 1 if max(now[name] - before[name] for name in now) <= REST_SHARE else 0


def move(args, cluster, table, source, target):
    """Moves all that `source` is primary of: (begin, end, shards by index, processor seconds of source and target)."""
    moved = {i: s["shard"] for i, s in enumerate(table.shards()) if s["primary"] == source}
    if not moved:
        raise RuntimeError(f"{source} is primary of nothing")
    spent = processor_seconds(cluster)
    begin = now_ns()
    status, out, err = run_command(args.bin_dir, cluster.address, "shard", "move", *moved.values(), "--to", target,
                                   "--bandwidth", args.bandwidth, seconds=1200)
    if status != 0:
        raise RuntimeError(f"shard move ended with {status}: {err}")
    end = now_ns()
    now = processor_seconds(cluster)
    there = [s["shard"] for i, s in enumerate(table.shards()) if i in moved and s["primary"] != target]
    if there:
        raise RuntimeError(f"not at {target} after the move was said to be done: {there[:5]}; it said: {out[-300:]}")
    return begin, end, set(moved), [round(now[name] - spent[name], 2) for name in (source, target)]


def measure(args, cluster):
    cluster.start()
    rows = args.mib * (1 << 20) // (4 * DIM)
    table = Table(args.bin_dir, cluster.address, "moves", rows, DIM, args.durability)
    if run_command(args.bin_dir, cluster.address, "rebalance", "off")[0] != 0:
        raise RuntimeError("rebalance off: refused")  # it would move shards to the new server by itself
    third = cluster.add_server()
    begin = time.monotonic()
    filled = table.meter("fill", "--ids=4096", "--push-flights=4").result()
    print(f"{filled['ids_acknowledged']} rows in {time.monotonic() - begin:.1f} s, {filled['shards']} shards", flush=True)
    third.start()
    if args.quiet:
        return measure_quiet(args, cluster, table, third.name, filled)
    load = table.meter("load", "--seconds=1200", "--ids=64", "--push-flights=2", "--pull-flights=1", "--slow-ms=10", seed=2)
    probe = table.meter("shards", "--seconds=1200", "--ids=4", "--pace-ms=20", "--slow-ms=5", seed=3)
    try:
        time.sleep(2)
        calm = now_ns()
        time.sleep(BASELINE_SECONDS)
        moves = [move(args, cluster, table, "s0", third.name)]
        time.sleep(2)
        moves.append(move(args, cluster, table, third.name, "s0"))
        time.sleep(1)
    finally:
        load, probe = load.stop(), probe.stop()
    return tell(args, table, calm, moves, load, probe, filled)


def measure_quiet(args, cluster, table, third, filled):
    """The processor time of moves alone."""
    spent = {"source": [], "target": []}
    for source, target in (("s0", third), (third, "s0")):
        wait_for_rest(cluster)
        begin, end, shards, seconds = move(args, cluster, table, source, target)
        mib = args.mib * len(shards) / filled["shards"]
        print(json.dumps({"shards": len(shards), "mib": round(mib, 1), "seconds": round((end - begin) / NS, 2),
                          "processor_s_source_target": seconds}), flush=True)
        for name, value in zip(spent, seconds):
            spent[name].append(value * 256 / mib)
    bars = Bars()
    for name, values in spent.items():
        bars.at_most(f"processor time of the {name} per 256 MiB, the larger of two moves", max(values), 0.5, " s")
    bars.at_most("difference of the sum", abs(table.sum() - filled["ids_acknowledged"]), 0)
    return bars.status()


def longest(probe, shards, begin, end):
    waited = dict.fromkeys(shards, 0.0)
    for shard, sent, acked in probe["slow"]:
        if shard in waited and sent < end and acked > begin:
            waited[shard] = max(waited[shard], (acked - sent) / 1e6)
    return list(waited.values())


def tell(args, table, calm, moves, load, probe, filled):
    bars = Bars()
    before = rate(load, "pushes", calm, calm + BASELINE_SECONDS * NS)
    every = set(range(probe["shards"]))
    usual = quantile(longest(probe, every, calm, calm + BASELINE_SECONDS * NS), 0.99)
    waits, ratios = [], []
    for begin, end, shards, spent in moves:
        waits += longest(probe, shards, begin, end)
        ratios.append(rate(load, "pushes", begin, end) / before)
        print(json.dumps({"shards": len(shards), "seconds": round((end - begin) / NS, 2),
                          "mib_per_s": round(args.mib * len(shards) / probe["shards"] / ((end - begin) / NS), 1),
                          "throughput_ratio": round(ratios[-1], 3), "processor_s_source_target": spent}), flush=True)
    print(f"longest push of a shard in {BASELINE_SECONDS} s without moves, p99 over shards: {usual:.1f} ms; while moving: "
          f"{quantile(waits, 0.99):.1f} ms; {before:.0f} pushes/s before")
    bars.at_most("pushes blocked by a move, p99 over the shards moved", max(0.0, quantile(waits, 0.99) - usual), 50, " ms")
    bars.at_most("errors seen by clients", load["errors"] + probe["errors"], 0)
    bars.at_least("throughput while copying, of that before", min(ratios), 0.8)
    pushed = filled["ids_acknowledged"] + load["ids_acknowledged"] + probe["ids_acknowledged"]
    bars.at_most("difference of the sum", abs(table.sum() - pushed), 0)
    return bars.status()


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--mib", type=int, default=1024, help="of weights in the table; about half of it moves, twice")
    parser.add_argument("--bandwidth", default="100MiB/s", help="the dial")
    parser.add_argument("--durability", default="log")
    parser.add_argument("--quiet", action="store_true", help="without load: the processor time of the moves alone")
    return run_on_cluster(measure, parser.parse_args(), "moves", 2, "--host-bytes=2GiB")


if __name__ == "__main__":
    sys.exit(main())
