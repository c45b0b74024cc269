#!/usr/bin/env python3
"""Two coordinators on etcd; the leader is killed, paused and cut off from etcd while a load pushes and pulls.

  coordinators_test.py --bin-dir build/bin [--faults kill,pause,cut] [--by list|name] [--seconds-max 5]

A table can be created again within --seconds-max, no call of the load fails, the sum is exact, and no shard has another
epoch. The checkpoints of a schedule are saved on, and are whole. The coordinators are known by a list of their addresses; or, as root, by one name with both, which is put into a
/etc/hosts of the test's own. Exit status: 0 passed; 1 failed; 77 left out.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

from cluster import Cluster, Process, free_ports, start_etcd
from meter import Bars, Table
from net_cluster import Proxy

FAULT_SECONDS = 4  # longer than the lease of a leader
NAME = "coordinators.test"
HOSTS = ("127.0.0.2", "127.0.0.3")
IN_NAMESPACE = "COORDINATORS_TEST_DIRECTORY"


def with_own_hosts(directory):
    """Runs this script again where NAME has the addresses of HOSTS."""
    hosts = os.path.join(directory, "hosts")
    shutil.copyfile("/etc/hosts", hosts)
    with open(hosts, "a", encoding="ascii") as file:
        file.writelines(f"{host} {NAME}\n" for host in HOSTS)
    again = f"mount --make-rprivate / && mount --bind {hosts} /etc/hosts && exec \"$@\""
    # gRPC's own resolver takes one address from the file; the system's takes all, as both do from DNS.
    env = os.environ | {IN_NAMESPACE: directory, "GRPC_DNS_RESOLVER": "native"}
    return subprocess.run(["unshare", "-m", "sh", "-c", again, "sh", sys.executable, "-B", *sys.argv], env=env).returncode


def epochs(table):
    return {s["shard"]: (s["epoch"], s["primary"]) for s in table.shards()}


class Coordinator:
    """One process, and its own way to etcd."""

    def __init__(self, args, directory, host, port, etcd_port):
        self.name = host
        proxy_port, self.admin = free_ports(2)
        self.proxy = Proxy(args.bin_dir, host, None, host, proxy_port, "127.0.0.1", etcd_port, 1)
        self.process = Process(f"coordinator {host}",
                               [os.path.join(args.bin_dir, "hotbed-coordinator"), f"--listen={host}:{port}",
                                f"--admin-listen={host}:{self.admin}", f"--metadata=etcd://{host}:{proxy_port}/test"],
                               f"{directory}/coordinator-{host}.log")

    def leads(self):
        try:
            with urllib.request.urlopen(f"http://{self.name}:{self.admin}/api/cluster", timeout=1) as reply:
                return reply.status == 200
        except OSError:
            return False

    def fail(self, fault):
        if fault == "kill":
            self.process.kill()
        elif fault == "pause":
            self.process.pause()
        else:
            self.proxy.tell("stall both")
            self.proxy.tell("refuse on")

    def mend(self, fault):
        if fault == "kill":
            self.process.start()
        elif fault == "pause":
            self.process.resume()
        else:
            self.proxy.tell("clear")
            self.proxy.tell("reset")

    def stop(self):
        self.process.kill()
        self.proxy.stop()


def leader_of(coordinators, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for coordinator in coordinators:
            if coordinator.leads():
                return coordinator
        time.sleep(0.05)
    raise RuntimeError("no coordinator leads:\n" + "".join(c.process.tail() for c in coordinators))


def create(cluster, name):
    """Seconds until a table can be created."""
    begin = time.monotonic()
    while True:
        status, _, err = cluster.run("table", "create", name, "--rows=1000", "--dim=8", "--timeout=1s")
        if status == 0 or "already exists" in err:
            return time.monotonic() - begin
        if time.monotonic() > begin + 60:
            raise RuntimeError(f"no table can be created: {err}")


def await_save_after(cluster, unix_ms, seconds=60):
    """Until a checkpoint was saved by the schedule that was begun after that."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status, out, _ = cluster.run("checkpoint", "schedule", "show", "-o", "json")
        shown = json.loads(out) if status == 0 else None
        if shown and shown["saved_unix_ms"] > unix_ms:
            return
        time.sleep(0.1)
    raise RuntimeError(f"no checkpoint was saved by the schedule within {seconds} s: {shown}")


def check(args, cluster, coordinators, place):
    for server in cluster.servers:
        server.start()
    table = Table(args.bin_dir, cluster.address, "t", 20_000, 16, "replicated=2")
    table.wait_for(2)
    before = epochs(table)
    load = table.meter("load", "--seconds=600", "--ids=64", "--push-flights=2", "--pull-flights=2")
    waits = []
    cluster.json("checkpoint", "schedule", place, "--every", "1s", "--keep", 2, "--incremental", "--tables", "t")
    try:
        while table.sum() == 0:  # its session is open
            if load.child.poll() is not None:
                raise RuntimeError("the load has ended")
            time.sleep(0.1)
        for number, fault in enumerate(args.faults.split(",")):
            leader = leader_of(coordinators)
            begin = time.monotonic()
            leader.fail(fault)
            waits.append(create(cluster, f"after{number}"))
            if fault != "kill":
                time.sleep(max(0, begin + FAULT_SECONDS - time.monotonic()))
            leader.mend(fault)
        await_save_after(cluster, time.time() * 1000)
        cluster.json("checkpoint", "schedule", "stop")
        cluster.json("checkpoint", "verify", place)
    finally:
        load = load.stop()
    bars = Bars()
    bars.at_most("until a table can be created", max(waits), args.seconds_max, " s")
    bars.at_most("errors seen by the load", load["errors"], 0)
    bars.at_most("shards with another epoch or primary after", sum(before[s] != e for s, e in epochs(table).items()), 0)
    bars.at_most("difference of the sum", abs(table.sum() - load["ids_acknowledged"]), 0)
    bars.at_least("ids pushed", load["ids_acknowledged"], 1000)
    print(f"each ({args.faults}): {', '.join(f'{w:.2f}' for w in waits)} s; longest push {load['push_us_p100'] / 1000:.0f} ms")
    return bars.status()


def run(args, directory):
    etcd, etcd_port = start_etcd(directory)
    port, = free_ports(1)
    cluster = Cluster(args.bin_dir, directory, 2, server_flags=("--host-bytes=64MiB",))
    cluster.address = f"{NAME}:{port}" if args.by == "name" else ",".join(f"{host}:{port}" for host in HOSTS)
    for server in cluster.servers:
        server.command = [f"--coordinator={cluster.address}" if a.startswith("--coordinator=") else a
                          for a in server.command]
    coordinators = [Coordinator(args, directory, host, port, etcd_port) for host in HOSTS]
    try:
        for coordinator in coordinators:
            coordinator.process.start()
        return check(args, cluster, coordinators, os.path.join(directory, "checkpoints"))
    finally:
        for coordinator in coordinators:
            coordinator.stop()
        for process in (*cluster.servers, etcd):
            process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--faults", default="kill,pause,cut")
    parser.add_argument("--by", choices=("list", "name"), default="list")
    parser.add_argument("--seconds-max", type=float, default=5)
    args = parser.parse_args()
    if IN_NAMESPACE in os.environ:
        return run(args, os.environ[IN_NAMESPACE])
    if shutil.which("etcd") is None or (args.by == "name" and os.geteuid() != 0):
        print("left out: it needs etcd (Debian: etcd-server), and --by name needs root")
        return 77
    directory = tempfile.mkdtemp(prefix="hotbed_coordinators_")
    try:
        return with_own_hosts(directory) if args.by == "name" else run(args, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
