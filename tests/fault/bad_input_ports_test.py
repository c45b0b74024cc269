#!/usr/bin/env python3
"""Every port of two clusters, one with TLS and one without, against bad input, while clients of both go on.

  bad_input_ports_test.py --bin-dir build/bin [--seconds 600] [--idle 10000] [--drips 200] [--seed N] [--only PART]

The load's calls do not fail, its sum is exact, no process ends, its memory stays within what hostile_peer_test.py allows beyond what
it had, and pages and new clients are answered in between.

  fuzz          N seconds of HTTP, HTTP/2 frames, protobuf and TLS that are nearly right, to each port at the same time
  idle          --idle connections from many addresses to each port, which say nothing
  drips         --drips connections to each port that send a byte now and then, until the port has ended them all
  certificates  expired, of another authority, self-signed, of a wrong role: each is refused, and told why

Exit status: 0 passed; 1 failed. It prints the seed and the command that repeats it; processes are not repeated to the byte.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import socket
import ssl
import sys
import tempfile
import threading
import time
import urllib.request

import fuzzing
from certificates import Certificates, wait_for
from cluster import Cluster, run_command
from hostile_peer_test import GROWTH_MIB_MAX, ready
from meter import Bars, Table, resident_bytes

HOST_BYTES = "256MiB"
PARTS = ("fuzz", "idle", "drips", "certificates")
# The longest time that a port gives those who have said nothing useful: gRPC's for a handshake, and ours for a greeting.
GREETING_SECONDS = 10


class Side:
    """One cluster, its load, and what it had before."""

    def __init__(self, args, directory, certificates=None):
        self.bin_dir, self.certificates = args.bin_dir, certificates
        self.name = "TLS" if certificates else "plaintext"
        self.env = certificates.environment("operator") if certificates else {}
        self.directory = os.path.join(directory, self.name)
        os.mkdir(self.directory)
        self.cluster = Cluster(args.bin_dir, self.directory, 1, server_flags=(f"--host-bytes={HOST_BYTES}",))
        if certificates:
            certificates.give_to(self.cluster)
        self.data = next(f for f in self.cluster.servers[0].command if f.startswith("--listen=")).split("=", 1)[1]
        self.processes = {"server": self.cluster.servers[0], "coordinator": self.cluster.coordinator}
        self.admins = {"server": self.cluster.admin[0], "coordinator": self.cluster.coordinator_admin}
        self.ports = {"data": ("grpc", self.data), "control": ("grpc", self.cluster.address),
                      "server's admin": ("http", self.admins["server"]), "coordinator's admin": ("http", self.admins["coordinator"])}
        self.load, self.most = None, {}

    def start(self):
        self.cluster.start()
        with self.identity():
            run_command(self.bin_dir, self.cluster.address, "rebalance", "off")
            self.table = Table(self.bin_dir, self.cluster.address, "kept", 10_000, 16, shards=4)
            self.table.wait_for(1)
            for i in range(40):  # far from the number of the load's table
                Table(self.bin_dir, self.cluster.address, f"prey{i}", 1000, 16)
            self.filled = self.table.meter("fill").result()["ids_acknowledged"]
            self.load = self.table.meter("load", "--seconds=3600", "--ids=16", "--push-flights=1", "--pull-flights=1", seed=2)
        time.sleep(1)
        self.before = {k: resident_bytes(p) >> 20 for k, p in self.processes.items()}

    def identity(self):
        return Environment(self.env)

    def watch(self):
        """Memory, and whether pages and a new client are answered now."""
        for which, process in self.processes.items():
            if not process.running():
                raise RuntimeError(f"{self.name}: the {which} has ended:\n{process.tail()}")
            self.most[which] = max(self.most.get(which, 0), resident_bytes(process) >> 20)

    def served(self):
        for which, admin in self.admins.items():
            wait_for(f"{self.name}: the {which} is ready", lambda admin=admin: ready(admin), 30)
        with self.identity():
            status, _, err = run_command(self.bin_dir, self.cluster.address, "table", "list", "--timeout=20s", seconds=60)
        if status != 0:
            raise RuntimeError(f"{self.name}: a new client is not served: {err}")

    def judge(self, bars):
        with self.identity():
            load = self.load.stop()
            total = self.table.sum()
        bars.at_most(f"{self.name}: errors of the load {load['first_error']}", load["errors"], 0)
        bars.at_least(f"{self.name}: pushes of the load", load["pushes"], 10)
        bars.at_most(f"{self.name}: difference of the sum", abs(total - self.filled - load["ids_acknowledged"]), 0)
        for which, most in self.most.items():
            bars.at_most(f"{self.name}: memory of the {which}, beyond {self.before[which]} MiB", most - self.before[which],
                         GROWTH_MIB_MAX[which], " MiB")

    def contexts(self):
        """For the fuzzer: a stranger, a trainer, an operator."""
        out = []
        for role in (None, "reader", "trainer") if self.certificates else ():
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            if role:
                context.load_cert_chain(self.certificates.file(f"{role}.crt"), self.certificates.file(f"{role}.key"))
            out.append(context)
        return out


class Environment:
    """Variables that hold within a block."""

    def __init__(self, values):
        self.values, self.before = values, {}

    def __enter__(self):
        self.before = {k: os.environ.get(k) for k in self.values}
        os.environ.update(self.values)

    def __exit__(self, *_):
        for key, value in self.before.items():
            os.environ.pop(key) if value is None else os.environ.__setitem__(key, value)


def fuzz(args, sides):
    fork = multiprocessing.get_context("fork")
    results, workers = fork.Queue(), []
    for side in sides:
        for port, (kind, address) in side.ports.items():
            contexts = side.contexts() if kind == "grpc" else ()
            workers.append(fork.Process(target=fuzzing.hold, daemon=True,
                                        args=(f"{side.name}, {port}", args.seed + len(workers), kind, address, 41, contexts, args.seconds, results)))
    for worker in workers:
        worker.start()
    while any(w.is_alive() for w in workers):
        for side in sides:
            side.watch()
        time.sleep(0.5)
    told = sorted(results.get(timeout=30) for _ in workers)
    for name, connections, refused in told:
        print(f"fuzz: {name}: {connections} connections, {refused} ended by the port", flush=True)
        if connections == 0:
            raise RuntimeError(f"{name}: no bad input has reached the port")


def connect(address, number):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10, source_address=(f"127.{number % 40 + 1}.7.7", 0))


def idle(args, sides):
    for side in sides:
        for port, (_, address) in side.ports.items():
            opened, refused = [], 0
            for number in range(args.idle):
                try:
                    opened.append(connect(address, number))
                except OSError:
                    refused += 1
            side.watch()
            side.served()
            print(f"idle: {side.name}, {port}: {len(opened)} connections made, {refused} refused; "
                  f"{ {k: resident_bytes(p) >> 20 for k, p in side.processes.items()} } MiB", flush=True)
            for connection in opened:
                connection.close()


def drip(connections, ended, said):
    """A byte to each, again and again, until all are ended by the other side."""
    open_ones = list(enumerate(connections))
    position = 0
    while open_ones and not ended.is_set():
        left = []
        for number, (connection, data) in open_ones:
            try:
                connection.sendall(data[position % len(data):][:1])
                left.append((number, (connection, data)))
            except OSError:
                connection.close()
        open_ones, position = left, position + 1
        said["open"] = len(open_ones)
        time.sleep(0.3)


def drips(args, sides):
    slow = {"grpc": (b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nX: "), "http": (b"GET /metrics HTTP/1.1\r\nX-", b"GET /")}
    hello = fuzzing.client_hello()
    jobs = []
    for side in sides:
        for port, (kind, address) in side.ports.items():
            texts = (hello[:1], hello) if kind == "grpc" and side.certificates else slow[kind]
            made = []
            for number in range(args.drips):
                try:
                    # What repeats at the end keeps it from ever being complete.
                    made.append((connect(address, number), texts[number % 2] + b"x" * 100_000))
                except OSError:
                    pass
            ended, said = threading.Event(), {"open": len(made)}
            thread = threading.Thread(target=drip, args=(made, ended, said), daemon=True)
            thread.start()
            jobs.append((side, port, ended, said, thread))
    for side, port, ended, said, thread in jobs:
        side.watch()
        side.served()
        wait_for(f"{side.name}, {port}: the last of the slow ones is ended", lambda said=said: said["open"] == 0, 6 * GREETING_SECONDS)
        thread.join()
    print(f"drips: {args.drips} connections to each port, all ended by it", flush=True)


def handshake(side, certificate, key):
    """A caller with that certificate in TLS. False: the port has ended it before it answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(certificate, key)
    host, port = side.cluster.address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=10) as plain, context.wrap_socket(plain) as encrypted:
            encrypted.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            return encrypted.recv(1000) != b""  # by TLS 1.3 the refusal comes after the client's part of the handshake
    except (ssl.SSLError, ConnectionError):
        return False


