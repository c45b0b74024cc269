#!/usr/bin/env python3
"""Lookups by a serving server beside Redis' MGET, in turns, on this machine; prints rows per second of both and their ratio.

    ./dev redis-bench                           # about a minute; a quiet machine, please
    ./dev redis-bench --rounds 5 -o json

Both have as many rows of as many bytes, and are asked for random ones: Hotbed by serving_bench, whose threads wait for one lookup
each; Redis, without persistence, by redis-benchmark, whose connections have --pipeline calls under way each. Redis has one thread:
other work on the machine slows it more than it slows Hotbed.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

START_SECONDS_MAX = 30
FILLED_AT_ONCE = 10_000


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def key(number):
    """As redis-benchmark writes key:__rand_int__."""
    return b"key:%012d" % number


def command(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Redis:
    def __init__(self, args, directory):
        self.args, self.port = args, free_port()
        for program in ("redis-server", "redis-benchmark"):
            if shutil.which(program) is None:
                raise RuntimeError(f"there is no {program}")
        self.log = open(os.path.join(directory, "redis.log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                         "--dir", directory], stdout=self.log, stderr=self.log)

    def connect(self):
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port))
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"redis-server does not answer; it ended with {self.process.poll()}") from None
                time.sleep(0.05)

    def fill(self):
        value = os.urandom(4 * self.args.dim)
        with self.connect() as connection, connection.makefile("rb") as answers:
            for first in range(0, self.args.rows, FILLED_AT_ONCE):
                numbers = range(first, min(first + FILLED_AT_ONCE, self.args.rows))
                connection.sendall(b"".join(command(b"SET", key(number), value) for number in numbers))
                for _ in numbers:
                    if answers.readline() != b"+OK\r\n":
                        raise RuntimeError("redis-server takes no value")
            connection.sendall(command(b"DBSIZE"))
            size = int(answers.readline()[1:])
        if size != self.args.rows:
            raise RuntimeError(f"Redis has {size} values, not {self.args.rows}")

    def rows_per_s(self):
        """Enough calls for --seconds, by the rate of the few calls before them."""
        few = self.calls_per_s(50 * self.args.threads)
        return self.args.ids * self.calls_per_s(max(100, int(few * self.args.seconds)))

    def calls_per_s(self, calls):
        done = subprocess.run(["redis-benchmark", "-p", str(self.port), "-r", str(self.args.rows), "-n", str(calls), "-c",
                               str(self.args.threads), "-P", str(self.args.pipeline), "--csv", "mget", *["key:__rand_int__"] * self.args.ids],
                              capture_output=True, text=True, check=False)
        found = re.findall(r'^"(?:mget|MGET).*?","([0-9.]+)"', done.stdout, re.MULTILINE)
        if done.returncode != 0 or len(found) != 1:
            raise RuntimeError(f"redis-benchmark ended with {done.returncode}: {done.stdout[-500:]}{done.stderr}")
        return float(found[0])

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


class Hotbed:
    def __init__(self, args, directory):
        self.bench = None
        program = lambda name: os.path.join(args.bin_dir, name)  # noqa: E731
        self.log = open(os.path.join(directory, "hotbed.log"), "w", encoding="utf-8")
        self.cluster = subprocess.Popen([program("hotbed"), "up", "--data-dir", os.path.join(directory, "hotbed"), "--servers", "1",
                                         "--serving", "1", "--port", "0", "--host-bytes", args.host_bytes, "-o", "json"],
                                        stdout=subprocess.PIPE, stderr=self.log, stdin=subprocess.DEVNULL, text=True)
        try:
            line = self.cluster.stdout.readline()
            if not line:
                raise RuntimeError("the cluster did not start")
            self.bench = subprocess.Popen([program("serving_bench"), json.loads(line)["coordinator"], "--on-demand", "--formats=fp32",
                                           f"--rows={args.rows}", f"--dim={args.dim}", f"--ids={args.ids}", f"--threads={args.threads}",
                                           f"--seconds={args.seconds}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.line("bytes a row")  # it is loaded
        except BaseException:
            self.stop()
            raise

    def line(self, wanted):
        line = self.bench.stdout.readline()
        if wanted not in line:
            raise RuntimeError(f"serving_bench said {line!r}, which has no {wanted!r}")
        return line

    def rows_per_s(self):
        self.bench.stdin.write("\n")
        self.bench.stdin.flush()
        return 1e6 * float(re.search(r"([0-9.]+)M rows/s", self.line("M rows/s")).group(1))

    def stop(self):
        if self.bench is not None:
            self.bench.communicate()
        self.cluster.terminate()
        self.cluster.wait()
        self.log.close()


def measure(args, directory):
    redis = Redis(args, directory)
    try:
        redis.fill()
        hotbed = Hotbed(args, directory)
        try:
            return [(hotbed.rows_per_s(), redis.rows_per_s()) for _ in range(args.rounds)]
        finally:
            hotbed.stop()
    finally:
        redis.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-dir", default="build/bin", help="where the programs are")
    parser.add_argument("--rows", type=int, default=1_000_000, help="in each")
    parser.add_argument("--dim", type=int, default=64, help="fp32 numbers of a row; a value of Redis has as many bytes")
    parser.add_argument("--ids", type=int, default=1024, help="of a lookup, and keys of a MGET")
    parser.add_argument("--threads", type=int, default=4, help="that look up, and connections to Redis")
    parser.add_argument("--pipeline", type=int, default=2, help="calls under way on each connection to Redis")
    parser.add_argument("--seconds", type=float, default=5, help="of each measure")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--host-bytes", default="2GiB", help="of each of Hotbed's two servers")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hotbed-redis-") as directory:
        try:
            rounds = measure(args, directory)
        except RuntimeError as error:
            print(f"redis_bench: {error}", file=sys.stderr)
            return 1
    ratios = [served / redis for served, redis in rounds]
    if args.output == "json":
        print(json.dumps({"lookup_rows_per_s": [served for served, _ in rounds], "mget_rows_per_s": [redis for _, redis in rounds],
                          "ratios": ratios, "ratio": statistics.median(ratios)}))
        return 0
    for number, ((served, redis), ratio) in enumerate(zip(rounds, ratios), 1):
        print(f"round {number}: lookups {served / 1e6:.2f}M rows/s, MGET {redis / 1e6:.2f}M rows/s, ratio {ratio:.2f}")
    print(f"ratio {statistics.median(ratios):.2f} (median of {len(ratios)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
