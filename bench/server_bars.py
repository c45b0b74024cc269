#!/usr/bin/env python3
"""The memory of a real server and the time of its restart: two figures that no benchmark inside one process can measure.

  server_bars.py --bin-dir build/bin [--only resident|restart|shards] [--host-bytes-mib 512] [--seconds 10]

resident   One server of --host-bytes-mib takes pushes and pulls of a table of four times that, for --seconds each. Its largest
           resident memory is compared with --host-bytes; the bar is 1.15.
restart    One server holds 1,000,000 rows x 64 fp32, all written, and at least 1 GiB of log. It is killed with SIGKILL and
           started again; the time until a pull is answered is compared with 10 s. Three rounds, the median counts.
shards     One server opens 20,000 shards without rows. Its memory per shard is compared with 2 KiB, the processor time that it
           takes while nobody calls with 2 % of one core, and the time until all serve again after SIGKILL with 10 s.

Prints one line a figure, the parts of it above; exit status 1 when a bar is missed. Standard library only.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "fault"))
from cluster import Cluster  # noqa: E402
from meter import metric  # noqa: E402

MIB = 1 << 20
ROW_BYTES = 64 * 4 + 4  # weights and row-wise state
RESIDENT_BAR = 1.15
RESTART_BAR_SECONDS = 10
RESTART_ROWS = 1_000_000
RESTART_LOG_BYTES = 1 << 30
ROUNDS = 3
TABLES, SHARDS_PER_TABLE = 20, 1000
SHARD_BAR_BYTES, IDLE_BAR = 2048, 0.02


def hotbed(args, cluster, *words, check=True):
    env = dict(os.environ, HOTBED_COORDINATOR=cluster.address)
    done = subprocess.run([os.path.join(args.bin_dir, "hotbed"), *map(str, words)], env=env, check=False,
                          capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"hotbed {' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr}")
    return done


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


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def await_shards(args, cluster, shards, since=0):
    """(Seconds until all shards serve under an incarnation of the server after `since`, and that incarnation)."""
    start = time.monotonic()
    while True:
        status = hotbed(args, cluster, "status", "-o", "json", check=False).stdout
        told = json.loads(status) if status else {"servers": [], "tables": []}
        active = sum(table["shards_active"] for table in told["tables"])
        for server in told["servers"]:
            if server["live"] and server["incarnation"] > since and active == shards:
                return time.monotonic() - start, server["incarnation"]
        if time.monotonic() - start > 120:
            raise RuntimeError(f"not all shards served within 120 s:\n{status}")
        time.sleep(0.1)


def shards(args, directory):
    cluster = Cluster(args.bin_dir, directory, 1, server_flags=["--host-bytes=8GiB"])
    count = TABLES * SHARDS_PER_TABLE
    try:
        cluster.start()
        child = cluster.servers[0].child
        before = memory(child.pid)["VmRSS"]
        for table in range(TABLES):
            hotbed(args, cluster, "table", "create", f"t{table}", "--dim", 8, "--rows", 100_000, "--shards", SHARDS_PER_TABLE)
        _, incarnation = await_shards(args, cluster, count)
        per_shard = (memory(child.pid)["VmRSS"] - before) / count
        time.sleep(5)
        used = processor_seconds(child.pid)
        time.sleep(args.seconds)
        idle = (processor_seconds(child.pid) - used) / args.seconds
        cluster.servers[0].kill()
        cluster.servers[0].start(wait_for_serving=False)
        restarted, _ = await_shards(args, cluster, count, since=incarnation)
    finally:
        cluster.stop()
    print(f"{count} shards   {per_shard / 1024:.1f} KiB per shard, at most {SHARD_BAR_BYTES / 1024:.0f}; idle {idle:.1%} of a "
          f"core, at most {IDLE_BAR:.0%}; all serve {restarted:.1f} s after SIGKILL, at most {RESTART_BAR_SECONDS} s", flush=True)
    return per_shard <= SHARD_BAR_BYTES and idle <= IDLE_BAR and restarted <= RESTART_BAR_SECONDS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", default="build/bin")
    parser.add_argument("--only", choices=["resident", "restart", "shards"])
    parser.add_argument("--host-bytes-mib", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--dir", help="a folder on the disk to measure; default: the system's for temporary files")
    args = parser.parse_args()
    met = True
    for name, measure in (("resident", resident), ("restart", restart), ("shards", shards)):
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
