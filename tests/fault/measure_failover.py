#!/usr/bin/env python3
"""How long pushes wait when a server dies or falls silent: replicated=2 on three servers, each host of its own.

  measure_failover.py --bin-dir build/bin [--shards 1000] [--repetitions 3] [--how kill,stop,cut]

As many tables as servers, each of --shards shards: so each server is primary of --shards of them, or more after a fail-over. Each
shard gets a push every --pace-ms, and one right after the strike. Of the shards whose primary was the victim: from the strike
to the first acknowledgement of a push that was sent after it (one that was sent late makes it longer, never shorter). Bars: 1.5 s
p99 after SIGKILL, 5 s for a silent host (SIGSTOP, or cut off). A repetition counts only if every one of those shards had acknowledged pushes before, and had a push in flight or sent within
--under-way-ms of the strike: else it could not be measured. Needs root for network namespaces. Exit status: 0
bars met; 1 missed; 3 it could not be measured; 77 skipped.
"""

import functools
import json
import sys
import time

import sandbox
from meter import NS, Bars, Table, arguments_of, now_ns, quantile, run_on_cluster
from net_cluster import NetCluster
from network import Network

BARS = {"kill": 1.5, "stop": 5.0, "cut": 5.0}
AFTER_SECONDS = 9.0  # bars of 5 s, and room to see by how much they are missed


def strike(how, cluster, victim):
    if how == "kill":
        victim.kill()
    elif how == "stop":
        victim.pause()
    else:
        cluster.network.isolate(victim.host)


def undo(how, cluster, victim):
    if how == "kill":
        victim.start()
    elif how == "stop":
        victim.resume()
    else:
        cluster.network.heal_all()


def waits_of(args, result, shards, at_ns):
    """Seconds from `at_ns` for each of the shards: to the first push sent after it, and to the first acknowledgement of one; and how
    many shards had a push in flight then. RuntimeError: there were shards without pushes."""
    before, in_flight, sent, acked = set(), set(), {}, {}
    for shard, sent_ns, acked_ns in result["slow"]:
        if acked_ns < at_ns:
            before.add(shard)
        elif sent_ns < at_ns:
            in_flight.add(shard)
        else:
            sent[shard] = min(sent.get(shard, sent_ns), sent_ns)
            acked[shard] = min(acked.get(shard, acked_ns), acked_ns)
    under_way = in_flight | {shard for shard, ns in sent.items() if ns < at_ns + args.under_way_ms * 1e6}
    for name, lacking in (("no push acknowledged before the strike", shards - before),
                          (f"no push under way within {args.under_way_ms} ms of it", shards - under_way),
                          (f"no push acknowledged in {AFTER_SECONDS} s after it", shards - acked.keys())):
        if lacking:
            raise RuntimeError(f"{len(lacking)} of {len(shards)} shards had {name}: {sorted(lacking)[:5]}")
    return [(sent[s] - at_ns) / NS for s in shards], [(acked[s] - at_ns) / NS for s in shards], len(in_flight & shards)


def events_after(cluster, at_unix):
    """By kind: seconds from `at_unix` to the coordinator's first and last event of it."""
    times = {}
    for event in cluster.json("events", "--limit", 4096, "--timeout=10s"):
        if event["unix_ms"] / 1000 > at_unix:
            times.setdefault(event["kind"], []).append(round(event["unix_ms"] / 1000 - at_unix, 2))
    return {kind: [min(t), max(t)] for kind, t in times.items()}


def repetition(args, cluster, tables, how, number):
    victim = cluster.servers[number % len(cluster.servers)]
    affected = [{i for i, s in enumerate(table.shards()) if s["primary"] == victim.name} for table in tables]
    if sum(map(len, affected)) < args.shards:
        raise RuntimeError(f"{victim.name} is primary of {sum(map(len, affected))} shards, wanted are {args.shards}")
    meters = [table.meter("shards", "--seconds=600", "--ids=1", f"--pace-ms={args.pace_ms}", "--slow-ms=0",
                          seed=100 * number + i) for i, table in enumerate(tables, 1)]
    try:
        time.sleep(3 + args.pace_ms / 1000)
        at_ns, at_unix = now_ns(), time.time()
        strike(how, cluster, victim)
        for meter in meters:
            meter.push_now()
        time.sleep(AFTER_SECONDS)
    finally:
        results = [meter.stop() for meter in meters]
    sent, waits, in_flight = [], [], 0
    for result, shards in zip(results, affected):
        more_sent, more_waits, flying = waits_of(args, result, shards, at_ns)
        sent += more_sent
        waits += more_waits
        in_flight += flying
    noticed = events_after(cluster, at_unix)
    errors = sum(result["errors"] for result in results)
    print(json.dumps({"how": how, "victim": victim.name, "shards": len(waits), "in_flight": in_flight,
                      "sent_p99": round(quantile(sent, 0.99), 3), "p50": round(quantile(waits, 0.5), 3),
                      "p99": round(quantile(waits, 0.99), 3), "max": round(max(waits), 3), "errors": errors,
                      "indeterminate": sum(result["indeterminate"] for result in results), "coordinator_s": noticed}),
          flush=True)
    return waits, errors, victim


def measure(args, cluster):
    cluster.start()
    tables = [Table(args.bin_dir, cluster.address, f"failover{i}", 16 * args.shards, 32, "replicated=2", args.shards)
              for i in range(len(cluster.servers))]
    bars = Bars()
    number = 0
    undo_last = lambda: None
    for how in args.how.split(","):
        waits, errors = [], 0
        for _ in range(args.repetitions):
            undo_last()
            refilled = sum(table.wait_for(2, 300) for table in tables)
            print(f"all replicas there after {refilled:.1f} s", flush=True)
            more, failed, victim = repetition(args, cluster, tables, how, number)
            undo_last = functools.partial(undo, how, cluster, victim)
            waits += more
            errors += failed
            number += 1
        bars.at_most(f"{how}: p99 over {len(waits)} shards until a push is accepted", quantile(waits, 0.99), BARS[how], " s")
        bars.at_most(f"{how}: errors seen by the client", errors, 0)
    return bars.status()


def new_cluster(bin_dir, directory, servers, server_flags):
    return NetCluster(bin_dir, directory, Network(), servers, server_flags=server_flags)


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--how", default="kill,stop,cut")
    parser.add_argument("--pace-ms", type=float, default=1000)
    parser.add_argument("--under-way-ms", type=float, default=500)
    args = parser.parse_args()
    sandbox.enter()
    return run_on_cluster(measure, args, "failover", 3, "--host-bytes=256MiB", new_cluster=new_cluster)


if __name__ == "__main__":
    sys.exit(main())
