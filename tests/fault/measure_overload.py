#!/usr/bin/env python3
"""Three times the pushes that the servers can take, on a schedule that does not wait for them.

  measure_overload.py --bin-dir build/bin [--seconds 20] [--factor 3] [--durability log]

First the peak: pushes that keep up in a closed loop. Then clients send --factor times as many, each due at a fixed time, with a
deadline of --deadline-ms; goodput is the rate of acknowledged pushes. The number of pushes in flight is practically unlimited (8,192
per client): the run measures the mechanism that keeps the servers from doing everything too late. A push that a client has no room
for when it is due is not sent. Bars: goodput at least 0.8 of the peak, resident memory of every server
at most 1.15 of its --host-bytes, and the sum of the table equal to that of the acknowledged pushes: no acknowledged push was
dropped, and none was applied twice. Exit status: 0 bars met; 1 missed; 3 it could not be measured.
"""

import sys
import threading

from meter import NS, Bars, Table, arguments_of, rate, resident_bytes, run_on_cluster

HOST_MIB = 256
METERS = 2
SETTLE_SECONDS = 2


class Resident:
    """The most that any server had resident, sampled."""

    def __init__(self, servers):
        self.servers = servers
        self.most = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.ended.wait(0.1):
            for server in self.servers:
                if server.running():
                    self.most = max(self.most, resident_bytes(server))

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.most


def phase(args, table, seed, *flags):
    """Pushes a second, and the meters' results."""
    meters = [table.meter("load", f"--seconds={args.seconds + SETTLE_SECONDS}", f"--ids={args.ids}", *flags, seed=seed + i)
              for i in range(METERS)]
    results = [m.result() for m in meters]
    total = 0.0
    for result in results:
        begin = result["begin_ns"] + SETTLE_SECONDS * NS
        total += rate(result, "pushes", begin, begin + (args.seconds - 1) * NS)
    return total, results


def measure(args, cluster):
    cluster.start()
    table = Table(args.bin_dir, cluster.address, "overload", 2_000_000, 32, args.durability)
    resident = Resident(cluster.servers)
    try:
        peak, calm = phase(args, table, 10, "--push-flights=16")
        offered = args.factor * peak
        goodput, loaded = phase(args, table, 20, "--push-flights=4096", f"--rate={offered / METERS}",
                                f"--deadline-ms={args.deadline_ms}")
    finally:
        most = resident.stop()
    bars = Bars()
    def count(what):
        return sum(r[what] for r in loaded)

    print(f"peak {peak:.0f} pushes/s of {args.ids} ids; offered {offered:.0f}/s, acknowledged in time {goodput:.0f}/s; of "
          f"{sum(count(w) for w in ('pushes', 'indeterminate', 'errors', 'shed'))} {count('pushes')} in time, {count('shed')} had no "
          f"room at their client, {count('errors')} waited for it in vain, {count('indeterminate')} were sent and late; latency p50 "
          f"{loaded[0]['push_us_p50'] / 1000:.0f} ms; first error: "
          f"{next((r['first_error'] for r in loaded if r['first_error']), 'none')}")
    bars.at_least(f"goodput at {args.factor:g} times the peak, of the peak", goodput / peak, 0.8)
    bars.at_most("largest resident memory of a server, of --host-bytes", most / (HOST_MIB << 20), 1.15)
    acknowledged = sum(r["ids_acknowledged"] for r in calm + loaded)
    bars.at_most("difference of the sum", abs(table.sum() - acknowledged), 0)
    return bars.status()


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--factor", type=float, default=3)
    parser.add_argument("--ids", type=int, default=64)
    parser.add_argument("--deadline-ms", type=int, default=1000)
    parser.add_argument("--durability", default="log")
    return run_on_cluster(measure, parser.parse_args(), "overload", 2, f"--host-bytes={HOST_MIB}MiB")


if __name__ == "__main__":
    sys.exit(main())
