#!/usr/bin/env python3
"""The memory of a real server and the time of its restart: two figures that no benchmark inside one process can measure.

  server_bars.py --bin-dir build/bin [--only resident|restart] [--host-bytes-mib 512] [--seconds 10]

resident   One server of --host-bytes-mib takes pushes and pulls of a table of four times that, for --seconds each. Its largest
           resident memory is compared with --host-bytes; the bar is 1.15.
restart    One server holds 1,000,000 rows x 64 fp32, all written, and at least 1 GiB of log. It is killed with SIGKILL and
           started again; the time until a pull is answered is compared with 10 s. Three rounds, the median counts.

Prints one line a figure, the parts of it above; exit status 1 when a bar is missed. Standard library only.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fault"))
from cluster import Cluster  # noqa: E402

MIB = 1 << 20
ROW_BYTES = 64 * 4 + 4  # weights and row-wise state
RESIDENT_BAR = 1.15
RESTART_BAR_SECONDS = 10
RESTART_ROWS = 1_000_000
RESTART_LOG_BYTES = 1 << 30
ROUNDS = 3


def hotbed(args, cluster, *words, check=True):
    env = dict(os.environ, HOTBED_COORDINATOR=cluster.address)
    done = subprocess.run([os.path.join(args.bin_dir, "hotbed"), *map(str, words)], env=env, check=False,
                          capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"hotbed {' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr}")
    return done


def metric(address, name):
    """The sum of a metric's samples."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    return sum(float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


def memory(pid):
    """Of /proc/PID/status, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        found = re.findall(r"^(VmHWM|VmRSS|RssAnon|RssFile):\s+(\d+) kB$", status.read(), re.MULTILINE)
    return {name: int(kib) << 10 for name, kib in found}


class MemoryWatch(threading.Thread):
    """Keeps the moment at which a process was largest."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.largest = memory(pid)
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(0.02):
            now = memory(self.pid)
            if now.get("VmRSS", 0) > self.largest["VmRSS"]:
                self.largest = now


def table_options(rows):
    return ["--rows", rows, "--dim", 64, "--repeats", 1, "--no-roofs"]


def resident(args, directory):
    host_bytes = args.host_bytes_mib * MIB
    rows = 4 * host_bytes // ROW_BYTES
    cluster = Cluster(args.bin_dir, directory, 1, server_flags=[f"--host-bytes={args.host_bytes_mib}MiB"])
    try:
        cluster.start()
        watch = MemoryWatch(cluster.servers[0].child.pid)
        watch.start()
        # The first writes every row once; the others go back to some of them, several clients at a time.
        loads = [("pull", ["--preload", "--batch", 2048]), ("push", ["--batch", 2048, "--streams", 4]),
                 ("mixed", ["--batch", 2048, "--streams", 4, "--no-preload"]),
                 ("mixed", ["--zipf", 1.05, "--streams", 4, "--no-preload"])]
        for verb, options in loads:
            hotbed(args, cluster, "bench", verb, *table_options(rows), "--seconds", args.seconds, *options)
            now = memory(cluster.servers[0].child.pid)
            print(f"  after {verb:5} {' '.join(map(str, options)):45} resident {now['VmRSS'] / MIB:7.0f} MiB, "
                  f"rows in memory {metric(cluster.admin[0], 'hotbed_table_resident_rows'):.0f}, "
                  f"spilled {metric(cluster.admin[0], 'hotbed_server_spill_bytes') / MIB:.0f} MiB", flush=True)
        watch.done.set()
        watch.join()
        largest = memory(cluster.servers[0].child.pid)["VmHWM"]
    finally:
        cluster.stop()
    anonymous, mapped = watch.largest["RssAnon"] / MIB, watch.largest["RssFile"] / MIB
    ratio = largest / host_bytes
    print(f"resident memory   {largest / MIB:.0f} MiB of --host-bytes={args.host_bytes_mib}MiB: {ratio:.2f}, at most "
          f"{RESIDENT_BAR} (largest seen: {anonymous:.0f} MiB anonymous, {mapped:.0f} MiB of files)", flush=True)
    return ratio <= RESIDENT_BAR


def seconds_until_served(args, cluster, table):
    server = cluster.servers[0]
    server.kill()
    start = time.monotonic()
    server.start(wait_for_serving=False)
    while True:
        if hotbed(args, cluster, "row", "get", table, 1, 999_999, check=False).returncode == 0:
            return time.monotonic() - start
        if time.monotonic() - start > 60:
            raise RuntimeError(f"no pull was served within 60 s of the restart:\n{server.tail()}")


def bench_table(args, cluster):
    """The table that `hotbed bench` made."""
    listed = hotbed(args, cluster, "table", "list", "-o", "json").stdout
    return re.search(r'"name":\s*"([^"]+)"', listed).group(1)


def restart(args, directory):
    cluster = Cluster(args.bin_dir, directory, 1, server_flags=["--host-bytes=2GiB"])
    try:
        cluster.start()
        hotbed(args, cluster, "bench", "pull", *table_options(RESTART_ROWS), "--preload", "--seconds", 0.2)
        table = bench_table(args, cluster)
        taken = []
        for _ in range(ROUNDS):
            while metric(cluster.admin[0], "hotbed_server_log_bytes") < RESTART_LOG_BYTES:
                hotbed(args, cluster, "bench", "push", *table_options(RESTART_ROWS), "--batch", 2048, "--seconds", 1)
            log_bytes = metric(cluster.admin[0], "hotbed_server_log_bytes")
            rows = metric(cluster.admin[0], "hotbed_table_resident_rows")
            taken.append(seconds_until_served(args, cluster, table))
            print(f"  {rows:.0f} rows in memory, {log_bytes / MIB:.0f} MiB of log: {taken[-1]:.2f} s", flush=True)
    finally:
        cluster.stop()
    median = statistics.median(taken)
    print(f"restart after SIGKILL   {median:.2f} s until a pull is answered, at most {RESTART_BAR_SECONDS} s", flush=True)
    return median <= RESTART_BAR_SECONDS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", default="build/bin")
    parser.add_argument("--only", choices=["resident", "restart"])
    parser.add_argument("--host-bytes-mib", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--dir", help="a folder on the disk to measure; default: the system's for temporary files")
    args = parser.parse_args()
    met = True
    for name, measure in (("resident", resident), ("restart", restart)):
        if args.only not in (None, name):
            continue
        directory = tempfile.mkdtemp(prefix=f"hotbed_{name}_", dir=args.dir)
        try:
            met &= measure(args, directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
