#!/usr/bin/env python3
"""Splits of shards under load, one after another: how long pushes wait for one, errors, the sum.

  measure_splits.py --bin-dir build/bin [--splits 40] [--merges] [--durability log|replicated=2|checkpoint]

With --merges the parts of each split are merged again, and the merges are measured.
Three servers hold the table; each push has 64 ids of all shards. Bars: pushes blocked 50 ms p99 (over the splits: the longest push
of each beyond the p99 of before), errors 0, difference of the sum 0. Exit status: 0 bars met; 1 missed; 3 it could not be
measured.
"""

import random
import sys
import time

from cluster import run_command
from meter import NS, Bars, Table, arguments_of, now_ns, quantile, run_on_cluster

BASELINE_SECONDS = 5
PAUSE_SECONDS = 0.3
SETTLE_SECONDS = 2  # the parts of a split have to be durable before they can be merged


def longest(load, begin, end):
    return max((acked - sent for _, sent, acked in load["slow"] if sent < end and acked > begin), default=0) / 1e6


def measure(args, cluster):
    cluster.start()
    if run_command(args.bin_dir, cluster.address, "rebalance", "off")[0] != 0:
        raise RuntimeError("rebalance off: refused")
    table = Table(args.bin_dir, cluster.address, "splits", 20_000, 16, args.durability, shards=8)
    table.wait_for(replicas=2 if args.durability == "replicated=2" else 1)
    pushed = table.meter("fill").result()["ids_acknowledged"]
    load = table.meter("load", "--seconds=600", "--rate=200", "--ids=64", "--pull-flights=1", "--slow-ms=0", seed=2)
    dice = random.Random(1)
    splits = []
    try:
        time.sleep(2)
        calm = now_ns()
        time.sleep(BASELINE_SECONDS)
        for _ in range(args.splits):
            shards = table.shards()
            largest = max(s["range"][1] - s["range"][0] for s in shards)
            shard = dice.choice([s["shard"] for s in shards if 2 * (s["range"][1] - s["range"][0]) >= largest])
            begin = now_ns()
            status, out, err = run_command(args.bin_dir, cluster.address, "shard", "split", shard, "--timeout=30s")
            if status != 0:
                raise RuntimeError(f"shard split {shard} ended with {status}: {err or out}")
            if args.merges:
                time.sleep(PAUSE_SECONDS + SETTLE_SECONDS)
                begin = now_ns()
                status, out, err = run_command(args.bin_dir, cluster.address, "shard", "merge", shard, "--timeout=30s")
                if status != 0:
                    raise RuntimeError(f"shard merge {shard} ended with {status}: {err or out}")
            splits.append((begin, now_ns()))
            time.sleep(PAUSE_SECONDS)
    finally:
        load = load.stop()
    usual = quantile([(acked - sent) / 1e6 for _, sent, acked in load["slow"] if calm < sent < calm + BASELINE_SECONDS * NS], 0.99)
    waits = [max(0.0, longest(load, begin, end + PAUSE_SECONDS * NS) - usual) for begin, end in splits]
    what = "merge" if args.merges else "split"
    print(f"{len(splits)} {what}s, {quantile([(end - begin) / 1e6 for begin, end in splits], 0.5):.0f} ms each (median); pushes "
          f"blocked: median {quantile(waits, 0.5):.1f} ms, longest {max(waits):.1f} ms; p99 of pushes before: {usual:.1f} ms",
          flush=True)
    bars = Bars()
    bars.at_most(f"pushes blocked by a {what}, p99 over the {what}s", quantile(waits, 0.99), 50, " ms")
    bars.at_most("errors seen by clients", load["errors"], 0)
    bars.at_most("difference of the sum", abs(table.sum() - pushed - load["ids_acknowledged"]), 0)
    return bars.status()


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--merges", action="store_true")
    parser.add_argument("--durability", default="log")
    return run_on_cluster(measure, parser.parse_args(), "splits", 3, "--host-bytes=256MiB")


if __name__ == "__main__":
    sys.exit(main())
