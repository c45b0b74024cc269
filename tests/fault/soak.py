#!/usr/bin/env python3
"""A long run of everything at once: tables of class log and replicated 2 and 3, all nemeses, moves, drains, splits and merges all
the time.

  soak.py --bin-dir build/bin --minutes N [--seed S] [--summary FILE]

Says once a while how far it is, and in the end one line of JSON. Exit status: 0 exact; 1 a difference was found; 3 the run
itself failed; 77 this machine has no network namespaces.
"""

import argparse
import json
import shlex
import sys
import time

import fault_run
import sandbox
from checker import EXACT

SAY_SECONDS = 15
MINUTES_MAX = 120  # longer ones need more rows than a comparison can hold in memory
# The hottest row's sums stay exact in fp32 for about so long with ROWS rows; longer runs spread over more.
ROWS, ROWS_MINUTES = 200_000, 45
# The goals of a soak of half an hour; those of shorter ones are in proportion.
GOALS_OF_30_MINUTES = {"pushes_acknowledged": 1_000_000, "kills": 100, "moves_done": 100, "splits_done": 20}
DEFAULTS = ["--servers=4", "--clients=3", "--dim=32", "--tables=log,log-hashed,r2,r3-hashed", "--flights=8",
            "--proxied=1", "--nemesis=kill,kill_coordinator,kill_client,pause,pause_coordinator,pause_client,cut,isolate,disk,proxy",
            "--pause-max=8", "--move-pause=6", "--splits-max=40", "--drain-share=0.05", "--verify-replicas",
            "--slow-seconds=8", "--otherwise-max=15", "--server-flag=--host-bytes=64MiB", "--server-flag=--log-bytes-max=64MiB"]


class Progress:
    def __init__(self, seconds):
        self.begin = time.monotonic()
        self.seconds = seconds
        self.said = self.begin

    def __call__(self, run):
        now = time.monotonic()
        if now < self.said + SAY_SECONDS:
            return
        self.said = now
        p = run.checker.progress()
        done = now - self.begin
        kills = sum(process.kills for process in [*run.cluster.processes(), *run.checker.workers])
        moves = (f"{run.mover.done} of {run.mover.asked} moves seen done, {run.mover.events['shard_cut']} of "
                 f"{run.mover.splits} splits, ") if run.mover else ""
        print(f"{100 * min(done / self.seconds, 1):5.1f} %  {done:5.0f} s, {max(self.seconds - done, 0):5.0f} s left: "
              f"{p['pushes']} pushes acknowledged ({p['pushes'] / done:.0f}/s), {kills} kills, {moves}"
              f"{p['indeterminate']} indeterminate, longest push {p['push_max_us'] / 1e6:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    fault_run.add_arguments(parser)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--summary", help="the JSON goes here too")
    parser.set_defaults(rows=0)
    args = parser.parse_args([*DEFAULTS, *sys.argv[1:]])
    if not 0 < args.minutes <= MINUTES_MAX:
        parser.error(f"--minutes is {args.minutes:g}, allowed: up to {MINUTES_MAX}; run several, each has a seed of its own")
    if not args.rows:
        args.rows = 2 * int(ROWS / 2 * max(1.0, args.minutes / ROWS_MINUTES) ** 1.5)
    fault_run.check_arguments(parser, args)
    args.seconds = 60 * args.minutes
    sandbox.enter()
    print(f"seed {args.seed}; the same faults again: {shlex.join(sys.argv)} --seed={args.seed}", flush=True)
    run = fault_run.FaultRun(args, args.seed)
    found = run.run(Progress(args.seconds))
    if found == EXACT:
        run.summary["goals"] = {}
        for name, of_30 in GOALS_OF_30_MINUTES.items():
            goal = int(of_30 * args.minutes / 30)
            reached = run.summary.get(name, 0)
            run.summary["goals"][name] = f"{reached} of {goal}: {'reached' if reached >= goal else 'MISSED'}"
    text = json.dumps(run.summary)
    print(text, flush=True)
    if args.summary:
        with open(args.summary, "w", encoding="ascii") as file:
            file.write(text + "\n")
    return found


if __name__ == "__main__":
    sys.exit(main())
