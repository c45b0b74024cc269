#!/usr/bin/env python3
"""Lookups, pulls and pushes while a server writes back what was loaded, compared with the time before.

  measure_write_back.py --bin-dir build/bin [--only lookup] [--rows 8000000] [--quiet-turns 5] [-o json]

For each load a fresh server is filled with rows of 64 floats of class `log` (2 GB). Then `hotbed bench` runs in turns of a second:
quiet ones at once, and writing ones as soon as the server writes rows back, which is two minutes after the fill, until it has
written all. A turn counts as writing if rows were written back meanwhile. For each turn a line says the bytes that the server
wrote to disk, with log and compactions. Bars: lookups of 26 rows at 10,000/s have a p99 of at most 1.5 ms while rows are written
(median of the turns), and none takes longer than 20 ms; pulls and pushes keep 0.8 of their quiet rate (medians). Also told: what
the machine was, and its load average. Exit status: 0 bars met; 1 missed; 3 it could not be measured.
"""

import json
import os
import shutil
import sys
import time

from cluster import Cluster
from meter import Bars, arguments_of, metric, quantile, run, written_bytes

LOADS = {"lookup": ("--batch", 26, "--rate", 10000), "pull": (), "push": ()}
FILL_SECONDS_MAX = 300
BEGIN_SECONDS_MAX = 240  # from the quiet turns to the first rows written; rows are dirty for two minutes at most
TURNS_MAX = 60  # of a load
IDLE_TURNS_MAX = 3  # in a row, without a row written back: the server has written all
WRITTEN_BACK = "hotbed_table_writebacks_total"


