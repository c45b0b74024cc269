#!/usr/bin/env python3
"""What the memory for rows does when a large table is created beside two in use, and when the hot set shifts by half.

  measure_memory.py --bin-dir build/bin [--seconds 5] [--follow-seconds 15]

On a server of 2 GiB two tables of 1,000,000 x 64 are pulled before and after a table of 6,000,000 rows is created. Bars: at least 0.9
of the rate, no row evicted. On one of 256 MiB there are six tables of 100,000 rows, more than fit; four are pulled until their rows
are in memory, then two of these and the two others. Printed for each second: part of the row accesses that found their row in memory;
the roof, which is this part if the memory held as many rows in use as fit and every row of the two others had to be read from the disk
once; pulls; the longest pull. Bars: 0.95 of the roof from the tenth second on, and no second without a pull.
Exit status: 0 bars met; 1 missed; 3 it could not be measured.
"""

import math
import re
import statistics
import sys
import time
import urllib.request

from meter import NS, Bars, Table, arguments_of, now_ns, processor_seconds, rate, run_on_cluster

ROWS, DIM, LARGE_ROWS = 1_000_000, 64, 6_000_000
SHIFT_ROWS = 100_000
IDS = 512
FOLLOWED_SECONDS = 10


def counted(admin, *names):
    """Sums over all tables of counters of the server with that admin address."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return [sum(float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.M)) for name in names]


def hits_and_misses(admin):
    return counted(admin, "hotbed_table_hot_hits_total", "hotbed_table_hot_misses_total")


def rows_that_fit(admin):
    limit, taken, rows = counted(admin, "hotbed_server_hot_limit_bytes", "hotbed_table_hot_bytes", "hotbed_table_resident_rows")
    return limit * rows / taken


def roof(fit, accesses, entered, before):
    """Of a second with that many accesses, all rows being equally likely; `entered` of them to one of the two new tables, of which
    no row was in memory when the hot set shifted, after `before` accesses to it."""
    first_reads = 2 * SHIFT_ROWS * (math.exp(-before / SHIFT_ROWS) - math.exp(-(before + entered) / SHIFT_ROWS))
    return min(1, fit / (4 * SHIFT_ROWS), 1 - first_reads / max(1, accesses))


def fill(table, rows):
    result = table.meter("fill", "--ids=4096", "--push-flights=4").result()
    if result["ids_acknowledged"] != rows:
        raise RuntimeError(f"table {table.name}: {result['ids_acknowledged']} of {rows} rows pushed: {result['first_error']}")


def pulls(table, seconds, seed):
    return table.meter("load", f"--seconds={seconds}", f"--ids={IDS}", "--push-flights=0", "--pull-flights=2", "--bucket-ms=100",
                       seed=seed)


def pulls_of(results, begin_ns, end_ns):
    return sum(rate(r, "pulls", begin_ns, end_ns) for r in results)


class Marks:
    """A time of pulls in parts of half a second; the median part stands for it, since other work on the machine comes and goes."""

    def __init__(self, server, seconds):
        self.marks = [(now_ns(), processor_seconds(server))]
        for _ in range(int(2 * seconds)):
            time.sleep(0.5)
            self.marks.append((now_ns(), processor_seconds(server)))

    def pulls_per_second(self, results):
        return statistics.median(pulls_of(results, begin, end) for (begin, _), (end, _) in zip(self.marks, self.marks[1:]))

    def microseconds_of_pull(self, results):
        return statistics.median((work - worked) * 1e6 / (pulls_of(results, begin, end) * (end - begin) / NS)
                                 for (begin, worked), (end, work) in zip(self.marks, self.marks[1:]))


def create_large(args, bars, cluster, tables):
    admin = cluster.admin[0]
    meters = [pulls(t, 2 * args.seconds + 6, seed=i) for i, t in enumerate(tables)]
    time.sleep(2)
    evicted = counted(admin, "hotbed_table_evictions_total")[0]
    before = Marks(cluster.servers[0], args.seconds)
    Table(args.bin_dir, cluster.address, "large", LARGE_ROWS, DIM)
    after = Marks(cluster.servers[0], args.seconds)
    results = [m.result() for m in meters]
    prices = before.microseconds_of_pull(results), after.microseconds_of_pull(results)
    print(f"processor time of the server per pull: {prices[0]:.1f} us before, {prices[1]:.1f} us after ({prices[1] / prices[0]:.2f} of it)")
    bars.at_least("pulls of the old tables after the new one was created, of before",
                  after.pulls_per_second(results) / before.pulls_per_second(results), 0.9)
    bars.at_most("rows evicted", counted(admin, "hotbed_table_evictions_total")[0] - evicted, 0)


def until_in_memory(admin, seconds=120):
    """Until nearly all accesses of a second find their row."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        before = hits_and_misses(admin)
        time.sleep(1)
        hits, misses = (b - a for a, b in zip(before, hits_and_misses(admin)))
        if hits > 100 * misses:
            return
    raise RuntimeError(f"the first hot set is not in memory after {seconds} s")


