#!/usr/bin/env python3
"""Many clients connect to a cluster with TLS, and go on, as new ones come, while all certificates are replaced again and again.

  tls_clients_test.py --bin-dir build/bin [--clients 1000] [--per-process 50] [--seconds 60] [--replace-every-s 10]

All have connected, each with a pull answered, within --connect-seconds-max (60). No call of theirs fails, nor one of a load that
pushes, whose sum is exact. In the end every port shows the newest certificate. Exit status: 0 passed; 1 failed.
"""

import argparse
import os
import shutil
import socket
import ssl
import sys
import tempfile
import threading

from certificates import Certificates, wait_for
from cluster import Cluster
from meter import Bars, Table, resident_bytes

def shown(address, certificates):
    """The certificate that a port shows, as it stands in a file."""
    host, port = address.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(certificates.file("ca.crt"))
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection((host, int(port)), timeout=5) as plain, context.wrap_socket(plain) as encrypted:
            return ssl.DER_cert_to_PEM_cert(encrypted.getpeercert(binary_form=True)).strip()
    except OSError as error:
        return str(error)


def run(args, directory):
    certificates = Certificates(args.bin_dir, directory)
    os.environ.update(certificates.environment("operator"))
    cluster = Cluster(args.bin_dir, directory, 2, server_flags=("--host-bytes=256MiB",))
    certificates.give_to(cluster)
    ended, replaced, meters = threading.Event(), [], []
    replacing = threading.Thread(target=lambda: replaced.append(certificates.replace_until(ended, args.replace_every_s)))
    try:
        cluster.start()
        table = Table(args.bin_dir, cluster.address, "kept", 10_000, 16, "replicated=2")
        table.wait_for(2)
        meters.append(table.meter("load", "--seconds=900", "--ids=64", "--push-flights=2", "--pull-flights=2"))
        replacing.start()
        for first in range(0, args.clients, args.per_process):
            count = min(args.per_process, args.clients - first)
            meters.append(table.meter("clients", f"--clients={count}", f"--seconds={args.seconds}", seed=2 + first))
        clients = [meter.result() for meter in meters[1:]]
        ended.set()
        replacing.join()
        load = meters[0].stop()
        failed = [c["first_error"] for c in clients if c["errors"]]
        print(f"{sum(c['connects'] for c in clients)} connects, the slowest {max(c['slowest_connect_s'] for c in clients):.1f} s; "
              f"{sum(c['pulls'] for c in clients)} pulls; certificates replaced {replaced[0]} times; longest push "
              f"{load['push_us_p100'] / 1000:.0f} ms; memory {[resident_bytes(p) >> 20 for p in cluster.processes()]} MiB",
              *failed[:1], sep="\n", flush=True)
        bars = Bars()
        bars.at_most(f"until {args.clients} clients have connected", max(c["connected_s"] for c in clients), args.connect_seconds_max, " s")
        bars.at_most("calls of theirs that failed", sum(c["errors"] for c in clients), 0)
        bars.at_most("errors seen by the load", load["errors"], 0)
        bars.at_most("difference of the sum", abs(table.sum() - load["ids_acknowledged"]), 0)
        bars.at_least("certificates replaced, times", replaced[0], 1)
        with open(certificates.file("server.crt"), encoding="ascii") as file:
            newest = file.read().strip()
        data_ports = [next(f for f in s.command if f.startswith("--listen=")).split("=", 1)[1] for s in cluster.servers]
        for address in [cluster.address, *data_ports]:
            wait_for(f"{address} shows the newest certificate", lambda address=address: shown(address, certificates) in newest)
        return bars.status()
    finally:
        ended.set()
        for meter in meters:
            meter.child.kill()
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--per-process", type=int, default=50, help="each has a TLS context per connection, made again with new certificates")
    parser.add_argument("--replace-every-s", type=float, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connect-seconds-max", type=float, default=60)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    directory = tempfile.mkdtemp(prefix="hotbed_tls_clients_")
    try:
        return run(args, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
