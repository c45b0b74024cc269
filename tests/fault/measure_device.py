#!/usr/bin/env python3
"""Pulls from a server whose rows are in the memory of a GPU, against the same from one with rows in host memory.

  measure_device.py --bin-dir build/bin [--rounds 3] [--seconds 2] [--rows 1000000] [--device cuda]

Each round starts either server in turn on an empty directory, pushes every row once, and pulls 2,048 random rows of 64 fp32 per call:
one call at a time, for the latency, and eight, for the rate. Printed for each: medians over the rounds, and the ratio to host memory.
Bars: latency at most 1.5, rate at least 1, processor time of the server per row at most 0.6.
Exit status: 0 bars met; 1 missed; 3 it could not be measured.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from cluster import Cluster

BATCH, DIM = 2048, 64


def processor_seconds(process):
    with open(f"/proc/{process.child.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pull(cluster, args, in_flight, preload):
    done = subprocess.run(
        [os.path.join(args.bin_dir, "hotbed"), "bench", "pull", f"--coordinator={cluster.address}", f"--batch={BATCH}", f"--dim={DIM}",
         f"--rows={args.rows}", f"--seconds={args.seconds}", "--repeats=1", f"--in-flight={in_flight}", "--no-roofs",
         *(["--preload"] if preload else []), "-o", "json"],
        capture_output=True, text=True, timeout=120 + 10 * args.seconds)
    if done.returncode != 0:
        raise RuntimeError(f"hotbed bench pull ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def measure(args, flags):
    directory = tempfile.mkdtemp(prefix="hotbed_device_")
    cluster = Cluster(args.bin_dir, directory, 1, server_flags=["--host-bytes=8GiB", *flags])
    try:
        cluster.start()
        pull(cluster, args, 8, preload=True)  # rows come up meanwhile
        pull(cluster, args, 8, preload=False)
        single = pull(cluster, args, 1, preload=False)
        before = processor_seconds(cluster.servers[0])
        many = pull(cluster, args, 8, preload=False)
        spent = processor_seconds(cluster.servers[0]) - before
        return {"p50_us": 1e6 * single["latency_s"]["p50"], "p99_us": 1e6 * single["latency_s"]["p99"], "rows_per_s": many["rows_per_s"],
                "processor_us_per_row": 1e6 * spent / (many["rows_per_s"] * args.seconds)}
    finally:
        cluster.stop()
        shutil.rmtree(directory)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--device", default="cuda", help="--device of the server that is compared")
    parser.add_argument("--device-bytes", default="8GiB")
    args = parser.parse_args()
    kinds = {"host": ["--device=host"], "device": [f"--device={args.device}", f"--device-bytes={args.device_bytes}"]}
    results = {kind: [] for kind in kinds}
    try:
        for _ in range(args.rounds):
            for kind, flags in kinds.items():
                results[kind].append(measure(args, flags))
    except (RuntimeError, subprocess.SubprocessError) as error:
        print(error)
        return 3
    medians = {kind: {name: statistics.median(r[name] for r in of) for name in of[0]} for kind, of in results.items()}
    ratios = {name: medians["device"][name] / medians["host"][name] for name in medians["host"]}
    for name, ratio in ratios.items():
        print(f"{name:22} host {medians['host'][name]:14,.2f}  device {medians['device'][name]:14,.2f}  ratio {ratio:.2f}")
    met = ratios["p50_us"] <= 1.5 and ratios["rows_per_s"] >= 1 and ratios["processor_us_per_row"] <= 0.6
    print("bars met" if met else "bars missed (latency 1.5, rate 1, processor time 0.6)")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