class Server:
    """One server of its own cluster, and turns of one load on the table that fills it."""

    def __init__(self, args, directory, load):
        os.mkdir(directory)
        self.args = args
        self.load = load
        # Only the age of the rows begins a write-back, not the length of the log.
        self.cluster = Cluster(args.bin_dir, directory, 1, server_flags=("--host-bytes=7GiB", "--log-bytes-max=64GiB"))
        self.turns = []
        self.machine = ""

    def bench(self, load, *flags):
        return self.cluster.json("bench", load, "--durability", "log", "--rows", self.args.rows, "--repeats", 1, "--no-roofs", *flags,
                                 seconds=FILL_SECONDS_MAX)

    def fill(self):
        begin = time.monotonic()
        self.bench("pull", "--preload", "--seconds", 0.1)
        print(f"{self.load}: {self.args.rows} rows in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)

    def rows_written(self):
        return metric(self.cluster.admin[0], WRITTEN_BACK)

    def turn(self):
        """One second of the load; the rows written back meanwhile."""
        rows, written = self.rows_written(), written_bytes(self.cluster.servers[0])
        result = self.bench(self.load, "--no-preload", "--seconds", 1, *LOADS[self.load])
        rows = self.rows_written() - rows
        self.machine = result["machine"]
        self.turns.append({"load": self.load, "writing": rows > 0, "rows_written_back": int(rows),
                           "mb_written": (written_bytes(self.cluster.servers[0]) - written) // 1_000_000,
                           "rows_per_s": round(result["rows_per_s"]), "p99_ms": round(1e3 * result["latency_s"]["p99"], 3),
                           "longest_ms": round(1e3 * result["latency_s"]["longest"], 2)})
        turn = self.turns[-1]
        print(f"{self.load:7} {'writing' if turn['writing'] else 'quiet':8} {turn['mb_written']:6} MB to disk "
              f"{turn['rows_per_s'] / 1e6:8.2f}M rows/s   p99 {turn['p99_ms']:8.2f} ms   longest {turn['longest_ms']:8.2f} ms",
              file=sys.stderr, flush=True)
        return rows

    def wait_for_write_back(self):
        deadline = time.monotonic() + BEGIN_SECONDS_MAX
        before = self.rows_written()
        while self.rows_written() == before:
            if time.monotonic() > deadline:
                raise RuntimeError(f"no row was written back within {BEGIN_SECONDS_MAX} s")
            time.sleep(0.05)

    def run(self):
        """The turns, quiet and writing."""
        self.cluster.start()
        try:
            self.fill()
            for _ in range(self.args.quiet_turns):
                self.turn()
            first = self.rows_written()
            self.wait_for_write_back()
            idle = 0
            while idle < IDLE_TURNS_MAX and len(self.turns) < TURNS_MAX and self.rows_written() - first < self.args.rows:
                if self.turn() > 0:
                    idle = 0
                else:
                    self.turns.pop()  # neither before the write-back nor beside it
                    idle += 1
        finally:
            self.cluster.stop()
        return self.turns


def medians(turns, writing):
    chosen = [t for t in turns if t["writing"] == writing]
    if not chosen:
        raise RuntimeError(f"{turns[0]['load']}: no turn that is {'writing' if writing else 'quiet'}")
    return {"turns": len(chosen), "rows_per_s": quantile([t["rows_per_s"] for t in chosen], 0.5),
            "p99_ms": quantile([t["p99_ms"] for t in chosen], 0.5), "longest_ms": max(t["longest_ms"] for t in chosen),
            "mb_written": sum(t["mb_written"] for t in chosen)}


def tell(turns):
    """Prints a line per load and the bars; returns (medians by load, bars)."""
    bars = Bars()
    told = {}
    print(f"{'load':8}{'turns':>12} {'M rows/s':>14} {'p99, ms':>14} {'longest, ms':>16}   quiet, writing")
    for load in dict.fromkeys(t["load"] for t in turns):
        mine = [t for t in turns if t["load"] == load]
        quiet, writing = medians(mine, False), medians(mine, True)
        told[load] = {"quiet": quiet, "writing": writing}
        print(f"{load:8}{quiet['turns']:>6}, {writing['turns']:>4} {quiet['rows_per_s'] / 1e6:>7.2f},{writing['rows_per_s'] / 1e6:>6.2f} "
              f"{quiet['p99_ms']:>7.2f},{writing['p99_ms']:>6.2f} {quiet['longest_ms']:>8.1f},{writing['longest_ms']:>7.1f}")
    for load, both in told.items():
        if load == "lookup":
            bars.at_most("lookups at 10,000/s while rows are written back, p99", both["writing"]["p99_ms"], 1.5, " ms")
            bars.at_most("the longest of these lookups", both["writing"]["longest_ms"], 20, " ms")
        else:
            bars.at_least(f"{load} while rows are written back, of quiet", both["writing"]["rows_per_s"] / both["quiet"]["rows_per_s"], 0.8)
    return told, bars


def measure(args, directory):
    before = os.getloadavg()
    turns = []
    for load in [args.only] if args.only else LOADS:
        server = Server(args, f"{directory}/{load}", load)
        turns += server.run()
        shutil.rmtree(f"{directory}/{load}", ignore_errors=True)
    return print_all(args, server.machine, turns, before)


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--only", choices=LOADS)
    parser.add_argument("--rows", type=int, default=8_000_000)
    parser.add_argument("--quiet-turns", type=int, default=5)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return run(measure, parser.parse_args(), "write_back")


def print_all(args, machine, turns, before):
    averages = {"before": [round(v, 2) for v in before], "after": [round(v, 2) for v in os.getloadavg()]}
    if args.output == "json":
        sys.stdout, out = sys.stderr, sys.stdout
        told, bars = tell(turns)
        json.dump({"machine": machine, "load_average": averages, "turns": turns, "medians": told, "bars": bars.values,
                   "missed": bars.missed}, out, indent=2)
        print(file=out)
        return bars.status()
    print(f"machine {machine}; load average {averages['before']} before, {averages['after']} after")
    return tell(turns)[1].status()


if __name__ == "__main__":
    sys.exit(main())
