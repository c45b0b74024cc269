#!/usr/bin/env python3
"""One server and one coordinator with thousands of clients that hardly ask for anything: do they all connect, what do they
cost, and what does a client that works notice?

  measure_streams.py --bin-dir build/bin [--clients 5000] [--per-process 250] [--seconds 10] [--connect-seconds-max 180]

Server and coordinator are told to take so many clients of one address (--connections-max, --streams-max: by default an address may
have 4,096 connections). An address begins 200 connections per second after the first 1,000, so 5,000 clients take 20 s and more. Each
of the clients has a stream to the server and one to the coordinator, and pulls a row every ten seconds. While the working client is
measured they are stopped, with their streams open. Bars: no call of theirs fails, and the working client keeps --keep (0.7) of the
pulls that it had alone. Exit status: 0 met; 1 missed; 3 it could not be measured.
"""

import json
import signal
import sys
import time
import urllib.request

from cluster import Cluster
from meter import NS, Bars, Table, arguments_of, now_ns, processor_seconds, rate, resident_bytes, run

ROWS = 100_000


def cost(cluster, seconds):
    """Fractions of a processor that the coordinator and the server take, one after the other."""
    before = [processor_seconds(p) for p in cluster.processes()]
    time.sleep(seconds)
    return [(processor_seconds(p) - b) / seconds for p, b in zip(cluster.processes(), before)]


def streams(admin):
    with urllib.request.urlopen(f"http://{admin}/api/metrics", timeout=60) as reply:
        return next(m["value"] for m in json.load(reply) if m["name"] == "hotbed_server_streams")


def worked(table, seconds, seed):
    """Pulls per second of one client with 512 ids per pull."""
    begin = now_ns()
    result = table.meter("load", f"--seconds={seconds}", "--ids=512", "--push-flights=0", "--pull-flights=4", seed=seed).result()
    if result["errors"]:
        raise RuntimeError(f"the working client saw {result['errors']} errors")
    return rate(result, "pulls", begin + NS, begin + (seconds - 1) * NS)


def wait_for_streams(cluster, crowd, args):
    begin = time.monotonic()
    while (open_now := streams(cluster.admin[0])) < args.clients:
        passed = time.monotonic() - begin
        if any(meter.child.poll() is not None for meter in crowd):
            raise RuntimeError(f"{open_now} of {args.clients} streams are open, and a process of clients has ended")
        if passed > args.connect_seconds_max:
            raise RuntimeError(f"{open_now} of {args.clients} streams are open after {passed:.0f} s (--connect-seconds-max); the last lines of "
                               f"the logs:\n{cluster.servers[0].tail(3)}{cluster.coordinator.tail(3)}")
        left = f", about {passed * (args.clients - open_now) / open_now:.0f} s left" if open_now else ""
        print(f"{open_now} of {args.clients} clients have connected after {passed:.0f} s{left}", file=sys.stderr, flush=True)
        time.sleep(min(5, 1 + passed / 10))
    print(f"{args.clients} clients have connected after {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)


def measure(args, directory):
    room = [f"--connections-max={2 * args.clients + 1000}", f"--connections-per-peer-max={args.clients + 500}"]
    cluster = Cluster(args.bin_dir, directory, 1, server_flags=("--host-bytes=256MiB", f"--streams-max={args.clients + 500}", *room))
    cluster.coordinator.command += room
    crowd = []
    try:
        cluster.start()
        table = Table(args.bin_dir, cluster.address, "asked", ROWS, 64)
        table.wait_for(1)
        alone = worked(table, args.seconds, 1)
        idle, memory = cost(cluster, args.seconds / 2), [resident_bytes(p) for p in cluster.processes()]
        lasts = 4 * args.seconds + args.connect_seconds_max
        crowd = [table.meter("clients", f"--clients={min(args.per_process, args.clients - first)}", f"--seconds={lasts}", "--pulls-per-s=0.1",
                             seed=first + 2)
                 for first in range(0, args.clients, args.per_process)]
        wait_for_streams(cluster, crowd, args)
        held = [(resident_bytes(p) - m) / args.clients for p, m in zip(cluster.processes(), memory)]
        busy = cost(cluster, args.seconds / 2)
        # Their processes would take the processors from it.
        for meter in crowd:
            meter.child.send_signal(signal.SIGSTOP)
        among = worked(table, args.seconds, 2)
        for meter in crowd:
            meter.child.send_signal(signal.SIGCONT)
        results = [meter.stop() for meter in crowd]
        crowd = []
    finally:
        for meter in crowd:
            meter.child.kill()
        cluster.stop()
    failed = [r["first_error"] for r in results if r["errors"]]
    print(f"{sum(r['connects'] for r in results)} connects, the slowest {max(r['slowest_connect_s'] for r in results):.1f} s, all within "
          f"{max(r['connected_s'] for r in results):.1f} s; {sum(r['pulls'] for r in results)} pulls", *failed[:1], sep="\n")
    for name, of_client, before, after in zip(("coordinator", "server"), held, idle, busy):
        print(f"{name}: {of_client / 1024:.1f} KiB per client; {before:.3f} of a processor without them, {after:.3f} with them")
    bars = Bars()
    bars.at_most("calls of theirs that failed", sum(r["errors"] for r in results), 0)
    bars.at_least(f"pulls of the working client, of {alone:.0f}/s alone", among / alone, args.keep)
    return bars.status()


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--clients", type=int, default=5000)
    parser.add_argument("--per-process", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--keep", type=float, default=0.7)
    parser.add_argument("--connect-seconds-max", type=float, default=180)
    return run(measure, parser.parse_args(), "streams")


if __name__ == "__main__":
    sys.exit(main())
