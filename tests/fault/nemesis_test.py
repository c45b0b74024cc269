#!/usr/bin/env python3
"""Servers, coordinator and clients on hosts of their own are killed, paused, cut off and badly connected; every weight stays exact.

  nemesis_test.py --bin-dir build/bin [--seconds 20] [--nemesis kill,pause,cut] [--tables log,r2] [--seed N]

Needs root for network namespaces; where it cannot have them it says so and ends with 77. Exit status: 0 exact; 1 a difference
was found; 3 the run itself failed. With --expect-failure BUG the servers run with that planted bug, and the run passes when the
checker finds it within --rounds rounds.
"""

import argparse
import json
import shlex
import sys
import time

import fault_run
import sandbox
from checker import DIFFERENT, EXACT


def replay_of(seed):
    return f"{shlex.join(sys.argv)} --seed={seed}"  # the last one counts


def one_round(args, seed):
    print(f"seed {seed}; replay: {replay_of(seed)}", flush=True)
    run = fault_run.FaultRun(args, seed)
    found = run.run()
    print(json.dumps(run.summary), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    fault_run.add_arguments(parser)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=4, help="tries to find a planted bug")
    args = parser.parse_args()
    fault_run.check_arguments(parser, args)
    sandbox.enter()
    if not args.expect_failure:
        return one_round(args, args.seed)
    broken = 0
    for number in range(args.rounds):
        begin = time.monotonic()
        found = one_round(args, args.seed + number)
        if found == DIFFERENT:
            print(f"the checker caught {args.expect_failure} in round {number + 1}, after "
                  f"{time.monotonic() - begin:.0f} s of it")
            return 0
        # With a bug a cluster may also stop for good, which shows nothing: once that is not held against it.
        broken += found not in (EXACT, DIFFERENT)
        if broken > 1:
            return found
    print(f"the checker did not catch {args.expect_failure} in {args.rounds} rounds")
    return 1


if __name__ == "__main__":
    sys.exit(main())