def handshakes_refused(side):
    with urllib.request.urlopen(f"http://{side.admins['coordinator']}/api/metrics", timeout=10) as reply:
        return sum(m["value"] for m in json.load(reply)
                   if m["name"] == "hotbed_access_refused_total" and m["labels"].get("port") == "tls")


class Impostor:
    """A port with a certificate of our authority whose role is not that of a server."""

    def __init__(self, certificates, role):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(certificates.file(f"{role}.crt"), certificates.file(f"{role}.key"))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.context, self.bytes = context, 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                plain, _ = self.listener.accept()
                with self.context.wrap_socket(plain, server_side=True) as encrypted:
                    self.bytes += len(encrypted.recv(1000))
            except OSError:
                if self.listener.fileno() < 0:
                    return


def certificates(args, sides):
    side = next(s for s in sides if s.certificates)
    ours = side.certificates
    others = Certificates(args.bin_dir, side.directory, "other")
    ours.make_expired("operator", "late")
    if not handshake(side, ours.file("reader.crt"), ours.file("reader.key")):
        raise RuntimeError("a certificate that is as it should be was refused")
    for what, certificate, key in (("expired", ours.file("late.crt"), ours.file("late.key")),
                                   ("of another authority", others.file("operator.crt"), others.file("operator.key")),
                                   ("self-signed", others.file("ca.crt"), others.file("ca.key"))):
        refused = handshakes_refused(side)
        if handshake(side, certificate, key):
            raise RuntimeError(f"a certificate that is {what} was taken")
        wait_for(f"the refusal of a certificate that is {what} is counted", lambda refused=refused: handshakes_refused(side) > refused)
        env = dict(side.env, HOTBED_TLS_CERT=certificate, HOTBED_TLS_KEY=key)
        with Environment(env):
            status, _, err = run_command(args.bin_dir, side.cluster.address, "table", "list", "--timeout=5s")
        print(f"certificates: {what}: the port refuses the handshake; the caller is told '{err.strip()}'", flush=True)
        if status == 0 or os.path.basename(certificate) not in err:
            raise RuntimeError(f"a caller with a certificate that is {what} was told '{err}'")
    if "certificate verify failed" not in side.cluster.coordinator.tail(1000):
        raise RuntimeError(f"no refusal of a certificate is in the coordinator's log: {side.cluster.coordinator.tail()}")
    for role, command, words in (("reader", ("table", "drop", "kept", "--yes"), '"reader" may not call DropTable'),
                                 ("trainer", ("shard", "drain", "s0"), '"trainer" may not call DrainServer'),
                                 ("server", ("table", "drop", "kept", "--yes"), '"server" may not call DropTable')):
        with Environment(ours.environment(role)):
            status, _, err = run_command(args.bin_dir, side.cluster.address, *command, "--timeout=5s")
        if status == 0 or words not in err:
            raise RuntimeError(f"{role}: {command} was told '{err}', expected {words}")
    impostor = Impostor(ours, "trainer")
    with Environment(side.env):
        status, _, err = run_command(args.bin_dir, impostor.address, "table", "list", "--timeout=3s")
    impostor.listener.close()
    print(f"certificates: a port with a trainer's: the caller is told '{err.strip()}'", flush=True)
    if status == 0 or impostor.bytes > 0 or "role server" not in err:
        raise RuntimeError(f"a port with the role trainer was sent {impostor.bytes} bytes, and the caller was told '{err}'")


def run(args, directory):
    plain, secret = Side(args, directory), Side(args, directory, Certificates(args.bin_dir, directory))
    sides = (plain, secret)
    try:
        for side in sides:
            side.start()
        for part in [args.only] if args.only else PARTS:
            begin = time.monotonic()
            {"fuzz": fuzz, "idle": idle, "drips": drips, "certificates": certificates}[part](args, sides)
            for side in sides:
                side.watch()
                side.served()
            print(f"{part}: {time.monotonic() - begin:.0f} s; memory at most {[s.most for s in sides]} MiB", flush=True)
        bars = Bars()
        for side in sides:
            side.judge(bars)
        return bars.status()
    finally:
        for side in sides:
            if side.load is not None:
                side.load.child.kill()
            side.cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin-dir", required=True)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--drips", type=int, default=200)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--seed", type=int, default=None)
    args = parser.parse_args()
    args.bin_dir = os.path.abspath(args.bin_dir)
    args.seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    print(f"seed {args.seed}; replay: {' '.join(sys.argv)} --seed={args.seed}", flush=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    directory = tempfile.mkdtemp(prefix="hotbed_bad_input_")
    try:
        return run(args, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
