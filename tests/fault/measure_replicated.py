#!/usr/bin/env python3
"""The cost of a second replica: pushes to a replicated=2 table on two servers, compared with a table of class `log` on one.

  measure_replicated.py --bin-dir build/bin [--rounds 5] [--seconds 2] [--batch 512]

Two clusters stand side by side; rounds of `hotbed bench push` take turns between them, so that both see the same machine. All
processes share its cores: with two replicas there are two servers to feed. Also told: rows for each second of processor time of
servers and client together, which says what a copy costs where cores are not short. Bar: rate at least 0.55 of the other.
Exit status: 0 bar met; 1 missed; 3 it could not be measured.
"""

import json
import os
import resource
import sys

from cluster import Cluster, json_of_command
from meter import Bars, arguments_of, processor_seconds, quantile, run

WARM_UP_SECONDS = 1


class Side:
    """One of the two clusters, and what its rounds gave."""

    def __init__(self, args, directory, durability, servers):
        self.args = args
        self.durability = durability
        os.mkdir(directory)
        self.cluster = Cluster(args.bin_dir, directory, servers, server_flags=("--host-bytes=1GiB",))
        self.rates = []  # rows per second
        self.rows_per_cpu = []  # rows per second of processor time
        self.shares = []  # processor seconds of: servers, client; for each second
        self.p50 = []

    def push(self, seconds):
        """One round: what hotbed bench push says, with processor seconds of the servers and of itself."""
        servers = [processor_seconds(p) for p in self.cluster.servers]
        client = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = json_of_command(self.args.bin_dir, self.cluster.address, "bench", "push", "--durability", self.durability,
                                 "--rows", self.args.rows, "--batch", self.args.batch, "--seconds", seconds, "--repeats", 1,
                                 "--in-flight", self.args.in_flight, "--no-roofs")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return result, ([processor_seconds(p) - s for p, s in zip(self.cluster.servers, servers)],
                        after.ru_utime + after.ru_stime - client.ru_utime - client.ru_stime)

    def round(self):
        result, (servers, client) = self.push(self.args.seconds)
        self.rates.append(result["rows_per_s"])
        # The command also warms up and connects; the shares are of all that it did.
        self.shares.append((sum(servers), client))
        self.rows_per_cpu.append(result["rows_per_s"] * self.args.seconds / (sum(servers) + client))
        self.p50.append(result["latency_s"]["p50"])

    def told(self):
        return {"durability": self.durability, "servers": len(self.cluster.servers),
                "rows_per_s": round(quantile(self.rates, 0.5)), "rows_per_cpu_s": round(quantile(self.rows_per_cpu, 0.5)),
                "cpu_s_servers": round(quantile([s for s, _ in self.shares], 0.5), 2),
                "cpu_s_client": round(quantile([c for _, c in self.shares], 0.5), 2),
                "p50_ms": round(1e3 * quantile(self.p50, 0.5), 2)}


def measure(args, directory):
    sides = [Side(args, f"{directory}/two", "replicated=2", 2), Side(args, f"{directory}/one", "log", 1)]
    try:
        for side in sides:
            side.cluster.start()
            side.push(WARM_UP_SECONDS)
        for _ in range(args.rounds):
            for side in sides:
                side.round()
    finally:
        for side in sides:
            side.cluster.stop()
    two, one = sides
    for side in sides:
        print(json.dumps(side.told()))
    ratio = quantile([a / b for a, b in zip(two.rates, one.rates)], 0.5)
    per_cpu = quantile([a / b for a, b in zip(two.rows_per_cpu, one.rows_per_cpu)], 0.5)
    print(f"rows for each second of processor time, servers and client: {per_cpu:.3f} of class log")
    bars = Bars()
    bars.at_least(f"push rate of replicated=2, of class log, median of {args.rounds} rounds", ratio, 0.55)
    return bars.status()


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--in-flight", type=int, default=8)
    return run(measure, parser.parse_args(), "replicated")


if __name__ == "__main__":
    sys.exit(main())
