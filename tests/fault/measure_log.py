#!/usr/bin/env python3
"""The cost of the log: pushes of class `log` compared with pushes of class `checkpoint`.

  measure_log.py --bin-dir build/bin [--rounds 5] [--seconds 2] [--rows 1000000] [--batch 512]

Two servers stand side by side, one per class. First they are pushed to until the log is written over its old segments, as a log is
that has run for a while. Then rounds of `hotbed bench push` take turns between them: first as many pushes as go, then half as many
as class `log` reached, on a schedule. Direct appends of the same bytes are measured last, because what they write slows all that
follows. Bars of class `log`, medians: rate at least 0.8 of the lesser of class `checkpoint` and direct appends; processor time of
the server per push at most 1.2 of the other; p99 at half the rate at most 2 of the other. A server that writes rows back meanwhile
spends processor time on them, too: the bytes written to disk say whether it did. Exit status: 0 bars met; 1 missed; 3 it could not
be measured.
"""

import json
import os
import sys

from cluster import Cluster
from meter import Bars, arguments_of, metric, processor_seconds, quantile, run, written_bytes

WARM_UP_SECONDS = 2
WARM_UPS_MAX = 15
PUSHES = "hotbed_server_push_messages_total"
SEGMENTS = "hotbed_server_log_segments_total"


class Side:
    """The server of one class, and what its rounds gave."""

    def __init__(self, args, directory, durability):
        self.args = args
        self.directory = f"{directory}/{durability}"
        self.durability = durability
        os.mkdir(self.directory)
        self.cluster = Cluster(args.bin_dir, self.directory, 1, server_flags=("--host-bytes=4GiB",))
        self.rows = []  # per second
        self.calls = []  # per second
        self.processor_us = []  # of the server, per push
        self.mb_written = []  # by the server, per round
        self.p99 = []  # at half the rate, in ms

    def push(self, seconds, *flags):
        return self.cluster.json("bench", "push", "--durability", self.durability, "--rows", self.args.rows, "--batch", self.args.batch,
                                 "--seconds", seconds, "--repeats", 1, *flags, seconds=300)

    def warm_up(self):
        """Until the log is written over its old segments, as it is on every server but a new one."""
        for _ in range(WARM_UPS_MAX):
            self.push(WARM_UP_SECONDS, "--no-roofs")
            if self.durability != "log" or metric(self.cluster.admin[0], SEGMENTS + '{file="reused"}') > 0:
                return

    def segments(self):
        admin = self.cluster.admin[0]
        reused = metric(admin, SEGMENTS + '{file="reused"}')
        return reused, metric(admin, SEGMENTS) - reused

    def measure_rate(self):
        server, admin = self.cluster.servers[0], self.cluster.admin[0]
        before = metric(admin, PUSHES), processor_seconds(server), written_bytes(server)
        result = self.push(self.args.seconds, "--no-roofs")
        pushes = metric(admin, PUSHES) - before[0]
        self.rows.append(result["rows_per_s"])
        self.calls.append(result["calls_per_s"])
        self.processor_us.append(1e6 * (processor_seconds(server) - before[1]) / pushes)
        self.mb_written.append((written_bytes(server) - before[2]) / 1e6)

    def measure_tail(self, calls_per_s):
        self.p99.append(1e3 * self.push(self.args.seconds, "--no-roofs", "--rate", calls_per_s)["latency_s"]["p99"])

    def direct_appends(self):
        """Rows per second; None where the file system has no direct writes."""
        result = self.push(1, "--dir", self.directory)
        roof = next(r for r in result["roofs"] if r["name"].startswith("direct appends"))
        return roof.get("rows_per_s")

    def told(self):
        return {"durability": self.durability, "rows_per_s": round(quantile(self.rows, 0.5)),
                "processor_us_per_push": round(quantile(self.processor_us, 0.5), 1),
                "mb_written_per_round": round(quantile(self.mb_written, 0.5)),
                "p99_ms_at_half": [round(p, 2) for p in self.p99]}


def measure(args, directory):
    checkpoint, log = sides = [Side(args, directory, durability) for durability in ("checkpoint", "log")]
    try:
        for side in sides:
            side.cluster.start()
            side.warm_up()
        before = log.segments()
        for _ in range(args.rounds):
            for side in sides:
                side.measure_rate()
        reused, new = (now - then for now, then in zip(log.segments(), before))
        half = max(log.calls) / 2
        for _ in range(args.rounds):
            for side in sides:
                side.measure_tail(half)
        direct = log.direct_appends()
    finally:
        for side in sides:
            side.cluster.stop()
    for side in sides:
        print(json.dumps(side.told()))
    told = f"{direct:.0f} rows/s" if direct else "refused here"
    print(f"segments of the log while rates were measured: {reused:.0f} over old ones, {new:.0f} new files")
    print(f"direct appends {told}; half of the highest rate of class log: {half:.0f} calls/s")
    bars = Bars()
    limit = min(quantile(checkpoint.rows, 0.5), direct or float("inf"))
    bars.at_least("rate of class log, of the lesser of class checkpoint and direct appends", quantile(log.rows, 0.5) / limit, 0.8)
    bars.at_most("processor time per push, of class checkpoint",
                 quantile([a / b for a, b in zip(log.processor_us, checkpoint.processor_us)], 0.5), 1.2)
    bars.at_most("p99 at half the rate, of class checkpoint", quantile(log.p99, 0.5) / quantile(checkpoint.p99, 0.5), 2)
    return bars.status()


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each round")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=512)
    return run(measure, parser.parse_args(), "log")


if __name__ == "__main__":
    sys.exit(main())
