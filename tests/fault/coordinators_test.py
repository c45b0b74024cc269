#!/usr/bin/env python3
"""Two coordinators on etcd, known by one name; the leader is killed while a load pushes and pulls.

  coordinators_test.py --bin-dir build/bin [--kills 2] [--seconds-max 5]

A table can be created again within --seconds-max, no call of the load fails, the sum is exact, and no shard has another
epoch. As root: the name is put into a /etc/hosts of the test's own. Exit status: 0 passed; 1 failed; 77 left out.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

from cluster import Cluster, Process, free_ports
from meter import Bars, Table

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


def start_etcd(directory):
    client, peer = free_ports(2)
    url = f"http://127.0.0.1:{client}"
    etcd = Process("etcd", ["etcd", "--name=e", f"--data-dir={directory}/etcd", f"--listen-client-urls={url}",
                            f"--advertise-client-urls={url}", f"--listen-peer-urls=http://127.0.0.1:{peer}",
                            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                            f"--initial-cluster=e=http://127.0.0.1:{peer}", "--logger=zap", "--log-level=error"],
                   f"{directory}/etcd.log")
    etcd.start(wait_for_serving=False)
    return etcd, f"etcd://127.0.0.1:{client}/test"


def epochs(table):
    return {s["shard"]: (s["epoch"], s["primary"]) for s in table.shards()}


def leader_of(coordinators, seconds=30):
    """The coordinator that has said last that it serves."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for coordinator in coordinators:
            if coordinator.running():
                coordinator.said += coordinator.child.stdout.read() or b""
                if coordinator.said.splitlines()[-1:] and b" serving: " in coordinator.said.splitlines()[-1]:
                    return coordinator
        time.sleep(0.05)
    raise RuntimeError("no coordinator leads:\n" + "".join(c.tail() for c in coordinators))


def create(cluster, name):
    """Seconds until a table can be created."""
    begin = time.monotonic()
    while True:
        status, _, err = cluster.run("table", "create", name, "--rows=1000", "--dim=8", "--timeout=1s")
        if status == 0 or "already exists" in err:
            return time.monotonic() - begin
        if time.monotonic() > begin + 60:
            raise RuntimeError(f"no table can be created: {err}")


def check(args, cluster, coordinators):
    for server in cluster.servers:
        server.start()
    table = Table(args.bin_dir, cluster.address, "t", 20_000, 16, "replicated=2")
    table.wait_for(2)
    before = epochs(table)
    load = table.meter("load", "--seconds=600", "--ids=64", "--push-flights=2", "--pull-flights=2")
    waits = []
    try:
        while table.sum() == 0:  # its session is open
            if load.child.poll() is not None:
                raise RuntimeError("the load has ended")
            time.sleep(0.1)
        for kill in range(args.kills):
            leader = leader_of(coordinators)
            leader.kill()
            waits.append(create(cluster, f"after{kill}"))
            leader.start()
        time.sleep(1)
    finally:
        load = load.stop()
    bars = Bars()
    bars.at_most("until a table can be created", max(waits), args.seconds_max, " s")
    bars.at_most("errors seen by the load", load["errors"], 0)
    bars.at_most("shards with another epoch or primary after", sum(before[s] != e for s, e in epochs(table).items()), 0)
    bars.at_most("difference of the sum", abs(table.sum() - load["ids_acknowledged"]), 0)
    bars.at_least("ids pushed", load["ids_acknowledged"], 1000)
    print(f"each: {', '.join(f'{w:.2f}' for w in waits)} s; longest push {load['push_us_p100'] / 1000:.0f} ms")
    return bars.status()


def run(args, directory):
    etcd, metadata = start_etcd(directory)
    port, = free_ports(1)
    cluster = Cluster(args.bin_dir, directory, 2, server_flags=("--host-bytes=64MiB",))
    cluster.address = f"{NAME}:{port}"
    for server in cluster.servers:
        server.command = [f"--coordinator={cluster.address}" if a.startswith("--coordinator=") else a
                          for a in server.command]
    coordinators = [Process(f"coordinator {host}",
                            [os.path.join(args.bin_dir, "hotbed-coordinator"), f"--listen={host}:{port}",
                             f"--admin-listen={host}:0", f"--metadata={metadata}"],
                            f"{directory}/coordinator-{host}.log") for host in HOSTS]
    try:
        for coordinator in coordinators:
            coordinator.start()
        return check(args, cluster, coordinators)
    finally:
        for process in (*coordinators, *cluster.servers, etcd):
            process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seconds-max", type=float, default=5)
    args = parser.parse_args()
    if IN_NAMESPACE in os.environ:
        return run(args, os.environ[IN_NAMESPACE])
    if os.geteuid() != 0 or shutil.which("etcd") is None:
        print("left out: it needs root and etcd (Debian: etcd-server)")
        return 77
    directory = tempfile.mkdtemp(prefix="hotbed_coordinators_")
    try:
        return with_own_hosts(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
