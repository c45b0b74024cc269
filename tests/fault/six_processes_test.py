#!/usr/bin/env python3
"""`hotbed up --coordinators 3 --etcd 3` under load, while each of the six processes is killed, or paused, in turn.

  six_processes_test.py --bin-dir build/bin [--minutes 10 | --rounds 1] [--faults kill,pause] [--seconds-max 5] [--rates N]

A table can be created within --seconds-max of each fault, no call of the load fails, the sum is exact, and no shard has
another epoch or primary. `hotbed up` starts again what was killed. With --rates, on a quiet machine, the leading coordinator is
killed N times more, and pushes and pulls keep 0.95 of their rates in the seconds before. Exit status: 0 passed; 1 failed; 77 left out.
"""

import argparse
import glob
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request

from cluster import Process, json_of_command, run_command
from meter import Bars, Table, now_ns, rate

PAUSE_SECONDS = 4  # longer than the lease of a leader
RATE_SECONDS = 5  # before and after the death of a leader; another one leads and serves by then
WHOLE_SECONDS_MAX = 60


class Up:
    """The running command, and its child processes by name."""

    def __init__(self, args, directory):
        self.bin_dir = args.bin_dir
        self.process = Process("hotbed up",
                               [os.path.join(args.bin_dir, "hotbed"), "up", "--coordinators", "3", "--etcd", "3",
                                "--servers", "2", "--host-bytes", "64MiB", "--port", "0", "--data-dir", f"{directory}/up",
                                "-o", "json"], f"{directory}/up.log")
        self.process.start(wait_for_serving=False)

    def wait(self, log_path, seconds=WHOLE_SECONDS_MAX):
        deadline = time.monotonic() + seconds
        while True:
            with open(log_path, encoding="utf-8", errors="replace") as log:
                lines = [line for line in log if line.startswith("{")]
            if lines:
                told = json.loads(lines[0])
                self.coordinator = told["coordinator"]
                self.addresses = {p["name"]: p for p in told["processes"]}
                return
            if not self.process.running() or time.monotonic() > deadline:
                raise RuntimeError(f"hotbed up does not serve:\n{self.process.tail()}")
            time.sleep(0.05)

    def pid(self, name):
        """Of the running process; 0: there is none now."""
        mark = f"--listen-client-urls=http://{self.addresses[name]['address']}" if name.startswith("e") else \
            f"--listen={self.addresses[name]['address']}"
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    if mark in file.read().split("\0"):
                        return int(path.split("/")[2])
            except OSError:
                continue
        return 0

    def answers(self, name):
        address = self.addresses[name]
        url = f"http://{address['address']}/health" if name.startswith("e") else f"http://{address['admin_address']}/healthz"
        try:
            with urllib.request.urlopen(url, timeout=1) as reply:
                return reply.status == 200
        except OSError:
            return False

    def leader(self):
        """The name of the coordinator that leads; None: none does, or it does not say so yet."""
        for name, address in self.addresses.items():
            if not name.startswith("c"):
                continue
            try:
                with urllib.request.urlopen(f"http://{address['admin_address']}/readyz", timeout=1) as reply:
                    if "stands by" not in reply.read().decode():
                        return name
            except OSError:
                continue
        return None

    def wait_whole(self, names):
        deadline = time.monotonic() + WHOLE_SECONDS_MAX
        while missing := [name for name in names if not self.answers(name)]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{missing} do not answer:\n{self.process.tail()}")
            time.sleep(0.1)


def create(up, name):
    """Waits until a table can be created."""
    deadline = time.monotonic() + 60
    while True:
        status, _, err = run_command(up.bin_dir, up.coordinator, "table", "create", name, "--rows=1000", "--dim=8",
                                     "--timeout=1s")
        if status == 0 or "already exists" in err:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"no table can be created: {err}")


def strike(up, name, fault, table_name):
    """Seconds until a table could be created."""
    pid = up.pid(name)
    begin = time.monotonic()
    os.kill(pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    try:
        create(up, table_name)
        took = time.monotonic() - begin
        if fault == "pause":
            time.sleep(max(0, begin + PAUSE_SECONDS - time.monotonic()))
    finally:
        if fault == "pause":
            os.kill(pid, signal.SIGCONT)
    return took


def kill_leader(up, names):
    """(begin, end) of the time before the death of the leading coordinator, and of that after it."""
    while (name := up.leader()) is None:
        time.sleep(0.1)
    before = now_ns()
    time.sleep(RATE_SECONDS)
    begin = now_ns()
    os.kill(up.pid(name), signal.SIGKILL)
    time.sleep(RATE_SECONDS)
    end = now_ns()
    up.wait_whole(names)
    return (before, begin), (begin, end)


def check(args, up):
    table = Table(args.bin_dir, up.coordinator, "t", 20_000, 16, "replicated=2")
    table.wait_for(2)

    def epochs():
        return {s["shard"]: (s["epoch"], s["primary"]) for s in table.shards()}

    before = epochs()
    load = table.meter("load", f"--seconds={args.minutes * 60 + 3600:g}", "--ids=64", "--push-flights=2", "--pull-flights=2")
    names = [name for name in up.addresses if not name.startswith("s")]
    waits = []
    try:
        while table.sum() == 0:  # its session is open
            if load.child.poll() is not None:
                raise RuntimeError("the load has ended")
            time.sleep(0.1)
        end = time.monotonic() + args.minutes * 60
        rounds = 0
        while rounds < args.rounds or time.monotonic() < end:
            for fault in args.faults.split(","):
                for name in names:
                    waits.append((strike(up, name, fault, f"after{len(waits)}"), f"{fault} {name}"))
                    up.wait_whole(names)
            rounds += 1
        deaths = [kill_leader(up, names) for _ in range(args.rates)]
        time.sleep(1)
    finally:
        load = load.stop()
    tables = json_of_command(args.bin_dir, up.coordinator, "table", "list")
    bars = Bars()
    bars.at_most("longest until a table can be created", max(waits)[0], args.seconds_max, " s")
    bars.at_most("errors seen by the load", load["errors"], 0)
    bars.at_most("shards with another epoch or primary after", sum(before[s] != e for s, e in epochs().items()), 0)
    bars.at_most("difference of the sum", abs(table.sum() - load["ids_acknowledged"]), 0)
    bars.at_least("tables after", len(tables), len(waits) + 1)
    bars.at_least("ids pushed", load["ids_acknowledged"], 1000)
    for which in ("pushes", "pulls") if deaths else ():
        calm, dead = (sum(rate(load, which, *death[i]) for death in deaths) / len(deaths) for i in (0, 1))
        bars.at_least(f"{which} after the death of the leader, of {calm:.0f}/s", dead / calm, 0.95)
    print(f"{len(waits)} faults; longest: {', '.join(f'{what} {took:.2f} s' for took, what in sorted(waits)[:-7:-1])}; "
          f"longest push {load['push_us_p100'] / 1000:.0f} ms")
    return bars.status()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--faults", default="kill,pause")
    parser.add_argument("--seconds-max", type=float, default=5)
    parser.add_argument("--rates", type=int, default=0)
    args = parser.parse_args()
    if shutil.which("etcd") is None:
        print("left out: it needs etcd (Debian: etcd-server)")
        return 77
    directory = tempfile.mkdtemp(prefix="hotbed_six_")
    up = Up(args, directory)
    try:
        up.wait(f"{directory}/up.log")
        status = check(args, up)
        up.process.stop()
        return status
    finally:
        up.process.kill()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
