#!/usr/bin/env python3
"""One benchmark of two builds in turns: what got faster, and what got slower.

  in_turns.py --old DIR --new DIR [--rounds 5] [--host-bytes 2GiB] -- PROGRAM ARGS...
  in_turns.py --old ../before/build/bin --new build/bin -- shards_bench --turns 3
  in_turns.py --old ../before/build/bin --new build/bin -- hotbed bench push --durability log --seconds 2

Each round runs the program of one build and then that of the other, and the next round begins with the other. `hotbed bench` has a
server and a coordinator of its own build, which stand side by side; a round is one run without roofs (--repeats 1 --no-roofs).
Programs that benchmark in process are run with JSON as output. Prints the median of each figure in both builds, and the median of
the rounds' ratios, by which above 1 is faster. Bar: each rate and time at least 0.97 of the old build. Tails of latency (p99) are
told without a bar. Exit status: 0 bar met; 1 missed; 3 it could not be measured. Standard library only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fault"))
from cluster import Cluster  # noqa: E402
from meter import run  # noqa: E402

BAR = 0.97
RUN_SECONDS_MAX = 3600
GOOGLE_BENCHMARKS = ("kernels_bench", "optimizers_bench", "planner_bench")


class Figure:
    """A value of one run. `more`: more is better; `bar`: it must not get worse."""

    def __init__(self, value, more, bar=True):
        self.value = value
        self.more = more
        self.bar = bar


def figures_of(result):
    """{name: Figure} of the JSON of any of the benchmarks."""
    if isinstance(result, list):  # shards_bench
        return {f"{r['kind']}, {r['shards']} shards, us": Figure(r["us"], False) for r in result}
    if "benchmarks" in result:
        return {f"{b['name']}, {b['time_unit']}": Figure(b["real_time"], False) for b in result["benchmarks"]}
    if "rows_per_s" in result:  # hotbed bench
        latency = result["latency_s"]
        return {"rows/s": Figure(result["rows_per_s"], True), "p50, us": Figure(1e6 * latency["p50"], False),
                "p99, us": Figure(1e6 * latency["p99"], False, bar=False)}
    return {r["measure"]: Figure(r["ours_per_second"], True) for r in result["rows"]}


class Side:
    """One build, and the figures of its rounds."""

    def __init__(self, bin_dir, directory, command, host_bytes):
        self.bin_dir = os.path.abspath(bin_dir)
        self.command = command
        self.cluster = None
        self.rounds = []
        if command[0] == "hotbed":
            os.mkdir(directory)
            self.cluster = Cluster(self.bin_dir, directory, 1, server_flags=(f"--host-bytes={host_bytes}",))

    def start(self):
        if self.cluster:
            self.cluster.start()

    def stop(self):
        if self.cluster:
            self.cluster.stop()

    def run(self):
        if self.cluster:
            return figures_of(self.cluster.json(*self.command[1:], "--repeats", 1, "--no-roofs", seconds=RUN_SECONDS_MAX))
        output = ["--benchmark_format=json"] if self.command[0] in GOOGLE_BENCHMARKS else ["-o", "json"]
        done = subprocess.run([os.path.join(self.bin_dir, self.command[0]), *self.command[1:], *output], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=RUN_SECONDS_MAX)
        if done.returncode != 0:
            raise RuntimeError(f"{self.bin_dir}/{' '.join(self.command)} ended with {done.returncode}:\n{done.stderr}")
        return figures_of(json.loads(done.stdout))

    def round(self):
        self.rounds.append(self.run())


def compare(old, new):
    """Prints the table; the number of figures below the bar."""
    names = [name for name in new.rounds[0] if name in old.rounds[0]]
    if not names:
        raise RuntimeError("the two builds have no figure in common")
    width = max(map(len, names))
    print(f"{'figure':{width}} {'old':>14} {'new':>14} {'speed':>7}")
    missed = 0
    for name in names:
        befores, afters = ([r[name].value for r in side.rounds] for side in (old, new))
        figure = new.rounds[0][name]
        speed = statistics.median(a / b if figure.more else b / a for a, b in zip(afters, befores))
        below = figure.bar and speed < BAR
        missed += below
        print(f"{name:{width}} {statistics.median(befores):14,.1f} {statistics.median(afters):14,.1f} {speed:7.3f}"
              f"{f'  SLOWER, bar {BAR}' if below else ''}")
    for name in set(old.rounds[0]) ^ set(new.rounds[0]):
        print(f"{name}: only in the {'new' if name in new.rounds[0] else 'old'} build")
    return missed


def measure(args, directory):
    before = os.getloadavg()[0]
    old, new = (Side(bin_dir, f"{directory}/{name}", args.command, args.host_bytes)
                for name, bin_dir in (("old", args.old), ("new", args.new)))
    try:
        old.start()
        new.start()
        if old.cluster:
            old.run()  # creates the table, warms up
            new.run()
        for i in range(args.rounds):
            for side in (old, new) if i % 2 == 0 else (new, old):
                side.round()
    finally:
        old.stop()
        new.stop()
    print(f"{' '.join(args.command)}: medians of {args.rounds} rounds in turns; load average {before:.2f} before, "
          f"{os.getloadavg()[0]:.2f} after")
    return 1 if compare(old, new) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--old", required=True, metavar="DIR", help="programs of the build before")
    parser.add_argument("--new", required=True, metavar="DIR", help="programs of the build now")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--host-bytes", default="2GiB", help="memory for rows of each server of 'hotbed bench'")
    parser.add_argument("command", nargs="+", metavar="PROGRAM ARGS", help="'hotbed bench ...', or a program with -o json")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds is {args.rounds}; at least 1")
    if args.command[0] == "hotbed" and ("bench" not in args.command[1:2] or "--suite" in args.command):
        parser.error(f"'{' '.join(args.command)}': of hotbed, only 'hotbed bench pull|push|mixed|lookup' without --suite")
    return run(measure, args, "in_turns")


if __name__ == "__main__":
    sys.exit(main())