def shift(args, bars, admin, tables):
    first = [pulls(t, 600, seed=10 + i) for i, t in enumerate(tables[:4])]
    until_in_memory(admin)
    fit = rows_that_fit(admin)
    leave = first[:2]
    for meter in leave:
        meter.child.terminate()
    begin = now_ns()
    entered = [pulls(t, args.follow_seconds + 3, seed=20 + i) for i, t in enumerate(tables[4:])]
    accesses = []  # of each second: in memory, all
    for second in range(args.follow_seconds):
        before = hits_and_misses(admin)
        time.sleep(max(0, (begin + (second + 1) * NS - now_ns()) / NS))
        hits, misses = (b - a for a, b in zip(before, hits_and_misses(admin)))
        accesses.append((hits, hits + misses))
    for meter in leave:
        meter.result()
    results = [m.stop() for m in first[2:]] + [m.result() for m in entered]
    least, of_roof, entered_before = None, [], 0
    for second, (hits, every) in enumerate(accesses):
        from_ns, to_ns = begin + second * NS, begin + (second + 1) * NS
        longest = 0
        for r in results:
            buckets = [int((t - r["begin_ns"]) / 1e8) for t in (from_ns, to_ns)]
            longest = max(r["pull_max_us_over_time"][max(0, buckets[0]):max(0, buckets[1])] + [longest])
        done = pulls_of(results, from_ns, to_ns)
        least = done if least is None else min(least, done)
        of_entered = pulls_of(results[2:], from_ns, to_ns) * IDS / 2
        best = roof(fit, every, of_entered, entered_before)
        entered_before += of_entered
        of_roof.append(hits / max(1, every) / best)
        print(f"second {second + 1}: {hits / max(1, every):.3f} from memory (roof {best:.3f}), {done:.0f} pulls, longest {longest / 1000:.1f} ms", flush=True)
    bars.at_least(f"accesses from memory from second {FOLLOWED_SECONDS} on, of the roof", min(of_roof[FOLLOWED_SECONDS - 1:]), 0.95)
    bars.at_least("pulls in the slowest second", least, 1)


def on_cluster(args, host_bytes, tables, rows, work):
    """work(cluster, tables) on a server of that size, with every row of the tables pushed once. The exit status if it fails, or 0."""
    def measure(args, cluster):
        cluster.start()
        made = [Table(args.bin_dir, cluster.address, f"t{i}", rows, DIM) for i in range(tables)]
        for table in made:
            table.wait_for(1)
            fill(table, rows)
        work(cluster, made)
        return 0
    return run_on_cluster(measure, args, "memory", 1, f"--host-bytes={host_bytes}")


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--follow-seconds", type=int, default=15)
    args = parser.parse_args()
    bars = Bars()
    return (on_cluster(args, "2GiB", 2, ROWS, lambda cluster, tables: create_large(args, bars, cluster, tables))
            or on_cluster(args, "256MiB", 6, SHIFT_ROWS, lambda cluster, tables: shift(args, bars, cluster.admin[0], tables))
            or bars.status())


if __name__ == "__main__":
    sys.exit(main())
