#!/usr/bin/env python3
"""How long pushes wait when a server dies or falls silent: replicated=2 on three servers, each host of its own.

  measure_failover.py --bin-dir build/bin [--shards 1000] [--repetitions 3] [--how kill,stop,cut]

One push is in flight to each shard all the time (each --pace-ms). Of the shards whose primary was the victim: from the strike
until a push was acknowledged that waited for it. Bars: 1.5 s p99 after SIGKILL, 5 s for a silent host (SIGSTOP, or cut off).
Needs root for network namespaces. Exit status: 0 bars met; 1 missed; 3 it could not be measured; 77 skipped.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import sandbox
from meter import NS, Bars, Table, now_ns, quantile
from net_cluster import NetCluster
from network import Network

BARS = {"kill": 1.5, "stop": 5.0, "cut": 5.0}
AFTER_SECONDS = 9.0


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


def waits_of(result, shards, at_ns):
    """Seconds from `at_ns` to the acknowledgement of what waited then, for each of the shards."""
    end_ns = at_ns + AFTER_SECONDS * NS
    waited = dict.fromkeys(shards, 0.0)
    for shard, sent_ns, acked_ns in result["slow"]:
        if shard in waited and acked_ns > at_ns and sent_ns < end_ns:
            waited[shard] = max(waited[shard], (min(acked_ns, end_ns) - at_ns) / NS)
    return list(waited.values())


def events_after(cluster, at_unix):
    """By kind: seconds from `at_unix` to the coordinator's first and last event of it."""
    times = {}
    for event in cluster.json("events", "--limit", 4096, "--timeout=10s"):
        if event["unix_ms"] / 1000 > at_unix:
            times.setdefault(event["kind"], []).append(round(event["unix_ms"] / 1000 - at_unix, 2))
    return {kind: [min(t), max(t)] for kind, t in times.items()}


def repetition(args, cluster, table, how, number):
    victim = cluster.servers[number % len(cluster.servers)]
    affected = {i for i, s in enumerate(table.shards()) if s["primary"] == victim.name}
    meter = table.meter("shards", "--seconds=600", "--ids=1", f"--pace-ms={args.pace_ms}", "--slow-ms=30",
                        seed=100 + number)
    try:
        time.sleep(3)
        at_ns, at_unix = now_ns(), time.time()
        strike(how, cluster, victim)
        time.sleep(AFTER_SECONDS)
    finally:
        result = meter.stop()
    waits = waits_of(result, affected, at_ns)
    noticed = events_after(cluster, at_unix)
    undo(how, cluster, victim)
    refilled = table.wait_for(2, 180)
    told = {"how": how, "victim": victim.name, "shards": len(affected), "p50": round(quantile(waits, 0.5), 3),
            "p99": round(quantile(waits, 0.99), 3), "max": round(max(waits, default=0.0), 3), "errors": result["errors"],
            "indeterminate": result["indeterminate"], "coordinator_s": noticed, "refilled_s": round(refilled, 2)}
    print(json.dumps(told), flush=True)
    if not affected:
        raise RuntimeError(f"{victim.name} is primary of nothing")
    return waits, result["errors"]


def measure(args, cluster):
    cluster.start()
    table = Table(args.bin_dir, cluster.address, "failover", 16 * args.shards, 32, "replicated=2", args.shards)
    table.wait_for(2, 180)
    bars = Bars()
    number = 0
    for how in args.how.split(","):
        waits, errors = [], 0
        for _ in range(args.repetitions):
            more, failed = repetition(args, cluster, table, how, number)
            waits += more
            errors += failed
            number += 1
        bars.at_most(f"{how}: p99 over {len(waits)} shards until a push is accepted", quantile(waits, 0.99), BARS[how], " s")
        bars.at_most(f"{how}: errors seen by the client", errors, 0)
    return bars.status()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--how", default="kill,stop,cut")
    parser.add_argument("--pace-ms", type=float, default=250)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    sandbox.enter()
    directory = tempfile.mkdtemp(prefix="hotbed_failover_")
    cluster = NetCluster(args.bin_dir, directory, Network(), 3, server_flags=("--host-bytes=256MiB",))
    try:
        return measure(args, cluster)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(error)
        for process in cluster.processes():
            print(f"--- {process.name}\n{process.tail(12)}")
        return 3
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
