#!/usr/bin/env python3
"""Servers 2 -> 4 -> 2 while two trainers train synchronously: every loss and every row as in a run that nobody moved.

  measure_scale.py --bin-dir build/bin [--steps 300]

Bar: 0 bits of difference, with all shards moved at least once. Exit status: 0 met; 1 missed; 3 it could not be measured.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, json_of_command, run_command
from meter import Bars, arguments_of

TRAINERS = 2
TRAIN_SECONDS_MAX = 900


def train(args, cluster, pause_ms):
    return subprocess.Popen([os.path.join(args.bin_dir, "hotbed-loss-trainer"), cluster.address, str(TRAINERS), str(args.steps),
                             str(pause_ms)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result_of(child):
    out, err = child.communicate(timeout=TRAIN_SECONDS_MAX)
    if child.returncode != 0:
        raise RuntimeError(f"hotbed-loss-trainer ended with {child.returncode}: {err}")
    return out.splitlines()


def command(args, cluster, *words):
    begin = time.monotonic()
    status, _, err = run_command(args.bin_dir, cluster.address, *words, seconds=300)
    if status != 0:
        raise RuntimeError(f"hotbed {' '.join(words)} ended with {status}: {err}")
    return time.monotonic() - begin


def primaries(args, cluster):
    return {s["shard"]: (s["primary"], s["epoch"]) for s in json_of_command(args.bin_dir, cluster.address, "shard", "list")}


def unmoved(args):
    directory = tempfile.mkdtemp(prefix="hotbed_scale_")
    cluster = Cluster(args.bin_dir, directory, 2, server_flags=("--host-bytes=128MiB",))
    try:
        cluster.start()
        return result_of(train(args, cluster, 0))
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def moved(args):
    """The same training while two servers come, take half of the shards, and go."""
    directory = tempfile.mkdtemp(prefix="hotbed_scale_")
    cluster = Cluster(args.bin_dir, directory, 2, server_flags=("--host-bytes=128MiB",))
    child = None
    try:
        cluster.start()
        child = train(args, cluster, args.pause_ms)
        time.sleep(2)
        first = primaries(args, cluster)
        for _ in range(2):
            cluster.add_server().start()
        shards = sorted(first)
        seconds = [command(args, cluster, "shard", "move", *shards[0::2], "--to", "s2"),
                   command(args, cluster, "shard", "move", *shards[1::2], "--to", "s3")]
        on_four = primaries(args, cluster)
        if any(on_four[s][0] == first[s][0] for s in shards):
            raise RuntimeError(f"not all shards are on the new servers: {on_four}")
        seconds += [command(args, cluster, "shard", "drain", name) for name in ("s3", "s2")]
        after = primaries(args, cluster)
        if child.poll() is not None:
            raise RuntimeError("the training ended before the last move: use more --steps or a longer --pause-ms")
        left = [s for s in shards if after[s][0] in ("s2", "s3")]
        if left:
            raise RuntimeError(f"still on drained servers: {left}")
        print(f"{len(shards)} shards moved to two new servers and back while training; seconds of the four commands: "
              f"{', '.join(f'{s:.1f}' for s in seconds)}", flush=True)
        return result_of(child)
    finally:
        if child is not None and child.poll() is None:
            child.kill()
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pause-ms", type=int, default=60, help="between steps of the moved run, so that it lasts long enough")
    args = parser.parse_args()
    try:
        with_moves, without = moved(args), unmoved(args)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(error)
        return 3
    bars = Bars()
    print(f"{without[-1]}; {without[-2]}")
    bars.at_most(f"lines of {len(without)} (a step's losses in bits, the hash of all rows) that differ",
                 sum(a != b for a, b in zip(with_moves, without)) + abs(len(with_moves) - len(without)), 0)
    return bars.status()


if __name__ == "__main__":
    sys.exit(main())
