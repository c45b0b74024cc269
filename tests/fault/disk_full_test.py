#!/usr/bin/env python3
"""Fills the disk under a server while clients push, and its log is written over old segments. Every acknowledged push must be
kept; the server turns read-only, accepts pushes again by itself when there is space, and in the end every weight is exact.

  disk_full_test.py --bin-dir build/bin [--seconds 4] [--disk limit|loop|both]

Two disks: one whose files may not grow beyond a limit (RLIMIT_FSIZE), and a small ext4 on a loop device, where this machine
can make one (else it is skipped, and says so). Exit status: 0 all well; 77 all skipped; anything else a failure.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from cluster import Cluster, Process

WAIT_SECONDS_MAX = 45
VERIFY_SECONDS_MAX = 120
MIB = 1 << 20


class Unavailable(Exception):
    """This machine cannot make that disk."""


class LimitedFiles:
    """Every file of the server may grow to a limit only."""

    name = "files limited by RLIMIT_FSIZE"

    def __init__(self, directory):
        self.directory = directory
        self.server = None

    def attach(self, server):
        self.server = server
        # Ignored, the signal leaves an error of the write: what a full disk looks like.
        server.limit = lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def fill(self):
        self._limit(256 << 10)

    def free(self):
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, soft):
        resource.prlimit(self.server.child.pid, resource.RLIMIT_FSIZE, (soft, resource.RLIM_INFINITY))

    def close(self):
        pass


class SmallDisk:
    """An ext4 of its own on a loop device, filled by a ballast file."""

    name = "a small ext4 on a loop device"

    def __init__(self, directory):
        self.image = f"{directory}/disk.img"
        self.directory = f"{directory}/disk"
        os.mkdir(self.directory)
        with open(self.image, "wb") as image:
            image.truncate(192 * MIB)
        for command in (["mkfs.ext4", "-q", "-F", "-m", "0", self.image],
                        ["mount", "-o", "loop", self.image, self.directory]):
            try:
                done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            except FileNotFoundError as error:
                raise Unavailable(str(error)) from error
            if done.returncode != 0:
                raise Unavailable(f"{command[0]}: {done.stderr.strip()}")
        self.ballast = f"{self.directory}/ballast"

    def attach(self, server):
        pass

    def fill(self):
        free = os.statvfs(self.directory)
        ballast = open(self.ballast, "wb")
        try:
            os.posix_fallocate(ballast.fileno(), 0, max(0, free.f_bavail * free.f_bsize - MIB))
        finally:
            ballast.close()

    def free(self):
        os.unlink(self.ballast)

    def close(self):
        subprocess.run(["umount", self.directory], check=False)


class DiskFullRun:
    def __init__(self, args, seed, directory, disk):
        self.args = args
        self.directory = directory
        self.disk = disk
        self.cluster = Cluster(args.bin_dir, directory, servers=1,
                               server_flags=("--host-bytes=64MiB", "--log-bytes-max=16MiB"), server_data=f"{disk.directory}/server")
        self.server = self.cluster.servers[0]
        disk.attach(self.server)
        self.checker = os.path.join(args.bin_dir, "hotbed-kill-checker")
        # Enough ids that the log goes through several of its segments of 16 MiB.
        self.workload = [f"--coordinator={self.cluster.address}", "--clients=1", "--rows=20000", "--ids=1024",
                         f"--seed={seed}"]
        self.worker = Process("client 0",
                              [self.checker, "worker", *self.workload, f"--journal-dir={directory}",
                               "--client=0"],
                              f"{directory}/client-0.log")

    def acknowledged(self):
        with open(f"{self.directory}/client-0.journal", encoding="ascii") as journal:
            return sum(line.startswith("applied") for line in journal)

    def read_only(self):
        url = f"http://{self.cluster.admin[0]}/api/status"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["read_only"]

    def segments_reused(self):
        url = f"http://{self.cluster.admin[0]}/api/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return sum(metric["value"] for metric in json.load(answer)
                       if metric["name"] == "hotbed_server_log_segments_total" and metric["labels"]["file"] == "reused")

    def wait_until(self, what, condition):
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not condition():
            if not self.worker.running():
                raise RuntimeError(f"the client ended while waiting until {what}:\n{self.worker.tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {WAIT_SECONDS_MAX} s: {what}")
            time.sleep(0.05)

    def run(self):
        self.cluster.start()
        subprocess.run([self.checker, "create", *self.workload], check=True, timeout=90)
        self.worker.start(wait_for_serving=False)
        self.wait_until("pushes are acknowledged", lambda: os.path.exists(
            f"{self.directory}/client-0.journal") and self.acknowledged() > 50)
        self.wait_until("the log is written over old segments", self.segments_reused)
        self.disk.fill()
        self.wait_until("the server is read-only", self.read_only)
        time.sleep(0.5)  # answers on their way
        full_at = self.acknowledged()
        time.sleep(self.args.seconds)
        if self.acknowledged() != full_at:
            raise RuntimeError(f"{self.acknowledged() - full_at} steps acknowledged on a full disk")
        self.disk.free()
        self.wait_until("pushes go on", lambda: self.acknowledged() > full_at + 50)
        self.server.kill()
        self.server.start()
        again = self.acknowledged()
        self.wait_until("pushes go on after a restart", lambda: self.acknowledged() > again + 50)
        self.wait_until("the log is written over old segments again", self.segments_reused)
        self.worker.kill()
        verify = subprocess.run([self.checker, "verify", *self.workload, f"--journal-dir={self.directory}"],
                                stdout=subprocess.PIPE, text=True, timeout=VERIFY_SECONDS_MAX)
        print(f"{self.disk.name}: full after {full_at} steps; {verify.stdout}", end="", flush=True)
        if verify.returncode != 0:
            raise RuntimeError(f"verify ended with {verify.returncode}")

    def stop(self):
        self.worker.kill()
        self.cluster.stop()


def try_disk(args, seed, kind):
    directory = tempfile.mkdtemp(prefix="hotbed_disk_full_")
    disk = run = None
    failed = True
    try:
        disk = kind(directory)
        run = DiskFullRun(args, seed, directory, disk)
        run.run()
        failed = False
        return True
    finally:
        if run is not None:
            if failed:
                print(f"{disk.name} failed, seed {seed}; the end of the server's log:\n{run.server.tail()}")
            run.stop()
        if disk is not None:
            disk.close()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--seconds", type=float, default=3, help="how long the disk stays full")
    parser.add_argument("--disk", choices=["limit", "loop", "both"], default="both")
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    kinds = {"limit": [LimitedFiles], "loop": [SmallDisk], "both": [LimitedFiles, SmallDisk]}[args.disk]
    done = skipped = 0
    for kind in kinds:
        try:
            try_disk(args, seed, kind)
            done += 1
        except Unavailable as why:
            skipped += 1
            print(f"SKIPPED: {kind.name}: {why}", flush=True)
    print(f"{done} run, {skipped} skipped")
    return 0 if done > 0 else 77


if __name__ == "__main__":
    sys.exit(main())
