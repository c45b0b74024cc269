#!/usr/bin/env python3
"""The coordinator is paused, and then killed, for a minute: what pushes and pulls do meanwhile.

  measure_coordinator_away.py --bin-dir build/bin [--seconds 60] [--durability replicated=2] [--how paused,killed]

Bars: rates of pushes and of pulls at least 0.95 of those just before and after (their mean: the machine's own speed drifts),
errors 0, the sum exact, and no shard with another epoch after (nobody was failed over, nothing was split). Exit status: 0 bars met; 1 missed; 3 it could not be measured.
"""

import sys
import time

from meter import Bars, Table, arguments_of, now_ns, rate, run_on_cluster

SETTLE_SECONDS = 5


def epochs(table):
    return {s["shard"]: (s["epoch"], s["primary"]) for s in table.shards()}


def away(how, coordinator, seconds):
    """(begin, end) of the time without a coordinator."""
    begin = now_ns()
    if how == "paused":
        coordinator.pause()
    else:
        coordinator.kill()
    time.sleep(seconds)
    end = now_ns()
    if how == "paused":
        coordinator.resume()
    else:
        coordinator.start()
    return begin, end


def calm(args):
    """(begin, end) of a time with a coordinator."""
    begin = now_ns()
    time.sleep(args.seconds / 4)
    return begin, now_ns()


def measure(args, cluster):
    cluster.start()
    table = Table(args.bin_dir, cluster.address, "away", 200_000, 32, args.durability)
    table.wait_for(args.replicas)
    before = epochs(table)
    load = table.meter("load", "--seconds=3600", "--ids=64", "--push-flights=4", "--pull-flights=4")
    times = []
    try:
        time.sleep(SETTLE_SECONDS)
        for how in args.how.split(","):
            before_ns = calm(args)
            away_ns = away(how, cluster.coordinator, args.seconds)
            time.sleep(SETTLE_SECONDS)
            times.append((how, away_ns, (before_ns, calm(args))))
    finally:
        load = load.stop()
    bars = Bars()
    for how, away_ns, calm_ns in times:
        for which in ("pushes", "pulls"):
            usual = sum(rate(load, which, *ns) for ns in calm_ns) / len(calm_ns)
            told = [f"{rate(load, which, *ns):.0f}" for ns in (calm_ns[0], away_ns, calm_ns[1])]
            print(f"{which}/s before, coordinator {how}, after: {', '.join(told)}")
            bars.at_least(f"coordinator {how}: {which}, of the usual rate", rate(load, which, *away_ns) / usual, 0.95)
    bars.at_most("errors seen by clients", load["errors"], 0)
    bars.at_most("shards with another epoch or primary after", sum(before[s] != e for s, e in epochs(table).items()), 0)
    bars.at_most("difference of the sum", abs(table.sum() - load["ids_acknowledged"]), 0)
    print(f"longest push {load['push_us_p100'] / 1000:.0f} ms, pull {load['pull_us_p100'] / 1000:.0f} ms (p99 "
          f"{load['push_us_p99'] / 1000:.1f} and {load['pull_us_p99'] / 1000:.1f}), over {args.seconds:.0f} s each")
    return bars.status()


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--durability", default="replicated=2")
    parser.add_argument("--how", default="paused,killed")
    args = parser.parse_args()
    args.replicas = int(args.durability.split("=")[1]) if "=" in args.durability else 1
    return run_on_cluster(measure, args, "away", 3, "--host-bytes=256MiB")


if __name__ == "__main__":
    sys.exit(main())
